"""Whether a run says that its server fell behind: by those that wait for their first token, whatever the policy."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.reference_profiles import reference_profile
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import queue_grew, summarise_run
from inference_bench.workload import OpenLoop, RequestShape, Workload, closed_loop, reference_workload

PROFILE = reference_profile("24GB-bf16")
SETUP = ServerSetup(SchedulerSettings(), PROFILE.memory)


def falls_behind(workload: Workload, setup: ServerSetup = SETUP, engine: Engine = Engine.AUTO) -> bool:
    return summarise_run(simulate(workload, setup, PROFILE.step_time, engine=engine)).queue_grew


@cache
def base(count: int) -> Outcome:
    return simulate(reference_workload(1.0, count), SETUP, PROFILE.step_time)


def run_of(came_s: Sequence[float], first_s: Sequence[float], failed: tuple[int, ...] = ()) -> Outcome:
    """A run of which only these times are looked at."""
    run = base(len(came_s))
    arrival = OpenLoop(array("d", came_s), "as given", None)
    return replace(
        run, workload=replace(run.workload, arrival=arrival), arrival_s=came_s, first_token_s=first_s, failed=failed
    )


# ── worked by hand: 12 requests, so more than 6 have to wait in the end ────────────────────────────

TWELVE = [float(second) for second in range(1, 13)]


def test_a_server_that_takes_two_seconds_for_what_comes_each_second_falls_behind() -> None:
    # the k-th has its first token at 2 k + 1: at 12 s the 6th and all after it wait, seven; 7² > 3 · 12
    assert queue_grew(run_of(TWELVE, [2 * came + 1 for came in TWELVE]))


def test_a_server_exactly_at_its_capacity_does_not() -> None:
    assert not queue_grew(run_of(TWELVE, [came + 1 for came in TWELVE]))


def test_six_of_twelve_that_wait_are_within_chance() -> None:
    # the k-th at 1.75 k + 1.5: at 12 s the 7th (13.75) and later wait, six; 6² = 3 · 12
    assert not queue_grew(run_of(TWELVE, [1.75 * came + 1.5 for came in TWELVE]))


def test_a_queue_that_shrinks_is_none_that_grew() -> None:
    # eleven at once, one each 3 s: at 12 s seven of them and the last wait, 8² > 36; but 63 s · requests of waiting in the first
    # half (3 + 6 + 9 · 6) are more than the 51 of the second (3 + 6 + 7 · 6)
    first_s = [3.0 * (index + 1) for index in range(11)]
    assert not queue_grew(run_of([0.0] * 11 + [12.0], [*first_s, 36.0]))


def test_one_that_failed_waits_for_nothing() -> None:
    first_s = [2 * came + 1 for came in TWELVE]
    failed = run_of(TWELVE, [*first_s[:11], 0.0], (11,))
    assert not queue_grew(failed), "six are left that wait"


def test_long_answers_are_no_queue_for_a_first_token() -> None:
    # everyone is taken in at once and nobody has ended when the last comes, as in the warming up of any server
    run = replace(run_of(TWELVE, [came + 0.1 for came in TWELVE]), last_token_s=[came + 100 for came in TWELVE])
    assert not queue_grew(run)


# ── Poisson arrivals at one queue, whose first tokens take 1 s ± 0.5 s ─────────────────────────────


def share_behind(rate: float, count: int, runs: int = 100) -> float:
    draw, behind = Random(f"{rate} {count}"), 0
    for _ in range(runs):
        now_s = free_s = 0.0
        came_s: list[float] = []
        first_s: list[float] = []
        for _ in range(count):
            now_s += draw.expovariate(rate)
            free_s = max(free_s, now_s) + draw.uniform(0.5, 1.5)
            came_s.append(now_s)
            first_s.append(free_s)
        behind += queue_grew(run_of(came_s, first_s))
    return behind / runs


@pytest.mark.parametrize(
    ("rate", "count", "low", "high"),
    [(0.8, 60, 0, 0.03), (0.8, 300, 0, 0), (0.9, 300, 0, 0.03), (1.0, 60, 0, 0.2), (1.0, 300, 0, 0.2), (1.0, 2000, 0, 0.2),
     (1.2, 300, 0.85, 1), (1.1, 2000, 0.9, 1), (2.0, 60, 0.95, 1)],
)  # fmt: skip
def test_below_capacity_it_is_hardly_ever_said_at_capacity_rarely_above_it_nearly_always(
    rate: float, count: int, low: float, high: float
) -> None:
    assert low <= share_behind(rate, count) <= high


# ── servers ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_a_server_below_its_capacity_does_not_fall_behind(rate: float, seed: int) -> None:
    assert not falls_behind(reference_workload(rate, 300, seed))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("policy", Policy)
def test_a_server_far_above_its_capacity_says_so_under_every_policy(policy: Policy, rate: float, seed: int) -> None:
    setup = replace(SETUP, scheduler=SchedulerSettings(policy=policy))
    assert falls_behind(reference_workload(rate, 300, seed), setup)


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.4])
@pytest.mark.parametrize("policy", Policy)
def test_both_loops_say_the_same(policy: Policy, rate: float) -> None:
    setup, asked = replace(SETUP, scheduler=SchedulerSettings(policy=policy)), reference_workload(rate, 60)
    assert falls_behind(asked, setup, Engine.REFERENCE) == falls_behind(asked, setup, Engine.PLAIN)


def test_a_closed_loop_waits_for_its_server_and_cannot_fall_behind() -> None:
    assert not falls_behind(closed_loop("users", [RequestShape(4000, 200)], 64, 200))
