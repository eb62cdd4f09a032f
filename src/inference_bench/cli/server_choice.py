"""What a person's options say of the server, as what is simulated.

In:   the options that `server_options` adds to a command, and a workload, whose lengths tables of step times must reach
Out:  Served, FleetPlan, or a RequestError for options that contradict each other
Leaves out: what is asked (workload_choice), and what is done with it (simulate, capacity)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import add
from pathlib import Path
from typing import Final, TypeVar

from inference_bench.cli.given import choice, listed, number, refuse
from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import ProgressLine
from inference_bench.cli.profile_machine import machine_of
from inference_bench.cli.server_options import DEFAULT_PROFILE, FLEET_NAMES
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import is_path
from inference_bench.facts.names import fold_name
from inference_bench.files import require_file_name
from inference_bench.hub import load_model
from inference_bench.predict.engine_choice import choose_engine
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.scenario import DEFAULT_BANDWIDTH_SHARE, DEFAULT_MFU
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.autoscaling import AutoscalingSettings, ScalingSignal
from inference_bench.simulate.candidates import (
    Candidate,
    Changes,
    candidates_named,
    describe_changes,
    engine_scheduler,
    stated_candidate,
)
from inference_bench.simulate.failures import Failure, FailureSettings
from inference_bench.simulate.fleet_plan import DEFAULT_TRANSFER_BYTES_PER_S, FleetPlan
from inference_bench.simulate.presets import engine_presets
from inference_bench.simulate.profile_served import serve_own
from inference_bench.simulate.reference_profiles import reference_profiles
from inference_bench.simulate.routing import Routing
from inference_bench.simulate.served import (
    Hosting,
    MemoryChoice,
    Served,
    allowing,
    reached_after,
    serve_reference,
    serve_table,
)
from inference_bench.simulate.settings import Order, Preemption, Speculation
from inference_bench.simulate.step_profile import StepProfile, load_profile
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.step_table import read_step_times
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import (
    format_count,
    parse_bytes,
    parse_count,
    parse_fraction,
    parse_rate,
    parse_seconds,
    parse_tokens,
)
from inference_bench.workload import Workload

_OF_A_MODEL: Final = ("weights", "kv", "devices", "engine", "mfu", "bandwidth_share")
_SHARES: Final = ("mfu", "bandwidth_share")
Parsed = TypeVar("Parsed")


def served_from(options: argparse.Namespace, workload: Workload, default: str) -> Served:
    """What is simulated.

    Where:   default names the schedulers that are taken where neither a policy nor an engine is named
    Raises:  RequestError for options that are missing, contradict each other, or hold what cannot be
    """
    return _Choice(options, workload, default).served()


class _Choice:
    """One person's options, read once."""

    def __init__(self, options: argparse.Namespace, workload: Workload, default: str) -> None:
        self._options, self._workload, self._default = options, workload, default
        self._memory = _memory(options)
        self._changes = _changes(options)
        self._usd = _usd(options.usd_per_hour)

    def served(self) -> Served:
        """By where its step times are from."""
        options = self._options
        profile = options.profile
        if profile is None and options.model is None:
            refuse(options, ("on", *_OF_A_MODEL), "they are about a model on a machine, and no model is named")
            profile = DEFAULT_PROFILE
        if profile is None:
            return self._modelled()
        require_file_name(profile, "profile")
        if fold_name(profile) in map(fold_name, reference_profiles()):
            why = "a reference profile has a model and a machine of its own"
            refuse(options, ("model", "on", *_OF_A_MODEL), why)
            return serve_reference(profile, self._candidates(None), self._memory, self._usd)
        if not is_path(profile):
            raise UnknownNameError(
                f"no profile is called {profile[:80]!r}, and there is no such file; known: {', '.join(reference_profiles())}"
            )
        refuse(options, ("engine", *_SHARES), "the profile says how fast steps are")
        return self._fitted(Path(profile)) if profile.endswith(".json") else self._tabled(Path(profile))

    def _candidates(self, own: str | None, machine: HardwareSpec | None = None) -> tuple[Candidate, ...]:
        """The schedulers that are named, with the limits engines set on the machine; else the engine's own, else the default."""
        text = self._options.policy if self._options.policy is not None else own or self._default
        names = listed(text, "schedulers to simulate")
        if machine is not None:
            names = [engine_scheduler(name, machine) or name for name in names]
        return tuple(allowing(each, self._workload) for each in candidates_named(names, self._changes))

    def _modelled(self) -> Served:
        options = self._options
        if options.on is None:
            raise RequestError("a model is simulated on a machine; name that too")
        machine = machine_named(options.on)
        hosting = self._hosting(options.model, machine)
        engine = None if options.engine is None else choose_engine(options.engine).family
        candidates = self._candidates(None if engine is None else engine_scheduler(engine, machine), machine)
        if engine is None or any(getattr(options, name) is not None for name in _SHARES):
            return self._serve(hosting, hosting.at_shares(_shares(options)), candidates)
        return self._serve(hosting, hosting.expected_of(engine, candidates, self._workload), candidates)

    def _fitted(self, file: Path) -> Served:
        """At the efficiencies of a saved profile, for its own model unless another is named."""
        options, profile = self._options, load_profile(file)
        self._memory = _as_profiled(self._memory, profile)
        found = self._own(profile) or self._other(profile)
        asked = self._workload.requests
        longest = max(map(add, asked.prompt_tokens, asked.output_tokens))
        running = max(each.setup.scheduler.max_running for each in found.contenders)
        reach = profile.measured
        beyond = () if reach is None else reach.beyond(longest, min(running, len(self._workload)))
        stated = self._said_rules(profile) if options.policy is None else ()
        return reached_after(replace(found, notes=(*found.notes, *stated, *beyond)), profile.request_s)

    def _own(self, profile: StepProfile) -> Served | None:
        """The very model it was fitted on, from what the profile holds of it; None where something else is asked for."""
        options = self._options
        if any(getattr(options, name) is not None for name in ("model", "weights", "kv", "devices")):
            return None
        if options.on is not None:
            profile.require_machine(machine_named(options.on))
        if profile.own_step_time() is None:
            return None
        return serve_own(profile, self._fitted_candidates(profile, None), self._memory, self._usd)

    def _other(self, profile: StepProfile) -> Served:
        """A model that is loaded, at the profile's efficiencies."""
        options, served = self._options, self._served_by(profile)
        if options.on is None and profile.ceilings is not None:
            machine = machine_of(profile, served.weights)
        else:
            machine = machine_named(options.on or profile.machine)
        devices = profile.devices if options.devices is None and options.model is None else self._devices()
        hosting = Hosting(served, machine, devices)
        return self._serve(hosting, hosting.as_fitted(profile), self._fitted_candidates(profile, machine))

    def _said_rules(self, profile: StepProfile) -> Iterator[str]:
        rules = profile.scheduler
        if rules is not None:
            yield (
                f"scheduler: as the profile states of {profile.engine}, the server that it was fitted to: "
                f"{format_count(rules.max_running)} sequences at once and {format_count(rules.budget)} positions a step, unless changed"
            )

    def _served_by(self, profile: StepProfile) -> ServedModel:
        """The model that is named, else the profile's own, in the formats that it was fitted with."""
        options = self._options
        if options.model is not None:
            return self._served_model(options.model, options.weights, options.kv)
        try:
            return self._served_model(
                profile.model, options.weights or profile.weights_format, options.kv or profile.cache_format
            )
        except UnknownNameError as error:
            raise RequestError(
                f"the profile was fitted on {profile.model} and does not hold what a step of it takes, and no model is known by that "
                f"name here ({error}); name the model, or its file"
            ) from None

    def _fitted_candidates(self, profile: StepProfile, machine: HardwareSpec | None) -> tuple[Candidate, ...]:
        """The schedulers that are named; else the rules that the profile states of its server."""
        rules, engine = profile.scheduler, _engine_of(profile)
        if rules is None or self._options.policy is not None:
            own = engine if engine in engine_presets() else None
            return self._candidates(own if machine is None else engine_scheduler(engine, machine), machine)
        return (allowing(stated_candidate(engine, rules, self._changes), self._workload),)

    def _tabled(self, file: Path) -> Served:
        """At measured step times; the model and machine, where they are named, say what the cache holds."""
        options = self._options
        devices = None if options.devices is None else parse_count(options.devices, "devices")
        step_time = read_step_times(file, options.model, devices)
        if options.model is None or options.on is None:
            refuse(options, ("weights", "kv", "on"), "they are about a model on a machine; name both")
            return serve_table(step_time, self._candidates(None), self._memory, self._usd)
        machine = machine_named(options.on)
        return self._serve(self._hosting(options.model, machine), step_time, self._candidates(None, machine))

    def _hosting(self, model: str, machine: HardwareSpec) -> Hosting:
        options = self._options
        return Hosting(self._served_model(model, options.weights, options.kv), machine, self._devices())

    def _served_model(self, model: str, weights: str | None, kv: str | None) -> ServedModel:
        loaded = load_model(model)
        return ServedModel(loaded.spec, loaded_weights(loaded, weights), cache_format(kv))

    def _devices(self) -> int:
        devices = self._options.devices
        return 1 if devices is None else parse_count(devices, "devices")

    def _serve(self, hosting: Hosting, step_time: StepTime, candidates: Sequence[Candidate]) -> Served:
        served = hosting.serve(step_time, candidates, self._memory, self._usd)
        return replace(served, notes=(*served.notes, *self._beyond(hosting)))

    def _beyond(self, hosting: Hosting) -> Iterator[str]:
        """Requests that the model was not made for, which a real server refuses."""
        asked, most = self._workload.requests, hosting.served.model.max_position_embeddings
        longest = max(map(add, asked.prompt_tokens, asked.output_tokens))
        if most is not None and longest > most:
            yield (
                f"the longest request has {format_count(longest)} tokens, the model {format_count(most)} positions: a real server "
                "refuses what is longer; here it is served"
            )


