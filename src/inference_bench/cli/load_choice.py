"""What a person's options of `load` ask for: a LoadRequest, and the workload of each level of a sweep.

In:   the options that `load_options` adds
Out:  LoadRequest, SweepPlan, Workload; RequestError for options that contradict each other
Leaves out: measuring (loadtest)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import number, refuse, timeout_s
from inference_bench.cli.objective_options import objective_from
from inference_bench.cli.workload_options import LOAD_DEFAULTS, workload_from
from inference_bench.errors import RequestError
from inference_bench.loadtest.flow import LoadRequest
from inference_bench.loadtest.sweep import Axis, SweepPlan
from inference_bench.measure.prompt_files import FilePrompts, read_prompt_file
from inference_bench.measure.prompt_sources import CorpusSource, read_corpus, read_template
from inference_bench.measure.prompts import PromptSource
from inference_bench.measure.server_metrics_watch import require_page_path
from inference_bench.measure.target import SecretHeaders, parse_extra_body, parse_header
from inference_bench.measure.text_checks import (
    DocumentCheck,
    Examine,
    examine_with,
    read_schema,
    recount,
    structured_check,
)
from inference_bench.referee import Subject, subject_for
from inference_bench.simulate.processes import usable_cpus
from inference_bench.token_window import LEAST_PER_SLOT
from inference_bench.units import parse_count, parse_seconds
from inference_bench.workload import (
    OpenLoop,
    Ramp,
    Requests,
    RequestShape,
    Steps,
    Workload,
    parse_arrivals,
    says_its_rates,
)

PROMISED: Final = ("ttft_p99", "itl_p99", "tpot_p99", "e2e_p99")  # the objectives of a search for the capacity
_ELSEWHERE: Final = (
    "concurrency", "duration", "warmup", "cooldown", "ramp", "resume", "time_scale", "requests", "model", "on",
)  # fmt: skip
_CONCURRENCY: Final = "1"
_DRAWN: Final = "1000"  # shapes of a closed loop with a duration, which come again
_SWEPT_S: Final = {"duration": "15s", "warmup": "5s"}
_SPARE_SIGMAS: Final = 6.0
_MOST_DOUBLINGS: Final = 12
_MOST_PROCESSES: Final = 256


@dataclass(frozen=True, slots=True)
class LoadChoice:
    """What is to be measured: one workload, or a sweep."""

    request: LoadRequest
    plan: SweepPlan | None
    workload_at: Callable[[float], Workload]
    workload_of: Callable[[int, int], Workload]
    resume: Path | None


def load_choice(options: argparse.Namespace) -> LoadChoice:
    """What the options mean together.

    Raises:  RequestError, QuantityError
    """
    plan = _plan(options)
    if plan is None and options.resume is not None:
        raise RequestError("only a sweep can be resumed; give its rates or concurrencies as they were")
    if plan is not None and options.duration is None and options.requests is None:
        for name, time in _SWEPT_S.items():
            setattr(options, name, getattr(options, name) or time)
    if options.duration is not None and options.requests is not None:
        raise RequestError("a duration and a number of requests are both given; either ends the measuring, so give one")
    stages = _stages(options)
    source = _source(options)
    if options.template is not None and options.turns is not None:
        raise RequestError(
            "a template stands around a prompt, and turns are prompts of several messages; ask for one of them"
        )
    build = _Workloads(options, stages, source)
    schema = None if options.json_schema is None else read_schema(Path(options.json_schema))
    checks = _checks(options, schema)
    request = LoadRequest(
        url=options.url,
        endpoint=options.endpoint,
        served_model=options.served_model,
        api_key=api_key(options.api_key_env),
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=timeout_s(options.timeout),
        workload=build.one() if plan is None and not options.find_capacity else None,
        repeats=options.requests is None,
        extra_body={} if options.extra_body is None else parse_extra_body(options.extra_body),
        extra_headers=SecretHeaders(_headers(options.header or ())),
        prompt_source=source,
        template=None if options.template is None else read_template(Path(options.template)),
        document_schema=schema,
        examine=examine_with(checks),
        scrape_path=None if options.scrape is None else require_page_path(options.scrape),
        processes=_processes(options),
        on_ray=options.ray,
        subject=_subject(options),
        counts_each_chunk=options.count_chunks,
        objective=objective_from(options),
        notes=(*_notes(source, checks), *_sweep_notes(options, plan)),
        **stages,
    )
    at = build.at_rate if plan is not None and plan.axis is Axis.RATE else build.at_concurrency
    return LoadChoice(request, plan, at, build.of_seed, None if options.resume is None else Path(options.resume))


def require_search(options: argparse.Namespace) -> None:
    """A search is asked for as a whole, or not at all.

    Raises:  RequestError
    """
    if not options.find_capacity:
        refuse(
            options,
            (*PROMISED, "share", "half_width", "max_requests", "max_time"),
            "they are about a capacity, and none is looked for; add --find-capacity",
        )
        return
    refuse(options, _ELSEWHERE, "a search for the capacity asks for rates of its own")
    if options.sweep or (options.rate or "").count(","):
        raise RequestError("a sweep and a search for the capacity are both asked for; ask for one of them")


def _plan(options: argparse.Namespace) -> SweepPlan | None:
    """The sweep that is asked for: several levels, or --sweep."""
    if options.rate is not None and options.concurrency is not None:
        raise RequestError("a rate does not wait for answers and a concurrency does; ask for one of them")
    axis, text = (Axis.CONCURRENCY, options.concurrency) if options.rate is None else (Axis.RATE, options.rate)
    levels = () if text is None else tuple(number(part, str(axis)) for part in text.split(","))
    if len(levels) < 2 and not options.sweep:
        return None
    refuse(options, ("trace", "time_scale"), "a sweep asks for levels of its own")
    if says_its_rates(options.arrivals):
        raise RequestError("a ramp and steps say their rates themselves; a sweep asks for rates of its own")
    return SweepPlan(axis, levels or (1.0,), is_open=options.sweep)


def _stages(options: argparse.Namespace) -> dict[str, Any]:
    """The times of warm-up, measuring and cool-down, as LoadRequest has them."""
    found: dict[str, Any] = {}
    for option, name in (("duration", "duration_s"), ("cooldown", "cooldown_s"), ("ramp", "ramp_s")):
        text = getattr(options, option)
        if text is not None:
            found[name] = parse_seconds(text, option)
    if found.get("duration_s") == 0:
        raise RequestError("the duration is 0 s; it must be longer than that")
    if options.duration is not None and options.cooldown is None:
        found["cooldown_s"] = timeout_s(options.timeout)  # what was measured ends by then, so nothing is cancelled
    if options.warmup is not None:
        if options.warmup.strip().isdigit():
            found["warmup_requests"] = parse_count(options.warmup, "warm-up requests")
        else:
            found["warmup_s"] = parse_seconds(options.warmup, "warm-up")
    is_open = options.rate is not None or options.trace is not None or says_its_rates(options.arrivals)
    if found.get("ramp_s") and is_open and options.concurrency is None:
        raise RequestError("only the slots of a closed loop start one by one; write --arrivals ramp:FROM:TO:TIME")
    return found


class _Workloads:
    """Makes the workload of the options, or of one level of a sweep."""

    def __init__(self, options: argparse.Namespace, stages: Mapping[str, Any], source: PromptSource | None) -> None:
        self._options, self._source = options, source
        duration_s = stages.get("duration_s")
        warm_s = max(stages.get("warmup_s", 0.0), stages.get("ramp_s", 0.0))
        cooldown_s = stages.get("cooldown_s", 0.0)
        if options.cooldown is None and duration_s is not None:
            cooldown_s = min(cooldown_s, duration_s)  # then the last ones end without further load
        self._all_s = None if duration_s is None else warm_s + duration_s + cooldown_s

    def one(self) -> Workload:
        """What is asked for; one request at a time where nothing says when they are sent."""
        options = self._options
        has_schedule = options.trace is not None or options.rate is not None or says_its_rates(options.arrivals)
        if not has_schedule or options.concurrency is not None:
            return self._closed(options.concurrency or _CONCURRENCY)
        return self._open(options.rate)

    def at_concurrency(self, level: float) -> Workload:
        """The workload of one level of a sweep over concurrencies."""
        return self._closed(f"{level:.0f}", LEAST_PER_SLOT * round(level))

    def at_rate(self, level: float) -> Workload:
        """The workload of one level of a sweep over rates."""
        return self._open(repr(level))

    def of_seed(self, count: int, seed: int) -> Workload:
        """So many requests on a schedule of one a second, which is scaled to a rate: those of a search for the capacity."""
        replays = self._options.trace is not None and self._options.arrivals is None
        return self._build(rate=None if replays else "1", concurrency=None, requests=str(count), seed=seed)

    def _closed(self, concurrency: str, least: int = 0) -> Workload:
        requests = self._options.requests
        if requests is not None and parse_count(requests, "requests") < least:
            requests = str(least)
        if requests is None and self._all_s is not None and self._options.trace is None:
            requests = _DRAWN
        return self._build(rate=None, concurrency=concurrency, requests=requests)

    def _open(self, rate: str | None) -> Workload:
        """A schedule of the requests asked for, or as long as it takes."""
        options = self._options
        all_s, expected = self._all_s, 0.0
        if says_its_rates(options.arrivals):
            process = parse_arrivals(options.arrivals, None)
            if isinstance(process, Ramp | Steps):
                all_s = process.span_s if all_s is None else all_s
                expected = process.count_by(all_s)
        elif rate is not None and all_s is not None:
            expected = number(rate, "rate") * all_s
        if all_s is None or options.requests is not None or options.trace is not None:
            workload = self._build(rate=rate, concurrency=None, requests=options.requests)
            return workload if self._all_s is None else workload.until(self._all_s)
        count = math.ceil(expected + _SPARE_SIGMAS * math.sqrt(expected)) + 16
        for _ in range(_MOST_DOUBLINGS):
            workload = self._build(rate=rate, concurrency=None, requests=str(count))
            if isinstance(workload.arrival, OpenLoop) and workload.arrival.times_s[-1] >= all_s:
                break
            count *= 2
        return workload.until(all_s)

    def _build(self, **changed: str | int | None) -> Workload:
        options = argparse.Namespace(**{**vars(self._options), **changed})
        source = self._source
        if not isinstance(source, FilePrompts):
            return workload_from(options, LOAD_DEFAULTS)
        refuse(options, ("prompt_tokens", "shared_prefix", "turns", "samples", "trace"), "the prompts are from a file")
        if options.requests is None:
            options.requests = str(len(source))
        workload = workload_from(options, LOAD_DEFAULTS)
        shapes = source.shapes(len(workload))
        outputs = workload.requests.output_tokens
        kept = (
            RequestShape(shape.prompt_tokens, source[index % len(source)].output_tokens or outputs[index])
            for index, shape in enumerate(shapes)
        )
        notes = (
            f"prompt lengths of {source.name} are estimated from characters; the server's counts are in the records",
        )
        return replace(workload, requests=Requests.of(kept), max_output_tokens=None, notes=(*workload.notes, *notes))


def _processes(options: argparse.Namespace) -> int:
    """How many processes send; on a cluster 0 is as many as it has cores."""
    if options.processes is None:
        return 0 if options.ray else 1
    count = parse_count(options.processes, "processes") or (0 if options.ray else usable_cpus())
    if count > _MOST_PROCESSES and not options.ray:
        raise RequestError(
            f"{count} processes are more than one machine runs at once; ask for at most {_MOST_PROCESSES}"
        )
    return count


def _subject(options: argparse.Namespace) -> Subject | None:
    """What is served, where model and machine are both said."""
    if options.model is None and options.on is None:
        refuse(options, ("weights", "kv", "devices"), "no model and machine are named")
        return None
    if options.model is None or options.on is None:
        raise RequestError("times are held to what physics allows by model and machine together; name both")
    from inference_bench.cli.machine import machine_named
    from inference_bench.hub import load_model

    devices = 1 if options.devices is None else parse_count(options.devices, "devices")
    return subject_for(load_model(options.model), machine_named(options.on), options.weights, options.kv, devices)


def _source(options: argparse.Namespace) -> PromptSource | None:
    name = options.prompt_source or ("words" if options.corpus is None else "corpus")
    if options.corpus is not None and name != "corpus":
        raise RequestError("a corpus is what prompts are cut from, and another source is named; give one of them")
    if name == "words":
        return None
    if name == "corpus":
        source: CorpusSource = read_corpus(None if options.corpus is None else Path(options.corpus))
        return source
    return read_prompt_file(Path(name))


def _notes(source: PromptSource | None, checks: Sequence[Examine]) -> tuple[str, ...]:
    """What was left out of what was given."""
    documents = [check for check in checks if isinstance(check, DocumentCheck)]
    notes = [f"of the documents' schema, not judged by {part}" for check in documents for part in check.ignored]
    if isinstance(source, FilePrompts) and source.num_skipped:
        notes.append(f"{source.num_skipped} conversations of {source.name} have no answered question and were left out")
    return tuple(notes)


def _sweep_notes(options: argparse.Namespace, plan: SweepPlan | None) -> tuple[str, ...]:
    """That a level may be sent more than was asked for."""
    if plan is None or plan.axis is not Axis.CONCURRENCY or options.requests is None:
        return ()
    if not plan.is_open and parse_count(options.requests, "requests") >= LEAST_PER_SLOT * max(plan.levels):
        return ()
    return (
        f"a level is sent {options.requests} requests, or {LEAST_PER_SLOT} for each in flight where that is more: fewer "
        f"have no steady window",
    )


def _headers(texts: list[str] | tuple[()]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = parse_header(text)
        if name in found:
            raise RequestError(f"the header {name} is given twice; give it once")
        found[name] = value
    return found


def _checks(options: argparse.Namespace, schema: Mapping[str, object] | None) -> list[Examine]:
    """What is done with each answer's text before it is dropped."""
    checks: list[Examine] = [] if options.tokenizer is None else [recount(Path(options.tokenizer))]
    if schema is not None:
        checks.append(structured_check(schema))
    return checks
