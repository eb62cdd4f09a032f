from __future__ import annotations

import json
from pathlib import Path

import pytest

from compare_runs.sample import COUNT, TIMES_S, load_run, point, record, verify_run, workload
from inference_bench.compare_runs.differences import Better, Difference, differences, point_difference
from inference_bench.compare_runs.flow import compare_runs
from inference_bench.compare_runs.side import read_side
from inference_bench.errors import RequestError, RunFolderError
from inference_bench.records import RequestStatus
from inference_bench.stats import Interval


def by_name(found: tuple[Difference, ...]) -> dict[str, Difference]:
    return {each.name: each for each in found}


def test_a_run_that_is_a_fifth_faster_everywhere_is_a_fifth_faster_with_no_doubt(tmp_path: Path) -> None:
    slow = [record(index, 0.100 + 0.001 * (index % 7)) for index in range(COUNT)]
    quick = [record(index, 0.8 * (0.100 + 0.001 * (index % 7)), gap_s=0.008) for index in range(COUNT)]
    found = by_name(differences(slow, quick))
    for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_p50_s", "itl_p50_s", "e2e_p50_s"):
        assert found[name].change == pytest.approx(-0.2), name
        assert found[name].is_improvement is True, name
    assert found["ttft_p50_s"].counts == (COUNT, COUNT)
    assert found["itl_p50_s"].counts == (COUNT * 10, COUNT * 10)


def test_two_runs_of_one_server_are_not_told_apart() -> None:
    import random

    draws = random.Random(7)
    first, second = ([record(i, 0.1 * draws.lognormvariate(0, 0.3)) for i in range(COUNT)] for _ in range(2))
    found = by_name(differences(first, second))["ttft_p50_s"]
    assert found.interval is not None
    assert found.interval.low < 0 < found.interval.high
    assert found.is_improvement is None


def test_the_interval_holds_a_known_change_in_most_made_pairs_of_runs() -> None:
    import random

    held = 0
    for seed in range(40):
        draws = random.Random(seed)
        first = [record(i, 0.1 * draws.lognormvariate(0, 0.4)) for i in range(COUNT)]
        second = [record(i, 0.13 * draws.lognormvariate(0, 0.4)) for i in range(COUNT)]
        interval = by_name(differences(first, second, seed))["ttft_p50_s"].interval
        assert interval is not None
        held += interval.low <= 0.3 <= interval.high
    assert held >= 34  # 95 % of 40 is 38; fewer than 34 has a chance below 1 in 100


def test_few_samples_have_no_interval_and_no_verdict() -> None:
    found = by_name(differences([record(i, 0.1) for i in range(5)], [record(i, 0.05) for i in range(5)]))["ttft_p50_s"]
    assert found.change == pytest.approx(-0.5)
    assert found.interval is None
    assert found.is_improvement is None


def test_a_failure_lowers_the_share_that_completed_and_counts_as_longer_than_any_time() -> None:
    mine = [record(i, 0.1) for i in range(10)]
    theirs = [record(i, 0.1) if i else record(i, 0.1, status=RequestStatus.FAILED, chunk_times_s=()) for i in range(10)]
    found = by_name(differences(mine, theirs))
    assert (found["completed_fraction"].first, found["completed_fraction"].second) == (1.0, 0.9)
    assert found["completed_fraction"].better is Better.HIGHER
    assert found["ttft_p50_s"].counts == (10, 10)
    assert found["ttft_p50_s"].second == pytest.approx(0.1)  # between the fifth and the sixth of ten: neither failed
    assert found["ttft_p99_s"].second is None  # between the ninth and the one that failed
    assert found["itl_p99_s"].counts == (100, 90)  # gaps are of what was delivered


def test_a_run_that_fails_its_slowest_requests_is_not_said_to_be_faster() -> None:
    slow = [record(i, 0.1 if i % 10 else 1.0) for i in range(COUNT)]
    drops = [record(i, 0.1) if i % 10 else record(i, 1.0, status=RequestStatus.TIMED_OUT) for i in range(COUNT)]
    found = by_name(differences(slow, drops))
    assert all(
        found[name].is_improvement is not True for name in ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "e2e_p99_s")
    )
    assert found["ttft_p99_s"].second is None


def test_requests_that_this_program_cancelled_say_nothing() -> None:
    mine = [record(i, 0.1) for i in range(10)]
    theirs = [record(i, 0.1, status=RequestStatus.CANCELLED) if i == 9 else record(i, 0.1) for i in range(10)]
    assert by_name(differences(mine, theirs))["ttft_p99_s"].second == pytest.approx(0.1)


def test_the_change_of_a_step_has_the_widest_interval_that_both_medians_allow(tmp_path: Path) -> None:
    runs = [verify_run(tmp_path, name, [point(seconds)]) for name, seconds in (("a", 0.010), ("b", 0.008))]
    (pair,) = compare_runs(*runs).points
    assert pair.difference.change == pytest.approx(-0.2)
    assert pair.difference.interval is not None
    # low2 / high1 - 1 and high2 / low1 - 1, by hand
    assert pair.difference.interval.low == pytest.approx(0.99 * 0.008 / (1.01 * 0.010) - 1)
    assert pair.difference.interval.high == pytest.approx(1.01 * 0.008 / (0.99 * 0.010) - 1)
    assert pair.difference.is_improvement is True
    assert point_difference(pair.second, pair.first).is_improvement is False


def test_what_differs_between_the_runs_is_listed_and_what_does_not_is_not(tmp_path: Path) -> None:
    runs = [verify_run(tmp_path, name, [point(0.01)]) for name in ("b1", "b2")]
    assert compare_runs(*runs).changed == (("version", "b1", "b2"),)


