"""How often the verdict on arrivals is wrong: false alarms over correct runs, and saboteurs that get away.

Method: RUNS seeded runs of 400 requests for every process, each sent with the lateness of an event loop with absolute deadlines (p50
0.7 ms, p99 below 6 ms); then the same with workers that share a seed, sleeps that are relative, and sums that are rescaled.
Targets: below 1 % false alarms of every process, at least 99 % of the saboteurs' runs caught.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from arrival_proof.runs import PROCESSES, RANDOM, SABOTEURS, kept, relative_sleep, shared_seed_unplanned
from inference_bench.arrival_proof import Verdict, prove_arrivals
from inference_bench.workload import Constant

RUNS = 1000


def main() -> None:
    begin = time.perf_counter()
    for process in PROCESSES:
        alarms = sum(prove_arrivals(*kept(process, Random(seed))).verdict is not Verdict.KEPT for seed in range(RUNS))
        print(
            f"correct, {process.name} at {process.mean_rate:g}/s: {alarms} false alarms of {RUNS} (target: below {RUNS // 100})"
        )
    cases = [(name, sabotage, process) for name, sabotage in SABOTEURS.items() for process in RANDOM]
    cases += [("shared worker seed, no plan", shared_seed_unplanned, process) for process in RANDOM[:2]]
    cases += [("relative sleeping", relative_sleep, Constant(20))]
    for name, sabotage, process in cases:
        caught = sum(prove_arrivals(*sabotage(process, Random(seed))).verdict is Verdict.BROKEN for seed in range(RUNS))
        print(
            f"{name}, {process.name} at {process.mean_rate:g}/s: {caught} caught of {RUNS} (target: {RUNS * 99 // 100})"
        )
    print(f"in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
