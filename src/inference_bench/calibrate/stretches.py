"""Stretches of a log in which only decoding went on: they show the time of a decode step, whatever the scheduler did.

In:   RequestLog, how many may run at once
Out:  Stretch: how long, who decoded, at which contexts; how far step times are from them
Leaves out: steps that read prompts
Read next by: fitting.

Between one first or last token in the log and the next, whoever runs goes on decoding. If nobody was waiting or being read
meanwhile, or no place was free, the stretch is a whole number of decode steps of one batch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from inference_bench.calibrate.log import RequestLog
from inference_bench.simulate.step_time import StepLoad, StepPart, StepTime

_MOST_STRETCHES: Final = 150
_MOST_STEPS: Final = 25  # in a stretch: with more, an error of the step could hide one of the number
_LEAST_S: Final = 1e-4  # below it two tokens came with one step


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time of nothing but decoding.

    Where:  load is that of its middle step
    Unit:   seconds
    """

    seconds: float
    load: StepLoad

    def num_steps(self, step_time: StepTime) -> float:
        """How many steps of these times it holds, not whole."""
        return self.seconds / step_time.seconds(self.load)


def find_stretches(log: RequestLog, max_running: int, step_time: StepTime) -> tuple[Stretch, ...]:
    """The stretches of a log, thinned evenly where there are many; a step time of the model says what a load holds."""
    moments = sorted({*log.first_token_s, *log.last_token_s})
    spans = [(begin, end) for begin, end in pairwise(moments) if end - begin > _LEAST_S]
    queued, first = sorted(log.queued_s), sorted(log.first_token_s)
    last = sorted(log.last_token_s)
    kept = []
    for begin, end in spans:
        come, spoken = bisect_left(queued, end), bisect_left(first, end)
        running = spoken - bisect_left(last, end)
        if running and (come == spoken or running >= max_running):
            kept.append((begin, end))
    thin = max(1, len(kept) // _MOST_STRETCHES)
    found = ((end - begin, _decoding(log, begin, end)) for begin, end in kept[::thin])
    return tuple(Stretch(seconds, step_time.load_of(parts)) for seconds, parts in found if parts)


def _decoding(log: RequestLog, begin: float, end: float) -> list[StepPart]:
    """Who decodes from one moment to another, each at its middle context."""
    middle = (begin + end) / 2
    parts = []
    for prompt, count, first, last in zip(
        log.prompt_tokens, log.output_tokens, log.first_token_s, log.last_token_s, strict=True
    ):
        if first <= begin and last >= end and count > 1:
            given = 1 + (middle - first) / (last - first) * (count - 1)
            parts.append(StepPart(prompt + int(given) - 1, 1, True))
    return parts


def count_steps(stretches: Sequence[Stretch], step_time: StepTime) -> list[int]:
    """How many steps each stretch holds if steps take about this long; 0 where that cannot be told."""
    counts = []
    for stretch in stretches:
        steps = stretch.num_steps(step_time)
        whole = round(steps)
        is_sure = 1 <= whole <= _MOST_STEPS and abs(steps - whole) < 0.25
        counts.append(whole if is_sure else 0)
    return counts


def stretch_residuals(
    stretches: Sequence[Stretch], counts: Sequence[int], step_time: StepTime, weight: float
) -> list[float]:
    """How far step times are from the log's, as logarithms, all stretches together of one weight."""
    share = weight / math.sqrt(max(1, sum(count > 0 for count in counts)))
    return [
        share * math.log(stretch.num_steps(step_time) / count) if count else 0.0
        for stretch, count in zip(stretches, counts, strict=True)
    ]