def _as_profiled(choice: MemoryChoice, profile: StepProfile) -> MemoryChoice:
    """What is stated of the cache's memory, and where nothing is, what the profile says of its server's."""
    cache = profile.cache
    if cache is None:
        return choice
    block = cache.block_size if choice.block_size is None else choice.block_size
    if choice.budget_bytes is None and choice.num_blocks is None and choice.overhead_bytes is None:
        return replace(choice, budget_bytes=cache.num_bytes, block_size=block, as_stated="as the profile says")
    return replace(choice, block_size=block)


def _engine_of(profile: StepProfile) -> str:
    """The engine without its version, where its scheduler is known by the first word of its name."""
    first = profile.engine.casefold().split()[:1]
    return first[0] if first and first[0] in engine_presets() else profile.engine


def _shares(options: argparse.Namespace) -> Shares:
    """Shares of the peaks, as a plan assumes them where they are not stated."""
    bandwidth, mfu = options.bandwidth_share, options.mfu
    return Shares(
        bandwidth=DEFAULT_BANDWIDTH_SHARE if bandwidth is None else parse_fraction(bandwidth, "share of the bandwidth"),
        compute=DEFAULT_MFU if mfu is None else parse_fraction(mfu, "share of the compute"),
    )


def _memory(options: argparse.Namespace) -> MemoryChoice:
    return MemoryChoice(
        budget_bytes=_parsed(options.kv_memory, parse_bytes, "memory of the cache"),
        num_blocks=_parsed(options.kv_blocks, parse_count, "blocks of the cache"),
        block_size=_parsed(options.block_size, parse_tokens, "block size"),
        overhead_bytes=_parsed(options.overhead, parse_bytes, "overhead"),
    )


