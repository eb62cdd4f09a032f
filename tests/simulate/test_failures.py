"""A replica fails: its requests start again elsewhere or fail, none is lost, and no token is taken back."""

from __future__ import annotations

import math
from array import array

import pytest

from inference_bench.errors import RequestError
from inference_bench.simulate.autoscaling import AutoscalingSettings
from inference_bench.simulate.failures import Failure, FailureClock, FailureSettings
from inference_bench.simulate.fleet import simulate_fleet
from inference_bench.simulate.fleet_outcome import FleetOutcome
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.routing import RouterSettings, Routing
from inference_bench.simulate.settings import BudgetRule, SchedulerSettings
from inference_bench.workload import OpenLoop, Requests, Segment, Workload
from simulate.fleets import replica_of, steps_of, workload_of

ONE_REQUEST = workload_of((0.0, 10, 5))


def run(*requests: tuple[float, int, int], replicas: int, failures: FailureSettings) -> FleetOutcome:
    return simulate_fleet(workload_of(*requests), FleetSetup((replica_of(),) * replicas, failures=failures))


def at(time_s: float, down_for_s: float = 100.0, replica: int = 0) -> tuple[Failure, ...]:
    return (Failure(replica, time_s, down_for_s),)


def test_a_request_starts_again_elsewhere_once_the_failure_is_known() -> None:
    fleet = run((0.0, 10, 5), replicas=2, failures=FailureSettings(at(2.5), detection_s=0.25))
    # two tokens are out; known at 2.75; twelve tokens are read again, and the third is given a second later
    assert fleet.outcome.token_times_s == ((1.0, 2.0, 3.75, 4.75, 5.75),)
    assert fleet.retries == (1,)
    assert (fleet.retried_fraction, fleet.failed_fraction) == (1.0, 0.0)
    assert fleet.replicas[0].up == ((0.0, 2.5),)
    assert fleet.replicas[0].down == ((2.5, 5.75),)
    assert fleet.up_fraction == (2.5 + 5.75) / (2 * 5.75)
    assert [each.busy_s for each in fleet.replicas] == [2.5, 3.0]
    assert [each.num_steps for each in fleet.replicas] == [2, 3]


def test_what_was_read_and_given_is_read_again() -> None:
    replica = replica_of(step_time=steps_of(0.0, 1.0))
    failures = FailureSettings(at(12.5))
    fleet = simulate_fleet(ONE_REQUEST, FleetSetup((replica,) * 2, failures=failures))
    # a second a position: ten, one, one, then half of one is lost; twelve and three again
    assert fleet.outcome.token_times_s == ((10.0, 11.0, 12.0, 12.5 + 13.0, 12.5 + 14.0),)


def test_a_request_that_finds_no_replica_waits_for_one() -> None:
    fleet = run((0.0, 10, 5), (3.0, 10, 1), replicas=1, failures=FailureSettings(at(2.5, 3.0), detection_s=0.25))
    assert fleet.outcome.token_times_s == ((1.0, 2.0, 6.5, 7.5, 8.5), (6.5,))
    assert fleet.replicas[0].up == ((0.0, 2.5), (5.5, 8.5))
    assert fleet.replicas[0].down == ((2.5, 5.5),)
    assert fleet.replica_seconds == 8.5
    assert fleet.retries == (1, 0)


def test_without_retries_what_was_there_fails_and_stays_in_the_count() -> None:
    failures = FailureSettings(at(2.5), detection_s=0.25, max_retries=0)
    fleet = run((0.0, 10, 5), (0.0, 10, 5), replicas=2, failures=failures)
    assert fleet.outcome.failed == (0,)
    assert fleet.failed_s == (2.75,)
    assert fleet.outcome.token_times_s == ((1.0, 2.0), (1.0, 2.0, 3.0, 4.0, 5.0))
    assert fleet.failed_fraction == 0.5
    assert list(fleet.outcome.gaps.values_s) == [1.0] * 4
    assert list(fleet.outcome.keeps_gaps) == [False, False]
    assert fleet.outcome.in_system_s == 5.0


