"""What does a record show of the steps behind it?

In:   RequestRecord, LeastTimes
Out:  Seen: times beside their least, each for TTFT, the pace of tokens, and the whole request
Leaves out: why a time is too short (causes)
Read next by: causes, judged.

Chunks that come together need no step between them: chunks within a tenth of a step of the first are one burst with it,
and their tokens are not paced. Where the tokens of the first chunk are not known, it is taken to hold three times as many
as a chunk does on average (text is held back until it is whole), and such paces are judged together, not one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from inference_bench.records import RequestRecord
from inference_bench.referee.least import Least, LeastTimes

BURST_SHARE: Final = 0.1
_SHORTEST_S: Final = 1e-9
_HELD_BACK: Final = 3  # times as many tokens as in the mean chunk


class Measure(StrEnum):
    """Which time of a request is judged."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Judged:
    """A measured time and the least that physics allows.

    Where:  work is what the least time was counted from; num_steps how many decode steps are in it; is_guess says that
            they are so only on average, as the tokens of the first chunk are not known
    Unit:   seconds
    """

    measure: Measure
    measured_s: float
    least_s: float
    work: Least
    num_steps: int = 0
    is_guess: bool = False

    @property
    def factor(self) -> float:
        """How many times the bound it is: above 1 it cannot be."""
        return self.least_s / max(self.measured_s, _SHORTEST_S)


@dataclass(frozen=True, slots=True)
class Seen:
    """One completed request as the referee sees it.

    Where:  cached_tokens are those that the server admits; times are those that can be judged; burst_s is up to which
            gap chunks came together
    """

    record: RequestRecord
    prompt_tokens: int
    cached_tokens: int
    burst_s: float
    times: tuple[Judged, ...]

    @property
    def num_chunks(self) -> int:
        """Chunks with content."""
        return len(self.record.chunk_times_s)

    @property
    def num_bursts(self) -> int:
        """Groups of chunks that came apart."""
        gaps = pairwise(self.record.chunk_times_s)
        return 1 + sum(after - before > self.burst_s for before, after in gaps)

    def time(self, measure: Measure) -> Judged | None:
        """The time of that name."""
        return next((time for time in self.times if time.measure is measure), None)


def last_context(record: RequestRecord) -> int:
    """The most positions that a step of this request attends."""
    return (record.prompt_tokens or 1) + max(1, record.output_tokens or len(record.chunk_times_s))


def see(record: RequestRecord, least: LeastTimes, answers: int = 1) -> Seen:
    """A completed request with content, beside its bounds.

    Formula:  TTFT: first chunk - sent, beside its prompt less what the server says was cached;
              pace: last - first chunk, beside the steps of the n - k tokens that follow the first burst;
              whole: end of the reply - sent, beside the prompt and n - 1 steps
    Where:    of so many answers to one prompt, a step gives a token to each: n and k are those of one
    """
    prompt_tokens = max(1, record.prompt_tokens or 1)
    cached = min(max(0, record.cached_prompt_tokens or 0), prompt_tokens - 1)
    burst_s = BURST_SHARE * (least.step_s(prompt_tokens + 1) or 0.0)
    times = tuple(_times(record, least, prompt_tokens, cached, burst_s, answers))
    return Seen(record, prompt_tokens, cached, burst_s, times)


def _times(
    record: RequestRecord, least: LeastTimes, prompt_tokens: int, cached: int, burst_s: float, answers: int
) -> Iterator[Judged]:
    first = least.prompt(prompt_tokens, cached)
    if first.seconds is None:
        return
    whole = Least(first.seconds, first.num_bytes, first.flops)
    chunks_s, count = record.chunk_times_s, record.output_tokens
    yield Judged(Measure.TTFT, chunks_s[0] - record.sent_s, first.seconds, whole)
    if count is None or count < 1:
        return
    num_first, is_guess = _tokens_at_first(record, count, burst_s)
    count, num_first = -(-count // answers), -(-num_first // answers)
    steps = least.decode(prompt_tokens + num_first, prompt_tokens + count - 1)
    if count > num_first and steps.seconds:
        yield Judged(Measure.TPOT, chunks_s[-1] - chunks_s[0], steps.seconds, steps, count - num_first, is_guess)
    later = least.decode(prompt_tokens + 1, prompt_tokens + count - 1)
    total_s = first.seconds + (later.seconds or 0.0)
    work = Least(total_s, first.num_bytes + later.num_bytes, first.flops + later.flops)
    yield Judged(Measure.E2E, record.end_s - record.sent_s, total_s, work, count - 1)


def _tokens_at_first(record: RequestRecord, count: int, burst_s: float) -> tuple[int, bool]:
    """Tokens that came with the first burst, and whether that is a guess."""
    chunks_s = record.chunk_times_s
    together = 1
    while together < len(chunks_s) and chunks_s[together] - chunks_s[together - 1] <= burst_s:
        together += 1
    if len(record.chunk_tokens) == len(chunks_s):
        return sum(record.chunk_tokens[:together]), False
    if count <= len(chunks_s):
        return together, False
    return -(-_HELD_BACK * together * count // len(chunks_s)), True
