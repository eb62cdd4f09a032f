"""A search for a rate says what it knows: against queues of known capacity, and servers that are simpler still."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.loadtest.capacity_evidence import (
    Counted,
    count_run,
    crossing_of,
    dispersion_of,
    log_evidence,
)
from inference_bench.loadtest.capacity_search import (
    Answer,
    CapacityFound,
    Judgement,
    RateTried,
    SearchPlan,
    Stop,
    Trial,
    ends_of,
    search_capacity,
)

from .queue_model import Queue, md1_capacity

ALLOWED = 0.1


def independent(capacity: float, slope: float = 8.0) -> object:
    """A server whose requests miss on their own, one in ten at the capacity, growing with a power of the rate."""

    def trial(rate: float, num_requests: int, seed: int) -> Trial:
        rng, share = random.Random(f"{rate}/{seed}"), min(1.0, ALLOWED * (rate / capacity) ** slope)
        return Trial(num_requests, bytes(rng.random() < share for _ in range(num_requests)))

    return trial


def search(trial: object, **plan: object) -> CapacityFound:
    values: dict[str, object] = {"share": 0.9, "max_requests": 400_000, **plan}
    return search_capacity(trial, SearchPlan(**values))  # type: ignore[arg-type]


def test_the_capacity_of_an_md1_queue_is_that_of_a_long_run() -> None:
    for limit, share in ((4.0, 0.9), (2.0, 0.95)):
        assert md1_capacity(limit, share) == pytest.approx(Queue(limit).long_run_capacity(share, 500_000), rel=0.02)


def test_twenty_searches_of_a_queue_hold_its_capacity_in_a_narrow_interval() -> None:
    queue, truth = Queue(4.0), md1_capacity(4.0, 0.9)
    plan = SearchPlan(first_rate=0.1, share=0.9, max_requests=2_000_000, least_span_s=40.0)
    found = [search_capacity(queue.trial(base), plan) for base in range(20)]
    inside = [each for each in found if each.low_rate and each.high_rate and each.low_rate <= truth <= each.high_rate]
    assert len(inside) >= 19
    assert median(each.half_width or 1.0 for each in found) <= 0.05
    assert {each.answer for each in inside} == {Answer.INTERVAL}
    assert all(each.is_consistent for each in inside)


def test_bursts_and_several_clerks_are_found_too() -> None:
    for queue, share in ((Queue(6.0, cv=2.0), 0.9), (Queue(2.0, clerks=4), 0.9)):
        truth = queue.long_run_capacity(share, 500_000)
        plan = SearchPlan(first_rate=0.5, share=share, half_width=0.1, max_requests=2_000_000, least_span_s=60.0)
        found = search_capacity(queue.trial(3), plan)
        assert found.low_rate is not None
        assert found.high_rate is not None
        assert found.low_rate * 0.99 <= truth <= found.high_rate * 1.01


def test_the_same_seeds_give_the_same_answer_and_every_rate_begins_with_the_same_seed() -> None:
    asked: list[tuple[float, int]] = []
    trial = independent(3.0)

    def noted(rate: float, num_requests: int, seed: int) -> Trial:
        asked.append((rate, seed))
        return trial(rate, num_requests, seed)  # type: ignore[operator, no-any-return]

    first, again = search(noted, seed=7), search(trial, seed=7)
    assert (first.low_rate, first.high_rate, first.num_sent) == (again.low_rate, again.high_rate, again.num_sent)
    for rate in {rate for rate, _ in asked}:
        seeds = [seed for at, seed in asked if at == rate]
        assert seeds == list(range(7, 7 + len(seeds)))
    assert first.low_rate is not None
    assert first.high_rate is not None
    assert first.low_rate <= 3.0 <= first.high_rate


def test_a_server_that_always_misses_passes_at_no_rate() -> None:
    found = search(lambda rate, count, seed: Trial(count, b"\1" * count), least_rate=0.1)
    assert found.answer is Answer.NONE_PASSES
    assert (found.low_rate, found.high_rate) == (None, 0.1)


def test_a_server_without_end_passes_at_every_rate_that_may_be_asked() -> None:
    found = search(lambda rate, count, seed: Trial(count, bytes(count)), most_rate=64.0)
    assert found.answer is Answer.ALL_PASS
    assert (found.low_rate, found.high_rate) == (64.0, None)


def test_the_clients_own_limit_ends_the_search_and_is_named() -> None:
    def trial(rate: float, count: int, seed: int) -> Trial:
        limit = "this client sent 20 requests/s at most" if rate > 20 else None
        return Trial(count, bytes(count), client_limit=limit)

    found = search(trial)
    assert found.answer is Answer.ALL_PASS
    assert found.low_rate == 16.0
    assert found.client_limit == "this client sent 20 requests/s at most"
    assert all(each.rate <= 20 for each in found.trials)


def test_one_run_in_which_the_client_was_late_is_made_again() -> None:
    trial, late = independent(3.0), []

    def sometimes(rate: float, count: int, seed: int) -> Trial:
        if rate > 1.5 and len(late) < 2:
            late.append(rate)
            return Trial(count, b"", client_limit="this client was late")
        return trial(rate, count, seed)  # type: ignore[operator, no-any-return]

    found = search(sometimes)
    assert len(late) == 2
    assert search(lambda rate, count, seed: Trial(count, b"", client_limit="late")).answer is Answer.UNKNOWN
    assert found.client_limit is None
    assert found.low_rate is not None
    assert found.high_rate is not None
    assert found.low_rate <= 3.0 <= found.high_rate


def test_a_growing_backlog_fails_though_nothing_was_late_yet() -> None:
    found = search(lambda rate, count, seed: Trial(count, bytes(count), is_growing=rate > 10))
    assert found.low_rate is not None
    assert found.high_rate is not None
    assert found.low_rate <= 10 < found.high_rate
    assert found.half_width is not None
    assert found.half_width <= 0.05


def test_too_few_requests_leave_the_question_open() -> None:
    found = search(independent(3.0), max_requests=100)
    assert found.answer is Answer.UNKNOWN
    assert found.low_rate is None


def test_an_interruption_keeps_what_is_known() -> None:
    trial, runs = independent(3.0), []

    def stopped(rate: float, count: int, seed: int) -> Trial:
        runs.append(rate)
        if len(runs) > 4:
            raise KeyboardInterrupt
        return trial(rate, count, seed)  # type: ignore[operator, no-any-return]

    found = search(stopped)
    assert found.is_interrupted
    assert found.trials
    with pytest.raises(KeyboardInterrupt):
        search(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))


def test_a_failure_of_the_world_keeps_what_is_known() -> None:
    trial, runs = independent(3.0), []

    def gone(rate: float, count: int, seed: int) -> Trial:
        runs.append(rate)
        if len(runs) > 4:
            raise MeasurementError("nothing answers any more")
        return trial(rate, count, seed)  # type: ignore[operator, no-any-return]

    found = search(gone)
    assert (found.trouble, found.is_interrupted) == ("nothing answers any more", False)
    assert sum(len(each.runs) for each in found.trials) == 4
    with pytest.raises(MeasurementError):
        search(lambda *_: (_ for _ in ()).throw(MeasurementError("nothing answers")))


@pytest.mark.parametrize("most", [100, 300, 1000])
def test_no_more_requests_are_sent_than_may_be(most: int) -> None:
    asked: list[int] = []

    def counted(rate: float, count: int, seed: int) -> Trial:
        asked.append(count)
        return Trial(count, bytes(index % 10 == 0 for index in range(count)))

    assert search(counted, max_requests=most).num_sent == sum(asked) <= most
    assert asked
    with pytest.raises(RequestError, match="at most 5 may be sent"):
        search(counted, max_requests=5)


def test_no_time_left_ends_the_search() -> None:
    left = iter([True, True, False])
    asked: list[tuple[float, int]] = []

    def may_begin(rate: float, num_requests: int) -> bool:
        asked.append((rate, num_requests))
        return next(left)

    found = search_capacity(independent(3.0), SearchPlan(share=0.9), None, may_begin)  # type: ignore[arg-type]
    assert sum(len(each.runs) for each in found.trials) == 2
    assert found.stopped_by is Stop.TIME
    assert asked[0] == (1.0, 81)  # eight misses or more are to be expected of the first run


def test_a_pass_above_a_failure_widens_the_interval() -> None:
    tried = [RateTried(float(rate)) for rate in range(1, 6)]
    for each, verdict in zip(tried, ("pass", "fail", "undecided", "pass", "fail"), strict=True):
        each.verdict = Judgement(verdict)
    assert ends_of(tried) == (1.0, 5.0)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"first_rate": 5.0, "most_rate": 1.0}, "not in order"),
        ({"least_rate": 0.0}, "not in order"),
        ({"share": 1.0}, "share of good requests of 1 cannot be reached"),
        ({"half_width": 0.0}, "half-width of 0"),
        ({"max_requests": 0}, "at least one request"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: dict[str, float], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        SearchPlan(**plan)  # type: ignore[arg-type]


def test_looking_after_every_hundred_requests_seldom_condemns_or_clears_a_rate_at_its_limit() -> None:
    threshold, rng, wrong = math.log(20), random.Random(3), {-1: 0, 1: 0}
    for _ in range(200):
        num_misses, over = 0, set()
        for look in range(1, 31):
            num_misses += sum(rng.random() < ALLOWED for _ in range(100))
            over |= {
                side
                for side in wrong
                if log_evidence(Counted(1.0, num_misses, 100 * look), ALLOWED, 1.0, side) >= threshold
            }
        for side in over:
            wrong[side] += 1
    assert all(count <= 200 * 0.05 + 3 for count in wrong.values())


def test_evidence_decides_what_is_far_from_the_limit() -> None:
    assert log_evidence(Counted(1.0, 0, 200), ALLOWED, 1.0, -1) > math.log(100)
    assert log_evidence(Counted(1.0, 60, 200), ALLOWED, 1.0, 1) > math.log(100)
    assert log_evidence(Counted(1.0, 20, 200), ALLOWED, 1.0, 1) < 0
    assert log_evidence(Counted(1.0, 0, 200), ALLOWED, 50.0, -1) < 1


def test_the_dispersion_of_misses_is_that_of_their_clusters() -> None:
    rng = random.Random(11)
    alone = bytes(rng.random() < ALLOWED for _ in range(100_000))
    assert dispersion_of([[count_run(alone)]], ALLOWED) == pytest.approx(1.0, abs=0.35)
    fives = b"".join(b"\1" * 5 if rng.random() < ALLOWED / 5 else bytes(5) * 2 for _ in range(20_000))
    share = sum(fives) / len(fives)
    found = dispersion_of([[count_run(fives)]], ALLOWED)
    assert 0.7 * 5 * (1 - share) < found < 2 * 5
    assert dispersion_of([[count_run(bytes(1000))]], ALLOWED) > 1


def test_the_crossing_lies_where_the_share_is_crossed() -> None:
    counted = [Counted(rate, round(10_000 * ALLOWED * (rate / 3) ** 8), 10_000) for rate in (2.4, 2.7, 3.2)]
    assert crossing_of(counted, ALLOWED, 1.0, 1.0, 6.0) == pytest.approx(3.0, rel=0.01)
