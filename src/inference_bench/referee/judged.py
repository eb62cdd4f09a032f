"""Each request against the least time that physics allows it: what is faster is flagged, the rest has its MBU.

In:   RequestRecords of a run, Subject
Out:  Refereed
Leaves out: whether a possible time is a good one (compare); a request that did not complete
Read next by: loadtest.flow, report.

Nothing is clamped: a time above the ceiling stays as it was measured, and is said to be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.metrics import Percentiles, percentiles
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.referee.bounds import ClassBounds, RunBound, bound_classes, bound_run
from inference_bench.referee.causes import ALTERNATIVES, Cause, Finding, find_causes
from inference_bench.referee.evidence import MEANING, explain
from inference_bench.referee.least import LeastTimes
from inference_bench.referee.seen import Judged, Measure, Seen, last_context, see
from inference_bench.referee.subject import Subject
from inference_bench.roofline import Roof
from inference_bench.stats import median
from inference_bench.units import format_count, format_number

DEFAULT_STAMP_ERROR_S: Final = 1e-3
_EXAMPLES: Final = 5
_FEWEST_GUESSES: Final = 8  # paces that are known on average alone
_MORE_TOKENS: Final = 1.2  # than chunks, from where on they are a matter of counting or of several tokens a step


class Verdict(StrEnum):
    """How a run stands to physics."""

    POSSIBLE = "possible"
    ABOVE = "above ceiling"
    NOTHING = "nothing to judge"
    UNKNOWN = "no ceiling known"


@dataclass(frozen=True, slots=True)
class Flag:
    """Requests that are faster than they can be, and the likeliest cause.

    Where:  num_requests of num_judged are; factor is the median of bound / measured; alternatives are what the same
            evidence allows too; examples are ids of such requests. A flag of the run as a whole has no requests
    """

    cause: Cause
    meaning: str
    measures: tuple[Measure, ...]
    num_requests: int
    num_judged: int
    factor: float
    evidence: tuple[str, ...]
    alternatives: tuple[Cause, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Above:
    """One time of one request that is shorter than its bound, as it was measured.

    Unit:     seconds
    """

    request_id: str
    measure: Measure
    measured_s: float
    least_s: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class Refereed:
    """What physics says of a run.

    Where:  mbu is of requests that are possible: bytes that a token's step reads at least / (pace · BW); mfu the same of
            prompts: FLOPs / (TTFT · P). Both count one sequence alone, and waiting as work: they are lower limits of what
            a batch reached
    """

    verdict: Verdict
    model: str
    weights: str
    cache: str
    machine: str
    devices: int
    ceiling: Roof
    allowance: float
    stamp_error_s: float
    num_requests: int
    num_judged: int
    num_above: int
    flags: tuple[Flag, ...]
    above: tuple[Above, ...]
    classes: tuple[ClassBounds, ...]
    run: RunBound | None
    mbu: Percentiles | None
    mfu: Percentiles | None
    notes: tuple[str, ...]


def referee(
    records: Iterable[RequestRecord],
    subject: Subject,
    stamp_error_s: float = DEFAULT_STAMP_ERROR_S,
    answers: int = 1,
) -> Refereed:
    """Hold every completed measured request to its bound.

    Formula:  above the ceiling: (measured + stamp_error_s) · allowance < least time
    Where:    stamp_error_s is how far the client may have moved a time; answers is how many each request asks for to one
              prompt (`n` of its body), which share its count of tokens; paces of requests whose first chunk holds no
              known number of tokens need to be too fast on average over at least 8 of them
    Raises:   RequestError for fewer than one answer
    """
    if answers < 1:
        raise RequestError(f"{answers} answers to a prompt cannot be asked for; at least 1 is")
    everything = list(records)
    measured = [record for record in everything if record.stage is Stage.MEASURE]
    judged = [r for r in measured if r.status is RequestStatus.COMPLETED and r.chunk_times_s]
    least = LeastTimes(subject, _contexts(judged))
    seen = [see(record, least, answers) for record in judged]

    def is_faster(measured_s: float, least_s: float) -> bool:
        return (measured_s + stamp_error_s) * subject.allowance < least_s

    trusts_guesses = _trusts_guesses(seen, is_faster)

    def is_above(time: Judged) -> bool:
        return (trusts_guesses or not time.is_guess) and is_faster(time.measured_s, time.least_s)

    findings = find_causes(seen, subject, least, is_above)
    at_of = {id(one): at for at, one in enumerate(seen)}
    above = {at_of[id(finding.seen)] for finding in findings}
    run = bound_run(seen, everything, least, answers)
    flags = tuple(_flags(findings, len(judged), subject, least))
    if not flags and run is not None and is_faster(run.busy_s, run.least_s):
        flags = (_run_flag(run, seen),)
    rest = [one for at, one in enumerate(seen) if at not in above]
    return Refereed(
        verdict=_verdict(flags, seen),
        model=subject.served.model.name,
        weights=subject.served.weights.format_name,
        cache=subject.served.cache_format.name,
        machine=subject.machine.name,
        devices=subject.devices,
        ceiling=subject.ceiling,
        allowance=subject.allowance,
        stamp_error_s=stamp_error_s,
        num_requests=len(measured),
        num_judged=len(judged),
        num_above=len(above),
        flags=flags,
        above=tuple(map(_above, findings)),
        classes=bound_classes(seen, above),
        run=run,
        mbu=percentiles(_shares(rest, Measure.TPOT, subject.ceiling)),
        mfu=percentiles(_shares(rest, Measure.TTFT, subject.ceiling)),
        notes=tuple(_notes(judged, subject)),
    )


def _trusts_guesses(seen: Iterable[Seen], is_faster: Callable[[float, float], bool]) -> bool:
    """Whether the paces that rest on a guess are too fast on average, over enough of them."""
    guesses = [time for one in seen for time in one.times if time.is_guess]
    pooled = _mean(time.measured_s for time in guesses), _mean(time.least_s for time in guesses)
    return len(guesses) >= _FEWEST_GUESSES and is_faster(*pooled)


def _above(finding: Finding) -> Above:
    time = finding.time
    return Above(finding.seen.record.request_id, time.measure, time.measured_s, time.least_s, finding.cause)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _contexts(judged: Sequence[RequestRecord]) -> Iterator[int]:
    for record in judged:
        yield max(1, record.prompt_tokens or 1)
        yield last_context(record)


def _verdict(flags: Sequence[Flag], seen: Sequence[Seen]) -> Verdict:
    if flags:
        return Verdict.ABOVE
    if not seen:
        return Verdict.NOTHING
    return Verdict.POSSIBLE if any(one.times for one in seen) else Verdict.UNKNOWN


def _flags(findings: Sequence[Finding], num_judged: int, subject: Subject, least: LeastTimes) -> Iterator[Flag]:
    """One flag a cause, the most frequent first."""
    by_cause: dict[Cause, list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault(finding.cause, []).append(finding)
    for cause, group in sorted(by_cause.items(), key=lambda item: -len(item[1])):
        requests = {id(finding.seen): finding.seen.record.request_id for finding in group}
        yield Flag(
            cause=cause,
            meaning=MEANING[cause],
            measures=tuple(measure for measure in Measure if any(f.time.measure is measure for f in group)),
            num_requests=len(requests),
            num_judged=num_judged,
            factor=median([finding.time.factor for finding in group]),
            evidence=explain(group, subject, least),
            alternatives=ALTERNATIVES[cause],
            examples=tuple(requests.values())[:_EXAMPLES],
        )


def _run_flag(run: RunBound, seen: Sequence[Seen]) -> Flag:
    """The run as a whole is above its ceiling though none of its requests is."""
    chunks = sum(one.num_chunks for one in seen)
    is_count = run.num_tokens > _MORE_TOKENS * chunks
    cause = Cause.WRONG_COUNT if is_count else Cause.FASTER_MACHINE
    text = (
        f"{format_number(run.output_tokens_per_s)} output tokens/s with {run.peak_in_flight} requests in flight at most, where "
        f"{format_number(run.most_tokens_per_s)} are the most"
    )
    evidence = (text, f"{format_count(run.num_tokens)} tokens came in {format_count(chunks)} chunks")
    others = (Cause.SPECULATION, Cause.WRONG_FORMAT) if is_count else (Cause.WRONG_FORMAT, Cause.WARM_PREFIX_CACHE)
    return Flag(cause, MEANING[cause], (Measure.RUN,), 0, len(seen), run.factor, evidence, others, ())


def _shares(seen: Sequence[Seen], measure: Measure, ceiling: Roof) -> Iterator[float]:
    """MBU of paces, MFU of prompts."""
    is_pace = measure is Measure.TPOT
    rate = ceiling.bandwidth_bytes_per_s if is_pace else ceiling.peak_flops_per_s
    for one in seen:
        time = one.time(measure)
        if rate and time is not None and time.measured_s > 0:
            yield (time.work.num_bytes if is_pace else time.work.flops) / (time.measured_s * rate)


def _notes(judged: Sequence[RequestRecord], subject: Subject) -> Iterator[str]:
    cached = [r for r in judged if r.cached_prompt_tokens]
    if cached:
        tokens = sum(record.cached_prompt_tokens or 0 for record in cached)
        prompts = sum(record.prompt_tokens or 0 for record in cached)
        yield (
            f"the server says that {format_count(tokens)} of the {format_count(prompts)} prompt tokens of {len(cached)} requests "
            "came from its cache: their TTFT is that of the rest"
        )
    if uncounted := sum(record.output_tokens is None for record in judged):
        yield f"{uncounted} requests have no token count: of these, only TTFT is judged"
    if unknown := sum(record.prompt_tokens is None for record in judged):
        yield f"{unknown} requests have no prompt length: it is taken as one token, so their bounds are low"
    yield from _unknown_rates(subject)


def _unknown_rates(subject: Subject) -> Iterator[str]:
    """Which ceiling is not known, what then binds, and what to do about it."""
    ceiling, name = subject.ceiling, subject.machine.name
    advice = (
        "measure this machine with `probe`"
        if subject.machine.origin is Origin.MEASURED
        else "name a machine file with it"
    )
    if ceiling.bandwidth_bytes_per_s is None and ceiling.peak_flops_per_s is None:
        yield f"of {name} neither bandwidth nor compute rate is known, so nothing can be held to them; {advice}"
    elif ceiling.peak_flops_per_s is None:
        yield f"of {name} no compute rate for these weights is known: only its bandwidth binds; {advice}"
    elif ceiling.bandwidth_bytes_per_s is None:
        yield f"of {name} no bandwidth is known: only its compute rate binds; {advice}"
