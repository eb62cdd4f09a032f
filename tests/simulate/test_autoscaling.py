"""Replicas are ordered when it is due, serve after their delay, and end when nobody is there any more."""

from __future__ import annotations

import pytest

from inference_bench.errors import RequestError
from inference_bench.simulate.autoscaling import Autoscaler, AutoscalingSettings, ScalingEvent, ScalingSignal
from inference_bench.simulate.fleet import simulate_fleet
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.routing import RouterSettings, Routing
from inference_bench.simulate.settings import SchedulerSettings
from simulate.fleets import replica_of, workload_of

ONE_AT_A_TIME = replica_of(settings=SchedulerSettings(max_running=1))  # steps of a second


def scaling(**changes: object) -> AutoscalingSettings:
    settings = {
        "min_replicas": 1,
        "max_replicas": 4,
        "target": 1.0,
        "check_interval_s": 2.5,
        "start_up_s": 5.0,
        "cool_down_s": 10.0,
        **changes,
    }
    return AutoscalingSettings(**settings)  # type: ignore[arg-type]


def fleet_of(settings: AutoscalingSettings) -> FleetSetup:
    return FleetSetup((ONE_AT_A_TIME,), RouterSettings(Routing.LEAST_REQUESTS), settings)


def test_more_are_ordered_at_the_check_and_serve_after_exactly_the_delay() -> None:
    # four come at once, one runs and three wait: three replicas are wanted at 2.5 s, and two more serve from 7.5 s on
    requests = [(0.0, 1, 10)] * 4 + [(7.25, 1, 1), (7.75, 1, 1)]
    fleet = simulate_fleet(workload_of(*requests), fleet_of(scaling(cool_down_s=1000.0)))
    assert fleet.scaling[0] == ScalingEvent(2.5, 0, 2, 3, 3.0)
    assert [each.up[0][0] for each in fleet.replicas[:3]] == [0.0, 7.5, 7.5]
    assert fleet.replicas[1].replica_seconds == fleet.end_s - 2.5
    assert fleet.outcome.first_token_s[5] == 8.75
    assert fleet.outcome.first_token_s[4] == 41.0  # it came too soon: it stands behind all four
    assert fleet.outcome.policy == "chunked x1-4 least-requests"


def test_one_that_drains_gets_no_more_requests_and_ends_when_it_is_empty() -> None:
    # replica 0: four of 8 tokens, until 32 s; replica 1, from 7.5 s: two of 40, until 88 s
    requests = [(0.0, 1, 8)] * 4 + [(8.0, 1, 40), (8.125, 1, 40)]
    # these would go to replica 1 as soon as replica 0 has more, and it drains
    requests += [(24.5, 1, 1), (24.625, 1, 1), (24.75, 1, 1)]
    fleet = simulate_fleet(workload_of(*requests), fleet_of(scaling(target=2.0, tolerance=0.0)))
    # waiting: 3 of one replica; 2 of two, both with two requests: the newer drains; 3 of the one left; none of two
    assert fleet.scaling == (
        ScalingEvent(2.5, 0, 1, 2, 3.0),
        ScalingEvent(17.5, 0, -1, 1, 2.0),
        ScalingEvent(25.0, 0, 1, 2, 3.0),
        ScalingEvent(35.0, 0, -1, 1, 0.0),
    )
    assert [each.up for each in fleet.replicas] == [((0.0, 88.0),), ((7.5, 88.0),), ((30.0, 35.0),)]
    assert [each.replica_seconds for each in fleet.replicas] == [88.0, 85.5, 10.0]
    assert [each.num_requests for each in fleet.replicas] == [7, 2, 0]
    assert list(fleet.outcome.last_token_s) == [8.0, 16.0, 24.0, 32.0, 48.0, 88.0, 33.0, 34.0, 35.0]


def test_the_emptiest_ends_at_once_where_it_is_idle() -> None:
    requests = [(0.0, 1, 4)] * 3 + [(40.0, 1, 1)]
    fleet = simulate_fleet(workload_of(*requests), fleet_of(scaling()))
    assert [(event.time_s, event.change) for event in fleet.scaling] == [(2.5, 1), (12.5, -1)]
    assert fleet.replicas[1].up == ((7.5, 12.5),)
    assert fleet.replicas[1].replica_seconds == 10.0
    assert fleet.replicas[0].num_requests == 4


def test_one_that_has_not_started_is_taken_away_first() -> None:
    requests = [(0.0, 1, 4)] * 3 + [(40.0, 1, 1)]
    fleet = simulate_fleet(workload_of(*requests), fleet_of(scaling(start_up_s=100.0, cool_down_s=5.0)))
    assert [(event.time_s, event.change) for event in fleet.scaling] == [(2.5, 1), (7.5, -1)]
    assert fleet.replicas[1].up == ()
    assert fleet.replicas[1].replica_seconds == 5.0


def test_within_the_tolerance_nothing_changes() -> None:
    autoscaler = Autoscaler(scaling(tolerance=0.1, target=10.0, max_replicas=9))
    assert autoscaler.change(0.0, 22.0, 2) == 0
    assert autoscaler.change(0.0, 22.5, 2) == 1
    assert autoscaler.change(0.0, 500.0, 3) == 6


def test_below_the_least_number_replicas_are_ordered_whatever_the_load() -> None:
    assert Autoscaler(scaling(min_replicas=3)).change(0.0, 0.0, 1) == 2


def test_runners_as_a_share_of_those_allowed_call_for_more() -> None:
    settings = scaling(signal=ScalingSignal.RUNNING_SHARE, target=0.5)
    fleet = simulate_fleet(workload_of((0.0, 1, 10), (9.0, 1, 5)), fleet_of(settings))
    assert fleet.scaling[0] == ScalingEvent(2.5, 0, 1, 2, 1.0)


def test_a_full_cache_calls_for_more_before_the_number_of_runners_does() -> None:
    replica = replica_of(budget=100)
    settings = scaling(signal=ScalingSignal.RUNNING_SHARE, target=0.5)
    fleet = simulate_fleet(workload_of((0.0, 80, 10)), FleetSetup((replica,), autoscaling=settings))
    # at 2.5 s two tokens are out and the first of them is being read: 80 positions are held, and 81 once the step is done
    assert fleet.scaling[0] == ScalingEvent(2.5, 0, 1, 2, pytest.approx(0.81))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_replicas": 0}, "from 0 to 4 replicas"),
        ({"min_replicas": 5}, "from 5 to 4 replicas"),
        ({"target": 0.0}, "target of a replica is 0"),
        ({"check_interval_s": 0.0}, "time between checks is 0"),
        ({"check_interval_s": 1e-20}, r"time between checks is 1e-20 s, in which no run would get anywhere"),
        ({"start_up_s": -1.0}, "start-up time is -1"),
        ({"cool_down_s": float("inf")}, "cool-down time is inf"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        scaling(**changes)


def test_a_number_at_the_start_outside_the_limits_is_refused() -> None:
    with pytest.raises(RequestError, match="1 replicas at the start are outside the 2 to 4"):
        fleet_of(scaling(min_replicas=2))
