"""Runs with known arrivals: kept ones, and three ways to break them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, pairwise
from random import Random

from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import Arrivals, Constant, GammaArrivals, OnOff, OpenLoop, Poisson

COUNT = 400
PROCESSES: tuple[Arrivals, ...] = (
    Poisson(5),
    Poisson(40),
    Poisson(500),
    Constant(20),
    GammaArrivals(10, 0.3),
    GammaArrivals(10, 4),
    OnOff.of_mean_rate(10, 2, 6),
    OnOff.of_mean_rate(10, 1, 3, 0.2),
)
RANDOM = tuple(process for process in PROCESSES if not isinstance(process, Constant))
BEGIN_S = 3.0


def record(planned_s: float, sent_s: float, end_s: float | None = None) -> RequestRecord:
    return RequestRecord(
        request_id=f"r{planned_s}",
        origin=Origin.MEASURED,
        stage=Stage.MEASURE,
        status=RequestStatus.COMPLETED,
        planned_s=planned_s,
        sent_s=sent_s,
        end_s=sent_s + 0.5 if end_s is None else end_s,
    )


def sent(times_s: Iterable[float], late_s: Iterable[float]) -> list[RequestRecord]:
    return [record(BEGIN_S + at, BEGIN_S + at + late) for at, late in zip(times_s, late_s, strict=True)]


def lateness(rng: Random, count: int = COUNT) -> list[float]:
    """As measured of an event loop with absolute deadlines: p50 0.7 ms, p99 below 6 ms."""
    return [min(0.006, rng.lognormvariate(-7.3, 0.7)) for _ in range(count)]


def schedule(process: Arrivals, times_s: Iterable[float]) -> OpenLoop:
    return OpenLoop(array("d", times_s), process.name, process.mean_rate, process)


def drawn(process: Arrivals, rng: Random, count: int = COUNT) -> OpenLoop:
    return schedule(process, islice(process.times_s(rng), count))


Run = tuple[list[RequestRecord], OpenLoop]


def kept(process: Arrivals, rng: Random) -> Run:
    asked = drawn(process, rng)
    return sent(asked.times_s, lateness(rng, len(asked))), asked


def shared_seed(process: Arrivals, rng: Random, workers: int = 10, *, in_turn: bool = False) -> Run:
    """Every worker draws the same gaps and they are added up: each `workers` times, or all of them again and again."""
    times_s = [0.0, *islice(process.times_s(rng), COUNT // workers)]
    gaps_s = [after - before for before, after in pairwise(times_s)]
    repeated = gaps_s * workers if in_turn else [gap_s for gap_s in gaps_s for _ in range(workers)]
    asked = schedule(process, accumulate(repeated))
    return sent(asked.times_s, lateness(rng, len(asked))), asked


def shared_seed_unplanned(process: Arrivals, rng: Random) -> Run:
    """The same where the plan is only what was done: no two gaps are equal to the last digit."""
    _, asked = shared_seed(process, rng, 4)
    times_s: Sequence[float] = sorted(at + late for at, late in zip(asked.times_s, lateness(rng), strict=True))
    return sent(times_s, [0.0] * len(times_s)), schedule(process, times_s)


def relative_sleep(process: Arrivals, rng: Random) -> Run:
    """Each request sleeps its gap after the one before was sent, which took 0.7 to 1.5 ms."""
    asked = drawn(process, rng)
    return sent(asked.times_s, accumulate(rng.uniform(0.0007, 0.0015) for _ in range(COUNT))), asked


def rescaled(process: Arrivals, rng: Random) -> Run:
    """The last arrival is moved to where it lies on average."""
    times_s = drawn(process, rng).times_s
    factor = COUNT / process.mean_rate / times_s[-1]
    asked = schedule(process, (at * factor for at in times_s))
    return sent(asked.times_s, lateness(rng)), asked


SABOTEURS = {
    "shared worker seed": shared_seed,
    "shared worker seed, two workers": lambda process, rng: shared_seed(process, rng, 2),
    "shared worker seed, in turn": lambda process, rng: shared_seed(process, rng, 2, in_turn=True),
    "relative sleeping": relative_sleep,
    "rescaled sums": rescaled,
}
