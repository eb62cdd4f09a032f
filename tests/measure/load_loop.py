"""A load run in a process of its own, for tests that kill it: load_loop.py URL FOLDER CONCURRENCY NUM_REQUESTS [RATE].

With a rate it is an open loop, and the concurrency is not used.
"""

from __future__ import annotations

import sys
from pathlib import Path

from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.workload import Constant, Fixed, RequestShape, closed_loop, generate


def main(url: str, folder: str, concurrency: str, num_requests: str, rate: str = "") -> int:
    if rate:
        workload = generate(Constant(float(rate)), Fixed(20), Fixed(10), int(num_requests))
    else:
        workload = closed_loop("loop", [RequestShape(20, 10)], int(concurrency), int(num_requests))
    try:
        with RunFolder.open(Path(folder)).open_writer() as writer:
            run_load(Target(url), workload, LoadOptions(writer=writer.append))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
