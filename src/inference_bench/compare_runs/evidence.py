"""Is each rule kept, broken, or not told by these requests? With the interval that says so.

In:   both sides' pooled requests, the rules, what counts as a good request, the outcomes of a suite
Out:  Evidence, one for each rule
Leaves out: the verdict (decide)
Read next by: decide, charts, report.

A rule is kept where the whole interval of the worsening lies within its limit: that the canary may be so much worse is then ruled
out, not merely unproven. Promoting needs every rule, so that however many there are, the chance to promote a canary that breaks
one is no more than that rule's own. Rolling back needs one alone, so that each is held to the interval of all (`family_confidence`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final

from inference_bench.compare_runs.differences import LEAST_SAMPLES, finite, values_of
from inference_bench.compare_runs.pooled import Pooled
from inference_bench.compare_runs.proportions import difference_interval
from inference_bench.compare_runs.resampling import (
    RESAMPLES,
    Estimate,
    Share,
    interval_of,
    quantile_change,
    relative_change,
    resample,
    share_change,
)
from inference_bench.compare_runs.rules import Rule, RuleSet, Unit
from inference_bench.metrics import Objective
from inference_bench.operate.rollout.suite_outcome import SuiteEnd, SuiteOutcome
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import Interval

POWER: Final = 0.8  # chance with which the requests that are said to be needed do tell
_MOST_TIMES: Final = 1 << 20  # as many requests: beyond, nobody waits for it
_BISECTIONS: Final = 30
_LENGTH: Final = "length"  # the finish reason of an answer that was cut at its limit


class Outcome(StrEnum):
    """What the requests say of a rule."""

    KEPT = "kept"
    BROKEN = "broken"
    UNTOLD = "not told"
    NOT_MEASURED = "not measured"  # of neither side: such a rule decides nothing


@dataclass(frozen=True, slots=True)
class Evidence:
    """One rule, and what speaks for and against it.

    Where:    worse is signed, in the rule's unit, so that more is worse; interval is that of this rule alone, all_rules of it among
              all; counts are the samples of each side; needed is how many requests of each side in all would tell, with a chance of
              80 %, None where that is not known; said says why it is not told. An infinite end means longer than any time
    """

    rule: Rule
    outcome: Outcome
    baseline: float | None
    canary: float | None
    worse: float | None
    interval: Interval | None
    all_rules: Interval | None
    counts: tuple[int, int]
    needed: int | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a figure is on both sides, and how to say it of a resample.

    Where:  shares are those of both sides where it is one; factor and shift turn a difference of shares into the rule's unit
    """

    baseline: float | None
    canary: float | None
    worse: float | None
    counts: tuple[int, int]
    estimate: Estimate
    shares: tuple[Share, Share] | None = None
    factor: float = 1.0
    shift: float = 0.0
    said: str = ""

    def by_counts(self, confidence: float, times: float = 1.0) -> Interval | None:
        """The interval that counts alone allow, or would if there were so many times as many; None of what is no share."""
        if self.shares is None or not all(self.counts):
            return None
        first, second = ((times * among, times * total) for among, total in (side.counts for side in self.shares))
        return self.as_worse(difference_interval(first, second, confidence))

    def as_worse(self, change: Interval) -> Interval:
        """A change of the figure as a worsening in the rule's unit."""
        ends = [self.shift + self.factor * end for end in (change.low, change.high)]
        return Interval(min(ends), max(ends), change.confidence)


def gather(
    pooled: Pooled,
    rules: RuleSet,
    objective: Objective,
    suites: tuple[SuiteOutcome | None, SuiteOutcome | None] = (None, None),
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Evidence, ...]:
    """The evidence on every rule, in their order."""
    sampled = [rule for rule in rules.rules if rule.about.unit is not Unit.ITEMS]
    measured = [_measure(rule, pooled, objective) for rule in sampled]
    num_runs = len(pooled.baseline.runs), len(pooled.canary.runs)
    changes = resample([each.estimate for each in measured], pooled.baseline.num_each, num_runs, seed, resamples)
    found = {
        rule.figure: _judge(rule, each, drawn, rules, pooled, resamples)
        for rule, each, drawn in zip(sampled, measured, changes, strict=True)
    }
    return tuple(found[rule.figure] if rule.figure in found else judge_suites(rule, *suites) for rule in rules.rules)


# ── what is measured ───────────────────────────────────────────────────────────────────────────────


def _measure(rule: Rule, pooled: Pooled, objective: Objective) -> _Measured:
    q = rule.about.quantile
    if q is not None:
        return _measure_time(rule.figure.split("_")[0], q, pooled)
    if rule.about.unit is Unit.RELATIVE:
        return _measure_goodput(pooled, objective)
    return _measure_share(rule, pooled)


def _measure_time(time: str, q: float, pooled: Pooled) -> _Measured:
    first, second = (values_of(side.records, time) for side in (pooled.baseline, pooled.canary))
    before, after = first.quantile(q), second.quantile(q)
    return _Measured(
        finite(before),
        finite(after),
        relative_change(before, after),
        (len(first.values), len(second.values)),
        quantile_change(first, second, q),
    )


