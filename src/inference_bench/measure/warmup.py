"""Before anything is measured: wake the server up, learn what it refuses, and how many tokens a word is.

In:   Target, prompts, and how to send
Out:  the target without the fields the server refused; the prompts' length fitted to the server's own counts
Leaves out: how many requests a server needs to be warm; two are sent, of different lengths
Read next by: loadtest, verify.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.measure.load import LoadOptions, LoadResult, run_load
from inference_bench.measure.prompts import PromptMaker, calibrate
from inference_bench.measure.target import Target
from inference_bench.records import RequestStatus, Stage
from inference_bench.workload import RequestShape, closed_loop

WARMUP_WORDS: Final = (24, 96)
_WARMUP_OUTPUT_TOKENS: Final = 4


def warm_up(target: Target, prompts: PromptMaker, options: LoadOptions) -> LoadResult:
    """Send the warm-up requests one after the other and fit the prompts to what the server counted.

    Raises:   MeasurementError when none completed; see `run_closed_loop` for the rest
    """
    shapes = tuple(RequestShape(words, _WARMUP_OUTPUT_TOKENS) for words in WARMUP_WORDS)
    workload = closed_loop("warmup", shapes, 1, len(shapes))
    warm = run_load(target, workload, replace(options, stage=Stage.WARMUP, group="warmup", prompts=prompts))
    done = [record for record in warm.records if record.status is RequestStatus.COMPLETED]
    if not done:
        raise MeasurementError(f"no warm-up request completed; the first: {warm.records[0].error or 'no reason given'}")
    # a request that was sent again without the fields the server refused keeps its prompt, so order is enough
    counted = [
        (words, record.prompt_tokens) for words, record in zip(WARMUP_WORDS, done, strict=False) if record.prompt_tokens
    ]
    if counted:
        prompts.fit = calibrate(counted)
    return warm
