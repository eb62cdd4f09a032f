"""The fast engine does what the readable loop does: same steps, same times to the last bit, on random servers of every kind.

The readable loop is the truth: its rules are the SPEC's. A seed that fails is made again by `seeded_case(policy, seed)`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.kernel import engine as fast_engine
from inference_bench.simulate.kernel.compiled import is_available
from inference_bench.simulate.outcome import TIMELINE_POINTS, Gaps, Outcome
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import BATCHED, KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import check_run, summarise_run
from simulate.fleets import steps_of, workload_of
from simulate.random_cases import Case, random_case, seeded_case
from simulate.reference_case import COMPILED, WITHOUT_NUMBA

SETTINGS = 1000  # of each policy


@dataclass(slots=True)
class Met:
    """What happened in all runs: to agree on runs in which nothing happens would show nothing."""

    runs: int = 0
    refusals: int = 0
    steps: int = 0
    preemptions: int = 0
    most_of_one: int = 0
    late: int = 0

    def count(self, outcome: Outcome | str) -> None:
        if isinstance(outcome, str):
            self.refusals += 1
            return
        self.runs += 1
        self.steps += outcome.num_steps
        self.preemptions += outcome.num_preemptions
        self.most_of_one = max(self.most_of_one, *(outcome.preempted or [0]), 0)
        self.late += sum(not kept for kept in outcome.keeps_gaps)

    def is_worth_something(self, policy: Policy) -> None:
        assert self.runs >= 0.7 * SETTINGS
        assert self.runs + self.refusals == SETTINGS
        assert self.steps > 20 * SETTINGS
        assert self.late > SETTINGS
        if policy is not Policy.STATIC:  # whose memory is not checked
            assert self.refusals > 0.05 * SETTINGS
        if policy not in BATCHED:  # reserve: where answers are longer than what is kept free
            assert self.preemptions > SETTINGS * (0.2 if policy is Policy.RESERVE else 0.8)
            assert self.most_of_one > 5


def run(case: Case, engine: Engine) -> Outcome | str:
    """The outcome, or which request could not be served, and why in a word."""
    try:
        return simulate(case.workload, case.setup, case.step_time, case.objective, engine)
    except RequestError as refusal:
        words = str(refusal).split()
        return " ".join([*words[:2], "alone" if "alone" in words else "never"])


def pooled(gaps: Gaps) -> Counter[float]:
    """How often each pause occurred."""
    found: Counter[float] = Counter()
    for value, count in zip(gaps.values_s, gaps.counts, strict=True):
        found[value] += count
    return found


def are_the_same(found: Outcome | str, expected: Outcome | str, objective: Objective, where: str) -> None:
    """All that both keep: counts and times exactly, percentiles and sums over time to 1e-9."""
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected, where
        return
    for counted in ("num_steps", "num_preemptions", "peak_bytes"):
        assert getattr(found, counted) == getattr(expected, counted), f"{where}: {counted}"
    for column in ("arrival_s", "first_token_s", "last_token_s", "preempted"):
        assert list(getattr(found, column)) == list(getattr(expected, column)), f"{where}: {column}"
    assert [bool(kept) for kept in found.keeps_gaps] == [bool(kept) for kept in expected.keeps_gaps], where
    assert pooled(found.gaps) == pooled(expected.gaps), where
    say_the_same(found, expected, objective, where)
    if expected.engine == Engine.REFERENCE.value and expected.num_steps < TIMELINE_POINTS:
        seen, every = moments(found), moments(expected)  # some of all: those in which something changed
        assert seen[0] == every[0], where
        assert set(seen) <= set(every), where
    assert check_run(found).are_kept, where
    assert check_run(expected).are_kept, where


def moments(outcome: Outcome) -> list[tuple[float, int, int, int]]:
    """The timeline, point by point."""
    kept = outcome.timeline
    return list(zip(kept.time_s, kept.waiting, kept.running, kept.used_bytes, strict=True))


def say_the_same(found: Outcome, expected: Outcome, objective: Objective, where: str) -> None:
    ours, theirs = summarise_run(found, objective), summarise_run(expected, objective)
    for field in fields(ours):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if isinstance(one, float) and isinstance(other, float):
            assert math.isclose(one, other, rel_tol=1e-9), f"{where}: {field.name}"
        elif field.name != "engine":
            assert one == other, f"{where}: {field.name}"


def compare(policy: Policy, fast: Engine, slow: Engine) -> Met:
    met = Met()
    for seed in range(SETTINGS):
        case = seeded_case(policy, seed)
        expected = run(case, slow)
        are_the_same(run(case, fast), expected, case.objective, f"{policy}, seed {seed}")
        met.count(expected)
    return met


@pytest.mark.parametrize("policy", Policy)
def test_the_plain_engine_does_what_the_readable_loop_does(policy: Policy) -> None:
    compare(policy, Engine.PLAIN, Engine.REFERENCE).is_worth_something(policy)


@pytest.mark.skipif(not is_available(), reason=WITHOUT_NUMBA)
@pytest.mark.parametrize("policy", Policy)
def test_the_compiled_engine_does_what_the_plain_one_does(policy: Policy) -> None:
    compare(policy, Engine.COMPILED, Engine.PLAIN).is_worth_something(policy)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(Policy), st.randoms(use_true_random=False))
def test_the_smallest_case_in_which_the_plain_engine_differs_is_not_found(policy: Policy, draw: Random) -> None:
    case = random_case(policy, draw)
    are_the_same(run(case, Engine.PLAIN), run(case, Engine.REFERENCE), case.objective, repr(case))


@pytest.mark.parametrize("engine", [Engine.PLAIN, COMPILED])
@pytest.mark.parametrize("policy", Policy)
def test_it_does_not_matter_how_often_the_fast_engine_comes_up_for_air(
    policy: Policy, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [seeded_case(policy, seed) for seed in range(100)]
    in_one_go = [run(case, engine) for case in cases]
    monkeypatch.setattr(fast_engine, "_REQUESTS_A_CALL", 3)
    monkeypatch.setattr(fast_engine, "_GAP_ROOM", 1)  # room for hardly more pauses than one step or batch makes
    for seed, (case, expected) in enumerate(zip(cases, in_one_go, strict=True)):
        are_the_same(run(case, engine), expected, case.objective, f"{policy}, seed {seed}")


@pytest.mark.parametrize("engine", [Engine.PLAIN, COMPILED])
@pytest.mark.parametrize("policy", [Policy.STATIC, Policy.CHUNKED])
def test_a_long_run_keeps_as_many_evenly_spread_moments_as_the_readable_loop_does(
    policy: Policy, engine: Engine
) -> None:
    # one prompt position a step, so that no step is like the one before it
    workload = workload_of(*((float(at), 1, 2) for at in range(4000)))
    setup = ServerSetup(SchedulerSettings(policy=policy, max_batch=1), KvMemory(1000, 1))
    expected, found = (simulate(workload, setup, steps_of(0.25), engine=each) for each in (Engine.REFERENCE, engine))
    assert expected.num_steps == 8000
    assert moments(found) == moments(expected)
    assert 512 <= len(moments(found)) < TIMELINE_POINTS
