"""Prefill here and decode there: what a request waits for in between, and what happens when it has to be read again."""

from __future__ import annotations

import math

import pytest

from inference_bench.errors import RequestError
from inference_bench.simulate.autoscaling import AutoscalingSettings
from inference_bench.simulate.disaggregated import Disaggregation
from inference_bench.simulate.failures import Failure, FailureSettings
from inference_bench.simulate.fleet import simulate_fleet
from inference_bench.simulate.fleet_outcome import FleetOutcome
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.settings import KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import StepPart
from simulate.fleets import REFERENCE_MEMORY, REFERENCE_STEPS, reference_replica, replica_of, workload_of


def run(
    *requests: tuple[float, int, int],
    split: Disaggregation,
    prefill: int = 1,
    failures: FailureSettings | None = None,
) -> FleetOutcome:
    return simulate_fleet(
        workload_of(*requests), FleetSetup((replica_of(),) * prefill, failures=failures, disaggregation=split)
    )


def test_an_idle_request_waits_for_prefill_then_for_the_transfer_and_one_decode_step() -> None:
    prefill, decode = reference_replica(Policy.PAGED), reference_replica(Policy.PAGED)
    split = Disaggregation((decode,), bandwidth_bytes_per_s=50e9, latency_s=0.003)
    outcome = simulate_fleet(workload_of((1.0, 4000, 3)), FleetSetup((prefill,), disaggregation=split)).outcome
    assert outcome.token_times_s is not None
    ((first, second, third),) = outcome.token_times_s
    assert first - 1.0 == pytest.approx(REFERENCE_STEPS.step_s([StepPart(0, 4000, False)]), abs=1e-9)
    transfer_s = 0.003 + REFERENCE_MEMORY.sequence_bytes(4000) / 50e9
    decode_s = [REFERENCE_STEPS.step_s([StepPart(cached, 1, True)]) for cached in (4000, 4001)]
    assert second - first == pytest.approx(transfer_s + decode_s[0], abs=1e-9)
    assert third - second == pytest.approx(decode_s[1], abs=1e-9)
    assert outcome.policy == "prefill paged x1 round-robin, decode paged x1 least-requests"


def test_an_answer_of_one_token_is_never_sent_anywhere() -> None:
    fleet = run((0.0, 10, 1), split=Disaggregation((replica_of(),), 1.0))
    assert fleet.outcome.token_times_s == ((1.0,),)
    assert fleet.transfers.count == 0
    assert [each.num_requests for each in fleet.replicas] == [1, 0]


@pytest.mark.parametrize(
    ("shares_link", "arrivals"),
    [(True, (1.0 + 5.0 + 0.5, 1.0 + 15.0 + 0.5)), (False, (1.0 + 5.0 + 0.5, 1.0 + 10.0 + 0.5))],
)
def test_caches_queue_for_a_shared_link_and_not_for_links_of_their_own(
    shares_link: bool, arrivals: tuple[float, float]
) -> None:
    # both prompts are read in one second; 50 and 100 bytes at 10 bytes/s
    split = Disaggregation((replica_of(),) * 2, 10.0, 0.5, shares_link)
    fleet = run((0.0, 50, 2), (0.0, 100, 2), split=split)
    assert [times[1] for times in fleet.outcome.token_times_s or ()] == [arrivals[0] + 1.0, arrivals[1] + 1.0]
    assert (fleet.transfers.count, fleet.transfers.num_bytes) == (2, 150)
    assert fleet.transfers.seconds == sum(arrivals) - 2.0
    assert [each.num_requests for each in fleet.replicas] == [2, 1, 1]


def test_each_prefill_replica_has_a_link_of_its_own() -> None:
    fleet = run((0.0, 50, 2), (0.0, 50, 2), prefill=2, split=Disaggregation((replica_of(),), 10.0))
    assert fleet.outcome.token_times_s == ((1.0, 7.0),) * 2


def test_the_bytes_sent_are_those_of_the_prefill_replicas_cache_in_whole_blocks_with_its_state() -> None:
    server = ServerSetup(SchedulerSettings(), KvMemory(10_000, 2, block_size=16, state_bytes=7))
    prefill = type(replica_of())(server, replica_of().step_time)
    setup = FleetSetup((prefill,), disaggregation=Disaggregation((replica_of(),), 1e6))
    assert simulate_fleet(workload_of((0.0, 17, 2)), setup).transfers.num_bytes == 2 * 32 + 7


def test_a_request_that_gives_way_while_decoding_is_read_again_where_it_decodes() -> None:
    # 50 + 50 positions grow until 110 are not enough: the newer gives way, and is read again after the older has ended
    split = Disaggregation((replica_of(budget=112, settings=SchedulerSettings(token_budget=1000)),), 1e9)
    fleet = run((0.0, 50, 20), (0.5, 50, 20), split=split)
    prefill, decode = fleet.replicas
    assert (prefill.num_requests, prefill.num_steps, decode.num_requests) == (2, 2, 2)
    assert prefill.num_preemptions == 0
    assert decode.num_preemptions >= 1
    assert fleet.outcome.preempted == [0, decode.num_preemptions]
    assert fleet.transfers.count == 2
    assert [len(times) for times in fleet.outcome.token_times_s or ()] == [20, 20]


