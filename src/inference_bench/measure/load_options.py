"""How a load is sent, beside what is asked: its stages, its limits, and who is told.

In:   plain values
Out:  LoadOptions
Leaves out: sending (load)
Read next by: load, jobs, dispatch, slots, schedule; loadtest, verify.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inference_bench.errors import RequestError
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.prompts import PromptMaker
from inference_bench.records import RequestRecord, Stage

if TYPE_CHECKING:
    from inference_bench.measure.journal import Journal
    from inference_bench.measure.text_checks import TextFindings

_TIMES: Final = ("duration_s", "warmup_s", "cooldown_s", "ramp_s")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a load run is done, beside what is asked.

    Where:    writer gets each record as it ends; progress gets (ended, planned) requests; clock and prompts are
              given when several loads belong to one run, so that times compare and no prompt comes twice; stamps is
              who is to say when bytes arrive, where the platform lets it choose. journal is told of each request from
              its start on; examine is given the text of each answer, which is kept nowhere.

              Stages: what is planned within warmup_s of the begin, or among the first warmup_requests of a closed loop,
              is warm-up; slots of a closed loop begin spread over ramp_s, which is warm-up too. What follows is measured
              (`stage`), for duration_s or until the requests run out. Then the load is kept up for cooldown_s, marked,
              while what was measured ends. At the end of a duration and its cool-down what is still in flight is
              cancelled; without a duration, what is measured is let finish.

              In a closed loop the workload is what is measured: warm-up and cool-down requests come on top, of the same
              shapes. With a duration the requests begin anew where they run out, with new prompts, unless `repeats` is
              False. In an open loop the schedule covers all three.

              For one of several processes: begin_s is the time on `clock` at which the schedule starts, indices are
              the requests of the workload that this process sends, in order, and first_serial is the number of the
              prompt of the request with index 0, so that each process makes the prompt that one alone would make
    Unit:     seconds
    Raises:   RequestError for a time that is negative or not finite, or both kinds of warm-up
    """

    stage: Stage = Stage.MEASURE
    group: str = ""
    writer: Callable[[RequestRecord], None] | None = None
    progress: Callable[[int, int], None] | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    clock: Callable[[], float] = field(default_factory=RunClock)
    prompts: PromptMaker | None = None
    stamps: StampSource = StampSource.KERNEL
    journal: Journal | None = None
    examine: Callable[[str], TextFindings] | None = None
    begin_s: float | None = None
    indices: Sequence[int] | None = None
    first_serial: int | None = None
    duration_s: float | None = None
    warmup_s: float = 0.0
    warmup_requests: int = 0
    cooldown_s: float = 0.0
    ramp_s: float = 0.0
    repeats: bool = True

    def __post_init__(self) -> None:
        for name in _TIMES:
            time_s = getattr(self, name)
            if time_s is not None and not (math.isfinite(time_s) and time_s >= 0):
                what = name.removesuffix("_s")
                raise RequestError(f"the {what} is {time_s!r} s; it must be a finite number, 0 or more")
        if self.duration_s == 0:
            raise RequestError("the duration is 0 s; it must be longer than that")
        if self.warmup_s and self.warmup_requests:
            raise RequestError("the warm-up is given in seconds and in requests; give one of them")

    @property
    def warm_s(self) -> float:
        """How long after its begin what is planned is warm-up: the ramp is part of it."""
        return max(self.warmup_s, self.ramp_s)

    @property
    def all_s(self) -> float | None:
        """How long a run with a duration takes at most: warm-up, duration and cool-down; None without one."""
        return None if self.duration_s is None else self.warm_s + self.duration_s + self.cooldown_s
