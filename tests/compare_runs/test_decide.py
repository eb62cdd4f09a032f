"""Verdicts on made runs whose truth is known."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.compare_runs.decide import Decision, Verdict, decide
from inference_bench.compare_runs.evidence import (
    Evidence,
    Outcome,
    _Measured,
    _outcome,
    gather,
    judge_suites,
    least_values,
)
from inference_bench.compare_runs.pooled import pool
from inference_bench.compare_runs.rules import Rule, RuleSet
from inference_bench.compare_runs.shadow import compare_shadow
from inference_bench.errors import RequestError, RunFolderError
from inference_bench.loadtest.workload_memory import META_KEY, asked_of, asked_to_json
from inference_bench.manifest.components import Component, Group, Manifest
from inference_bench.manifest.store import write_manifest
from inference_bench.measure.store import RunFolder
from inference_bench.metrics import Objective
from inference_bench.operate.rollout.suite_outcome import SuiteAnswer, SuiteEnd, SuiteOutcome, write_outcome
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.stats import Interval
from inference_bench.workload import OpenLoop, Requests, Workload

COUNT = 400
Change = Callable[[int], dict[str, Any]]


def record(number: int, draws: random.Random, slow: float = 1.0, **changes: Any) -> RequestRecord:
    planned_s = number * 0.5
    first_s = planned_s + 0.1 * slow * draws.lognormvariate(0, 0.2)
    gap_s = 0.01 * slow * draws.lognormvariate(0, 0.05)
    times = tuple(first_s + gap_s * number for number in range(5))
    values: dict[str, Any] = {
        "request_id": f"measure-{number:05d}",
        "origin": Origin.MEASURED,
        "stage": Stage.MEASURE,
        "status": RequestStatus.COMPLETED,
        "planned_s": planned_s,
        "sent_s": planned_s,
        "end_s": times[-1],
        "chunk_times_s": times,
        "prompt_tokens": 100,
        "output_tokens": 5,
        "requested_output_tokens": 5,
        "finish_reason": "length",
        "group": "measure",
        "index": number,
    }
    return RequestRecord(**{**values, **changes})


FAILED = {"status": RequestStatus.FAILED, "chunk_times_s": (), "output_tokens": None, "finish_reason": None}


def run_of(
    folder: Path,
    name: str,
    seed: int,
    slow: float = 1.0,
    change: Change | None = None,
    count: int = COUNT,
    whole: bool = True,
) -> Path:
    run, draws = RunFolder.create(folder, f"{name}-load"), random.Random(seed)
    requests = Requests(array("q", [100] * COUNT), array("q", [5] * COUNT))
    schedule = OpenLoop(array("d", [index * 0.5 for index in range(COUNT)]), "made")
    run.update_meta({META_KEY: {"measure": asked_to_json(asked_of(Workload("made", requests, schedule)))}})
    with run.open_writer() as writer:
        for index in range(count):
            writer.append(record(index, draws, slow, **(change(index) if change else {})))
    if whole:
        (run.path / "result.json").write_text(json.dumps({"schema": "inference-bench/load/1"}))
    return run.path


def by_name(found: Decision) -> dict[str, Evidence]:
    return {each.rule.figure: each for each in found.evidence}


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("baseline"), "base", 1)


def test_a_canary_that_is_no_different_is_promoted(baseline: Path, tmp_path: Path) -> None:
    found = decide([baseline], [run_of(tmp_path, "same", 2)])
    assert found.verdict is Verdict.PROMOTE, found.reasons
    assert found.needed is None
    assert {each.outcome for each in found.evidence} == {Outcome.KEPT, Outcome.NOT_MEASURED}
    assert any("one run" in note for note in found.notes)
    assert any("one look" in note for note in found.notes)


def test_a_canary_that_is_half_as_slow_again_is_rolled_back_with_the_interval_that_says_so(
    baseline: Path, tmp_path: Path
) -> None:
    found = decide([baseline], [run_of(tmp_path, "slow", 3, slow=1.5)])
    assert found.verdict is Verdict.ROLL_BACK
    ttft = by_name(found)["ttft_p50_s"]
    assert ttft.outcome is Outcome.BROKEN
    assert ttft.worse == pytest.approx(0.5, abs=0.06)
    assert ttft.all_rules is not None
    assert 0.1 < ttft.all_rules.low < 0.5 < ttft.all_rules.high
    assert "ttft_p50_s" in found.reasons[0]


def test_every_request_failed_is_rolled_back_and_no_time_of_it_counts_as_better(baseline: Path, tmp_path: Path) -> None:
    found = decide([baseline], [run_of(tmp_path, "dead", 4, change=lambda _index: FAILED)])
    assert found.verdict is Verdict.ROLL_BACK
    assert by_name(found)["failed_fraction"].outcome is Outcome.BROKEN
    assert by_name(found)["ttft_p50_s"].outcome is Outcome.BROKEN
    assert by_name(found)["ttft_p50_s"].canary is None


def test_a_baseline_that_failed_is_nothing_to_hold_a_canary_to(baseline: Path, tmp_path: Path) -> None:
    found = decide([run_of(tmp_path, "dead", 5, change=lambda _index: FAILED)], [baseline])
    assert found.verdict is Verdict.HOLD
    assert by_name(found)["goodput_requests_per_s"].outcome is Outcome.UNTOLD


def test_failures_within_the_limit_hold_until_counts_rule_more_of_them_out(baseline: Path, tmp_path: Path) -> None:
    canary = run_of(tmp_path, "few", 6, change=lambda index: FAILED if index in (5, 105, 205) else {})
    failed = by_name(decide([baseline], [canary]))["failed_fraction"]
    assert failed.outcome is Outcome.UNTOLD
    assert failed.worse == pytest.approx(3 / COUNT)
    assert failed.needed is not None
    assert failed.needed > COUNT


def test_three_requests_are_not_enough_and_how_many_more_is_said(baseline: Path, tmp_path: Path) -> None:
    found = decide([baseline], [run_of(tmp_path, "three", 7, count=3)])
    assert found.verdict is Verdict.HOLD
    assert found.needed is not None
    assert found.needed >= 368  # below that no value needs to lie beyond a p99: 0.99 ** 368 < 0.025
    assert any("3 requests" in reason for reason in found.reasons)


def test_a_p99_takes_samples_that_lie_beyond_it_almost_surely() -> None:
    least = least_values(Rule("ttft_p99_s", 0.1), RuleSet())
    assert 0.99**least <= 0.025 < 0.99 ** (least - 1)
    assert least_values(Rule("ttft_p50_s", 0.1), RuleSet()) == 8


def test_as_many_requests_as_are_said_to_be_needed_do_tell(baseline: Path, tmp_path: Path) -> None:
    rules = RuleSet((Rule("failed_fraction", 0.02),))
    few = decide([baseline], [run_of(tmp_path, "few", 8, count=100)], rules)
    assert few.verdict is Verdict.HOLD
    assert few.needed is not None
    assert 100 < few.needed <= COUNT
    enough = decide([baseline], [run_of(tmp_path, "enough", 8, count=few.needed)], rules)
    assert enough.verdict is Verdict.PROMOTE


def test_a_copy_of_the_baseline_is_no_difference_and_no_evidence(baseline: Path, tmp_path: Path) -> None:
    found = decide([baseline], [run_of(tmp_path, "copy", 1)])
    assert found.verdict is Verdict.HOLD
    assert found.reasons[0].startswith("no difference")
    assert (found.is_copy, found.needed) == (True, None)
    assert by_name(found)["ttft_p99_s"].worse == 0


def test_a_run_that_was_cut_short_is_never_promoted(baseline: Path, tmp_path: Path) -> None:
    found = decide([baseline], [run_of(tmp_path, "cut", 9, whole=False)])
    assert found.verdict is Verdict.HOLD
    assert any("cut short" in reason for reason in found.reasons)


def test_of_runs_that_hang_only_what_came_before_is_compared(baseline: Path, tmp_path: Path) -> None:
    hung = {"status": RequestStatus.CANCELLED, "chunk_times_s": (), "output_tokens": None}
    found = decide([baseline], [run_of(tmp_path, "hung", 10, change=lambda index: hung if index == 120 else {})])
    assert found.pooled.baseline.num_each == found.pooled.canary.num_each == 120
    assert found.pooled.num_left_out == 2 * COUNT - 240
    assert found.verdict is Verdict.HOLD


def test_several_runs_are_pooled_and_have_the_same_requests(baseline: Path, tmp_path: Path) -> None:
    runs = [run_of(tmp_path, f"r{seed}", seed, count=COUNT - seed) for seed in (11, 12, 13)]
    found = decide([baseline, runs[0]], runs[1:])
    assert found.pooled.baseline.num_each == COUNT - 13
    assert by_name(found)["ttft_p50_s"].counts == (2 * (COUNT - 13), 2 * (COUNT - 13))
    assert not any("one run" in note for note in found.notes)


def test_runs_that_begin_elsewhere_are_compared_where_they_overlap() -> None:
    draws = random.Random(0)
    early, late = ([record(i, draws) for i in range(*ends)] for ends in ((0, 30), (10, 40)))
    found = pool([early], [late])
    assert [each.index for each in found.baseline.records] == [each.index for each in found.canary.records]
    assert (found.baseline.num_each, found.num_left_out) == (20, 20)


def test_documents_that_are_no_longer_valid_roll_back_and_one_side_alone_tells_nothing(tmp_path: Path) -> None:
    rules = RuleSet((Rule("document_valid_fraction", 0.01),))
    good = run_of(tmp_path, "good", 14, change=lambda _index: {"document_valid": True})
    bad = run_of(tmp_path, "bad", 15, change=lambda index: {"document_valid": index % 5 != 0})
    free = run_of(tmp_path, "free", 16)
    assert decide([good], [bad], rules).verdict is Verdict.ROLL_BACK
    assert decide([good], [free], rules).verdict is Verdict.HOLD
    assert decide([bad], [good], rules).verdict is Verdict.PROMOTE


def test_answers_that_are_cut_at_their_limit_more_often_are_seen(baseline: Path, tmp_path: Path) -> None:
    stops = run_of(tmp_path, "stops", 17, change=lambda _index: {"finish_reason": "stop"})
    found = by_name(decide([stops], [baseline]))["length_limited_fraction"]
    assert (found.outcome, found.worse) == (Outcome.BROKEN, 1.0)


def suite(ends: str, digest: str = "ab" * 32) -> SuiteOutcome:
    names = {"r": SuiteEnd.RIGHT, "w": SuiteEnd.WRONG, "f": SuiteEnd.FAILED, "n": SuiteEnd.NOT_ASKED}
    return SuiteOutcome(
        "s", digest, "m", "completions", tuple(SuiteAnswer(names[end], f"{ord(end):08x}") for end in ends)
    )


@pytest.mark.parametrize(
    ("mine", "theirs", "limit", "outcome", "lost"),
    [
        (suite("rrw"), suite("rrw"), 0, Outcome.KEPT, 0),
        (suite("rrw"), suite("rww"), 0, Outcome.BROKEN, 1),
        (suite("rrw"), suite("rfr"), 0, Outcome.BROKEN, 1),  # one gained does not pay for one lost
        (suite("rrw"), suite("rww"), 1, Outcome.KEPT, 1),
        (suite("rrw"), suite("rrw", "cd" * 32), 0, Outcome.UNTOLD, None),
        (suite("rrw"), None, 0, Outcome.UNTOLD, None),
        (suite("rrw"), suite("rrn"), 0, Outcome.UNTOLD, None),  # a suite that was interrupted says nothing of the whole
        (suite("rnn"), suite("rrw"), 0, Outcome.UNTOLD, None),
        (None, None, 0, Outcome.NOT_MEASURED, None),
    ],
)
def test_a_suite_counts_the_questions_that_were_right_and_no_longer_are(mine, theirs, limit, outcome, lost) -> None:
    found = judge_suites(Rule("suite_regressions", limit), mine, theirs)
    assert (found.outcome, found.worse) == (outcome, lost)


def test_a_suite_that_lies_in_the_run_folders_decides_with_the_rest(baseline: Path, tmp_path: Path) -> None:
    first, second = run_of(tmp_path, "one", 18), run_of(tmp_path, "two", 19)
    write_outcome(first, suite("rrr"))
    write_outcome(second, suite("rrw"))
    found = decide([first], [second])
    assert found.verdict is Verdict.ROLL_BACK
    assert found.reasons == ("1 of 11 rules are broken: suite_regressions",)
    assert decide([baseline], [second]).verdict is Verdict.HOLD


def test_manifests_that_differ_are_named_by_component_and_equal_ones_said_to_be(tmp_path: Path) -> None:
    runs = [run_of(tmp_path, name, seed) for seed, name in enumerate(("m1", "m2", "m3"), start=20)]
    for run, version in zip(runs, ("1.0", "2.0", "1.0"), strict=True):
        engine = Component(Group.ENGINE, "version", "said", value=version)
        write_manifest(Manifest((engine,)), run / "manifest.json")
    assert ("manifest: engine version", "1.0", "2.0") in decide(runs[:1], runs[1:2]).changed
    same = decide(runs[:1], runs[2:])
    assert same.changed == ()
    assert any("the manifests are the same" in note for note in same.notes)


def test_no_request_a_broken_journal_and_another_workload_are_refused(baseline: Path, tmp_path: Path) -> None:
    empty = run_of(tmp_path, "empty", 30, count=0)
    with pytest.raises(RunFolderError, match="no measured request"):
        decide([baseline], [empty])
    broken = run_of(tmp_path, "broken", 31)
    journal = broken / "requests.journal"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 0xFF
    journal.write_bytes(content)
    with pytest.raises(RunFolderError):
        decide([baseline], [broken])
    other = run_of(tmp_path, "other", 32, change=lambda _index: {"requested_output_tokens": 6})
    with pytest.raises(RequestError, match="did not do the same work"):
        decide([baseline], [other])
    with pytest.raises(RequestError, match="given twice"):
        decide([baseline], [baseline])


def test_runs_of_several_parts_ask_which(tmp_path: Path) -> None:
    runs = [
        run_of(tmp_path, name, seed, change=lambda index: {"group": f"c{index % 2}", "index": index // 2})
        for seed, name in enumerate(("p1", "p2"), start=40)
    ]
    with pytest.raises(RequestError, match="share the parts c0, c1; say which"):
        decide(runs[:1], runs[1:])
    assert decide(runs[:1], runs[1:], part="c1").part == "c1"
    with pytest.raises(RequestError, match="has a part 'c2'"):
        decide(runs[:1], runs[1:], part="c2")


def test_goodput_is_worse_where_more_requests_miss_the_objective(baseline: Path, tmp_path: Path) -> None:
    def late(index: int) -> dict[str, Any]:
        return {"chunk_times_s": tuple(index * 0.5 + 4 + 0.01 * n for n in range(5))} if index % 4 == 0 else {}

    rules = RuleSet((Rule("goodput_requests_per_s", 0.05),))
    found = decide([baseline], [run_of(tmp_path, "late", 50, change=late)], rules)
    assert found.verdict is Verdict.ROLL_BACK
    # a quarter of the requests miss, and the run takes a second or two longer than 200 s
    assert found.evidence[0].worse == pytest.approx(0.25, abs=0.02)


def test_a_wrong_verdict_is_rare_on_runs_of_one_server() -> None:
    rules = RuleSet((Rule("ttft_p50_s", 0.0), Rule("tpot_p50_s", 0.0)))
    wrong = 0
    for seed in range(20):
        draws = random.Random(seed)
        first, second = ([record(index, draws) for index in range(150)] for _ in range(2))
        found = gather(pool([first], [second]), rules, Objective(), resamples=150)
        wrong += any(each.outcome is Outcome.BROKEN for each in found)
    assert wrong <= 3  # at most 2.5 % each side is meant: more than 3 of 20 has a chance below 1 in 500


def test_a_limit_that_is_the_difference_itself_is_not_said_to_be_kept() -> None:
    promoted = 0
    for seed in range(20):
        draws = random.Random(seed)
        first = [record(index, draws) for index in range(150)]
        second = [record(index, draws, slow=1.1) for index in range(150)]
        (found,) = gather(pool([first], [second]), RuleSet((Rule("ttft_p50_s", 0.1),)), Objective(), resamples=150)
        promoted += found.outcome is Outcome.KEPT
    assert promoted <= 3


def test_the_records_of_a_request_are_never_changed_by_pooling() -> None:
    draws = random.Random(1)
    one = record(0, draws)
    assert pool([[one]], [[replace(one, prompt_tokens=7)]]).baseline.records == [one]


@pytest.mark.parametrize(
    ("alone", "among_all", "outcome"),
    [
        ((-0.05, 0.09), (-0.1, 0.2), Outcome.KEPT),
        ((-0.05, 0.11), (-0.1, 0.2), Outcome.UNTOLD),
        ((0.12, 0.3), (0.08, 0.4), Outcome.UNTOLD),  # beyond the limit alone, and not among all rules
        ((0.14, 0.3), (0.11, 0.4), Outcome.BROKEN),
    ],
)
def test_a_rule_is_kept_by_its_own_interval_and_broken_by_that_among_all_rules(
    alone: tuple[float, float], among_all: tuple[float, float], outcome: Outcome
) -> None:
    measured = _Measured(1.0, 1.1, 0.1, (400, 400), lambda _drawn: None)
    intervals = [Interval(*ends, 0.95) for ends in (alone, among_all)]
    assert _outcome(Rule("ttft_p50_s", 0.1), measured, *intervals, RuleSet())[0] is outcome


def test_a_shadow_is_held_to_the_requests_it_replays_where_the_recording_began_with_a_warm_up() -> None:
    draws = random.Random(2)
    recorded = tuple(record(index, draws) for index in range(10, 30))
    sent = tuple(record(index, draws, slow=2.0) for index in range(20))
    replay = SimpleNamespace(records=recorded, why_apart=None)
    found = compare_shadow(SimpleNamespace(replay=replay, load=SimpleNamespace(records=sent)))  # type: ignore[arg-type]
    assert (found.num_requests, found.why_apart) == (20, None)
    tpot = next(each for each in found.figures if each.name == "tpot_p50_s")
    assert tpot.change == pytest.approx(1.0, abs=0.1)
