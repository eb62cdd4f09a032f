"""When an endpoint is left alone, and how it comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference_bench.operate.client.breaker import Breaker, BreakerState, Permit
from inference_bench.operate.client.policy import BreakerPolicy, Health

POLICY = BreakerPolicy(window_s=10, least_failures=3, failure_fraction=0.5, open_s=5)


class Now:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def make(policy: BreakerPolicy = POLICY) -> tuple[Breaker, Now, list[BreakerState]]:
    now, changes = Now(), list[BreakerState]()
    return Breaker(policy, now, changes.append), now, changes


def leave(breaker: Breaker) -> Permit:
    permit = breaker.admit()
    assert permit is not None
    return permit


def note(breaker: Breaker, health: Health, times: int = 1) -> None:
    for _ in range(times):
        leave(breaker).end(health)


def opened() -> tuple[Breaker, Now, list[BreakerState]]:
    breaker, now, changes = make()
    note(breaker, Health.BAD, 3)
    assert breaker.state is BreakerState.OPEN
    return breaker, now, changes


def test_it_opens_at_the_number_of_failures_and_not_before() -> None:
    breaker, _, changes = make()
    note(breaker, Health.BAD, 2)
    assert breaker.state is BreakerState.CLOSED
    note(breaker, Health.BAD)
    assert (breaker.state, changes) == (BreakerState.OPEN, [BreakerState.OPEN])
    assert breaker.admit() is None


def test_it_does_not_open_while_most_attempts_succeed() -> None:
    breaker, _, _ = make()
    note(breaker, Health.GOOD, 7)
    note(breaker, Health.BAD, 6)
    assert breaker.state is BreakerState.CLOSED
    note(breaker, Health.BAD)
    assert breaker.state is BreakerState.OPEN


def test_failures_older_than_the_window_do_not_count() -> None:
    breaker, now, _ = make()
    note(breaker, Health.BAD, 2)
    now.s += 10.5
    note(breaker, Health.BAD, 2)
    assert breaker.state is BreakerState.CLOSED
    now.s += 8
    note(breaker, Health.BAD)
    assert breaker.state is BreakerState.OPEN


def test_what_says_nothing_does_not_count() -> None:
    breaker, _, _ = make()
    note(breaker, Health.UNKNOWN, 50)
    note(breaker, Health.BAD, 2)
    assert breaker.state is BreakerState.CLOSED


def test_after_its_time_it_lets_one_probe_through_and_no_second_beside_it() -> None:
    breaker, now, _ = opened()
    now.s += 4.99
    assert breaker.admit() is None
    assert 0 < breaker.open_for_s < 0.011
    now.s += 0.02
    probe = leave(breaker)
    assert probe.is_probe
    assert breaker.admit() is None
    probe.end(Health.GOOD)
    assert breaker.state is BreakerState.CLOSED


def test_as_many_probes_at_a_time_as_the_policy_says_and_as_many_successes_close_it() -> None:
    breaker, now, _ = make(BreakerPolicy(least_failures=1, open_s=5, num_probes=2, num_successes=3))
    note(breaker, Health.BAD)
    now.s += 5
    first, second = leave(breaker), leave(breaker)
    assert breaker.admit() is None
    first.end(Health.GOOD)
    second.end(Health.GOOD)
    assert breaker.state is BreakerState.HALF_OPEN
    leave(breaker).end(Health.GOOD)
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_fails_opens_it_again_for_the_whole_time() -> None:
    breaker, now, changes = opened()
    now.s += 5
    leave(breaker).end(Health.BAD)
    assert breaker.admit() is None
    assert breaker.open_for_s == 5
    assert changes == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.OPEN]


def test_a_second_probe_does_not_close_what_the_first_has_opened_again() -> None:
    breaker, now, _ = make(BreakerPolicy(least_failures=1, open_s=5, num_probes=2))
    note(breaker, Health.BAD)
    now.s += 5
    first, second = leave(breaker), leave(breaker)
    first.end(Health.BAD)
    second.end(Health.GOOD)
    assert breaker.state is BreakerState.OPEN
    now.s += 5
    assert all(breaker.admit() for _ in range(2))
    assert breaker.admit() is None


def test_a_probe_that_says_nothing_gives_its_place_back() -> None:
    breaker, now, _ = opened()
    now.s += 5
    leave(breaker).end(Health.UNKNOWN)
    assert breaker.state is BreakerState.HALF_OPEN
    assert leave(breaker).is_probe


def test_a_probe_has_found_out_at_its_first_token_and_its_later_failure_counts_as_any() -> None:
    breaker, now, _ = opened()
    now.s += 5
    probe = leave(breaker)
    probe.has_token()
    assert breaker.state is BreakerState.CLOSED
    probe.end(Health.BAD)
    assert breaker.state is BreakerState.CLOSED
    note(breaker, Health.BAD, 2)
    assert breaker.state is BreakerState.OPEN


def test_a_probe_that_breaks_off_while_more_have_to_succeed_opens_it_again() -> None:
    breaker, now, _ = make(BreakerPolicy(least_failures=1, open_s=5, num_successes=2))
    note(breaker, Health.BAD)
    now.s += 5
    probe = leave(breaker)
    probe.has_token()
    assert breaker.state is BreakerState.HALF_OPEN
    probe.end(Health.BAD)
    assert breaker.admit() is None


def test_an_attempt_from_before_the_change_says_nothing_about_the_state_since() -> None:
    breaker, now, _ = make()
    slow = [leave(breaker) for _ in range(5)]
    note(breaker, Health.BAD, 3)
    slow[0].end(Health.GOOD)  # does not close it
    assert breaker.admit() is None
    now.s += 5
    probe = leave(breaker)
    slow[1].end(Health.BAD)  # does not open it again
    assert breaker.state is BreakerState.HALF_OPEN
    probe.end(Health.GOOD)
    for permit in slow[2:]:
        permit.end(Health.BAD)
    assert breaker.state is BreakerState.CLOSED


def test_a_permit_ends_once() -> None:
    breaker, _, _ = make()
    permit = leave(breaker)
    for _ in range(5):
        permit.end(Health.BAD)
    assert breaker.state is BreakerState.CLOSED


@given(st.lists(st.tuples(st.sampled_from(["ask", "token", "good", "bad", "unknown"]), st.floats(0, 7)), max_size=120))
def test_whatever_happens_probes_are_limited_and_an_open_breaker_lets_nobody_through(
    steps: list[tuple[str, float]],
) -> None:
    breaker, now, _ = make(BreakerPolicy(window_s=10, least_failures=2, open_s=5, num_probes=2, num_successes=2))
    out: list[Permit] = []
    for what, wait_s in steps:
        now.s += wait_s
        if what == "ask":
            state = breaker.state
            permit = breaker.admit()
            assert permit is None or state is not BreakerState.OPEN
            out += [] if permit is None else [permit]
        elif out and what == "token":
            out[0].has_token()
        elif out:
            out.pop(0).end(Health(what))
        if breaker.state is BreakerState.HALF_OPEN:
            num_more = 0
            while (permit := breaker.admit()) is not None:
                out.append(permit)
                num_more += 1
            assert num_more <= 2
    for permit in out:  # nobody holds a place for ever
        permit.end(Health.UNKNOWN)
    now.s += 5
    assert breaker.admit() is not None
