"""Loads that are predicted, sent and compared: the same workload, errors, failures, and what is said of them."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.errors import MeasurementError, RequestError, RunFolderError
from inference_bench.loadtest.workload_memory import asked_in
from inference_bench.measure.client_health import ClientHealth
from inference_bench.measure.error_bounds import ErrorBound
from inference_bench.measure.load import LoadResult
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.simulate.rate_search import Limits
from inference_bench.stats import quantile
from inference_bench.verify.capacity_check import PredictedCapacity
from inference_bench.verify.closed_loop import LoadRow
from inference_bench.verify.load_check import check_load, load_rates
from inference_bench.verify.load_prediction import PREDICTION_FILE, predict_load
from inference_bench.verify.load_rows import row_of
from inference_bench.verify.load_workload import (
    QUICK,
    LoadBudget,
    choose_workload,
    pace_of,
)
from inference_bench.workload import OpenLoop, Poisson, UniformLengths, Workload, generate
from verify.load_servers import LawfulServer, server_model

SMALL = LoadBudget(seconds=20.0, fewest=30, other_seeds=2)


def failing(records: list[RequestRecord]) -> list[RequestRecord]:
    """Every fourth request is refused."""
    return [
        replace(
            record, status=RequestStatus.REJECTED, chunk_times_s=(), output_tokens=None, end_s=record.planned_s + 0.01
        )
        if index % 4 == 3
        else record
        for index, record in enumerate(records)
    ]


# ── a server that follows the law ──────────────────────────────────────────────────────────────────


def test_a_server_that_does_what_was_fitted_is_predicted_without_error() -> None:
    model = server_model()
    checked = check_load(model, LawfulServer(model).send, budget=SMALL)
    assert [row.place for row in checked.load.rows] == ["below", "near", "past"]
    for row in checked.load.rows:
        assert row.num_completed == row.num_requests >= 30
        assert len(row.figures) == 10
        for figure in row.figures:
            assert figure.error == pytest.approx(0.0, abs=1e-9), figure.name
        assert row.measured_ttft_s == pytest.approx(row.predicted_ttft_s)
    assert [figure.is_reached for figure in checked.load.rows[0].figures if figure.target] == [True] * 4
    assert not any(figure.target for figure in checked.load.rows[-1].figures)
    assert checked.capacity is not None
    assert checked.capacity.is_confirmed is True
    assert checked.capacity.measured_rate == checked.capacity.predicted_rate


def test_a_server_that_is_slower_than_was_fitted_shows_as_an_error_of_that_size() -> None:
    """Alone, a first token takes (2 ms + prompt · 1 ms) / speed: 52 ms, and 65 ms at 0.8 of the speed."""
    workload = generate(Poisson(0.001), UniformLengths(50, 50), UniformLengths(2, 2), 20)
    fitted, real = server_model(), server_model(speed=0.8)
    row = row_of(predict_load(fitted, workload, "below"), LawfulServer(real).send(workload, "g"))
    figure = row.figure("ttft_p50_s")
    assert figure is not None
    assert figure.predicted == pytest.approx(0.052)
    assert figure.measured == pytest.approx(0.065)
    assert figure.error == pytest.approx(-0.2)
    assert figure.is_reached is False


def test_how_far_off_a_step_is_without_any_queue_is_said() -> None:
    workload = generate(Poisson(0.001), UniformLengths(50, 50), UniformLengths(2, 2), 20)
    row = row_of(predict_load(server_model(), workload, "below"), LawfulServer(server_model(0.8)).send(workload, "g"))
    assert any("of 20 requests that found the server idle" in note and "20 % too early" in note for note in row.notes)
    at_once = generate(Poisson(1e4), UniformLengths(50, 50), UniformLengths(2, 2), 20)
    row = row_of(predict_load(server_model(), at_once, "below"), LawfulServer(server_model()).send(at_once, "g"))
    assert not any("idle" in note for note in row.notes)


def test_what_a_request_takes_besides_its_steps_comes_before_its_first_token() -> None:
    workload = generate(Poisson(0.001), UniformLengths(50, 50), UniformLengths(3, 3), 5)
    predicted = predict_load(server_model(request_s=0.004), workload)
    assert predicted.ttft_s == pytest.approx([0.056] * 5)
    assert predicted.e2e_s == pytest.approx([0.056 + 2 * 0.003] * 5)


# ── what is sent is what was predicted, and that was written first ─────────────────────────────────


def test_the_workload_that_was_simulated_is_sent_and_its_prediction_is_on_file_before(tmp_path: Path) -> None:
    model, folder = server_model(), RunFolder.create(tmp_path, "verify")
    server = LawfulServer(model)
    seen: list[str] = []

    def send(workload: Workload, group: str) -> LoadResult:
        text = (folder.path / PREDICTION_FILE).read_text()
        place = json.loads(text)["loads"][len(server.sent)]
        assert isinstance(workload.arrival, OpenLoop)
        assert place["arrival_s"] == list(workload.arrival.times_s)
        assert place["prompt_tokens"] == list(workload.requests.prompt_tokens)
        assert place["output_tokens"] == list(workload.requests.output_tokens)
        seen.append(text)
        return server.send(workload, group)

    check_load(model, send, folder, SMALL)
    assert len(seen) == 4
    assert len(set(seen)) == 1
    said = folder.read_meta()["prediction"]
    assert said == {"file": PREDICTION_FILE, "sha256": hashlib.sha256(seen[0].encode()).hexdigest()}
    assert [group for group, _ in server.sent] == ["load-below", "load-near", "load-above", "load-past"]
    assert set(folder.read_meta()["load_check"]["client"]) == {"below", "near", "above", "past"}  # type: ignore[index]
    asked = asked_in(folder.read_meta())  # for a later comparison: the schedule of each load
    assert [(group, asked[group].arrival) for group, _ in server.sent] == [
        (group, workload.arrival) for group, workload in server.sent
    ]
    with pytest.raises(RunFolderError, match="holds a prediction already"):
        check_load(model, send, folder, SMALL)
    assert (folder.path / PREDICTION_FILE).read_text() == seen[0]


def test_all_rates_send_the_same_requests_on_the_same_arrivals_stretched() -> None:
    model = server_model()
    server = LawfulServer(model)
    check_load(model, server.send, budget=SMALL)
    (_, first), *others = server.sent
    for _, other in others:
        assert other.requests is first.requests
        assert isinstance(first.arrival, OpenLoop)
        assert isinstance(other.arrival, OpenLoop)
        factor = other.arrival.times_s[0] / first.arrival.times_s[0]
        assert list(other.arrival.times_s) == pytest.approx([factor * time_s for time_s in first.arrival.times_s])


def test_the_rates_lie_below_near_and_past_what_is_just_sustained() -> None:
    limits = Limits(ttft_p99_s=1.0)

    def rates(capacity: float) -> dict[str, float]:
        return load_rates(10.0, PredictedCapacity(limits, "", capacity, 1.2 * capacity))

    assert load_rates(10.0, None) == {"below": 5.0, "near": 8.5, "past": 12.5}
    assert rates(9.0) == pytest.approx({"below": 5.0, "near": 9.0, "above": 10.8, "past": 12.5})
    assert rates(5.5) == pytest.approx({"below": 5.5, "near": 8.5, "above": 6.6, "past": 12.5})
    assert rates(2.0) == pytest.approx({"below": 5.0, "near": 8.5, "at capacity": 2.0, "above": 2.4, "past": 12.5})
    assert load_rates(10.0, PredictedCapacity(limits, "", None)) == load_rates(10.0, None)


# ── the workload ───────────────────────────────────────────────────────────────────────────────────


def test_the_rate_that_is_just_sustained_is_that_of_a_queue_that_never_empties() -> None:
    """One slot, 50 + 1 tokens: 52 ms for the prompt and 10 steps of 3 ms for the rest, one request after the other."""
    workload = generate(Poisson(1.0), UniformLengths(50, 50), UniformLengths(11, 11), 40)
    pace = pace_of(server_model(slots=1), workload)
    assert pace.saturation_rate == pytest.approx(1 / 0.082)
    assert pace.answer_s == pytest.approx(0.03)


def test_there_are_enough_requests_and_they_are_as_long_as_the_time_allows() -> None:
    models = [server_model(speed) for speed in (4.0, 1.0)]
    fast, slow = (choose_workload(model, SMALL) for model in models)
    assert len(fast.workload) >= SMALL.fewest
    assert len(slow.workload) >= SMALL.fewest
    assert max(fast.workload.requests.prompt_tokens) > max(slow.workload.requests.prompt_tokens)
    for model, chosen in zip(models, (fast, slow), strict=True):
        rates = [factor * chosen.saturation_rate for factor in SMALL.factors]
        spans = [predict_load(model, chosen.at_rate(rate)).metrics.span_s for rate in rates]
        assert sum(spans) < 1.2 * SMALL.seconds


def test_there_are_enough_requests_for_a_queue_to_form() -> None:
    """64 slots: 30 requests would never fill them."""
    model = server_model(8.0, slots=64)
    chosen = choose_workload(model, SMALL)
    pace = pace_of(model, chosen.redrawn(1))
    assert len(chosen.workload) > 64
    assert len(chosen.workload) >= 2 * pace.in_flight * 0.9


def test_no_request_is_longer_than_a_slot() -> None:
    model = server_model(4.0)
    small = replace(model, rules=replace(model.rules, max_context_tokens=150))
    requests = choose_workload(small, SMALL).workload.requests
    assert max(p + o for p, o in zip(requests.prompt_tokens, requests.output_tokens, strict=True)) < 150
    with pytest.raises(RequestError, match="may have 20 tokens with its answer"):
        choose_workload(replace(model, rules=replace(model.rules, max_context_tokens=20)), SMALL)


def test_a_server_too_slow_for_enough_requests_is_sent_fewer_and_that_is_said() -> None:
    chosen = choose_workload(server_model(0.02), SMALL)
    assert len(chosen.workload) < SMALL.fewest
    assert "too slow for 30 requests" in chosen.notes[0]


def test_a_quick_check_has_two_loads_and_looks_for_no_capacity() -> None:
    model = server_model()
    checked = check_load(model, LawfulServer(model).send, budget=QUICK)
    assert [row.place for row in checked.load.rows] == ["below", "near"]
    assert checked.capacity is None
    assert sum(row.figures[-1].predicted or math.inf for row in checked.load.rows) < 1.3 * QUICK.seconds


# ── what goes wrong ────────────────────────────────────────────────────────────────────────────────


def row_with(change: object) -> LoadRow:
    model = server_model()
    workload = generate(Poisson(4.0), UniformLengths(40, 80), UniformLengths(2, 6), 40)
    return row_of(predict_load(model, workload, "below"), LawfulServer(model, change).send(workload, "g"))  # type: ignore[arg-type]


def test_failures_stay_in_the_denominator_and_are_said() -> None:
    row = row_with(failing)
    assert (row.num_requests, row.num_completed) == (40, 30)
    assert row.measured_ttft_s[3] is None
    known = sorted(value for value in row.measured_ttft_s if value is not None)
    p50, p99 = row.figure("ttft_p50_s"), row.figure("ttft_p99_s")
    assert p50 is not None
    assert p99 is not None
    assert p50.measured == pytest.approx((known[19] + known[20]) / 2)  # the middle of 40, not of 30
    assert p50.count == 40
    assert p99.measured is None
    assert p99.error is None
    assert p99.is_reached is None
    assert any("10 of 40 requests did not complete" in note for note in row.notes)


def test_a_load_of_which_nothing_came_is_a_row_without_figures_and_ends_the_check() -> None:
    model = server_model()

    def send(workload: Workload, group: str) -> LoadResult:
        raise MeasurementError("every one of the first 5 requests failed; the first: refused")

    checked = check_load(model, send, budget=SMALL)
    (row,) = checked.load.rows
    assert row.num_completed == 0
    assert all(figure.measured is None and figure.predicted is not None for figure in row.figures)
    assert "the first: refused" in row.notes[0]
    assert "no more were sent" in checked.load.notes[-1]
    assert checked.capacity is not None
    assert checked.capacity.is_confirmed is None


def test_loads_that_would_end_beyond_the_time_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, now_s = server_model(), 0.0
    server = LawfulServer(model)

    def send(workload: Workload, group: str) -> LoadResult:
        nonlocal now_s
        now_s += 1.9 * SMALL.seconds  # a server that hangs
        return server.send(workload, group)

    monkeypatch.setattr("inference_bench.verify.load_check.time.monotonic", lambda: now_s)
    checked = check_load(model, send, budget=SMALL)
    assert [row.place for row in checked.load.rows] == ["below"]
    assert [note for note in checked.load.notes if "near was not sent" in note or "past was not sent" in note]
    assert checked.capacity is not None
    assert checked.capacity.is_confirmed is None


def test_a_client_that_may_have_moved_the_times_is_said() -> None:
    model = server_model()
    workload = generate(Poisson(4.0), UniformLengths(40, 80), UniformLengths(2, 6), 10)
    sent = LawfulServer(model).send(workload, "g")
    bound = ErrorBound("ttft_s", "p99", 0.1, 0.05)
    broken = replace(sent, health=replace(sent.health, error_bounds=(bound,)))
    assert any(note.startswith("invalid: ") for note in row_of(predict_load(model, workload, "near"), broken).notes)


def test_prompts_or_answers_of_other_lengths_than_predicted_are_said() -> None:
    row = row_with(lambda records: [replace(record, prompt_tokens=record.prompt_tokens + 1) for record in records])
    assert any("0 of 40 prompts are as long as asked" in note for note in row.notes)
    row = row_with(lambda records: [replace(record, output_tokens=1) for record in records])
    assert any("40 answers do not have the length" in note for note in row.notes)
    assert not any("answers" in note or "prompts" in note for note in row_with(None).notes)


def test_figures_past_the_knee_say_that_they_depend_on_the_length_of_the_run() -> None:
    model = server_model()
    checked = check_load(model, LawfulServer(model).send, budget=SMALL)
    below, _, past = checked.load.rows
    assert any("the queue grows" in note for note in past.notes)
    assert not any("the queue grows" in note for note in below.notes)


def test_percentiles_are_those_of_all_requests() -> None:
    row = row_with(None)
    for name, q in (("ttft_p50_s", 0.5), ("ttft_p90_s", 0.9), ("ttft_p99_s", 0.99)):
        figure = row.figure(name)
        assert figure is not None
        assert figure.predicted == pytest.approx(quantile(row.predicted_ttft_s, q))


def test_an_empty_result_is_no_measurement() -> None:
    model = server_model()
    workload = generate(Poisson(4.0), UniformLengths(40, 80), UniformLengths(2, 6), 10)
    nothing = LoadResult((), ClientHealth(None, None), Target("http://127.0.0.1:1"))
    row = row_of(predict_load(model, workload, "near"), nothing)
    assert row.num_completed == 0
    assert all(figure.measured is None for figure in row.figures)


def test_an_objective_that_is_given_is_looked_at_in_a_quick_check_too() -> None:
    model = server_model()
    checked = check_load(model, LawfulServer(model).send, budget=QUICK, limits=Limits(ttft_p99_s=1.0))
    assert checked.capacity is not None
    assert checked.capacity.is_confirmed is True
    assert checked.capacity.gap_s is None


def test_an_objective_that_is_given_is_the_one_that_is_held_to() -> None:
    model = server_model()
    checked = check_load(model, LawfulServer(model).send, budget=SMALL, limits=Limits(ttft_p99_s=1.0))
    assert checked.capacity is not None
    assert checked.capacity.ttft_s == 1.0
    assert checked.capacity.objective == "p99 TTFT <= 1.00 s"
