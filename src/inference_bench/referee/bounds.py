"""What physics allows of each class of requests, and of the run as a whole.

In:   Seen requests, all records of the run
Out:  ClassBounds, RunBound
Read next by: judged.

The whole run says more than its requests: a step of a batch may be as short as that of one sequence, but it reads every
sequence's cache and computes every sequence's token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.arrival_proof.concurrency import realised_concurrency
from inference_bench.records import RequestRecord
from inference_bench.referee.least import LeastTimes
from inference_bench.referee.seen import Measure, Seen
from inference_bench.roofline import bound

_MOST_CLASSES: Final = 12


@dataclass(frozen=True, slots=True)
class ClassBounds:
    """Requests of like lengths: what each takes at least, beside the shortest that was measured.

    Where:  lengths are the fewest and the most of the class, output as counted; least times are the smallest of the class;
            shortest ones are of those requests, and num_above are those with a time below its own bound
    Unit:   tokens; seconds
    """

    prompt_tokens: tuple[int, int]
    cached_tokens: tuple[int, int]
    output_tokens: tuple[int, int] | None
    num_requests: int
    least_ttft_s: float | None
    shortest_ttft_s: float | None
    least_tpot_s: float | None
    shortest_tpot_s: float | None
    num_above: int


@dataclass(frozen=True, slots=True)
class RunBound:
    """All the work of the run, in the time in which any request was in flight.

    Formula:  least = max((later tokens · weights / peak + caches) / BW, FLOPs / P), peak the most requests in flight;
              factor = least / busy; most tokens/s = output tokens / least
    Where:    prompts are in the FLOPs alone: they may be read in the steps that decode
    Unit:     seconds, tokens/s
    """

    num_tokens: int
    peak_in_flight: int
    mean_in_flight: float | None
    busy_s: float
    least_s: float
    output_tokens_per_s: float
    most_tokens_per_s: float

    @property
    def factor(self) -> float:
        """How many times the bound the run is: above 1 it cannot be."""
        return self.least_s / self.busy_s


def bound_classes(seen: Sequence[Seen], above: set[int]) -> tuple[ClassBounds, ...]:
    """Classes of equal lengths, or of lengths within a factor of two where there would be too many.

    Where:  above holds the places of requests with a time below its bound
    """
    exact = _grouped(seen, _lengths)
    is_few = len(exact) <= min(_MOST_CLASSES, max(1, len(seen) // 2))
    groups = exact if is_few else _grouped(seen, _sizes)
    return tuple(_class([seen[at] for at in places], len(above & set(places))) for places in groups.values())


def _lengths(seen: Seen) -> tuple[int, ...]:
    return seen.prompt_tokens, seen.cached_tokens, seen.record.output_tokens or 0


def _sizes(seen: Seen) -> tuple[int, ...]:
    return tuple(length.bit_length() for length in _lengths(seen))


def _grouped(seen: Sequence[Seen], key: Callable[[Seen], tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, one in enumerate(seen):
        groups.setdefault(key(one), []).append(at)
    return dict(sorted(groups.items()))


def _class(group: Sequence[Seen], num_above: int) -> ClassBounds:
    counts = [seen.record.output_tokens for seen in group if seen.record.output_tokens is not None]
    firsts = [time for seen in group if (time := seen.time(Measure.TTFT))]
    paces = [time for seen in group if (time := seen.time(Measure.TPOT))]
    return ClassBounds(
        _span([seen.prompt_tokens for seen in group]),
        _span([seen.cached_tokens for seen in group]),
        _span(counts) if counts else None,
        len(group),
        min((time.least_s for time in firsts), default=None),
        min((time.measured_s for time in firsts), default=None),
        min((time.least_s / time.num_steps for time in paces), default=None),
        min((time.measured_s / time.num_steps for time in paces), default=None),
        num_above,
    )


def _span(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def bound_run(
    seen: Sequence[Seen], records: Sequence[RequestRecord], least: LeastTimes, answers: int = 1
) -> RunBound | None:
    """The run's own bound; None where nothing is known of its tokens, or of the machine.

    Where:  records are all that were sent, warm-ups and failures too: they were in flight, and only add
    """
    in_flight = realised_concurrency(records)
    counted = [one for one in seen if one.record.output_tokens]
    busy_s = sum(end - begin for begin, end in _busy(records))
    if in_flight is None or not counted or busy_s <= 0:
        return None
    num_bytes, flops = 0.0, 0.0
    for one in counted:
        num_steps = max(0, (one.record.output_tokens or 1) // answers - 1)
        steps = least.decode(one.prompt_tokens + 1, one.prompt_tokens + num_steps)
        alone = num_steps * least.weight_bytes
        prompt = least.prompt(one.prompt_tokens, one.cached_tokens)
        num_bytes += answers * (steps.num_bytes - alone) + alone / in_flight.peak
        flops += answers * steps.flops + prompt.flops
    least_s = bound("the run", round(flops), round(num_bytes), least.ceiling).seconds
    if not least_s:
        return None
    tokens = sum(one.record.output_tokens or 0 for one in counted)
    return RunBound(tokens, in_flight.peak, in_flight.mean, busy_s, least_s, tokens / busy_s, tokens / least_s)


def _busy(records: Sequence[RequestRecord]) -> Iterator[tuple[float, float]]:
    """The spans in which any request was in flight."""
    begin_s = end_s = None
    for record in sorted(records, key=lambda record: record.sent_s):
        if begin_s is None or end_s is None:
            begin_s, end_s = record.sent_s, record.end_s
        elif record.sent_s > end_s:
            yield begin_s, end_s
            begin_s, end_s = record.sent_s, record.end_s
        else:
            end_s = max(end_s, record.end_s)
    if begin_s is not None and end_s is not None:
        yield begin_s, end_s
