"""Why may a time be shorter than physics allows? Each time that is, with the likeliest cause.

In:   Seen requests with a time below its bound, the Subject
Out:  Finding: a time, its cause, and what else would explain it
Leaves out: how that is said (evidence)
Read next by: evidence, judged.

A pace that is impossible for the tokens counted, but possible for the chunks that came, is a matter of counting or of
several tokens a step. One that is impossible for the chunks too is a matter of what was served, or where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.predict.step_cost import MOST_VERIFIED
from inference_bench.records import TokenCountSource
from inference_bench.referee.least import LeastTimes
from inference_bench.referee.seen import Judged, Measure, Seen
from inference_bench.referee.subject import Subject
from inference_bench.stats import median

ON_CHIP_BYTES: Final = 256_000_000  # what caches of one device may hold of the weights
_FEWEST_BITS: Final = 1.0
_MOST_OF: Final = 0.9  # of the requests


class Cause(StrEnum):
    """What makes a measured time impossible."""

    REQUESTED_COUNT = "requested tokens credited"
    COUNTED_TWICE = "tokens counted twice"
    WRONG_COUNT = "wrong token count"
    SPECULATION = "speculation"
    HELD_BACK = "tokens held back"
    WARM_PREFIX_CACHE = "warm prefix cache"
    EARLY_CHUNK = "first chunk is not a generated token"
    WRONG_FORMAT = "wrong format"
    FASTER_MACHINE = "faster machine or more devices"
    ON_CHIP = "weights stay in on-chip caches"
    NOT_COMPUTED = "answer was not computed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One time below its bound, and why that may be.

    Where:  alternatives are what the same evidence allows too
    """

    seen: Seen
    time: Judged
    cause: Cause
    alternatives: tuple[Cause, ...] = ()


_SERVED: Final = (Cause.WRONG_FORMAT, Cause.FASTER_MACHINE, Cause.ON_CHIP, Cause.NOT_COMPUTED)
ALTERNATIVES: Final = {
    Cause.REQUESTED_COUNT: (Cause.SPECULATION,),
    Cause.COUNTED_TWICE: (Cause.SPECULATION,),
    Cause.WRONG_COUNT: (),
    Cause.SPECULATION: (Cause.WRONG_COUNT, Cause.WRONG_FORMAT),
    Cause.HELD_BACK: (Cause.WRONG_COUNT,),
    Cause.WARM_PREFIX_CACHE: (Cause.WRONG_COUNT, Cause.FASTER_MACHINE),
    Cause.EARLY_CHUNK: (Cause.NOT_COMPUTED,),
    Cause.WRONG_FORMAT: (Cause.FASTER_MACHINE,),
    Cause.FASTER_MACHINE: (Cause.WRONG_FORMAT,),
    Cause.ON_CHIP: (Cause.WRONG_FORMAT, Cause.FASTER_MACHINE),
    Cause.NOT_COMPUTED: (Cause.FASTER_MACHINE,),
}

IsAbove = Callable[[Judged], bool]


def find_causes(
    requests: Sequence[Seen], subject: Subject, least: LeastTimes, is_above: IsAbove
) -> tuple[Finding, ...]:
    """Every time that cannot be, in the order of the requests."""
    paces = _pace_causes(requests, subject, least, is_above)
    found: list[Finding] = []
    for at, seen in enumerate(requests):
        above = [time for time in seen.times if is_above(time)]
        first: Cause | None = None
        for time in above:
            cause = paces.get(at)
            if time.measure is Measure.TTFT and cause not in _SERVED:
                first = cause = _first_cause(seen, time, least, is_above)
            elif time.measure is Measure.E2E and cause is None:
                cause = first or Cause.NOT_COMPUTED
            found += () if cause is None else (Finding(seen, time, cause, ALTERNATIVES[cause]),)
    return tuple(found)


def _first_cause(seen: Seen, time: Judged, least: LeastTimes, is_above: IsAbove) -> Cause:
    """Why a first token came too early though the others did not: nothing but a cache saves most of a prompt.

    Where:  however much was cached, its last token is computed; what comes before that is not a generated token
    """
    last = least.prompt(seen.prompt_tokens, seen.prompt_tokens - 1)
    if last.seconds is None or not is_above(Judged(time.measure, time.measured_s, last.seconds, time.work)):
        return Cause.WARM_PREFIX_CACHE
    whole = seen.time(Measure.E2E)
    return Cause.NOT_COMPUTED if whole is not None and is_above(whole) else Cause.EARLY_CHUNK


