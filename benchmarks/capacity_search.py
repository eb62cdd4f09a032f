"""Does the search for a server's capacity find it? Queues of known capacity, many times each.

Run:  python benchmarks/capacity_search.py [--trials 100] [--real 0]

In virtual time a queue answers at once, so a hundred searches take seconds. Beside each stands a fixed grid of rates that ends with
an interval as narrow: it covers a factor of two that is known to hold the capacity, which is more than a search knows. --real runs
searches over HTTP against a server with a queue, in a process of its own.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from inference_bench.loadtest.capacity import Limits, Question, find_load_capacity  # noqa: E402
from inference_bench.loadtest.capacity_evidence import Counted, RunMisses, count_run, dispersion_of, log_evidence  # noqa: E402
from inference_bench.loadtest.capacity_search import CapacityFound, SearchPlan, search_capacity  # noqa: E402
from inference_bench.measure.load import LoadOptions  # noqa: E402
from inference_bench.measure.prompts import PromptMaker  # noqa: E402
from inference_bench.measure.target import Target  # noqa: E402
from inference_bench.workload import Fixed, Poisson, Workload, generate  # noqa: E402
from loadtest.queue_model import Queue, md1_capacity  # noqa: E402
from loadtest.queue_server import queue_server  # noqa: E402

CASES = (
    ("M/D/1, 99 % wait <= 4 services", Queue(4.0), 0.99),
    ("M/D/1, 90 % wait <= 4 services", Queue(4.0), 0.90),
    ("M/D/1, 99 % wait <= 20 services", Queue(20.0), 0.99),
    ("M/D/4, 95 % wait <= 2 services", Queue(2.0, clerks=4), 0.95),
    ("bursts (gamma, cv 2)/D/1, 90 % wait <= 6", Queue(6.0, cv=2.0), 0.90),
)
REAL_SERVICE_S = 0.004
REAL_LIMIT = 10.0  # services, and one more for the service itself
REAL_SHARE = 0.8
MOST_REQUESTS = 5_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--grid-trials", type=int, default=5)
    parser.add_argument("--real", type=int, default=0)
    options = parser.parse_args()
    print("| server | true capacity | inside | half-width | requests | a grid's | share | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name, queue, share in CASES if options.trials else ():
        virtual(name, queue, share, options.trials, options.grid_trials)
    if options.real:
        real(options.real)
    return 0


def plan_of(queue: Queue, share: float, seed: int = 0) -> SearchPlan:
    return SearchPlan(
        first_rate=0.1, least_rate=0.01, most_rate=100.0, share=share, max_requests=MOST_REQUESTS,
        least_span_s=10 * queue.limit, seed=seed,
    )  # fmt: skip


def virtual(name: str, queue: Queue, share: float, trials: int, grid_trials: int) -> None:
    begin_s = time.perf_counter()
    is_exact = queue.clerks == 1 and queue.cv == 1
    truth = md1_capacity(queue.limit, share) if is_exact else queue.long_run_capacity(share)
    found = [search_capacity(queue.trial(base), plan_of(queue, share)) for base in range(trials)]
    widths = [each.half_width or 1.0 for each in found]
    needed = median(each.num_sent for each in found)
    elapsed_s = time.perf_counter() - begin_s
    grid = grid_requests(queue, share, truth, median(widths), grid_trials)
    inside = sum(holds(each, truth) for each in found)
    print(
        f"| {name} | {truth:.4f} {'exact' if is_exact else 'long run'} | {inside} of {trials} | ±{median(widths):.1%} | "
        f"{needed:,.0f} | {grid:,.0f} | {needed / grid:.0%} | {elapsed_s:.0f} |",
        flush=True,
    )


def holds(found: CapacityFound, truth: float) -> bool:
    return (found.low_rate or 0.0) <= truth <= (found.high_rate or math.inf) and found.half_width is not None


def grid_requests(queue: Queue, share: float, truth: float, half_width: float, trials: int) -> float:
    """What a grid over a factor of two needs until its median interval is as narrow, doubling the requests of each rate."""
    step = 1 + half_width
    num_rates = math.ceil(math.log(2) / math.log(step))
    num_requests = 10_000
    while num_requests < MOST_REQUESTS:
        widths = [grid_width(queue, share, truth, step, num_rates, num_requests, base) for base in range(trials)]
        if median(widths) <= half_width:
            return float(num_rates * num_requests)
        num_requests = math.ceil(1.4 * num_requests)
    return float(num_rates * num_requests)


def grid_width(
    queue: Queue, share: float, truth: float, step: float, num_rates: int, num_requests: int, base: int
) -> float:
    """Half the width between the last rate that passed and the first that failed, judged as the search judges."""
    trial, allowed = queue.trial(10_000 + base), 1 - share
    begin = truth * 2 ** (-0.25 - 0.5 * ((base * 0.618) % 1))
    rates = [begin * step**number for number in range(num_rates)]
    runs: list[tuple[float, RunMisses, bool]] = []
    for rate in rates:
        if 0.75 < rate / truth < 1.35:  # farther off every run is decided alike; its requests are counted all the same
            made = trial(rate, num_requests, 0)
            runs.append((rate, count_run(made.misses), made.is_growing))
    dispersion = dispersion_of([[run] for _, run, is_growing in runs if not is_growing], allowed)
    threshold = plan_of(queue, share).threshold
    low, high = runs[0][0], runs[-1][0]
    for rate, run, is_growing in runs:
        counted = Counted(rate, run.num_misses, run.num_requests)
        if log_evidence(counted, allowed, dispersion, -1) >= threshold and not is_growing:
            low = max(low, rate)
        if is_growing or log_evidence(counted, allowed, dispersion, 1) >= threshold:
            high = min(high, rate)
    return (high - low) / (high + low)


def workload_of(count: int, seed: int) -> Workload:
    return generate(Poisson(1.0), Fixed(1), Fixed(1), count, seed)


def real(trials: int) -> None:
    """Searches over HTTP; the truth is that of the queue, whose server answers a moment after each service ends."""
    truth = md1_capacity(REAL_LIMIT, REAL_SHARE) / REAL_SERVICE_S
    limits = Limits(ttft_p99_s=(REAL_LIMIT + 1) * REAL_SERVICE_S)
    found: list[CapacityFound] = []
    begin_s = time.perf_counter()
    for seed in range(trials):
        with queue_server(REAL_SERVICE_S) as url:
            plan = SearchPlan(share=REAL_SHARE, half_width=0.2, max_requests=12_000, seed=1000 * seed)
            question = Question(Target(url, "queue"), workload_of, limits, plan)
            found.append(find_load_capacity(question, LoadOptions(prompts=PromptMaker(seed))))
    print_real(found, truth, time.perf_counter() - begin_s)


def print_real(found: Sequence[CapacityFound], truth: float, elapsed_s: float) -> None:
    inside = sum(holds(each, truth) for each in found)
    widths = [each.half_width or 1.0 for each in found]
    needed = median(each.num_sent for each in found)
    print(
        f"| HTTP server, {REAL_SERVICE_S * 1000:g} ms a request, {REAL_SHARE:.0%} wait <= {REAL_LIMIT:g} | {truth:.1f}/s exact | "
        f"{inside} of {len(found)} | ±{median(widths):.1%} | {needed:,.0f} | n/a | n/a | {elapsed_s:.0f} |"
    )
    for each in found:
        print(
            f"  {each.low_rate} to {each.high_rate} requests/s, {each.num_sent} requests",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
