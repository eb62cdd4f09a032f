"""May the canary take over? One verdict from the runs of both, with every rule's evidence.

In:   run folders of baseline and canary; RuleSet; what counts as a good request
Out:  Decision: promote, hold or roll back
Leaves out: making the runs (loadtest, operate.rollout), drawing and words (charts, report)
Read next by: charts, report, cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from inference_bench.compare_runs.evidence import Evidence, Outcome, gather, shown_evidence
from inference_bench.compare_runs.flow import changed_facts
from inference_bench.compare_runs.pooled import Pooled, pool
from inference_bench.compare_runs.rules import RuleSet
from inference_bench.compare_runs.same_work import require_same_work
from inference_bench.compare_runs.side import Side, read_side
from inference_bench.errors import RequestError, RunFolderError
from inference_bench.metrics import Objective
from inference_bench.operate.rollout.suite_outcome import SuiteOutcome
from inference_bench.records import RequestRecord

_MOST_NAMED: Final = 8


class Verdict(StrEnum):
    """What to do with the canary."""

    PROMOTE = "promote"
    HOLD = "hold"
    ROLL_BACK = "roll back"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and everything that it rests on.

    Where:    part is the part of the runs that was compared; needed is how many requests of each run would tell what is not told,
              None where nothing is missing or no number would do; changed are the facts that differ, (what, baseline, canary); is_copy:
              two of the runs are one
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    baselines: tuple[Side, ...]
    canaries: tuple[Side, ...]
    part: str
    rules: RuleSet
    objective: Objective
    evidence: tuple[Evidence, ...]
    pooled: Pooled = field(repr=False)
    changed: tuple[tuple[str, str | None, str | None], ...]
    needed: int | None
    notes: tuple[str, ...]
    is_copy: bool = False


def decide(
    baselines: Sequence[Path],
    canaries: Sequence[Path],
    rules: RuleSet | None = None,
    objective: Objective | None = None,
    part: str | None = None,
) -> Decision:
    """Hold the canary's runs to the baseline's.

    Raises:  RunFolderError for what is no run, is broken, or holds no measured request; RequestError where the runs did not do the same
             work, where a run is given twice, or where the part to compare is not said
    """
    _require_different([*baselines, *canaries])
    sides = [_read(path) for path in (*baselines, *canaries)]
    name = _part_of(sides, part)
    for other in sides[1:]:
        require_same_work(sides[0].only(name), other.only(name))
    first, second = tuple(sides[: len(baselines)]), tuple(sides[len(baselines) :])
    pooled = pool([side.parts[name] for side in first], [side.parts[name] for side in second])
    used, goal = rules or RuleSet(), objective or Objective()
    evidence = gather(pooled, used, goal, (_suite_of(first), _suite_of(second)))
    copied = _copied(sides)
    verdict, reasons = (Verdict.HOLD, [copied]) if copied else _verdict(evidence, used, pooled, sides)
    return Decision(
        verdict=verdict,
        reasons=tuple(reasons),
        baselines=first,
        canaries=second,
        part=name,
        rules=used,
        objective=goal,
        evidence=evidence,
        pooled=pooled,
        changed=tuple(changed_facts(first[0], second[0])),
        needed=_needed(evidence, used, pooled) if verdict is Verdict.HOLD and not copied else None,
        notes=tuple(_notes(pooled, first, second, used)),
        is_copy=copied is not None,
    )


def _require_different(paths: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise RequestError(f"the run {path} is given twice; give different ones")
        seen.add(path.resolve())


def _read(path: Path) -> Side:
    side = read_side(path)
    if not side.parts:
        raise RunFolderError(f"{path} holds no measured request, so that it says nothing of its server; measure again")
    return side


def _part_of(sides: Sequence[Side], part: str | None) -> str:
    """The part that all runs have, where there is one, or the one that is named."""
    shared = [name for name in sides[0].parts if all(name in side.parts for side in sides)]
    known = ", ".join(shared[:_MOST_NAMED]) or "none"
    if part is not None:
        if part not in shared:
            raise RequestError(f"not every run has a part {part[:60]!r}; parts of all runs: {known}")
        return part
    if len(shared) != 1 or any(side.is_verify for side in sides):
        raise RequestError(f"a verdict is about one load, and these runs share the parts {known}; say which")
    return shared[0]


def _suite_of(sides: Sequence[Side]) -> SuiteOutcome | None:
    """The outcome with the fewest right answers, where several runs of a side have one."""
    found = [side.suite for side in sides if side.suite is not None]
    return min(found, key=lambda each: each.num_right) if found else None


# ── the verdict ────────────────────────────────────────────────────────────────────────────────────


def _verdict(
    evidence: Sequence[Evidence], rules: RuleSet, pooled: Pooled, sides: Sequence[Side]
) -> tuple[Verdict, list[str]]:
    told = list(shown_evidence(evidence))
    broken = [each.rule.figure for each in told if each.outcome is Outcome.BROKEN]
    if broken:
        return Verdict.ROLL_BACK, [f"{len(broken)} of {len(told)} rules are broken: {', '.join(broken)}"]
    missing = list(_missing(told, rules, pooled, sides))
    if missing:
        return Verdict.HOLD, missing
    return Verdict.PROMOTE, [
        f"all {len(told)} rules are kept: how much worse the canary may be lies within every limit"
    ]


def _missing(told: Sequence[Evidence], rules: RuleSet, pooled: Pooled, sides: Sequence[Side]) -> Iterator[str]:
    untold = [each.rule.figure for each in told if each.outcome is Outcome.UNTOLD]
    if not told:
        yield "no rule could be held to anything that was measured"
    if untold:
        yield f"not enough evidence: {len(untold)} of {len(told)} rules are not told: {', '.join(untold)}"
    count = min(len(side.records) for side in (pooled.baseline, pooled.canary))
    if count < rules.least_requests:
        yield f"not enough evidence: {count} requests of a side can be compared, and the rules ask for {rules.least_requests}"
    cut = [side.name for side in sides if not side.is_whole]
    if cut:
        yield f"cut short, and a run that was stopped may have been stopped because of what it showed: {', '.join(cut)}"


def _copied(sides: Sequence[Side]) -> str | None:
    """Two runs never take the same time to the last bit."""
    seen: dict[tuple[tuple[RequestRecord, ...], ...], str] = {}
    for side in sides:
        times = tuple(tuple(sorted(records, key=_by_id)) for records in side.parts.values())
        if times in seen:
            return (
                f"no difference: {seen[times]} and {side.name} hold the same requests to the last bit, which two runs never do; one is a "
                "copy, and no evidence"
            )
        seen[times] = side.name
    return None


def _by_id(record: RequestRecord) -> str:
    return record.request_id


def _needed(evidence: Sequence[Evidence], rules: RuleSet, pooled: Pooled) -> int | None:
    """The most that any rule that is not told takes, and no fewer than the rules ask for."""
    runs = min(len(pooled.baseline.runs), len(pooled.canary.runs))
    asked = -(-rules.least_requests // runs)
    wanted = [each.needed for each in evidence if each.outcome is Outcome.UNTOLD]
    known = [each for each in (*wanted, asked) if each is not None and each > pooled.baseline.num_each]
    return max(known, default=None)


def _notes(pooled: Pooled, first: Sequence[Side], second: Sequence[Side], rules: RuleSet) -> Iterator[str]:
    if pooled.num_left_out:
        yield f"{pooled.num_left_out} requests are left out: not every run brought them, and those before them, to an end"
    if min(len(first), len(second)) == 1:
        yield "one side has one run: what differs from run to run of one server is not in the intervals; give several of each"
    elif min(len(first), len(second)) < 4:
        yield "with two or three runs of a side, what differs from run to run is in the intervals, and too small"
    digests = [{side.manifest_sha256 for side in group} for group in (first, second)]
    if digests[0] == digests[1] and None not in digests[0]:
        yield "the manifests are the same: nothing that they list differs between baseline and canary"
    elif None in digests[0] | digests[1]:
        yield "not every run has a manifest, so that more may differ than is listed"
    for group, name in ((first, "baseline"), (second, "canary")):
        if len({side.manifest_sha256 for side in group}) > 1:
            yield f"the runs of the {name} have different manifests: they are pooled, and were not of one and the same server"
    if rules.looks == 1:
        yield "one look: asking again while requests come in, until the answer pleases, makes a wrong verdict likelier than is said"