def test_points_that_only_one_run_has_are_left_out_and_counted(tmp_path: Path) -> None:
    first = verify_run(tmp_path, "a", [point(0.01), point(0.02, batch=2)])
    second = verify_run(tmp_path, "b", [point(0.01), point(0.03, batch=4)])
    found = compare_runs(first, second)
    assert [pair.first.batch for pair in found.points] == [1]
    assert any("2 measured steps that only one run has" in note for note in found.notes)


@pytest.mark.parametrize(
    ("asked", "changes", "why"),
    [
        (workload(tuple(time_s * 1.01 for time_s in TIMES_S)), {}, "the schedules differ"),
        (workload(output_tokens=12), {}, "the requested output lengths differ"),
        (workload(), {"requested_output_tokens": 12}, "asked for another output length"),
        (workload(), {"prompt_tokens": 110}, "the prompts differ by 600 of 6000 tokens"),
    ],
)
def test_another_workload_is_refused_with_its_reason(tmp_path: Path, asked, changes, why: str) -> None:
    first = load_run(tmp_path, "a", lambda _index: 0.1)
    second = load_run(tmp_path, "b", lambda _index: 0.1, asked, **changes)
    with pytest.raises(RequestError, match=f"did not do the same work.*{why}"):
        compare_runs(first, second)


def test_two_verifications_are_compared_by_their_steps_however_many_waves_each_had_time_for(tmp_path: Path) -> None:
    first = verify_run(tmp_path, "a", [point(0.010)], num_waves=3)
    second = verify_run(tmp_path, "b", [point(0.008)], num_waves=7)
    found = compare_runs(first, second)
    assert [pair.difference.change for pair in found.points] == [pytest.approx(-0.2)]
    assert found.parts == ()  # its requests would tell the same step again
    assert found.notes == ()
    assert found.reading[0].startswith("Of 1 steps the second run is clearly faster in 1")


def test_of_two_verifications_the_loads_are_compared_where_they_were_the_same_and_else_named(tmp_path: Path) -> None:
    runs = [verify_run(tmp_path, name, [point(0.01)], load=workload()) for name in ("a", "b")]
    assert [part.name for part in compare_runs(*runs).parts] == ["load-below"]
    other = verify_run(tmp_path, "c", [point(0.01)], load=workload(tuple(time_s * 1.01 for time_s in TIMES_S)))
    found = compare_runs(runs[0], other)
    assert (len(found.points), found.parts) == (1, ())
    assert any("not the same work: the schedules differ" in note and "load-below" in note for note in found.notes)


def test_steps_of_another_model_are_refused(tmp_path: Path) -> None:
    first = verify_run(tmp_path, "a", [point(0.010)])
    second = verify_run(tmp_path, "b", [point(0.008, flops=5.4e8)], output_tokens=12)
    with pytest.raises(RequestError, match="1 steps of the same name compute other FLOPs, as of another model"):
        compare_runs(first, second)


def test_a_load_beside_a_verification_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="one is a load and the other a verification"):
        compare_runs(load_run(tmp_path, "a", lambda _index: 0.1), verify_run(tmp_path, "b", [point(0.01)]))


def test_a_run_beside_itself_is_refused(tmp_path: Path) -> None:
    run = load_run(tmp_path, "a", lambda _index: 0.1)
    with pytest.raises(RequestError, match="two different ones"):
        compare_runs(run, run)


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    run = load_run(tmp_path, "a", lambda _index: 0.1)
    with pytest.raises(RunFolderError):
        compare_runs(run, tmp_path / "nowhere")


def test_a_run_that_was_cut_short_is_compared_and_said_to_be(tmp_path: Path) -> None:
    first, second = (load_run(tmp_path, name, lambda _index: 0.1) for name in "ab")
    assert sum("did not come to its end" in note for note in compare_runs(first, second).notes) == 2


@pytest.mark.parametrize(
    "broken",
    [
        {"points": 7, "machine": [], "engine": "x", "model": None},
        {"points": [{}, 3, {"phase": "decode", "measured_s": "x"}]},
        {"points": [point(0.01, measured_s=-1), {**point(0.01), "batch": "1"}, point(0.01, flops=0)]},
        {"points": [point(0.01, measured_s=10**400)], "machine": {"bandwidth_bytes_per_s": 10**400}},
    ],
)
def test_a_result_that_somebody_broke_gives_what_is_left(tmp_path: Path, broken: dict[str, object]) -> None:
    first = verify_run(tmp_path, "a", [point(0.01)])
    second = verify_run(tmp_path, "b", [])
    path = second / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **broken}))
    found = compare_runs(first, second)
    assert found.points == ()
    assert found.parts[0].name == "c1-p128"


def test_a_change_of_nothing_measured_is_no_value() -> None:
    each = Difference("ttft_p50_s", None, 0.1, Interval(-0.1, 0.1, 0.95), (0, 3))
    assert each.change is None
    assert each.is_improvement is None


@pytest.mark.parametrize(
    ("place", "name"), [("output_tokens", "mean"), ("prompt_tokens", "mean"), ("arrival", "nominal_rate")]
)
def test_a_number_of_400_digits_in_what_was_asked_is_as_if_it_were_not_kept(
    tmp_path: Path, place: str, name: str
) -> None:
    first, second = (load_run(tmp_path, name, lambda index: 0.1 + index / 1000) for name in "ab")
    meta = json.loads((second / "meta.json").read_text())
    meta["asked"]["measure"][place][name] = 10**400
    (second / "meta.json").write_text(json.dumps(meta))
    assert read_side(first).asked.keys() == {"measure"}
    assert read_side(second).asked == {}
    compare_runs(first, second)