def _changes(options: argparse.Namespace) -> Changes:
    preemption, order = options.preemption, options.order
    return Changes(
        max_running=_parsed(options.max_running, parse_count, "sequences that run"),
        token_budget=_parsed(options.token_budget, parse_tokens, "positions of a step"),
        max_batch=_parsed(options.max_batch, parse_count, "largest batch"),
        dispatch_timeout_s=_parsed(options.dispatch_timeout, parse_seconds, "dispatch timeout"),
        preemption=None if preemption is None else choice(Preemption, preemption, "way of giving way"),
        order=None if order is None else choice(Order, order, "order of admission"),
        prefix_cache=True if options.prefix_cache else None,
        speculation=None if options.speculate is None else _speculation(options.speculate),
    )


def _parsed(text: str | None, parse: Callable[[str, str], Parsed], what: str) -> Parsed | None:
    return None if text is None else parse(text, what)


def _speculation(text: str) -> Speculation:
    fields = text.split(":")
    if not 2 <= len(fields) <= 3:
        raise RequestError(f"speculation {text[:60]!r} is not understood; write for example 4:0.7, or 4:0.7:0.1")
    cost = number(fields[2], "cost of a drafted token") if len(fields) > 2 else 0.0
    return Speculation(
        parse_count(fields[0], "drafted tokens"), parse_fraction(fields[1], "acceptance of drafted tokens"), cost
    )


