"""How did a shadow do beside the run whose arrivals it replayed? Request by request the same work, by construction.

In:   ShadowRun
Out:  the differences of both, or the reason why they cannot be compared
Leaves out: a verdict, which takes both as runs of the same work (decide)
Read next by: report, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference_bench.compare_runs.differences import Difference, differences
from inference_bench.compare_runs.pooled import pool
from inference_bench.operate.rollout.shadow import ShadowRun
from inference_bench.records import Stage


@dataclass(frozen=True, slots=True)
class ShadowComparison:
    """A shadow beside its recording.

    Where:    figures is empty where why_apart says why; num_requests are those of each that are compared
    """

    run: ShadowRun
    figures: tuple[Difference, ...]
    num_requests: int
    why_apart: str | None


def compare_shadow(run: ShadowRun) -> ShadowComparison:
    """The shadow beside the recorded run; the requests that both brought to an end."""
    if run.replay.why_apart is not None:
        return ShadowComparison(run, (), 0, run.replay.why_apart)
    shadow = [record for record in run.load.records if record.stage is Stage.MEASURE]
    first = run.replay.records[0].index or 0 if run.replay.records else 0
    recorded = [record for record in run.replay.records if record.index is not None]
    moved = [replace(record, index=(record.index or 0) - first) for record in recorded]
    pooled = pool([moved], [shadow])
    if not pooled.baseline.num_each:
        return ShadowComparison(run, (), 0, "no request was brought to an end by both")
    figures = differences(pooled.baseline.records, pooled.canary.records)
    return ShadowComparison(run, figures, pooled.baseline.num_each, None)
