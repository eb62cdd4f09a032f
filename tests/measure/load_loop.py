"""A load run in a process of its own, for tests that kill it: load_loop.py URL FOLDER CONCURRENCY NUM_REQUESTS."""

from __future__ import annotations

import sys
from pathlib import Path

from inference_bench.measure.load import run_closed_loop
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.workload import ClosedLoop, RequestShape, Workload


def main(url: str, folder: str, concurrency: str, num_requests: str) -> int:
    workload = Workload("loop", (RequestShape(20, 10),), ClosedLoop(int(concurrency), int(num_requests)))
    try:
        with RunFolder.open(Path(folder)).open_writer() as writer:
            run_closed_loop(Target(url), workload, writer=writer.append)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
