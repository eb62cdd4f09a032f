"""A log beside its simulation, and the numbers that fit it: those of a made log are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.made_logs import BLOCKS, META, made_rows, write_log
from inference_bench.calibrate import LoggedServer, Stated, calibrate, compare_with_log, logged_server, read_log
from inference_bench.calibrate.fitting import DEFAULT_NUMBERS, Number
from inference_bench.calibrate.least_squares import minimise
from inference_bench.calibrate.stretches import count_steps, find_stretches, stretch_residuals
from inference_bench.errors import RequestError, TooFewSamplesError
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.facts.names import fold_name
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_sources import Shares
from inference_bench.stats import median

TRUE = Shares(bandwidth=0.72, compute=0.55, fixed_s=0.0015)


def made_server(
    tmp_path: Path,
    shares: Shares = TRUE,
    rate: float = 2.0,
    count: int = 200,
    machine: str = "RTX 4090",
    blocks: int = BLOCKS,
) -> LoggedServer:
    model = known_loaded_model("Meta-Llama-3.1-8B")
    served = ServedModel(model.spec, loaded_weights(model, None), cache_format(None))
    rows = made_rows(served, hardware(machine), shares, rate, count, blocks)
    folder = write_log(tmp_path / f"{fold_name(machine)}_Llama-3.1-8B", rows, {**META, "num_gpu_blocks": blocks})
    return logged_server(read_log(folder))


def test_the_simulator_agrees_with_its_own_log(tmp_path: Path) -> None:
    server = made_server(tmp_path)
    found = compare_with_log(server.log, server.setup, server.at_shares(TRUE))
    assert found.num_requests == 200
    assert all(error == pytest.approx(0, abs=1e-9) for error in found.errors.values())
    assert set(found.errors) == {
        *(f"{what}_{point}" for what in ("ttft", "tpot") for point in ("mean", "p50", "p90", "p99")),
        "makespan",
    }


def test_errors_are_signed_fractions(tmp_path: Path) -> None:
    server = made_server(tmp_path)
    fast = compare_with_log(server.log, server.setup, server.at_shares())
    assert all(error is not None and error < 0 for error in fast.errors.values())
    assert fast.worst("tpot") == max(-(fast.errors[f"tpot_{point}"] or 0) for point in ("mean", "p50", "p90", "p99"))
    assert fast.preemptions.measured is None


@pytest.mark.parametrize("rate", [3.0, 6.0])
def test_constants_that_made_a_log_are_found_again(tmp_path: Path, rate: float) -> None:
    """Bandwidth and a fixed time are told apart where many batch sizes ran: at 3 requests/s up to 20, at 6 all places."""
    found = calibrate(made_server(tmp_path, rate=rate, machine="RTX PRO 6000", blocks=30_000))
    assert found.shares.bandwidth == pytest.approx(TRUE.bandwidth, rel=0.01)
    assert found.shares.compute == pytest.approx(TRUE.compute, rel=0.01)
    assert found.shares.fixed_s == pytest.approx(TRUE.fixed_s, abs=0.01 * 0.02)  # of a step of about 20 ms
    assert found.after.worst("t") < 0.01
    assert found.before.worst("t") > 0.2
    assert [number.name for number in found.fitted] == list(DEFAULT_NUMBERS)
    for number in found.fitted:
        assert number.interval is not None
        assert number.interval.low <= number.value <= number.interval.high


def test_what_does_not_overlap_can_be_fitted_too(tmp_path: Path) -> None:
    true = replace(TRUE, serial=0.3)
    server = made_server(tmp_path, true, 6.0, machine="RTX PRO 6000", blocks=30_000)
    found = calibrate(server, (*DEFAULT_NUMBERS, Number.SERIAL))
    assert found.after.worst("t") < 0.01
    assert found.shares.serial == pytest.approx(true.serial, abs=0.2)  # it trades with the other three
    around = calibrate(server, DEFAULT_NUMBERS, Shares(serial=0.3))
    assert around.shares.serial == 0.3
    assert around.shares.bandwidth == pytest.approx(true.bandwidth, rel=0.02)


def test_preemptions_do_not_lead_a_fit_astray(tmp_path: Path) -> None:
    found = calibrate(made_server(tmp_path))
    assert found.after.preemptions.simulated > 20
    assert found.after.worst("t") < 0.03
    assert found.shares.compute == pytest.approx(TRUE.compute, rel=0.05)


def test_stretches_of_decoding_hold_whole_steps(tmp_path: Path) -> None:
    server = made_server(tmp_path, rate=6.0, machine="RTX PRO 6000", blocks=30_000)
    true = server.at_shares(TRUE)
    stretches = find_stretches(server.log, 64, true)
    assert len(stretches) > 50
    off = [abs(steps / round(steps) - 1) for steps in (stretch.num_steps(true) for stretch in stretches)]
    assert max(off) < 0.02  # contexts within a stretch are those of an even pace
    assert median(off) < 0.006
    counts = count_steps(stretches, true)
    assert sum(count > 0 for count in counts) > 40
    assert sum(left * left for left in stretch_residuals(stretches, counts, true, 1.0)) < 1e-4


def test_a_fit_becomes_a_profile_for_another_model_of_the_machine(tmp_path: Path) -> None:
    server = made_server(tmp_path, count=60)
    found = calibrate(server)
    profile = found.profile("a made log", "2026-11-30")
    assert (profile.machine, profile.model, profile.shares) == ("RTX 4090", "Meta-Llama-3.1-8B", found.shares)
    assert profile.errors["ttft_mean"] == found.after.errors["ttft_mean"]
    assert profile.step_time(server.served, server.machine).vector == server.at_shares(found.shares).vector


def test_a_log_of_another_machine_says_that_the_rates_are_not_its_own(tmp_path: Path) -> None:
    server = made_server(tmp_path, Shares(), count=60)
    slower = replace(server, machine=replace(server.machine, bandwidth_bytes_per_s=8.5e11))
    assert any("bandwidth fits at" in note for note in calibrate(slower).notes)


def test_too_few_requests_and_nothing_to_fit_are_refused(tmp_path: Path) -> None:
    server = made_server(tmp_path, count=10)
    assert compare_with_log(server.log, server.setup, server.at_shares(TRUE)).worst("t") == pytest.approx(0, abs=1e-9)
    with pytest.raises(TooFewSamplesError, match="10 request"):
        calibrate(server)
    with pytest.raises(RequestError, match="no number"):
        calibrate(made_server(tmp_path), ())


def test_what_the_caller_states_goes_before_the_log(tmp_path: Path) -> None:
    log = made_server(tmp_path).log
    stated = Stated(
        machine=hardware("RTX PRO 6000"), num_blocks=900, max_running=7, token_budget=512, devices=2, cache="fp8"
    )
    server = logged_server(log, stated)
    assert (server.machine.name, server.devices) == ("RTX PRO 6000 Blackwell Server", 2)
    assert (server.setup.scheduler.max_running, server.setup.scheduler.budget) == (7, 512)
    assert server.setup.memory.budget_bytes == 899 * 16 * 131_072 // 4


def test_memory_that_nobody_states_is_said_to_be_assumed(tmp_path: Path) -> None:
    log = made_server(tmp_path).log
    server = logged_server(replace(log, meta=replace(log.meta, num_blocks=None)))
    assert server.setup.memory.budget_bytes == int(0.9 * 25_757_220_864) - 16_060_522_496 - 1_500_000_000
    assert any("state the engine's own" in note for note in server.setup.notes)


def test_the_expectation_needs_no_fit(tmp_path: Path) -> None:
    server = made_server(tmp_path)
    found = compare_with_log(server.log, server.setup, server.expected())
    assert found.worst("tpot") < 1.0
    assert any("published rows" in note for note in found.notes)


def test_least_squares_finds_the_bottom_of_a_bent_valley() -> None:
    found = minimise(
        lambda at: [10 * (at[1] - at[0] ** 2), 1 - at[0]], [(-1.0, 1.0), (0.0, 0.0)], (-2.0, -2.0), (2.0, 2.0), 0.05
    )
    assert found.numbers == pytest.approx((1.0, 1.0), abs=1e-2)
    assert found.loss < 1e-5


def test_least_squares_stays_within_its_bounds() -> None:
    found = minimise(lambda at: [at[0] - 5.0], [(0.0,)], (-1.0,), (1.0,), 0.05)
    assert found.numbers == (1.0,)