def _pace_causes(requests: Sequence[Seen], subject: Subject, least: LeastTimes, is_above: IsAbove) -> dict[int, Cause]:
    """Why tokens came too fast, by the place of the request; those whose first token alone came too early are left out."""
    fast: dict[int, Judged] = {}
    found: dict[int, Cause] = {}
    for at, seen in enumerate(requests):
        time = _pace(seen, is_above)
        if time is None:
            continue
        if _has_time_for_chunks(seen, time, least, is_above):
            found[at] = _count_cause(seen)
        else:
            fast[at] = time
    _settle_twice(found)
    if fast:
        served = _served_cause([(requests[at], time) for at, time in fast.items()], subject, least, is_above)
        found |= dict.fromkeys(fast, served)
    return found


def _pace(seen: Seen, is_above: IsAbove) -> Judged | None:
    """The time that shows that tokens came too fast."""
    above = {time.measure: time for time in seen.times if is_above(time)}
    if Measure.TPOT in above or Measure.TTFT in above:
        return above.get(Measure.TPOT)
    return above.get(Measure.E2E)


def _has_time_for_chunks(seen: Seen, time: Judged, least: LeastTimes, is_above: IsAbove) -> bool:
    """Whether there was time for a step between each two bursts of chunks, if not for one a token."""
    num_bursts = seen.num_bursts
    if num_bursts >= (seen.record.output_tokens or 0):
        return False
    steps = least.decode(seen.prompt_tokens + 1, seen.prompt_tokens + num_bursts - 1)
    return not is_above(Judged(time.measure, time.measured_s, steps.seconds or 0.0, steps))


def _count_cause(seen: Seen) -> Cause:
    """Why more tokens are counted than steps are seen."""
    record, chunks = seen.record, seen.num_chunks
    count = record.output_tokens or 0
    if record.chunk_tokens and sum(record.chunk_tokens) != count:
        return Cause.WRONG_COUNT
    if record.chunk_tokens or count <= chunks:
        return Cause.SPECULATION if count / seen.num_bursts <= MOST_VERIFIED else Cause.HELD_BACK
    is_asked = count == record.requested_output_tokens
    stopped = record.finish_reason not in (None, "length")
    if is_asked and (stopped or record.token_count_source is TokenCountSource.UNKNOWN):
        return Cause.REQUESTED_COUNT
    if abs(count - 2 * chunks) <= 1:
        return Cause.COUNTED_TWICE
    if is_asked and record.finish_reason is None:
        return Cause.REQUESTED_COUNT
    return Cause.SPECULATION if count / chunks <= MOST_VERIFIED else Cause.WRONG_COUNT


def _settle_twice(found: dict[int, Cause]) -> None:
    """Two tokens a chunk in nearly every request is a count; in some of them it is a draft of which one was accepted."""
    twice = [at for at, cause in found.items() if cause is Cause.COUNTED_TWICE]
    drafts = [at for at, cause in found.items() if cause is Cause.SPECULATION]
    if drafts and len(twice) < _MOST_OF * (len(twice) + len(drafts)):
        found |= dict.fromkeys(twice, Cause.SPECULATION)


def _served_cause(fast: Sequence[tuple[Seen, Judged]], subject: Subject, least: LeastTimes, is_above: IsAbove) -> Cause:
    """What was served, or where, if steps were shorter than any can be."""
    bits = median_bits([time for _, time in fast], subject, least)
    if bits is None:
        return Cause.FASTER_MACHINE
    if all(_fits_on_chip(time, subject) for _, time in fast):
        return Cause.ON_CHIP
    if bits < _FEWEST_BITS:
        return Cause.NOT_COMPUTED
    firsts = [first for seen, _ in fast if (first := seen.time(Measure.TTFT)) is not None]
    is_compute = sum(map(is_above, firsts)) * 2 > len(firsts)
    return Cause.FASTER_MACHINE if is_compute else Cause.WRONG_FORMAT


def _fits_on_chip(time: Judged, subject: Subject) -> bool:
    """Whether the caches of the devices, reading nothing from memory, would explain the time."""
    bandwidth = subject.ceiling.bandwidth_bytes_per_s or 0.0
    reads = time.num_steps + (time.measure is Measure.E2E)
    kept = reads * ON_CHIP_BYTES * subject.devices
    return time.work.num_bytes - kept <= bandwidth * time.measured_s * subject.allowance


def median_bits(fast: Sequence[Judged], subject: Subject, least: LeastTimes) -> float | None:
    """The most bits a weight that so short steps can have read; None where the bandwidth is not known.

    Formula:  median of (time · BW - own cache) / (steps · weights read a step) · declared bits a weight
    """
    bandwidth = subject.ceiling.bandwidth_bytes_per_s
    if bandwidth is None or not fast:
        return None
    shares = []
    for time in fast:
        weights = least.weight_bytes * (time.num_steps + (time.measure is Measure.E2E))
        own = time.work.num_bytes - weights
        shares.append(max(0.0, bandwidth * time.measured_s - own) / weights)
    return median(shares) * subject.served.weights.bits_per_weight
