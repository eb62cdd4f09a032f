"""What is known without running anything: queueing theory, closed forms of an idle server, conservation, and that nobody looks ahead."""

from __future__ import annotations

import ast
import inspect
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest

from inference_bench.errors import RequestError
from inference_bench.simulate import scheduler, sequence
from inference_bench.simulate.answers import sequence_of
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.sequence import Sequence as Scheduled
from inference_bench.simulate.settings import KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.summary import check_run, summarise_run
from inference_bench.workload import (
    Constant,
    Fixed,
    OpenLoop,
    Poisson,
    Requests,
    Workload,
    generate,
    reference_workload,
)
from simulate.fleets import steps_of as steps_of_seconds
from simulate.fleets import workload_of
from simulate.random_cases import Case, seeded_case
from simulate.reference_case import COMPILED, memory_of, steps_of

ENGINES = [Engine.REFERENCE, Engine.PLAIN, COMPILED]
SERVICE_S = 0.5
ONE_AT_A_TIME = SchedulerSettings(policy=Policy.PAGED, max_running=1)
ONE_BY_ONE = SchedulerSettings(policy=Policy.STATIC, max_batch=1, dispatch_timeout_s=0.0)
AMPLE = KvMemory(1 << 40, 1)


def queue(workload: Workload, settings: SchedulerSettings = ONE_AT_A_TIME, engine: Engine = Engine.AUTO) -> Outcome:
    """Requests of one token each, served for half a second one after another."""
    return simulate(workload, ServerSetup(settings, AMPLE), steps_of_seconds(SERVICE_S), engine=engine)


def waits_s(outcome: Outcome) -> list[float]:
    """The times before service began."""
    return [first - SERVICE_S - came for first, came in zip(outcome.first_token_s, outcome.arrival_s, strict=True)]


def poisson(load: float, count: int, seed: int) -> Workload:
    return generate(Poisson(load / SERVICE_S), Fixed(7), Fixed(1), count, seed)


def waits_by_lindley_s(arrival_s: Sequence[float]) -> list[float]:
    """Who comes waits for what is left of the work in front: w' = max(0, w + S - gap)."""
    waits = [0.0]
    for before, after in pairwise(arrival_s):
        waits.append(max(0.0, waits[-1] + SERVICE_S - (after - before)))
    return waits


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_the_mean_wait_of_random_arrivals_for_one_server_is_that_of_theory(load: float) -> None:
    expected_s = load * SERVICE_S / (2 * (1 - load))  # M/D/1, Pollaczek and Khinchine
    waits = [fmean(waits_s(queue(poisson(load, 60_000, seed)))) for seed in range(4)]
    assert fmean(waits) == pytest.approx(expected_s, rel=0.02)
    assert all(wait_s == pytest.approx(expected_s, rel=0.05) for wait_s in waits)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("settings", [ONE_AT_A_TIME, ONE_BY_ONE], ids=["joining", "batches of one"])
def test_every_single_wait_for_one_server_is_that_of_the_recursion(settings: SchedulerSettings, engine: Engine) -> None:
    outcome = queue(poisson(0.8, 2000, 11), settings, engine)
    assert waits_s(outcome) == pytest.approx(waits_by_lindley_s(outcome.arrival_s), abs=1e-9)
    assert max(waits_s(outcome)) > 3 * SERVICE_S


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rate", [0.7, 1.0, 2.0])
def test_nobody_waits_where_requests_come_no_faster_than_they_are_served(rate: float, engine: Engine) -> None:
    outcome = queue(generate(Constant(rate), Fixed(3), Fixed(1), 500), engine=engine)
    assert waits_s(outcome) == pytest.approx([0.0] * 500, abs=1e-9)