def test_a_decode_server_charges_a_cache_that_has_come_for_what_it_holds() -> None:
    split = Disaggregation((replica_of(budget=100),), 1e9)
    fleet = run((0.0, 60, 5), (0.0, 60, 5), split=split)
    assert fleet.replicas[1].peak_bytes == 64  # one after the other: two would take 120
    assert fleet.replicas[1].num_preemptions == 0


def test_a_cache_whose_source_fails_on_the_way_is_read_again() -> None:
    failures = FailureSettings((Failure(0, 3.0, 2.0),))
    fleet = run((0.0, 50, 2), split=Disaggregation((replica_of(),), 10.0), failures=failures)
    # first token at 1, cut at 3, back at 5, 51 positions are read by 6 and give the second token: nothing is left to send
    assert fleet.outcome.token_times_s == ((1.0, 6.0),)
    assert fleet.transfers.count == 0
    assert fleet.retries == (1,)


def test_a_cache_whose_target_fails_on_the_way_is_read_again_and_sent_to_another() -> None:
    failures = FailureSettings((Failure(1, 3.0, math.inf),), detection_s=0.5)
    fleet = run((0.0, 50, 3), split=Disaggregation((replica_of(),) * 2, 10.0), failures=failures)
    # first token at 1, cut at 3.5, read by 4.5 with the second token; the link is busy with the first try until 6, then sends 51
    assert fleet.outcome.token_times_s == ((1.0, 4.5, 6.0 + 5.1 + 1.0),)
    assert (fleet.transfers.count, fleet.transfers.num_bytes) == (1, 51)
    assert [each.num_requests for each in fleet.replicas] == [2, 1, 1]


def test_a_cache_waits_at_its_source_for_a_decode_replica_that_will_be_back() -> None:
    failures = FailureSettings((Failure(1, 0.5, 3.5),))
    fleet = run((0.0, 50, 2), split=Disaggregation((replica_of(),), 10.0), failures=failures)
    assert fleet.outcome.token_times_s == ((1.0, 4.0 + 5.0 + 1.0),)
    assert fleet.transfers.seconds == 8.0
    assert fleet.retries == (0,)


# at 2.5 s nobody waits, and of two replicas of a pool the newer drains
SHRINKS = AutoscalingSettings(1, 2, check_interval_s=2.5)


def test_a_prefill_replica_that_drains_ends_when_its_last_cache_has_arrived() -> None:
    split = Disaggregation((replica_of(),), 10.0)
    setup = FleetSetup((replica_of(),) * 2, autoscaling=SHRINKS, disaggregation=split)
    fleet = simulate_fleet(workload_of((0.0, 100, 2), (0.0, 50, 2)), setup)
    assert fleet.replicas[1].up == ((0.0, 6.0),)
    assert fleet.outcome.token_times_s == ((1.0, 12.0), (1.0, 7.0))


def test_a_decode_replica_that_drains_ends_when_what_was_on_its_way_is_cut() -> None:
    split = Disaggregation((replica_of(),) * 2, 10.0, autoscaling=SHRINKS)
    failures = FailureSettings((Failure(1, 3.0, 1.0),))
    fleet = run((0.0, 100, 2), (0.0, 50, 2), split=split, prefill=2, failures=failures)
    assert fleet.replicas[3].up == ((0.0, 3.0),)
    assert fleet.retries == (0, 1)


def test_a_prefill_replica_that_drains_ends_when_its_last_cache_is_known_to_have_nowhere_to_go() -> None:
    split = Disaggregation((replica_of(),) * 2, 10.0)
    failures = FailureSettings((Failure(3, 3.0, 9.0),), detection_s=0.5)
    setup = FleetSetup((replica_of(),) * 2, autoscaling=SHRINKS, failures=failures, disaggregation=split)
    fleet = simulate_fleet(workload_of((0.0, 100, 2), (0.0, 50, 2)), setup)
    assert fleet.replicas[1].up == ((0.0, 3.5),)
    assert fleet.retries == (0, 1)


def test_requests_fail_where_nobody_will_ever_decode() -> None:
    failures = FailureSettings((Failure(1, 0.5, math.inf),))
    fleet = run((0.0, 50, 2), (0.0, 50, 1), split=Disaggregation((replica_of(),), 10.0), failures=failures)
    assert fleet.outcome.failed == (0,)
    assert fleet.outcome.token_times_s == ((1.0,), (1.0,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode": ()}, "no replica to decode"),
        ({"bandwidth_bytes_per_s": 0.0}, "a link of 0.0 bytes/s"),
        ({"latency_s": -1.0}, "a latency of -1.0 s"),
        ({"decode": (replica_of(settings=SchedulerSettings(prefix_cache=True)),)}, "switch its prefix cache off"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    settings = {"decode": (replica_of(),), "bandwidth_bytes_per_s": 1.0, **changes}
    with pytest.raises(RequestError, match=message):
        Disaggregation(**settings)  # type: ignore[arg-type]
