"""What a simulated run did: the same for the readable loop and the fast engine.

In:   times by request, pooled gaps, counters
Out:  Outcome
Leaves out: percentiles and rates (summary)
Read next by: summary, checks, capacity, charts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from inference_bench.errors import InferenceBenchError, RequestError
from inference_bench.workload import Workload
from inference_bench.workload.checks import MOST_SPAN_S

TIMELINE_POINTS: Final = 1024
MOST_RUN_S: Final = 2 * MOST_SPAN_S  # what came by the end of a schedule has as long to end
Progress: TypeAlias = Callable[[int, int], None]  # gets (ended, all) requests now and then


def end_of_clock(now_s: float) -> RequestError:
    """The error of a run that goes on for so long that its clock loses steps."""
    return RequestError(
        f"the run goes on to {now_s:.3g} s, and beyond {MOST_RUN_S:g} s a clock cannot tell steps apart: give shorter steps, waits "
        "or times down"
    )


def lost(num_lost: int, count: int) -> InferenceBenchError:
    """The error of a run in which requests are left and nothing is due any more; it would go on for ever."""
    return InferenceBenchError(f"the simulation has lost {num_lost} of {count} requests; report this")


@dataclass(frozen=True, slots=True)
class Gaps:
    """Pauses between tokens of one answer, pooled over all requests: each value with how often it occurred.

    Unit:  seconds
    """

    values_s: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Timeline:
    """How full the server was, at moments about evenly spread over its steps.

    Unit:  seconds; requests; bytes of cache
    """

    time_s: Sequence[float] = ()
    waiting: Sequence[int] = ()
    running: Sequence[int] = ()
    used_bytes: Sequence[int] = ()


@dataclass(slots=True)
class TimelineLog:
    """A timeline that thins itself out: never more than so many points, whatever the number of steps."""

    points: list[tuple[float, int, int, int]] = field(default_factory=list)
    stride: int = 1
    seen: int = 0

    def add(self, time_s: float, waiting: int, running: int, used_bytes: int) -> None:
        """A moment; kept if it is its turn."""
        if self.seen % self.stride == 0:
            self.points.append((time_s, waiting, running, used_bytes))
            if len(self.points) >= TIMELINE_POINTS:
                del self.points[1::2]
                self.stride *= 2
        self.seen += 1

    def done(self) -> Timeline:
        """The points, by column."""
        return Timeline(*map(tuple, zip(*self.points, strict=True))) if self.points else Timeline()


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run from the first arrival to the last token.

    Where:  arrival_s are the planned sends (closed loop: when a user became free); keeps_gaps says of each request whether
            every pause was within the objective; in_system_s is the number of requests in the system summed over time, as
            counted step by step; token_times_s are kept by the reference loop only; engine names who ran it; failed are
            the requests that ended without their whole answer (their first and last token stand as 0.0, and are none)
    Unit:   seconds since the workload began
    """

    workload: Workload
    policy: str
    engine: str
    arrival_s: Sequence[float]
    first_token_s: Sequence[float]
    last_token_s: Sequence[float]
    keeps_gaps: Sequence[bool]
    gaps: Gaps
    num_preemptions: int
    num_steps: int
    in_system_s: float
    busy_s: float
    peak_bytes: int
    timeline: Timeline
    cached_prompt_tokens: int = 0
    token_times_s: tuple[tuple[float, ...], ...] | None = None
    preempted: Sequence[int] | None = None
    notes: tuple[str, ...] = ()
    failed: Sequence[int] = ()