_SHARES: Final[dict[str, Callable[[RequestRecord], bool | None]]] = {
    "failed_fraction": lambda record: record.status is not RequestStatus.COMPLETED,
    "truncated_fraction": lambda record: record.status is RequestStatus.TRUNCATED,
    "length_limited_fraction": lambda record: (
        record.finish_reason == _LENGTH
        if record.status is RequestStatus.COMPLETED and record.finish_reason is not None
        else None
    ),
    "document_valid_fraction": lambda record: record.document_valid,
}


def _measure_share(rule: Rule, pooled: Pooled) -> _Measured:
    sides = [Share.of(map(_SHARES[rule.figure], side.records)) for side in (pooled.baseline, pooled.canary)]
    before, after = (side.value for side in sides)
    sign = -1.0 if rule.about.is_higher_better else 1.0
    worse = None if before is None or after is None else sign * (after - before)
    first, second = sides
    totals = first.counts[1], second.counts[1]
    return _Measured(before, after, worse, totals, share_change(first, second), (first, second), factor=sign)


def _measure_goodput(pooled: Pooled, objective: Objective) -> _Measured:
    """Good requests a second: the share that met the objective, times the rate at which requests were answered.

    Ignores:  that another run would take a little longer or shorter: the rate is taken as it was
    """
    pools = (pooled.baseline, pooled.canary)
    sides = [Share.of(map(objective.is_met_by, side.records)) for side in pools]
    shares, rates = [side.value for side in sides], [side.rate for side in pools]
    totals = len(sides[0].all_of), len(sides[1].all_of)
    goods = [None if share is None or rate is None else share * rate for share, rate in zip(shares, rates, strict=True)]
    share, (before, after), (first, second) = shares[0], goods, sides
    if not share or not before or after is None:
        said = "no request of the baseline is a good one, so that there is nothing to hold the canary to"
        return _Measured(before, after, None, totals, lambda _drawn: None, said=said)
    quicker = (rates[1] or 0.0) / (rates[0] or 1.0)
    change = share_change(first, second)
    return _Measured(before, after, 1 - after / before, totals, change, (first, second), -quicker / share, 1 - quicker)


# ── what it says ───────────────────────────────────────────────────────────────────────────────────


def _judge(
    rule: Rule, measured: _Measured, drawn: Sequence[float], rules: RuleSet, pooled: Pooled, resamples: int
) -> Evidence:
    alone, among_all = (
        _interval(measured, drawn, confidence, resamples)
        for confidence in (rules.each_confidence, rules.family_confidence)
    )
    outcome, said = _outcome(rule, measured, alone, among_all, rules)
    needed = None
    if outcome is Outcome.UNTOLD:
        drawn_alone = _of_draws(measured, drawn, rules.each_confidence, resamples)
        needed = needed_requests(rule, measured, drawn_alone, pooled.baseline.num_each, rules)
    counts, (before, after) = measured.counts, (measured.baseline, measured.canary)
    return Evidence(rule, outcome, before, after, measured.worse, alone, among_all, counts, needed, said)


def _interval(measured: _Measured, drawn: Sequence[float], confidence: float, resamples: int) -> Interval | None:
    """The wider of what resampling and what counts alone allow, in the rule's unit, more being worse."""
    found = _of_draws(measured, drawn, confidence, resamples)
    by_counts = measured.by_counts(confidence)
    if found is None or by_counts is None:
        return found
    return Interval(min(found.low, by_counts.low), max(found.high, by_counts.high), confidence)


def _of_draws(measured: _Measured, drawn: Sequence[float], confidence: float, resamples: int) -> Interval | None:
    found = None if min(measured.counts) < LEAST_SAMPLES else interval_of(drawn, confidence, resamples)
    return None if found is None else measured.as_worse(found)


def _outcome(
    rule: Rule, measured: _Measured, alone: Interval | None, among_all: Interval | None, rules: RuleSet
) -> tuple[Outcome, str]:
    if not any(measured.counts):
        return Outcome.NOT_MEASURED, "neither side measured it"
    if not all(measured.counts):
        return Outcome.UNTOLD, f"only the {'baseline' if measured.counts[0] else 'canary'} measured it"
    if among_all is not None and among_all.low > rule.most_worse:
        return Outcome.BROKEN, ""
    least = least_values(rule, rules)
    if min(measured.counts) < least:
        return Outcome.UNTOLD, f"{min(measured.counts)} samples, and it takes {least}"
    if alone is None:
        return Outcome.UNTOLD, measured.said or "the baseline has no value to hold the canary to"
    if alone.high <= rule.most_worse:
        return Outcome.KEPT, ""
    worse = "the interval holds both more and less than the limit"
    return (
        Outcome.UNTOLD,
        "beyond the limit, but not beyond doubt among all rules" if alone.low > rule.most_worse else worse,
    )