def test_until_the_failure_is_known_requests_are_sent_there() -> None:
    failures = FailureSettings(at(0.5), detection_s=1.0)
    fleet = run((0.75, 10, 1), (1.0, 10, 1), (1.25, 10, 1), replicas=2, failures=failures)
    # in turn: to the failed one, to the other, to the failed one; both start again at 1.5 while the other has a step to 2.0
    assert fleet.outcome.token_times_s == ((3.0,), (2.0,), (3.0,))
    assert fleet.retries == (1, 0, 1)
    assert fleet.replicas[0].num_requests == 2


def test_a_replica_that_is_back_before_its_failure_would_be_known_has_lost_its_requests_all_the_same() -> None:
    fleet = run((0.0, 10, 3), replicas=1, failures=FailureSettings(at(1.5, 0.25), detection_s=60.0))
    assert fleet.outcome.token_times_s == ((1.0, 2.75, 3.75),)
    assert fleet.retries == (1,)


def test_requests_fail_where_no_replica_will_ever_be_back() -> None:
    fleet = run((0.0, 10, 5), (50.0, 10, 5), replicas=1, failures=FailureSettings(at(2.5, math.inf), detection_s=0.25))
    assert fleet.outcome.failed == (0, 1)
    assert fleet.failed_s == (2.75, 50.0)
    assert fleet.replica_seconds == 2.75  # it is given back when the failure is known


def test_an_autoscaler_takes_the_place_of_one_that_will_not_be_back() -> None:
    scaling = AutoscalingSettings(1, 2, check_interval_s=4.0, start_up_s=10.0)
    setup = FleetSetup((replica_of(),), autoscaling=scaling, failures=FailureSettings(at(2.5, math.inf)))
    fleet = simulate_fleet(ONE_REQUEST, setup)
    assert fleet.outcome.token_times_s == ((1.0, 2.0, 15.0, 16.0, 17.0),)
    assert [(each.time_s, each.change) for each in fleet.scaling] == [(4.0, 1)]


def test_one_that_drains_when_it_fails_is_not_back() -> None:
    # nobody waits at 2.5 s: of two with one request each the newer drains
    scaling = AutoscalingSettings(1, 2, target=1.0, check_interval_s=2.5)
    failures = FailureSettings(at(4.5, 1.0, replica=1))
    setup = FleetSetup((replica_of(),) * 2, autoscaling=scaling, failures=failures)
    fleet = simulate_fleet(workload_of((0.0, 10, 9), (0.0, 10, 7)), setup)
    assert [each.change for each in fleet.scaling] == [-1]
    assert fleet.replicas[1].up == ((0.0, 4.5),)
    assert fleet.replicas[1].replica_seconds == 4.5
    assert fleet.outcome.token_times_s is not None
    assert fleet.outcome.token_times_s[1] == (1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0)  # joins the other's step from 5 s on


def test_what_starts_again_is_a_prompt_to_its_new_server() -> None:
    # prompts go first: the one that decodes there waits for a step
    replica = replica_of(settings=SchedulerSettings(budget_rule=BudgetRule.PREFILL_FIRST))
    setup = FleetSetup((replica,) * 2, failures=FailureSettings(at(2.5)))
    fleet = simulate_fleet(workload_of((0.0, 10, 5), (0.0, 10, 6)), setup)
    assert fleet.outcome.token_times_s == ((1.0, 2.0, 4.0, 5.0, 6.0), (1.0, 2.0, 3.0, 5.0, 6.0, 7.0))


def test_a_router_does_not_count_on_a_cache_that_has_been_lost() -> None:
    # the second of the same prompt, at 20 s, when another request keeps replica 0 a little busy
    prompts = ((Segment(1, 50),), (Segment(2, 9),), (Segment(1, 50),))
    asked = Requests(array("q", [50, 9, 50]), array("q", [1, 5, 1]), prompts)
    workload = Workload("by hand", asked, OpenLoop(array("d", [0.0, 18.5, 20.0]), "by hand"))
    for failures, sent in ((None, [3, 0]), (FailureSettings(at(10.0, 1.0)), [2, 1])):
        setup = FleetSetup((replica_of(),) * 2, RouterSettings(Routing.PREFIX_AWARE), failures=failures)
        assert [each.num_requests for each in simulate_fleet(workload, setup).replicas] == sent


