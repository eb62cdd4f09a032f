"""Several servers do what single ones do, lose nothing, and do it again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.autoscaling import AutoscalingSettings, ScalingSignal
from inference_bench.simulate.disaggregated import Disaggregation
from inference_bench.simulate.failures import Failure, FailureSettings
from inference_bench.simulate.fleet import simulate_fleet
from inference_bench.simulate.fleet_outcome import FleetOutcome
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.replica import ReplicaSetup
from inference_bench.simulate.routing import RouterSettings, Routing
from inference_bench.simulate.server import simulate_steps
from inference_bench.simulate.settings import Policy, Preemption, SchedulerSettings, Speculation
from inference_bench.workload import Workload, reference_workload
from simulate.fleets import (
    closed_workload,
    part_of,
    reference_replica,
    replica_of,
    steps_of,
    workload_of,
)

ITERATION_LEVEL = [Policy.RESERVE, Policy.PAGED, Policy.CHUNKED]


def require_same_as_alone(workload: Workload, replica: ReplicaSetup, routing: Routing) -> None:
    alone = simulate_steps(workload, replica.server, replica.step_time, Objective())
    fleet = simulate_fleet(workload, FleetSetup((replica,), RouterSettings(routing)))
    assert fleet.outcome.in_system_s == pytest.approx(alone.in_system_s, rel=1e-12)
    assert replace(fleet.outcome, policy=alone.policy, in_system_s=alone.in_system_s) == alone
    assert fleet.outcome.policy == f"{alone.policy} x1 {routing}"


@pytest.mark.parametrize("policy", ITERATION_LEVEL)
@pytest.mark.parametrize("routing", list(Routing))
def test_one_replica_is_the_single_server_bit_for_bit(policy: Policy, routing: Routing) -> None:
    require_same_as_alone(reference_workload(0.35, count=60), reference_replica(policy), routing)


@pytest.mark.parametrize(
    "changes",
    [
        {"preemption": Preemption.SWAP, "swap_bytes_per_s": 5.0},
        {"speculation": Speculation(3, 0.6, 0.1)},
        {"token_budget": 7},
    ],
)
def test_one_replica_is_the_single_server_with_what_only_the_readable_loop_does(changes: dict[str, object]) -> None:
    scheduler = SchedulerSettings(**{"max_output_tokens": 40, **changes})  # type: ignore[arg-type]
    requests = [(0.3 * at, 5 + 7 * at % 31, 1 + 11 * at % 37) for at in range(40)]
    replica = replica_of(step_time=steps_of(0.05, 0.01), budget=150, settings=scheduler)
    require_same_as_alone(workload_of(*requests), replica, Routing.ROUND_ROBIN)


@pytest.mark.parametrize("think_s", [0.0, 0.7])
def test_one_replica_is_the_single_server_in_a_closed_loop(think_s: float) -> None:
    shapes = [(10 + 3 * at, 1 + at % 9) for at in range(30)]
    require_same_as_alone(
        closed_workload(4, shapes, think_s), replica_of(step_time=steps_of(0.1, 0.003)), Routing.ROUND_ROBIN
    )


def test_round_robin_is_as_many_single_servers_with_every_nth_request_each() -> None:
    workload = reference_workload(0.8, count=60)
    fast = reference_replica()
    slow = replace(fast, step_time=steps_of(0.03, 1e-4))
    replicas = (fast, slow, reference_replica(Policy.PAGED))
    fleet = simulate_fleet(workload, FleetSetup(replicas))
    assert fleet.outcome.token_times_s is not None
    for index, replica in enumerate(replicas):
        chosen = range(index, 60, 3)
        alone = simulate_steps(part_of(workload, chosen), replica.server, replica.step_time, Objective())
        assert alone.token_times_s == tuple(fleet.outcome.token_times_s[at] for at in chosen)
        assert fleet.replicas[index].busy_s == alone.busy_s
        assert fleet.replicas[index].peak_bytes == alone.peak_bytes
        assert fleet.replicas[index].num_requests == 20
    assert fleet.outcome.policy == "chunked/paged x3 round-robin"


def test_a_router_sees_a_step_in_progress_as_not_yet_done() -> None:
    # steps last a second; at 0.5 the first is still there, at 1.25 it has gone and the second is there, at 1.75 both are free
    workload = workload_of((0.0, 5, 1), (0.5, 5, 1), (1.25, 5, 1), (1.75, 5, 1))
    fleet = simulate_fleet(workload, FleetSetup((replica_of(),) * 2, RouterSettings(Routing.LEAST_REQUESTS)))
    assert list(fleet.outcome.first_token_s) == [1.0, 1.5, 2.25, 2.75]
    assert [each.num_requests for each in fleet.replicas] == [2, 2]


def test_what_is_paid_is_every_replica_until_the_end() -> None:
    fleet = simulate_fleet(workload_of((2.0, 5, 3)), FleetSetup((replica_of(),) * 3))
    assert fleet.end_s == 5.0
    assert [each.up for each in fleet.replicas] == [((0.0, 5.0),)] * 3
    assert fleet.replica_seconds == 15.0
    assert fleet.up_fraction == 1.0
    assert [each.busy_s for each in fleet.replicas] == [3.0, 0.0, 0.0]


def test_a_closed_loop_has_no_more_requests_in_the_fleet_than_users() -> None:
    shapes = [(10, 1 + at % 5) for at in range(40)]
    outcome = simulate_fleet(closed_workload(3, shapes), FleetSetup((replica_of(),) * 2)).outcome
    for at in outcome.arrival_s:
        present = sum(
            1 for came, left in zip(outcome.arrival_s, outcome.last_token_s, strict=True) if came <= at < left
        )
        assert 1 <= present <= 3


@pytest.mark.parametrize("policy", [Policy.STATIC, Policy.STATIC_MEMORY, Policy.DYNAMIC])
def test_policies_that_run_batches_are_refused(policy: Policy) -> None:
    with pytest.raises(RequestError, match=f"replica 1 has the policy {policy}, which runs batches"):
        FleetSetup((replica_of(), replica_of(settings=SchedulerSettings(policy=policy))))


def test_no_replica_and_failures_of_replicas_that_are_not_there_are_refused() -> None:
    with pytest.raises(RequestError, match="give at least one"):
        FleetSetup(())
    failures = FailureSettings(scheduled=(Failure(2, 1.0, 1.0),))
    with pytest.raises(RequestError, match="replica 2 is to fail; there are 2"):
        FleetSetup((replica_of(),) * 2, failures=failures)


def test_a_request_that_fits_no_replica_it_is_sent_to_is_named() -> None:
    with pytest.raises(RequestError, match=r"request 1 .* can never be admitted"):
        simulate_fleet(workload_of((0.0, 5, 1), (0.0, 500, 1)), FleetSetup((replica_of(), replica_of(budget=100))))


# conservation over random settings

policies = st.sampled_from(ITERATION_LEVEL)


@st.composite
def replicas(draw: st.DrawFn) -> ReplicaSetup:
    scheduler = SchedulerSettings(
        policy=draw(policies),
        max_running=draw(st.integers(1, 5)),
        max_output_tokens=20,
        token_budget=draw(st.sampled_from([None, 5, 16])),
        preemption=draw(st.sampled_from(list(Preemption))),
        swap_bytes_per_s=100.0,
    )
    step_time = steps_of(draw(st.sampled_from([0.0, 0.25, 1.0])), draw(st.sampled_from([0.01, 0.125])))
    return replica_of(step_time=step_time, budget=draw(st.integers(60, 200)), settings=scheduler)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    shapes = draw(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=15))
    if draw(st.booleans()):
        return closed_workload(draw(st.integers(1, 5)), shapes, draw(st.sampled_from([0.0, 0.5])))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=len(shapes), max_size=len(shapes)))
    times = [sum(gaps[: at + 1]) for at in range(len(gaps))]
    return workload_of(*((time, *shape) for time, shape in zip(times, shapes, strict=True)))


scalings = st.none() | st.builds(
    AutoscalingSettings,
    min_replicas=st.just(1),
    max_replicas=st.just(4),
    signal=st.sampled_from(list(ScalingSignal)),
    target=st.sampled_from([0.5, 2.0]),
    check_interval_s=st.sampled_from([0.5, 3.0]),
    start_up_s=st.sampled_from([0.0, 1.0, 4.0]),
    cool_down_s=st.sampled_from([0.0, 2.0]),
)
failure_times = st.builds(
    Failure, st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 3.25]), st.sampled_from([0.0, 1.0, 5.0, float("inf")])
)


@st.composite
def failure_settings(draw: st.DrawFn) -> FailureSettings | None:
    if draw(st.booleans()):
        return None
    mean_s = draw(st.sampled_from([None, 1.0, 10.0]))
    return FailureSettings(
        tuple(draw(st.lists(failure_times, max_size=4))),
        mean_s,
        mean_s,
        draw(st.integers(0, 5)),
        draw(st.sampled_from([0.0, 0.75])),
        draw(st.integers(0, 3)),
    )


@st.composite
def fleets(draw: st.DrawFn) -> FleetSetup:
    pool = st.lists(replicas(), min_size=1, max_size=3).map(tuple)
    routers = st.builds(RouterSettings, st.sampled_from(list(Routing)))
    split = None
    if draw(st.booleans()):
        split = Disaggregation(
            draw(pool),
            draw(st.sampled_from([10.0, 1e6])),
            draw(st.sampled_from([0.0, 0.5])),
            draw(st.booleans()),
            draw(routers),
            draw(scalings),
        )
    first, failures = draw(pool), draw(failure_settings())
    scaling = draw(scalings)
    if failures is not None and scaling is None:
        count = len(first) + (0 if split is None else len(split.decode))
        failures = replace(failures, scheduled=tuple(each for each in failures.scheduled if each.replica < count))
    return FleetSetup(first, draw(routers), scaling, failures, split)


def require_conserved(fleet: FleetOutcome, may_fail: bool) -> None:
    outcome, asked = fleet.outcome, fleet.outcome.workload.requests
    assert outcome.token_times_s is not None
    failed = set(outcome.failed)
    assert may_fail or not failed
    assert len(failed) == len(outcome.failed) == len(fleet.failed_s)
    for index, times in enumerate(outcome.token_times_s):
        assert all(before <= after for before, after in pairwise(times))
        assert not times or times[0] >= outcome.arrival_s[index]
        if index in failed:
            assert len(times) < asked.output_tokens[index]
            assert outcome.first_token_s[index] == outcome.last_token_s[index] == 0.0
            assert not outcome.keeps_gaps[index]
        else:
            assert len(times) == asked.output_tokens[index]
            assert (outcome.first_token_s[index], outcome.last_token_s[index]) == (times[0], times[-1])
    assert sum(outcome.gaps.counts) == sum(
        length - 1 for index, length in enumerate(asked.output_tokens) if index not in failed
    )
    stays_s = sum(outcome.last_token_s[at] - outcome.arrival_s[at] for at in range(len(asked)) if at not in failed)
    assert outcome.in_system_s == pytest.approx(stays_s, abs=1e-6)


def require_sane_replicas(fleet: FleetOutcome, setup: FleetSetup) -> None:
    for record in fleet.replicas:
        spans = sorted(record.up + record.down)
        assert all(start < end for start, end in spans)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        assert 0 <= record.busy_s <= record.up_s + 1e-9
        assert sum(end - start for start, end in spans) <= record.replica_seconds + 1e-9
        assert record.replica_seconds <= fleet.end_s
    for record, each in zip(fleet.replicas, setup.all_replicas, strict=False):
        assert record.peak_bytes <= each.server.memory.budget_bytes
    sent = sum(record.num_requests for record in fleet.replicas if record.pool == 0)
    assert sent <= len(fleet.retries) + sum(fleet.retries)


@settings(max_examples=300, deadline=None)
@given(workloads(), fleets())
def test_no_request_is_lost_whatever_the_fleet(workload: Workload, setup: FleetSetup) -> None:
    fleet = simulate_fleet(workload, setup)
    require_conserved(fleet, may_fail=setup.failures is not None)
    require_sane_replicas(fleet, setup)


@settings(max_examples=40, deadline=None)
@given(workloads(), fleets())
def test_the_same_fleet_does_the_same_again(workload: Workload, setup: FleetSetup) -> None:
    assert simulate_fleet(workload, setup) == simulate_fleet(workload, setup)
