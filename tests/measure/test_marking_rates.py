"""How often is a run marked invalid: starved clients nearly always, healthy ones nearly never, on a clock of its own.

A reader is simulated by hand: tokens arrive on time; what has arrived is read when the reader is free, and of all that one
read brings the kernel stamps the last. Nothing here sleeps, and nothing comes from the code under test but the verdict.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

from inference_bench.measure.client_health import ClientHealth, ProcessWatch, judge_client
from inference_bench.measure.http1 import Part
from inference_bench.measure.receipts import Receipt, Receipts
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.stats import quantile

NUM_RUNS = 100
NUM_STREAMS, NUM_TOKENS = 8, 100
FIRST_S, GAP_S, JITTER_S = 0.08, 0.01, 0.0005
RUN_S = FIRST_S + (NUM_TOKENS + 10) * GAP_S
LAG_PERIOD_S = 0.01
Stalls = list[tuple[float, float]]


@dataclass(frozen=True)
class Run:
    """What a client would say of a run, and the true gaps between tokens."""

    health: ClientHealth
    true_gaps_s: list[float]


def stalls_of(draw: random.Random, every_s: float, lasts_s: float) -> Stalls:
    begin_s, stalls = draw.uniform(0, every_s), Stalls()
    while begin_s < RUN_S:
        stalls.append((begin_s, begin_s + lasts_s))
        begin_s += max(lasts_s, draw.gauss(every_s, every_s / 20))
    return stalls


def slices_of(draw: random.Random, share: float, slice_s: float) -> Stalls:
    """A client that gets the processor for this share of the time, a slice at a time."""
    begin_s, stalls = 0.0, Stalls()
    while begin_s < RUN_S:
        runs_s = draw.expovariate(1 / slice_s)
        waits_s = draw.expovariate(1 / (slice_s * (1 / share - 1)))
        stalls.append((begin_s + runs_s, begin_s + runs_s + waits_s))
        begin_s += runs_s + waits_s
    return stalls


def free_after(stalls: Stalls, time_s: float) -> float:
    at = bisect_right(stalls, (time_s, float("inf"))) - 1
    return stalls[at][1] if at >= 0 and time_s < stalls[at][1] else time_s


def simulate(seed: int, stalls_for: Callable[[random.Random], Stalls], is_kernel: bool) -> Run:
    draw = random.Random(seed)
    stalls, receipts = stalls_for(draw), Receipts()
    records, true_gaps_s = list[RequestRecord](), list[float]()

    def read_at(arrived_s: float) -> float:
        return free_after(stalls, arrived_s) + draw.expovariate(1 / 60e-6) + 20e-6

    for number in range(NUM_STREAMS):
        phase_s = draw.uniform(0, GAP_S)
        arrived_s = [FIRST_S + phase_s + GAP_S * at + draw.uniform(0, JITTER_S) for at in range(NUM_TOKENS)]
        true_gaps_s += [b - a for a, b in pairwise(arrived_s)]
        receipt, stamps_s, drained_s = Receipt(), list[float](), 0.0
        while len(stamps_s) < NUM_TOKENS:
            read_s = read_at(arrived_s[len(stamps_s)])
            num_read = bisect_right(arrived_s, read_s)
            stamp_s = arrived_s[num_read - 1] if is_kernel else read_s
            stamps_s += [stamp_s] * (num_read - len(stamps_s))
            receipt.note(Part(stamp_s, b"", read_s, drained_s, is_kernel, True), num_read)
            drained_s = read_s
        receipts.add(f"r{number}", receipt)
        records.append(
            RequestRecord(f"r{number}", Origin.MEASURED, Stage.MEASURE, RequestStatus.COMPLETED, 0.0, 0.0, stamps_s[-1],
                          tuple(stamps_s), output_tokens=NUM_TOKENS, token_count_source=TokenCountSource.SERVER_USAGE)
        )  # fmt: skip
    lags_s, due_s = list[float](), 0.0
    while due_s < RUN_S:
        now_s = free_after(stalls, due_s) + draw.uniform(0, 0.001)
        lags_s.append(now_s - due_s)
        receipts.note_lag(now_s, now_s - due_s, LAG_PERIOD_S)
        due_s = now_s + LAG_PERIOD_S
    with ProcessWatch() as watch:
        pass
    return Run(judge_client(records, receipts, lags_s, watch), true_gaps_s)


def invalid_share(runs: list[Run]) -> float:
    return sum(run.health.invalid_because is not None for run in runs) / len(runs)


STARVED: dict[str, Callable[[random.Random], Stalls]] = {
    "stopped 50 ms every 300 ms": lambda draw: stalls_of(draw, 0.3, 0.05),
    "stopped 25 ms every 100 ms": lambda draw: stalls_of(draw, 0.1, 0.025),
    "stopped 300 ms every second": lambda draw: stalls_of(draw, 1.0, 0.3),
    "stopped 35 ms now and then, less than a hundredth of the time it is watched": lambda draw: stalls_of(
        draw, 0.7, 0.035
    ),
    "a fifth of a processor": lambda draw: slices_of(draw, 0.2, 0.004),
}
HEALTHY: dict[str, Callable[[random.Random], Stalls]] = {
    "idle machine": lambda draw: stalls_of(draw, 0.5, 0.001),
    "stopped 4 ms every 100 ms": lambda draw: stalls_of(draw, 0.1, 0.004),
    "half a processor in slices of 3 ms": lambda draw: [(a, min(b, a + 0.006)) for a, b in slices_of(draw, 0.5, 0.003)],
}


@pytest.mark.parametrize("name", STARVED)
def test_a_starved_client_is_marked_invalid(name: str) -> None:
    assert invalid_share([simulate(seed, STARVED[name], is_kernel=True) for seed in range(NUM_RUNS)]) >= 0.95


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_client_is_not(name: str) -> None:
    assert invalid_share([simulate(seed, HEALTHY[name], is_kernel=True) for seed in range(NUM_RUNS)]) <= 0.02


@pytest.mark.parametrize("name", STARVED)
def test_a_starved_client_with_its_own_stamps_is_marked_too(name: str) -> None:
    assert invalid_share([simulate(seed, STARVED[name], is_kernel=False) for seed in range(NUM_RUNS)]) >= 0.95


@pytest.mark.parametrize("name", [*STARVED, *HEALTHY])
def test_the_bound_holds_the_truth(name: str) -> None:
    points = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    stalls = (STARVED | HEALTHY)[name]
    for seed in range(20):
        run = simulate(seed, stalls, is_kernel=True)
        bounds = [bound for bound in run.health.error_bounds if bound.metric == "itl_s"]
        assert len(bounds) == 3
        for bound in bounds:
            error_s = abs(bound.value_s - quantile(run.true_gaps_s, points[bound.percentile]))
            assert error_s <= bound.bound_s + 1e-4, (seed, bound)  # waking takes a moment that no other read knows of
