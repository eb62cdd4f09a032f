"""How many requests the simulator runs in a second of CPU time: readable loop, arrays in plain Python, arrays through numba.

Method: chunked prefill with blocks of 16 positions, 512 positions a step and 128 running, a 7B model with a full cache of 16 bits on
an A100 (weights 13.5 GB, 524,288 bytes of cache a position, 0.8 of 2.039 TB/s, 0.6 of 312 TFLOP/s), lognormal lengths with the means
of Azure's conversation trace of 2023 (890 in, 229 out), Poisson arrivals at a rate that makes some give way. The same workload goes
through the engines alternately, ROUNDS times after one that warms up; times are CPU times of the process, each figure is the
median, and the ratios are the figures to keep: all sides feel the same machine. The compiled engine's share of a round is the
mean of 20 runs. A capacity search, a million requests and a start with compiled code on disk follow, the latter two in processes
of their own. Targets: 1,000,000 requests/s compiled, 30,000 plain, 100 and 3 times the readable loop, 0.5 s a search, 1 GB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from inference_bench.simulate.capacity import Limits, SearchSettings, find_capacity
from inference_bench.simulate.kernel.compiled import is_available
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import KvMemory, Policy, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.simulate.summary import summarise_run
from inference_bench.workload import ClippedLognormal, Poisson, Workload, generate

ROUNDS, REQUESTS, REPEATS, SEARCHED, MANY = 5, 2000, 20, 10_000, 1_000_000
PROMPT, OUTPUT = ClippedLognormal(498, 1.1, 1, 8192), ClippedLognormal(153, 0.9, 1, 4096)
STEPS = StepTime(Coefficients(13.5e9, 524_288, 2 * 6.6e9, 4 * 32 * 4096, 0.8 * 2.039e12, 0.6 * 312e12))
SETTINGS = SchedulerSettings(policy=Policy.CHUNKED, max_running=128, token_budget=512)
# (requests/s, blocks): what fits beside the weights, at a rate near its capacity, and half as many blocks
SETTINGS_RUN: Final = {"moderate load": (8.0, 7000), "near capacity": (8.8, 7000), "short of memory": (6.0, 3500)}


def setup(blocks: int) -> ServerSetup:
    return ServerSetup(SETTINGS, KvMemory.of_blocks(blocks, 16, 524_288))


def workload(rate: float, count: int) -> Workload:
    return generate(Poisson(rate), PROMPT, OUTPUT, count)


def cpu_s(work: Callable[[], object], times: int = 1) -> float:
    """CPU seconds of one, a mean over so many."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


def compare(name: str, rate: float, blocks: int) -> None:
    """Requests a CPU second of all engines, on one workload."""
    asked, server = workload(rate, REQUESTS), setup(blocks)
    engines = {Engine.REFERENCE: 1, Engine.PLAIN: 1} | ({Engine.COMPILED: REPEATS} if is_available() else {})

    def one(engine: Engine) -> Callable[[], object]:
        return lambda: simulate(asked, server, STEPS, engine=engine)

    rounds = [{each: cpu_s(one(each), times) for each, times in engines.items()} for _ in range(1 + ROUNDS)][1:]
    speeds = {each: REQUESTS / median(row[each] for row in rounds) for each in engines}
    ratios = {each: median(row[Engine.REFERENCE] / row[each] for row in rounds) for each in engines}
    outcome = simulate(asked, server, STEPS, engine=Engine.PLAIN)
    print(
        f"{name}: {rate:g} requests/s, {blocks} blocks, {outcome.num_steps} steps, {outcome.num_preemptions} gave way; "
        + "; ".join(
            f"{each} {speeds[each]:,.0f} requests/s ({ratios[each]:.1f} times the reference)" for each in engines
        )
    )


def search() -> None:
    """A capacity search."""
    asked, limits = workload(8.0, SEARCHED), Limits(ttft_p99_s=3.0, itl_p99_s=0.1)
    settings = SearchSettings(low=1.0, high=16.0, steps=10, seeds=0, longer=1)
    runs, rates = [], []

    def once() -> None:
        found = find_capacity(lambda _count, _seed: asked, setup(7000), STEPS, limits, settings, count=SEARCHED)
        runs.append(found.num_runs)
        rates.append(found.nominal_rate or 0.0)

    once()
    took_s = median(cpu_s(once) for _ in range(3))
    print(f"capacity of {SEARCHED:,} requests: {rates[0]:.2f}/s, {runs[0]} runs in {took_s:.2f} CPU s")


def many() -> None:
    """A million requests, made, run and summarised: CPU time and the most memory at once. Runs in a process of its own."""
    made_s = -time.process_time()
    asked = workload(8.8, MANY)
    made_s += time.process_time()
    started_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run_s = -time.process_time()
    outcome = simulate(asked, setup(7000), STEPS, engine=Engine.COMPILED)
    run_s += time.process_time()
    summed_s = cpu_s(lambda: summarise_run(outcome))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{MANY:,} requests, {outcome.num_steps:,} steps, {outcome.num_preemptions:,} gave way: made in {made_s:.2f}, run in "
        f"{run_s:.2f}, summarised in {summed_s:.2f} CPU s; {started_mb:.0f} MB when made, {peak_mb:.0f} MB at most"
    )


def start() -> None:
    """The first run of a new process: whether anything was compiled. Runs in a process of its own."""
    took_s = cpu_s(lambda: simulate(workload(8.0, 1), setup(7000), STEPS, engine=Engine.COMPILED))
    from inference_bench.simulate.kernel.compiled_entry import run_steps

    stats = run_steps.stats
    print(
        f"a new process: its first compiled run after {took_s:.2f} CPU s, {time.process_time():.2f} in all; "
        f"{sum(stats.cache_misses.values())} loops compiled, {sum(stats.cache_hits.values())} read from disk"
    )


def main() -> None:
    for name, (rate, blocks) in SETTINGS_RUN.items():
        compare(name, rate, blocks)
    search()
    if not is_available():
        print("numba is not installed, so nothing was compiled: pip install 'inference-bench[fast]'")
        return
    for part in ("many", "start"):
        subprocess.run([sys.executable, __file__, part], check=True)


if __name__ == "__main__":
    {"many": many, "start": start}.get(" ".join(sys.argv[1:]), main)()
