"""A sweep goes from idle to saturated and past it in one run, repeats no prompt, and goes on where it was cut short."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inference_bench.arrival_proof import Verdict
from inference_bench.errors import MeasurementError, RequestError, RunFolderError, StorageError
from inference_bench.loadtest import session as session_room
from inference_bench.loadtest import sweep as sweep_room
from inference_bench.loadtest.flow import LoadRequest, measure_load
from inference_bench.loadtest.sweep import Axis, SweepPlan, measure_sweep, saturated_level
from inference_bench.measure.load import LoadInterrupted
from inference_bench.measure.store import read_records
from inference_bench.records import Stage
from inference_bench.workload import Constant, Fixed, RequestShape, Workload, closed_loop, generate
from loadtest.queue_server import queue_server
from measure.truth_server import TruthServer

SERVICE_S = 0.02  # 50 requests a second and no more


@pytest.fixture(scope="module")
def queue() -> Iterator[str]:
    with queue_server(SERVICE_S) as url:
        yield url


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def slots(num_requests: int, output_tokens: int = 1) -> Callable[[float], Workload]:
    def at(level: float) -> Workload:
        return closed_loop("sweep", [RequestShape(8, output_tokens)], int(level), num_requests)

    return at


def test_a_sweep_without_an_end_doubles_until_the_server_is_saturated_and_goes_on_past_it(
    queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(  # it counts no prompt tokens
        session_room, "warm_up", lambda target, *_, **__: SimpleNamespace(target=target, dropped_fields=())
    )
    request = LoadRequest(queue, runs=tmp_path, duration_s=1.0, cooldown_s=2.0)

    def at(rate: float) -> Workload:
        return generate(Constant(rate), Fixed(8), Fixed(1), 10_000).until(3.0)

    found = measure_sweep(request, SweepPlan(Axis.RATE, (10.0,), is_open=True), at)
    levels = [point.level for point in found.points]
    assert levels[:3] == [10.0, 20.0, 40.0]
    doubled = [level for level in levels if level in (10.0, 20.0, 40.0, 80.0, 160.0)]
    last = doubled[-1]
    assert last >= 80.0  # more than it can: nothing else shows where it ends
    assert levels[len(doubled) :] == [1.5 * last, 2.25 * last]
    assert found.saturated_level is not None
    windows = [point.window for point in found.points]
    assert all(window is not None and window.requests_per_s < 1.2 / SERVICE_S for window in windows)


def test_the_levels_of_one_run_are_groups_of_one_folder_and_no_prompt_comes_twice(
    server: TruthServer, tmp_path: Path
) -> None:
    before = len(server.of("steady"))
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    found = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2, 4)), slots(8))
    assert len(list(tmp_path.iterdir())) == 1
    assert [point.group for point in found.points] == ["concurrency-1", "concurrency-2", "concurrency-4"]
    assert [point.metrics.requests.completed for point in found.points] == [8, 8, 8]
    prompts = [request.prompt for request in server.of("steady")[before:]]
    assert len(prompts) == len(set(prompts)) >= 24
    groups = {record.group for record in read_records(found.run_dir).records if record.stage is Stage.MEASURE}
    assert groups == {point.group for point in found.points}


def test_a_sweep_that_was_cut_short_goes_on_at_the_next_level(
    server: TruthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    plan = SweepPlan(Axis.CONCURRENCY, (1, 2, 4))
    before = len(server.of("steady"))
    send = sweep_room.send_or_stop

    def stop_at_the_third(session: sweep_room.Session, workload: Workload, group: str) -> object:
        result, _ = send(session, workload, group)
        return result, group == "concurrency-4"

    monkeypatch.setattr(sweep_room, "send_or_stop", stop_at_the_third)
    cut = measure_sweep(request, plan, slots(8))
    assert cut.is_interrupted
    assert [point.is_complete for point in cut.points] == [True, True, False]
    monkeypatch.undo()
    sent = len(server.of("steady"))
    whole = measure_sweep(request, plan, slots(8), resume=cut.run_dir)
    assert whole.run_dir == cut.run_dir
    assert [point.is_complete for point in whole.points] == [True, True, True]
    assert [point.metrics.requests.completed for point in whole.points] == [8, 8, 8]
    assert [point.metrics.ttft_s for point in whole.points[:2]] == pytest.approx(
        [point.metrics.ttft_s for point in whole.points[:2]]
    )
    measured = [request for request in server.of("steady")[sent:] if request.num_tokens == 1]
    assert 8 <= len(measured) < 16  # the last level, and no level before it
    prompts = [request.prompt for request in server.of("steady")[before:]]
    assert len(prompts) == len(set(prompts))
    measured_again = [record for record in read_records(cut.run_dir).records if record.group == "concurrency-4"]
    assert len(measured_again) == 8


@pytest.mark.parametrize("failure", [MeasurementError("it went away"), StorageError("the disk is full")])
def test_levels_that_were_measured_stay_where_a_later_one_fails(
    server: TruthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    send = sweep_room.send_or_stop

    def fail_at_the_second(session: sweep_room.Session, workload: Workload, group: str) -> object:
        if group == "concurrency-2":
            raise failure
        return send(session, workload, group)

    monkeypatch.setattr(sweep_room, "send_or_stop", fail_at_the_second)
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    found = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2, 4)), slots(3))
    assert [point.level for point in found.points] == [1]
    assert found.notes == (f"concurrency 2: {failure}",)


def test_a_sweep_is_not_gone_on_with_in_another_way(server: TruthServer, tmp_path: Path) -> None:
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    done = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(3))
    with pytest.raises(RequestError, match="was asked for the levels 1, 2, and this one for the levels 1, 4;"):
        measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 4)), slots(3), resume=done.run_dir)
    with pytest.raises(RequestError, match="was asked for a seed 0, and this one for a seed 5;"):
        measure_sweep(replace(request, seed=5), SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(3), resume=done.run_dir)
    with pytest.raises(RequestError, match=r"was asked for no duration, and this one for a duration of 4\.00 s;"):
        measure_sweep(
            replace(request, duration_s=4.0), SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(3), resume=done.run_dir
        )
    elsewhere = replace(request, url=server.url("slow"))
    with pytest.raises(RequestError, match="was asked for the address "):
        measure_sweep(elsewhere, SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(3), resume=done.run_dir)
    single = measure_load(replace(request, num_requests=2))
    with pytest.raises(RequestError, match="holds no sweep"):
        measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(3), resume=single.run_dir)
    with pytest.raises(RunFolderError):
        measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(3), resume=tmp_path / "nothing")


def test_a_level_that_this_client_cannot_hold_ends_the_sweep_and_keeps_what_was_measured(
    server: TruthServer, tmp_path: Path
) -> None:
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    found = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 10_000_000, 2)), slots(4))
    assert [point.level for point in found.points] == [1]
    assert "more than this client can hold" in found.notes[0]


def test_saturation_needs_a_higher_level_that_gave_no_more(server: TruthServer, tmp_path: Path) -> None:
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    (point,) = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1,)), slots(6)).points

    def at(level: float, tokens_per_s: float) -> sweep_room.SweepPoint:
        assert point.window is not None
        return replace(point, level=level, window=replace(point.window, output_tokens_per_s=tokens_per_s))

    assert saturated_level([at(1, 100), at(2, 199), at(4, 380)]) is None
    assert saturated_level([at(1, 100), at(2, 199), at(4, 203), at(8, 190)]) == 2
    assert saturated_level([at(8, 190), at(4, 203), at(1, 100)]) == 4
    assert saturated_level([point]) is None


def test_a_level_with_too_few_requests_a_slot_says_nothing_of_saturation_and_ends_the_search_for_it(
    server: TruthServer, tmp_path: Path
) -> None:
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    found = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1,), is_open=True), slots(7, output_tokens=5))
    assert [point.level for point in found.points] == [1.0, 2.0]  # two slots have no three rounds in seven requests
    assert [point.is_judged for point in found.points] == [True, False]
    assert found.points[-1].window is None
    assert found.saturated_level is None
    assert "too few requests to judge it by" in found.notes[-1]
    (alone,) = measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (9,)), slots(8, output_tokens=5)).points
    assert (alone.arrivals.verdict, alone.is_judged) == (Verdict.NOT_REACHED, False)


def test_stopping_before_anything_was_measured_passes_on(
    server: TruthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_room, "send_or_stop", stop)
    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2)), slots(4))


@pytest.mark.parametrize(
    ("axis", "levels", "said"),
    [
        (Axis.RATE, (), "0 levels"),
        (Axis.RATE, (1.0, 0.0), "a rate of 0"),
        (Axis.CONCURRENCY, (1.5,), "a concurrency of 1.5"),
        (Axis.RATE, (1.0, 2.0, 1.0), "comes twice"),
    ],
)
def test_levels_that_cannot_be_asked_for_are_refused(axis: Axis, levels: tuple[float, ...], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        SweepPlan(axis, levels)


def test_what_was_finished_is_in_the_folder_as_soon_as_it_is(server: TruthServer, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def at(level: float) -> Workload:
        for folder in tmp_path.iterdir():
            meta = json.loads((folder / "meta.json").read_text())
            seen.append(sorted(meta.get("sweep", {}).get("finished", {})))
        return slots(3)(level)

    request = LoadRequest(server.url("steady"), served_model="m", runs=tmp_path)
    measure_sweep(request, SweepPlan(Axis.CONCURRENCY, (1, 2, 4)), at)
    assert seen == [[], ["concurrency-1"], ["concurrency-1", "concurrency-2"]]


def test_an_interrupted_load_is_an_interruption() -> None:
    assert issubclass(LoadInterrupted, KeyboardInterrupt)
