"""Whether a run says that its server fell behind."""

from __future__ import annotations

import pytest

from inference_bench.simulate.run import simulate
from inference_bench.simulate.settings import SchedulerSettings, ServerSetup
from inference_bench.simulate.step_sources import reference_profile
from inference_bench.simulate.summary import summarise_run
from inference_bench.workload import RequestShape, Workload, closed_loop, reference_workload

PROFILE = reference_profile("24GB-bf16")
SETUP = ServerSetup(SchedulerSettings(), PROFILE.memory)


def queue_grew(workload: Workload) -> bool:
    return summarise_run(simulate(workload, SETUP, PROFILE.step_time)).queue_grew


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_a_server_below_its_capacity_does_not_fall_behind(rate: float, seed: int) -> None:
    assert not queue_grew(reference_workload(rate, 300, seed))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [0.5, 1.0, 4.0])
def test_a_server_far_above_its_capacity_says_so(rate: float, seed: int) -> None:
    assert queue_grew(reference_workload(rate, 300, seed))


def test_a_closed_loop_waits_for_its_server_and_cannot_fall_behind() -> None:
    assert not queue_grew(closed_loop("users", [RequestShape(4000, 200)], 64, 200))