def _usd(text: str | None) -> float | None:
    if text is None:
        return None
    usd = number(text, "price of a device hour")
    if usd <= 0:
        raise RequestError(f"the price of a device hour is {usd:g} US dollars; it must be above 0")
    return usd


def described_changes(options: argparse.Namespace, served: Served) -> tuple[str, ...]:
    """Which options concern only some of the schedulers."""
    candidates = (Candidate(each.name, each.setup.scheduler) for each in served.contenders)
    return describe_changes(candidates, _changes(options))


# --- several servers ----------------------------------------------------------------------------------------------


def fleet_from(options: argparse.Namespace) -> FleetPlan | None:
    """The fleet that is asked for; None for one server.

    Raises:  RequestError for options that contradict each other, or hold what cannot be
    """
    if all(getattr(options, name) is None for name in FLEET_NAMES):
        return None
    if options.disaggregate is None:
        refuse(options, ("transfer_bandwidth", "transfer_latency"), "caches travel only where some servers decode")
    scaling = _autoscaling(options)
    start = scaling.min_replicas if scaling is not None else 1
    return FleetPlan(
        replicas=start if options.replicas is None else parse_count(options.replicas, "replicas"),
        routing=Routing.ROUND_ROBIN if options.routing is None else choice(Routing, options.routing, "routing"),
        autoscaling=scaling,
        failures=_failures(options),
        decode_replicas=_parsed(options.disaggregate, parse_count, "replicas that decode") or 0,
        transfer_bytes_per_s=DEFAULT_TRANSFER_BYTES_PER_S
        if options.transfer_bandwidth is None
        else parse_rate(options.transfer_bandwidth, "B/s", "rate at which caches travel"),
        transfer_latency_s=_parsed(options.transfer_latency, parse_seconds, "latency of a cache") or 0.0,
    )


def _autoscaling(options: argparse.Namespace) -> AutoscalingSettings | None:
    text = options.autoscale
    if text is None:
        refuse(options, ("start_up",), "replicas are ordered only where their number changes")
        return None
    fields = text.split(":")
    if not 2 <= len(fields) <= 4:
        raise RequestError(f"autoscaling {text[:60]!r} is not understood; write for example 1:8, or 1:8:4:waiting")
    signal = choice(ScalingSignal, fields[3], "signal for autoscaling") if len(fields) > 3 else ScalingSignal.WAITING
    usual = 0.8 if signal is ScalingSignal.RUNNING_SHARE else AutoscalingSettings().target
    start_up_s = _parsed(options.start_up, parse_seconds, "start-up time")
    return AutoscalingSettings(
        parse_count(fields[0], "fewest replicas"),
        parse_count(fields[1], "most replicas"),
        signal,
        number(fields[2], "target of a replica") if len(fields) > 2 and fields[2] else usual,
        start_up_s=AutoscalingSettings().start_up_s if start_up_s is None else start_up_s,
    )


def _failures(options: argparse.Namespace) -> FailureSettings | None:
    if options.fail is None and options.mtbf is None and options.mttr is None:
        return None
    return FailureSettings(
        tuple(map(_failure, options.fail or ())),
        _parsed(options.mtbf, parse_seconds, "mean time up"),
        _parsed(options.mttr, parse_seconds, "mean time down"),
        options.seed,
    )


def _failure(text: str) -> Failure:
    replica, mark, rest = text.partition("@")
    at, _, down = rest.partition(":")
    if not mark or not at:
        raise RequestError(f"the failure {text[:60]!r} is not understood; write for example 0@60s:30s")
    down_s = parse_seconds(down, "time down") if down else float("inf")
    return Failure(parse_count(replica, "replica"), parse_seconds(at, "time of a failure"), down_s)


def say_that_it_compiles(progress: ProgressLine) -> None:
    """The compiled simulator makes one wait, the first time."""
    from inference_bench.simulate.kernel.compiled import is_ready

    if not is_ready():
        progress("compiling the simulator's loop, this once: about half a minute")
