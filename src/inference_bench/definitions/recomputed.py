"""One recording under every definition: each tool's figures from the same stamps and counts.

In:   RequestRecords of a run
Out:  Recomputed: a tool's metric, its value or percentiles, and why there is none
Leaves out: what was never recorded (text, and so a tool's own tokenizer); a tool's view of which requests succeeded: all
            here are those that we call completed
Read next by: loadtest.flow, report.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import mul

from inference_bench.definitions.rules import RULES, Rule
from inference_bench.definitions.samples import MissingError, Samples, gaps, gaps_and_zeros, token_gaps
from inference_bench.metrics import Objective, has_one_token_per_chunk
from inference_bench.records import Channel, RequestRecord, RequestStatus, Stage
from inference_bench.stats import ordered, sorted_quantile, weighted_quantiles


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
    completed = [record for record in measured if record.status is RequestStatus.COMPLETED]
    run = _Run(measured, completed, objective or Objective(), all(map(_is_plain, completed)))
    return tuple(_recompute(rule, run) for rule in RULES)


@dataclass(frozen=True, slots=True)
class _Run:
    """Requests, and what was found of them: tools that share a convention share its samples.

    Where:  is_plain says that every chunk of each is one token of the answer
    """

    measured: Sequence[RequestRecord]
    completed: Sequence[RequestRecord]
    objective: Objective
    is_plain: bool
    known: dict[object, Recomputed] = field(default_factory=dict)


def _is_plain(record: RequestRecord) -> bool:
    is_single = has_one_token_per_chunk(record) and set(record.chunk_tokens) <= {1}
    return is_single and set(record.channels) <= {Channel.CONTENT.letter}


def _recompute(rule: Rule, run: _Run) -> Recomputed:
    measured, completed, known = run.measured, run.completed, run.known
    if rule.of is None and rule.counts is None and rule.passes is None:
        return Recomputed(rule, missing=rule.reason)
    if not completed:
        return Recomputed(rule, missing="no request completed")
    if rule.needs_all and len(completed) < len(measured):
        return Recomputed(rule, missing="not every request completed, and the tool calls such a run invalid")
    of = gaps if run.is_plain and rule.of in (token_gaps, gaps_and_zeros) else rule.of
    way = (of, rule.weighs) if of else (rule.counts or rule.passes, rule.from_plan)
    if way not in known:
        try:
            known[way] = _rate(rule, measured, run.objective) if of is None else _times(rule, of, completed)
        except MissingError as missing:
            known[way] = Recomputed(rule, missing=str(missing))
    return replace(known[way], rule=rule)


def _times(rule: Rule, of: Callable[[RequestRecord], Samples], completed: Sequence[RequestRecord]) -> Recomputed:
    pooled, counts = array("d"), array("q")
    for record in completed:
        found = of(record)
        pooled.extend(found)
        if rule.weighs is not None:
            counts.extend([rule.weighs(record)] * len(found))
    if not pooled:
        return Recomputed(rule, missing="no request gives such a time")
    if rule.weighs is None:
        mean_s, values = math.fsum(pooled) / len(pooled), ordered(pooled)
        p50_s, p99_s = sorted_quantile(values, 0.5), sorted_quantile(values, 0.99)
    else:
        mean_s = math.fsum(map(mul, pooled, counts)) / sum(counts)
        p50_s, p99_s = weighted_quantiles(pooled, counts, (0.5, 0.99))
    return Recomputed(rule, mean_s=mean_s, p50_s=p50_s, p99_s=p99_s, count=len(pooled))


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
