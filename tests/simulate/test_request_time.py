"""Time that passes before a request reaches the scheduler: part of what clients see, and nothing else."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.fleet_plan import FleetPlan, run_fleet
from inference_bench.simulate.run import simulate
from inference_bench.simulate.settings import KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import check_run, summarise_run
from inference_bench.workload import ClosedLoop, Requests, Workload
from simulate.fleets import steps_of, workload_of

PLAIN = ServerSetup(SchedulerSettings(policy=Policy.PAGED), KvMemory(10_000, 1))
LATER = replace(PLAIN, request_s=0.25)
OPEN = workload_of((0.0, 4, 3), (0.5, 2, 2), (7.0, 1, 1))


@pytest.mark.parametrize("engine", ["reference", "plain"])
def test_all_of_a_run_on_a_schedule_is_that_much_later(engine: str) -> None:
    before, after = (simulate(OPEN, setup, steps_of(1.0), engine=engine) for setup in (PLAIN, LATER))
    assert list(after.arrival_s) == list(before.arrival_s)
    assert list(after.first_token_s) == [at + 0.25 for at in before.first_token_s]
    assert list(after.last_token_s) == [at + 0.25 for at in before.last_token_s]
    assert list(after.gaps.values_s) == list(before.gaps.values_s)
    assert check_run(after).are_kept
    ours, theirs = summarise_run(after, Objective()), summarise_run(before, Objective())
    assert ours.ttft_mean_s == pytest.approx(theirs.ttft_mean_s + 0.25)
    assert any("250 ms" in note for note in after.notes)


def test_users_of_a_closed_loop_send_their_next_request_that_much_later() -> None:
    # one user, one step a token: sent at 0, at the server at 0.25, answered at 1.25, and so on
    asked = Requests(array("q", [1, 1, 1]), array("q", [1, 1, 1]))
    found = simulate(Workload("closed", asked, ClosedLoop(1, 3, think_s=0.5)), LATER, steps_of(1.0))
    assert list(found.arrival_s) == [0.0, 1.75, 3.5]
    assert list(found.first_token_s) == [1.25, 3.0, 4.75]
    assert found.workload.arrival == ClosedLoop(1, 3, think_s=0.5)
    assert check_run(found).are_kept


def test_a_fleet_is_reached_as_late() -> None:
    before, after = (run_fleet(OPEN, setup, steps_of(1.0), FleetPlan(replicas=2)) for setup in (PLAIN, LATER))
    assert list(after.outcome.first_token_s) == [at + 0.25 for at in before.outcome.first_token_s]


@pytest.mark.parametrize("request_s", [-0.1, float("nan"), 1e9])
def test_a_time_that_cannot_be_is_refused(request_s: float) -> None:
    with pytest.raises(RequestError, match="besides its steps"):
        replace(PLAIN, request_s=request_s)
