"""How long `inference-bench fit` takes from nothing, beside a Python that does nothing.

Method: both commands are started alternately in fresh processes, 15 times each after one warm-up that compiles bytecode; the medians
of wall time are compared. The ratio is the figure to keep: both sides feel the same machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

ROUNDS = 15
BARE = [sys.executable, "-c", "pass"]
FIT = [sys.executable, "-m", "inference_bench", "fit", "qwen3-8b", "--on", "rtx-4090", "--context", "32k", "--json"]


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    for command in (BARE, FIT):
        seconds(command)
    pairs = [(seconds(BARE), seconds(FIT)) for _ in range(ROUNDS)]
    bare, fit = (median(values) for values in zip(*pairs, strict=True))
    print(
        f"bare Python {bare * 1000:.0f} ms, fit {fit * 1000:.0f} ms: {fit / bare:.2f} times, {(fit - bare) * 1000:.0f} ms above it"
    )
    imports = subprocess.run(
        [sys.executable, "-X", "importtime", *FIT[1:]], capture_output=True, text=True, check=True
    ).stderr
    rows = [line.split("|") for line in imports.splitlines() if line.count("|") == 2 and "cumulative" not in line]
    slowest = sorted(rows, key=lambda row: -int(row[0].removeprefix("import time:")))[:8]
    print(
        "slowest imports by own time:",
        ", ".join(f"{name.strip()} {int(own.removeprefix('import time:'))} µs" for own, _, name in slowest),
    )


if __name__ == "__main__":
    main()
