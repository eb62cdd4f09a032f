"""What do the fields say of the server, as what is simulated?

In:   Values, and a workload, whose lengths tables of step times must reach
Out:  Served: each policy with its memory, and how long steps take
Leaves out: what is asked of it (simulate_workload); files of measured steps, fleets, prefix caches: the command line has them
Read next by: simulate_view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from operator import add

from inference_bench.bridge.fields import FieldError, Values, at
from inference_bench.bridge.simulate_fields import NO_ENGINE, given, needed, reference_of, short_text
from inference_bench.bridge.subject import machine_of, model_of
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.engine_choice import choose_engine
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.scenario import DEFAULT_BANDWIDTH_SHARE, DEFAULT_MFU
from inference_bench.predict.scenario_fields import read_positive
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.candidates import (
    ALL,
    Candidate,
    Changes,
    candidates_named,
    describe_changes,
    engine_scheduler,
)
from inference_bench.simulate.served import Hosting, MemoryChoice, Served, allowing, serve_reference
from inference_bench.simulate.step_sources import Shares, rank_of
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import format_count, parse_bytes, parse_count, parse_fraction, parse_tokens
from inference_bench.workload import Workload


def served_of(values: Values, workload: Workload) -> Served:
    """The server that the fields describe, under each policy.

    Raises:  FieldError
    """
    usd = given(values, "usd_per_hour", read_positive)
    reference = reference_of(values)
    if reference is None:
        return _modelled(values, workload, usd)
    candidates = _candidates(values, workload, None, None)
    with at("kv_memory"):
        return serve_reference(reference, candidates, _memory(values), usd)


def notes_of(values: Values, served: Served) -> tuple[str, ...]:
    """Which limits concern only some of the policies."""
    return describe_changes(candidates_named([each.name for each in served.contenders]), _changes(values))


def _modelled(values: Values, workload: Workload, usd: float | None) -> Served:
    hosting, name = _hosting(values), values.choice("engine")
    engine = None if name == NO_ENGINE else choose_engine(name).family
    own = None if engine is None else engine_scheduler(engine, hosting.machine)
    candidates = _candidates(values, workload, own, hosting.machine)
    memory, shares = _memory(values), _shares(values)
    with at(next((name for name in ("kv_memory", "overhead") if values.text(name)), "on")):
        served = hosting.serve(_step_time(hosting, engine, shares, candidates, workload), candidates, memory, usd)
        return replace(served, notes=(*served.notes, *_beyond(hosting, workload)))


def _step_time(
    hosting: Hosting, engine: str | None, shares: Shares | None, candidates: Sequence[Candidate], workload: Workload
) -> StepTime:
    """As expected of the engine; at shares of the peaks where none is named or shares are stated."""
    if engine is None or shares is not None:
        return hosting.at_shares(shares or Shares(DEFAULT_BANDWIDTH_SHARE, DEFAULT_MFU))
    return hosting.expected_of(engine, candidates, workload)


def _hosting(values: Values) -> Hosting:
    model, machine = model_of(values), machine_of(values)
    if machine is None:
        raise FieldError("on", "name a machine: a model is simulated on one")
    with at("weights"):
        weights = loaded_weights(model, values.optional("weights"))
    with at("kv"):
        served = ServedModel(model.spec, weights, cache_format(values.optional("kv")))
    devices = needed(values, "devices", parse_count)
    with at("devices"):
        if devices != 1:
            rank_of(served, devices)
    return Hosting(served, machine, devices)


def _candidates(
    values: Values, workload: Workload, own: str | None, machine: HardwareSpec | None
) -> tuple[Candidate, ...]:
    """The policies that are named, with the limits that engines set on the machine; else the engine's own, else all."""
    text = short_text(values, "policies") or own or ALL
    names = [name.strip() for name in text.split(",") if name.strip()]
    if machine is not None:
        names = [engine_scheduler(name, machine) or name for name in names]
    with at("policies"):
        candidates_named(names)
    changes = _changes(values)
    for each in fields(changes):
        with at(each.name):
            candidates_named(names, Changes(**{each.name: getattr(changes, each.name)}))
    return tuple(allowing(each, workload) for each in candidates_named(names, changes))


def _changes(values: Values) -> Changes:
    return Changes(
        max_running=given(values, "max_running", parse_count),
        token_budget=given(values, "token_budget", parse_tokens),
        max_batch=given(values, "max_batch", parse_count),
    )


def _memory(values: Values) -> MemoryChoice:
    """What is stated of the memory; a reference profile has no overhead."""
    budget = given(values, "kv_memory", parse_bytes)
    overhead = None if reference_of(values) else given(values, "overhead", parse_bytes)
    with at("kv_memory"):
        return MemoryChoice(budget_bytes=budget, overhead_bytes=overhead)


def _shares(values: Values) -> Shares | None:
    """Shares of the peaks; None where neither is stated."""
    bandwidth, compute = (given(values, name, parse_fraction) for name in ("bandwidth_share", "mfu"))
    if bandwidth is None and compute is None:
        return None
    with at("mfu" if bandwidth is None else "bandwidth_share"):
        return Shares(
            bandwidth=DEFAULT_BANDWIDTH_SHARE if bandwidth is None else bandwidth,
            compute=DEFAULT_MFU if compute is None else compute,
        )


def _beyond(hosting: Hosting, workload: Workload) -> Iterator[str]:
    """Requests that the model was not made for, which a real server refuses."""
    asked, most = workload.requests, hosting.served.model.max_position_embeddings
    longest = max(map(add, asked.prompt_tokens, asked.output_tokens))
    if most is not None and longest > most:
        yield (
            f"the longest request has {format_count(longest)} tokens, the model {format_count(most)} positions: a real server "
            "refuses what is longer; here it is served"
        )
