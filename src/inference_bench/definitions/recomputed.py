"""One recording under every definition: each tool's figures from the same stamps and counts.

In:   RequestRecords of a run
Out:  Recomputed: a tool's metric, its value or percentiles, and why there is none
Leaves out: what was never recorded (text, and so a tool's own tokenizer); a tool's view of which requests succeeded: all
            here are those that we call completed
Read next by: report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from inference_bench.definitions.rules import RULES, Rule
from inference_bench.definitions.samples import MissingError
from inference_bench.metrics import Objective
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.stats import quantile


@dataclass(frozen=True, slots=True)
class Recomputed:
    """One tool's metric of this run.

    Where:    times have mean, p50, p99 and the number of samples; rates a value; missing says why there is neither
    Unit:     seconds, or what the metric's name says
    """

    rule: Rule
    value: float | None = None
    mean_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    count: int = 0
    missing: str = ""


def recompute(records: Iterable[RequestRecord], objective: Objective | None = None) -> tuple[Recomputed, ...]:
    """Every rule over the measured requests, in the order of RULES."""
    measured = [record for record in records if record.stage is Stage.MEASURE]
    limits = objective or Objective()
    known: dict[object, Recomputed] = {}  # tools that share a convention share its samples
    return tuple(_recompute(rule, measured, limits, known) for rule in RULES)


def _recompute(
    rule: Rule, measured: Sequence[RequestRecord], objective: Objective, known: dict[object, Recomputed]
) -> Recomputed:
    completed = [record for record in measured if record.status is RequestStatus.COMPLETED]
    if rule.of is None and rule.counts is None and rule.passes is None:
        return Recomputed(rule, missing=rule.reason)
    if not completed:
        return Recomputed(rule, missing="no request completed")
    if rule.needs_all and len(completed) < len(measured):
        return Recomputed(rule, missing="not every request completed, and the tool calls such a run invalid")
    way = rule.of or (rule.counts or rule.passes, rule.from_plan)
    if way not in known:
        try:
            known[way] = _rate(rule, measured, objective) if rule.of is None else _times(rule, completed)
        except MissingError as missing:
            known[way] = Recomputed(rule, missing=str(missing))
    return replace(known[way], rule=rule)


def _times(rule: Rule, completed: Sequence[RequestRecord]) -> Recomputed:
    pooled = sorted(sample for record in completed for sample in (rule.of(record) if rule.of else ()))
    if not pooled:
        return Recomputed(rule, missing="no request gives such a time")
    mean_s = math.fsum(pooled) / len(pooled)
    return Recomputed(rule, mean_s=mean_s, p50_s=quantile(pooled, 0.5), p99_s=quantile(pooled, 0.99), count=len(pooled))


def _rate(rule: Rule, measured: Sequence[RequestRecord], objective: Objective) -> Recomputed:
    completed = [record for record in measured if record.status is RequestStatus.COMPLETED]
    begin_s = min(record.planned_s if rule.from_plan else record.sent_s for record in measured)
    duration_s = max(record.end_s for record in measured) - begin_s
    if duration_s <= 0:
        return Recomputed(rule, missing="the run took no time")
    if rule.counts is not None:
        total = sum(map(rule.counts, completed))
    else:
        passes = rule.passes
        total = sum(passes is not None and passes(r, objective.max_ttft_s, objective.max_gap_s) for r in completed)
    return Recomputed(rule, value=total / duration_s, count=len(completed))
