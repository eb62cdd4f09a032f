"""The fast engine does what the readable loop does: same steps, same times to the last bit, on random servers of every kind.

The readable loop is the truth: its rules are the SPEC's. A seed that fails is found again by `random_case(policy, seed)`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields

import pytest

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.kernel.compiled import is_available
from inference_bench.simulate.outcome import Gaps, Outcome
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import Policy
from inference_bench.simulate.summary import check_run, summarise_run
from simulate.random_cases import Case, random_case
from simulate.reference_case import WITHOUT_NUMBA

SETTINGS = 1000  # of each policy


@dataclass(slots=True)
class Met:
    """What the settings really had in them: a comparison of runs in which nothing happens shows nothing."""

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


def run(case: Case, engine: Engine) -> Outcome | str:
    """The outcome, or which request could not be served, and how that was called."""
    try:
        return simulate(case.workload, case.setup, case.step_time, case.objective, engine)
    except RequestError as refusal:
        words = str(refusal).split()
        return " ".join([*words[:2], "alone" if "alone" in words else "never"])


def pooled(gaps: Gaps) -> Counter[float]:
    found: Counter[float] = Counter()
    for value, count in zip(gaps.values_s, gaps.counts, strict=True):
        found[value] += count
    return found


def are_the_same(case: Case, found: Outcome | str, expected: Outcome | str, where: str) -> None:
    """All that both keep: counts and times exactly, percentiles and sums over time to 1e-9."""
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected, where
        return
    for counted in ("num_steps", "num_preemptions", "peak_bytes", "cached_prompt_tokens"):
        assert getattr(found, counted) == getattr(expected, counted), f"{where}: {counted}"
    for column in ("arrival_s", "first_token_s", "last_token_s", "preempted"):
        assert list(getattr(found, column)) == list(getattr(expected, column)), f"{where}: {column}"
    assert [bool(kept) for kept in found.keeps_gaps] == [bool(kept) for kept in expected.keeps_gaps], where
    assert pooled(found.gaps) == pooled(expected.gaps), where
    say_the_same(found, expected, case.objective, where)
    assert check_run(found).are_kept, where
    assert check_run(expected).are_kept, where


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
        case = random_case(policy, seed)
        expected = run(case, slow)
        are_the_same(case, run(case, fast), expected, f"{policy}, seed {seed}")
        met.count(expected)
    return met


@pytest.mark.parametrize("policy", Policy)
def test_the_plain_engine_does_what_the_readable_loop_does(policy: Policy) -> None:
    met = compare(policy, Engine.PLAIN, Engine.REFERENCE)
    print(met)


@pytest.mark.skipif(not is_available(), reason=WITHOUT_NUMBA)
@pytest.mark.parametrize("policy", Policy)
def test_the_compiled_engine_does_what_the_plain_one_does(policy: Policy) -> None:
    met = compare(policy, Engine.COMPILED, Engine.PLAIN)
    print(met)