def least_values(rule: Rule, rules: RuleSet) -> int:
    """Samples below which a percentile has nothing beyond it to be told by.

    Formula:  the least n with qⁿ ≤ (1 - confidence) / 2: one value beyond the percentile is then all but certain
    Source:   David and Nagaraja, Order Statistics, 3rd ed., section 7.1
    """
    q = rule.about.quantile
    if q is None:
        return LEAST_SAMPLES
    return max(LEAST_SAMPLES, math.ceil(math.log((1 - rules.each_confidence) / 2) / math.log(q)))


def needed_requests(rule: Rule, measured: _Measured, drawn: Interval | None, count: int, rules: RuleSet) -> int | None:
    """Requests of each run at which this rule would be told with a chance of 80 %, if the difference stays as it is.

    Formula:  n · (sure · reach / distance)², reach that of the interval towards the limit, distance that of the figure to it, sure
              1 + z80 / z95; of a share also the least n at which the counts alone would tell
    Where:    None where the figure lies at the limit, or nothing is known of it
    Ignores:  that a percentile's interval may narrow more slowly than with √n
    """
    samples = min(measured.counts)
    least = math.ceil(count * least_values(rule, rules) / samples) if samples else None
    worse = measured.worse
    if least is None or worse is None or drawn is None or math.isinf(worse):
        return least if least is not None and least > count else None
    distance = abs(rule.most_worse - worse)
    reach = _reach(rule, worse, drawn)
    if not distance or not math.isfinite(reach):
        return None
    sure = 1 + NormalDist().inv_cdf(POWER) / NormalDist().inv_cdf((1 + rules.each_confidence) / 2)
    by_draws = math.ceil(count * (sure * reach / distance) ** 2)
    by_counts = _needed_counts(rule, measured, count, rules, distance / (sure if reach else 1.0))
    return max(least, by_draws, by_counts, count + 1)


def _reach(rule: Rule, worse: float, interval: Interval) -> float:
    """From the figure to the end of its interval that lies towards the limit, or beyond it."""
    return interval.high - worse if worse <= rule.most_worse else worse - interval.low


def _needed_counts(rule: Rule, measured: _Measured, count: int, rules: RuleSet, distance: float) -> int:
    """The least number of requests at which the interval of the counts reaches no further than this; 0 of what is no share."""
    if measured.shares is None or measured.worse is None:
        return 0
    low, high = 1.0, 1.0
    while _reach_at(rule, measured, rules, high) > distance and high < _MOST_TIMES:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _reach_at(rule, measured, rules, middle) > distance else (low, middle)
    return math.ceil(count * high)


def _reach_at(rule: Rule, measured: _Measured, rules: RuleSet, times: float) -> float:
    interval = measured.by_counts(rules.each_confidence, times)
    return 0.0 if interval is None or measured.worse is None else _reach(rule, measured.worse, interval)


def judge_suites(rule: Rule, baseline: SuiteOutcome | None, canary: SuiteOutcome | None) -> Evidence:
    """Questions that the baseline answers as expected and the canary does not: all of the suite, so without an interval."""
    sizes = tuple(0 if suite is None else len(suite.answers) for suite in (baseline, canary))
    counts = (sizes[0], sizes[1])

    def say(outcome: Outcome, said: str, lost: int | None = None) -> Evidence:
        right = [None if suite is None else float(suite.num_right) for suite in (baseline, canary)]
        worse = None if lost is None else float(lost)
        return Evidence(rule, outcome, right[0], right[1], worse, None, None, counts, None, said)

    if baseline is None and canary is None:
        return say(Outcome.NOT_MEASURED, "no suite was asked")
    if baseline is None or canary is None:
        return say(Outcome.UNTOLD, f"only the {'canary' if baseline is None else 'baseline'} was asked a suite")
    if baseline.digest != canary.digest or sizes[0] != sizes[1]:
        return say(Outcome.UNTOLD, "the two were asked different suites")
    for whose, suite in (("baseline", baseline), ("canary", canary)):
        if suite.is_interrupted:
            said = (
                f"the {whose}'s was interrupted: {suite.num_not_asked} of {len(suite.answers)} questions were not asked"
            )
            return say(Outcome.UNTOLD, said)
    pairs = list(zip(baseline.answers, canary.answers, strict=True))
    lost = sum(mine.end is SuiteEnd.RIGHT and theirs.end is not SuiteEnd.RIGHT for mine, theirs in pairs)
    same = sum(mine.answer_hash == theirs.answer_hash and mine.answer_hash is not None for mine, theirs in pairs)
    said = f"{same} of {sizes[0]} answers are the same, right or wrong"
    return say(Outcome.KEPT if lost <= rule.most_worse else Outcome.BROKEN, said, lost)


def shown_evidence(found: Sequence[Evidence]) -> Iterator[Evidence]:
    """Those that decide something."""
    return (each for each in found if each.outcome is not Outcome.NOT_MEASURED)