def test_a_step_that_ends_when_the_replica_fails_is_done() -> None:
    fleet = run((0.0, 10, 2), replicas=2, failures=FailureSettings(at(1.0)))
    assert fleet.outcome.token_times_s == ((1.0, 2.0),)


def test_a_failure_of_one_that_is_down_already_is_none() -> None:
    failures = FailureSettings((*at(1.5, 2.0), *at(2.5, 100.0)))
    fleet = run((0.0, 10, 3), replicas=1, failures=failures)
    assert fleet.outcome.token_times_s == ((1.0, 4.5, 5.5),)


def test_failures_are_drawn_for_each_replica_apart_and_from_the_seed() -> None:
    settings = FailureSettings(mean_up_s=100.0, mean_down_s=10.0, seed=3)
    alone, both = FailureClock(settings), FailureClock(settings)
    assert both.next_failure(0, 0.0) != both.next_failure(1, 0.0)
    expected = [alone.next_failure(1, 5.0 * count) for count in range(2000)]
    again = FailureClock(settings)
    assert [again.next_failure(1, 5.0 * count) for count in range(2000)] == expected
    ups = [each.at_s - 5.0 * count for count, each in enumerate(expected) if each is not None]
    assert sum(ups) / 2000 == pytest.approx(100.0, rel=0.1)
    assert sum(each.down_for_s for each in expected if each is not None) / 2000 == pytest.approx(10.0, rel=0.1)


def test_replicas_that_fail_at_random_are_up_for_the_share_of_time_that_they_should() -> None:
    failures = FailureSettings(mean_up_s=30.0, mean_down_s=10.0, seed=1, max_retries=1000)
    workload = workload_of(*((20.0 * count, 10, 5) for count in range(200)))
    fleet = simulate_fleet(workload, FleetSetup((replica_of(),) * 4, failures=failures))
    assert not fleet.outcome.failed
    assert 0 < fleet.retried_fraction < 0.4  # 5 s of service at one failure in 30 s: a sixth
    assert fleet.up_fraction == pytest.approx(0.75, abs=0.05)
    for record in fleet.replicas:
        assert len(record.down) == pytest.approx(fleet.end_s / 40, rel=0.4)


def test_a_request_that_fails_too_often_is_given_up() -> None:
    failures = FailureSettings(mean_up_s=0.01, mean_down_s=0.01, max_retries=7)
    fleet = run((0.0, 10, 5), replicas=2, failures=failures)
    assert fleet.outcome.failed == (0,)
    assert fleet.retries == (7,)
    assert fleet.outcome.token_times_s == ((),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheduled": (Failure(-1, 0.0, 1.0),)}, "failure of replica -1"),
        ({"scheduled": (Failure(0, math.inf, 1.0),)}, "at inf s"),
        ({"scheduled": (Failure(0, 0.0, math.nan),)}, "for nan s"),
        ({"mean_up_s": 5.0}, "give both, or neither"),
        ({"mean_up_s": 5.0, "mean_down_s": 0.0}, "mean time up or down of 0.0 s"),
        ({"detection_s": math.inf}, "detected after inf s"),
        ({"max_retries": -1}, "sent again -1 times"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        FailureSettings(**changes)  # type: ignore[arg-type]


@pytest.mark.timeout(20)
def test_failures_that_would_never_end_are_refused_before_the_run() -> None:
    failures = FailureSettings(mean_up_s=1.0, mean_down_s=1.0)
    setup = FleetSetup((replica_of(),) * 2, failures=failures)
    assert failures.expected_failures(2, 50.0) == 50.0
    with pytest.raises(
        RequestError, match=r"2 servers would fail some 5e\+06 times in the 5e\+06 s .* up to 1,000,000 failures"
    ):
        simulate_fleet(workload_of((0.0, 10, 5), (5e6, 10, 5)), setup)


def test_a_time_down_beyond_the_end_of_the_clock_is_refused() -> None:
    with pytest.raises(RequestError, match=r"the run goes on to 1e\+12 s"):
        run((0.0, 10, 5), replicas=1, failures=FailureSettings(at(0.5, 1e12)))


def test_the_seed_of_failures_is_a_whole_number() -> None:
    with pytest.raises(RequestError, match="the seed is nan"):
        FailureSettings(seed=math.nan)  # type: ignore[arg-type]
