"""The vLLM run that was recorded with per-request times: how far off the simulation is, with nothing fitted and calibrated."""

from __future__ import annotations

import pytest

from corpus.model_configs import SHARED
from inference_bench.calibrate import LoggedServer, calibrate, compare_with_log, logged_server, read_log
from inference_bench.calibrate.fitting import DEFAULT_NUMBERS, Number
from inference_bench.simulate.step_table import read_step_times
from inference_bench.simulate.step_time import StepPart

RUN = SHARED / "data" / "traces" / "vllm-runs" / "RTXPRO6000_Llama-3.1-8B"
SPLITWISE = SHARED / "data" / "traces" / "measured" / "splitwise_perf_a100.csv"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not RUN.is_dir(), reason="the shared traces are not beside this checkout"),
]


@pytest.fixture(scope="module")
def server() -> LoggedServer:
    return logged_server(read_log(RUN))


def test_the_log_is_the_one_that_was_described(server: LoggedServer) -> None:
    log = server.log
    assert len(log) == 300
    assert (sum(log.prompt_tokens) / 300, sum(log.output_tokens) / 300) == pytest.approx((858, 653), abs=1)
    assert log.makespan_s == pytest.approx(65.93, abs=0.01)
    assert (server.setup.scheduler.max_running, server.setup.scheduler.budget) == (128, 2_048)


def test_the_datasheet_alone_is_far_off(server: LoggedServer) -> None:
    errors = compare_with_log(server.log, server.setup, server.at_shares()).errors
    assert errors["ttft_mean"] == pytest.approx(-0.90, abs=0.03)
    assert errors["tpot_mean"] == pytest.approx(-0.39, abs=0.02)


def test_the_engine_expectation_is_near_with_nothing_fitted(server: LoggedServer) -> None:
    """The card is taken as the edition of 1.792 TB/s; the one of 1.597 TB/s would be within 7 %."""
    found = compare_with_log(server.log, server.setup, server.expected())
    assert found.worst("tpot") < 0.10
    assert found.worst("makespan") < 0.10
    assert found.worst("ttft") < 0.28


@pytest.mark.parametrize("numbers", [DEFAULT_NUMBERS, (*DEFAULT_NUMBERS, Number.SERIAL)])
def test_calibrated_it_is_within_two_and_three_percent(server: LoggedServer, numbers: tuple[Number, ...]) -> None:
    found = calibrate(server, numbers)
    assert found.after.worst("tpot") < 0.01
    assert found.after.worst("ttft") < 0.025
    assert found.after.worst("makespan") < 0.02
    assert 0.6 < found.shares.bandwidth < 0.8
    assert 0.5 < found.shares.compute < 0.65
    assert found.shares.fixed_s < 0.003


@pytest.mark.parametrize(("model", "ranks"), [("llama2-70b", 2), ("llama2-70b", 8), ("bloom-176b", 8)])
def test_measured_steps_of_splitwise_are_a_table(model: str, ranks: int) -> None:
    found = read_step_times(SPLITWISE, model, ranks)
    one, many = (found.step_s([StepPart(1_000, 1, True)] * batch) for batch in (1, 16))
    assert 0.005 < one < many < 0.5
    short, long = (found.step_s([StepPart(0, tokens, False)]) for tokens in (512, 4_096))
    assert 0.02 < short < long < 5