def idle_ttft_s(prompt: int, budget: int) -> float:
    """A prompt alone on the reference machine, in chunks: max(bytes / bandwidth, FLOPs / compute) of each."""
    total_s = 0.0
    for cached in range(0, prompt, budget):
        new = min(budget, prompt - cached)
        pairs = new * cached + new * (new + 1) / 2
        total_s += max((5.5e9 + 147456 * cached) / 1e12, (2 * 8927875072 * new + 4 * 36 * 4096 * pairs) / 82.5e12)
    return total_s


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("prompt", "output"), [(4000, 2000), (1, 2), (100, 1), (5999, 17)])
@pytest.mark.parametrize("policy", Policy)
def test_an_idle_server_answers_in_the_time_of_the_closed_form(
    policy: Policy, prompt: int, output: int, engine: Engine
) -> None:
    setup = ServerSetup(SchedulerSettings(policy=policy, dispatch_timeout_s=0.0), memory_of(16e9))
    outcome = simulate(workload_of((3.0, prompt, output)), setup, steps_of(1e12, 82.5e12), engine=engine)
    row = summarise_run(outcome)
    expected_s = idle_ttft_s(prompt, 256 if policy is Policy.CHUNKED else prompt)
    assert row.ttft_p50_s == pytest.approx(expected_s, rel=1e-9)
    if output == 1:
        assert row.tpot_mean_s is None
        return
    # reading the weights and, on average, the prompt and half of the answer
    assert row.tpot_mean_s == pytest.approx((5.5e9 + 147456 * (prompt + (output - 2) / 2)) / 1e12, rel=1e-9)
    assert row.e2e_p50_s == pytest.approx(expected_s + (output - 1) * row.tpot_mean_s, rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_memory_never_makes_more_give_way_among_equals_that_come_at_once(engine: Engine) -> None:
    asked = Requests(array("q", [10] * 12), array("q", [50] * 12))
    workload = Workload("equals", asked, OpenLoop(array("d", [0.0] * 12), "at once"))
    found = [
        simulate(workload, ServerSetup(SchedulerSettings(), KvMemory(budget, 1)), steps_of_seconds(), engine=engine)
        for budget in (120, 180, 300, 450, 600, 12 * 59)
    ]
    preemptions = [outcome.num_preemptions for outcome in found]
    assert preemptions == sorted(preemptions, reverse=True)
    assert preemptions[0] > 10
    assert preemptions[-1] == 0
    assert found[-1].peak_bytes == 12 * 59


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", Policy)
def test_every_token_comes_once_and_requests_times_seconds_balance(policy: Policy, engine: Engine) -> None:
    workload = reference_workload(0.4, 60)
    setup = ServerSetup(SchedulerSettings(policy=policy, max_output_tokens=4000), memory_of(3e9))
    outcome = simulate(workload, setup, steps_of(1e12, 82.5e12), engine=engine)
    assert sum(outcome.gaps.counts) == sum(workload.requests.output_tokens) - 60
    # the sum of all pauses of an answer is the time from its first token to its last
    paused_s = math.fsum(gap * count for gap, count in zip(outcome.gaps.values_s, outcome.gaps.counts, strict=True))
    spans_s = math.fsum(last - first for first, last in zip(outcome.first_token_s, outcome.last_token_s, strict=True))
    assert paused_s == pytest.approx(spans_s, rel=1e-9)
    checks = check_run(outcome)
    assert checks.are_kept
    assert checks.num_in_system == pytest.approx(checks.arrival_rate * checks.time_in_system_s, rel=1e-9)
    assert (outcome.num_preemptions > 0) == (policy in (Policy.PAGED, Policy.CHUNKED))
    if outcome.token_times_s is not None:
        assert list(map(len, outcome.token_times_s)) == list(workload.requests.output_tokens)


def test_what_a_scheduler_is_given_says_nothing_of_the_answer_to_come() -> None:
    short, long = workload_of((0.0, 30, 1)), workload_of((0.0, 30, 4000))
    seen = [
        [getattr(sequence_of(workload, 0, 0.0), field.name) for field in fields(Scheduled)]
        for workload in (short, long)
    ]
    assert seen[0] == seen[1]
    assert not hasattr(sequence_of(long, 0, 0.0), "__dict__")
    assert not [field.name for field in fields(Scheduled) if "output" in field.name or "remaining" in field.name]


@pytest.mark.parametrize("module", [scheduler, sequence])
def test_the_scheduler_imports_nothing_that_knows_the_answers(module: object) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):  # type: ignore[arg-type]
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
    assert imported
    assert not [name for name in imported if "answers" in name or name.endswith(("Workload", "Requests"))]


def with_other_ends(case: Case, outcome: Outcome, until_s: float, draw: Random) -> Workload:
    """The workload with all answers that go on at that time ending elsewhere, and yet after it."""
    assert outcome.token_times_s is not None
    asked, longest = case.workload.requests, max(case.workload.requests.output_tokens)
    outputs = array("q")
    for length, times in zip(asked.output_tokens, outcome.token_times_s, strict=True):
        given = sum(time_s <= until_s for time_s in times)
        outputs.append(length if given == length else draw.randint(given + 1, longest + 1))
    return replace(case.workload, requests=replace(asked, output_tokens=outputs))


def seen_by(until_s: float) -> Callable[[Outcome], tuple[object, ...]]:
    """All that was decided or given by a time."""

    def seen(outcome: Outcome) -> tuple[object, ...]:
        points = zip(*(getattr(outcome.timeline, field.name) for field in fields(outcome.timeline)), strict=True)
        tokens = [[time_s for time_s in times if time_s <= until_s] for times in outcome.token_times_s or ()]
        firsts = [time_s if time_s <= until_s else None for time_s in outcome.first_token_s]
        return firsts, tokens, [point for point in points if point[0] <= until_s]

    return seen


@pytest.mark.parametrize("policy", Policy)
def test_other_ends_of_answers_that_go_on_change_nothing_that_was_decided_before(policy: Policy) -> None:
    compared = changed = 0
    for seed in range(200):
        case, draw = seeded_case(policy, seed), Random(seed)
        try:
            outcome = simulate(case.workload, case.setup, case.step_time, engine=Engine.REFERENCE)
            until_s = draw.choice(outcome.timeline.time_s)
            other = with_other_ends(case, outcome, until_s, draw)
            outcomes = [
                simulate(other, case.setup, case.step_time, engine=engine)
                for engine in (Engine.REFERENCE, Engine.PLAIN)
            ]
        except RequestError:  # longer answers may not fit
            continue
        seen = seen_by(until_s)
        assert seen(outcomes[0]) == seen(outcome), f"{policy}, seed {seed}"
        assert seen(outcomes[1])[0] == seen(outcome)[0], f"{policy}, seed {seed}, plain"
        compared += 1
        changed += outcomes[0].last_token_s != outcome.last_token_s
    assert compared > 100
    assert changed > 60
