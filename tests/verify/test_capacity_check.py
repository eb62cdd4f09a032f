"""The capacity that is predicted, and what two runs say of it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from inference_bench.errors import RequestError
from inference_bench.simulate.rate_search import Limits
from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import quantile
from inference_bench.verify.capacity_check import (
    PredictedCapacity,
    check_capacity,
    crossing_rate,
    idle_limits,
    predict_capacity,
    slower,
)
from inference_bench.verify.closed_loop import Figure, LoadRow
from inference_bench.verify.load_check import check_load
from inference_bench.verify.load_prediction import PredictedLoad, predict_load
from inference_bench.verify.load_workload import ABOVE, LoadBudget, choose_workload
from inference_bench.workload import Poisson, UniformLengths, generate
from verify.load_servers import LawfulServer, server_model, step_time

SMALL = LoadBudget(seconds=20.0, fewest=30, other_seeds=0)
LIMITS = Limits(ttft_p99_s=1.0, itl_p99_s=0.5)


def row(rate: float, ttft: float | None, gap: float | None = 0.1, completed: int = 50) -> LoadRow:
    figures = (Figure("ttft_p99_s", 0.9, ttft), Figure("itl_p99_s", 0.1, gap))
    return LoadRow("near", rate, rate, 50, completed, figures)


def predicted(rate: float | None = 2.0) -> PredictedCapacity:
    return PredictedCapacity(LIMITS, LIMITS.text, rate)


def is_kept(load: PredictedLoad, limits: Limits) -> bool:
    """By the times of each request alone."""
    gaps = [b - a for record in load.records for a, b in pairwise(record.chunk_times_s)]
    pairs = ((load.ttft_s, limits.ttft_p99_s), (gaps, limits.itl_p99_s))
    return all(limit is None or quantile(values, 0.99) <= limit for values, limit in pairs)


# ── what is predicted ──────────────────────────────────────────────────────────────────────────────


def test_the_predicted_rate_keeps_the_objectives_and_the_one_above_does_not() -> None:
    model = server_model()
    chosen = choose_workload(model, SMALL)
    found = predict_capacity(model, chosen)
    assert found.rate is not None
    assert is_kept(predict_load(model, chosen.at_rate(found.rate)), found.limits)
    assert not is_kept(predict_load(model, chosen.at_rate(ABOVE * found.rate)), found.limits)
    assert found.above_rate == pytest.approx(ABOVE * found.rate)


def test_a_capacity_holds_even_where_steps_take_longer_by_what_the_fit_is_off() -> None:
    model = replace(server_model(), step_error=0.05)
    chosen = choose_workload(model, SMALL)
    found, plain = predict_capacity(model, chosen), predict_capacity(server_model(), chosen, Limits(0.9, 0.5))
    assert found.rate is not None
    assert found.above_rate is not None
    assert is_kept(predict_load(server_model(speed=1 / 1.05), chosen.at_rate(found.rate)), found.limits)
    assert not is_kept(predict_load(model, chosen.at_rate(found.above_rate)), found.limits)
    assert "with every step 5.0 % longer" in found.words
    assert "longer" not in plain.words
    wild = predict_capacity(replace(model, step_error=0.8), chosen)
    assert "with every step 10 % longer, the most that is allowed for; the fit is off by 80 %" in wild.words
    assert "as far as the fit is off" not in wild.words


def test_slower_steps_take_so_many_times_as_long() -> None:
    own = step_time()
    whole = replace(
        own, coefficients=replace(own.coefficients, fixed_s=0.01, sequence_s=0.002, position_s=0.001, vector_s=0.005)
    )
    for parts in ([StepPart(10, 1, True)] * 3, [StepPart(0, 50, False)]):
        assert slower(whole, 1.25).step_s(parts) == pytest.approx(1.25 * whole.step_s(parts))


def test_a_server_half_as_fast_keeps_half_the_rate_by_its_own_idle_times() -> None:
    """All times are twice as long, and so are the objectives that come of them: the same run at half the rate."""
    fast, slow = server_model(2.0), server_model(1.0)
    chosen = choose_workload(slow, SMALL)
    slow_rate = predict_capacity(slow, chosen, Limits(ttft_p99_s=0.6)).rate
    fast_rate = predict_capacity(fast, chosen, Limits(ttft_p99_s=0.3)).rate
    assert slow_rate is not None
    assert fast_rate is not None
    assert fast_rate == pytest.approx(2 * slow_rate, rel=0.02)


def test_objectives_without_any_given_are_times_of_what_the_server_does_for_one_user() -> None:
    """A lone first token of 48 tokens: 50 ms and 4 ms besides; a step of it beside 3 that decode: 2 + 48 + 3 ms."""
    workload = generate(Poisson(1.0), UniformLengths(48, 48), UniformLengths(4, 4), 10)
    model = server_model(slots=4, request_s=0.004)
    limits, words = idle_limits(model, workload)
    assert limits.ttft_p99_s == pytest.approx(5 * 0.054)
    assert limits.itl_p99_s == pytest.approx(0.16)
    assert "5 times the first token of a lone request" in words


def test_objectives_that_no_rate_keeps_have_no_capacity_and_no_run_for_it() -> None:
    model = server_model()
    server = LawfulServer(model)
    checked = check_load(model, server.send, budget=SMALL, limits=Limits(ttft_p99_s=1e-6))
    assert checked.capacity is not None
    assert checked.capacity.predicted_rate is None
    assert checked.capacity.is_confirmed is None
    assert checked.capacity.reading.startswith("not even")
    assert [group for group, _ in server.sent] == ["load-below", "load-near", "load-past"]


@pytest.mark.parametrize("limits", [Limits(tpot_p99_s=0.1), Limits(ttft_p99_s=1.0, e2e_p99_s=2.0)])
def test_an_objective_that_runs_are_not_held_to_is_refused(limits: Limits) -> None:
    model = server_model()
    with pytest.raises(RequestError, match="held to the p99 of TTFT and of ITL"):
        predict_capacity(model, choose_workload(model, SMALL), limits)


def test_other_draws_give_an_interval_that_holds_the_capacity_of_this_one() -> None:
    model = server_model()
    found = predict_capacity(model, choose_workload(model, SMALL), other_seeds=4)
    assert found.interval is not None
    assert found.rate is not None
    assert found.interval.low <= found.rate <= found.interval.high
    reading = check_capacity(found, row(2.0, 0.1), row(2.3, 0.2)).reading
    assert "over several draws of such requests the predicted capacity lies between" in reading
    assert found.interval.confidence == pytest.approx(1 - 2 / 2**5)


# ── what the runs say ──────────────────────────────────────────────────────────────────────────────


def test_kept_there_and_missed_above_is_confirmed() -> None:
    found = check_capacity(predicted(), row(2.0, 0.9), row(2.3, 1.4))
    assert found.is_confirmed is True
    assert found.measured_rate == 2.0
    assert found.reading.startswith("confirmed: 2.00 requests/s keep")
    expected = 2.0 + 0.3 * math.log(1 / 0.9) / math.log(1.4 / 0.9)
    assert found.crossing_rate == pytest.approx(expected)
    assert found.error == pytest.approx(2.0 / expected - 1)


def test_missed_there_is_not_confirmed_and_the_lower_load_says_what_was_kept() -> None:
    found = check_capacity(predicted(), row(2.0, 1.2), row(2.3, 1.6), [row(1.0, 0.5), row(3.0, 4.0)])
    assert found.is_confirmed is False
    assert found.measured_rate == 1.0
    assert "the run there does not" in found.reading
    assert found.crossing_rate is not None
    assert 1.0 < found.crossing_rate < 2.0


def test_kept_above_too_is_not_confirmed() -> None:
    found = check_capacity(predicted(), row(2.0, 0.5), row(2.3, 0.8))
    assert found.is_confirmed is False
    assert found.measured_rate == 2.3
    assert "and so do 2.30" in found.reading
    assert found.crossing_rate is None
    assert found.error is None


@pytest.mark.parametrize(
    ("ttft_p99_s", "measured_rate", "kept_and_missed"),
    [
        ((0.5, 1.2, 0.8, 4.0), 1.0, (2.3, 2.0)),  # at the rate itself
        ((1.5, 0.7, 1.3, 4.0), None, (2.0, 1.0)),  # at the lowest
        ((1.5, 1.2, 1.3, 0.9), None, (3.0, 1.0)),  # everywhere but at the highest
    ],
)
def test_a_lower_rate_that_misses_while_a_higher_one_keeps_leaves_it_undecided(
    ttft_p99_s: tuple[float, ...], measured_rate: float | None, kept_and_missed: tuple[float, float]
) -> None:
    low, at, above, past = (row(rate, ttft) for rate, ttft in zip((1.0, 2.0, 2.3, 3.0), ttft_p99_s, strict=True))
    found = check_capacity(predicted(), at, above, [low, past])
    assert found.is_confirmed is None
    assert found.measured_rate == measured_rate
    assert found.contradiction == kept_and_missed
    assert found.crossing_rate is None
    kept, missed = (f"{rate:.2f}/s" for rate in kept_and_missed)
    assert f"undecided: {kept} kept it while {missed} did not, so something disturbed the runs" in found.reading


def test_a_run_of_which_nothing_is_known_ends_what_is_known_to_keep_the_objectives() -> None:
    found = check_capacity(predicted(), row(2.0, None, None, completed=0), row(2.3, 0.5), [row(1.0, 0.4)])
    assert found.measured_rate == 1.0
    assert found.contradiction is None


def test_the_gap_counts_as_much_as_the_first_token() -> None:
    assert check_capacity(predicted(), row(2.0, 0.5, gap=0.6), row(2.3, 0.8, gap=0.7)).is_confirmed is False
    assert check_capacity(predicted(), row(2.0, 0.5), row(2.3, 0.8, gap=0.6)).is_confirmed is True


def test_a_run_with_a_failure_keeps_nothing() -> None:
    found = check_capacity(predicted(), row(2.0, 0.5, completed=49), row(2.3, 1.4))
    assert found.is_confirmed is False
    assert found.measured_rate is None


@pytest.mark.parametrize("at_rate", [None, row(2.0, None, None, completed=0)])
def test_a_run_that_was_not_sent_or_gave_nothing_decides_nothing(at_rate: LoadRow | None) -> None:
    found = check_capacity(predicted(), at_rate, row(2.3, 1.4))
    assert found.is_confirmed is None
    assert found.measured_rate is None
    assert "no run says whether they do" in found.reading


def test_the_crossing_is_on_the_line_through_the_logarithms_of_both_runs() -> None:
    assert crossing_rate([row(1.0, 0.5), row(2.0, 2.0)], Limits(ttft_p99_s=1.0)) == pytest.approx(1.5)
