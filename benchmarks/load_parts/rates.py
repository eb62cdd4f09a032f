"""Does the client send as often as it was asked, and how soon after its start?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from statistics import median

from load_parts.clients import Work, load_command
from load_parts.findings import Finding, Plan, at_most, show_table
from load_parts.truth import Truth, environment

RATES_PER_S = (50, 200, 500, 1000)
LASTS_S, TOLERANCE, STARTS, START_S = 5, 0.005, 5, 1.0


def measure_rates(_plan: Plan) -> list[Finding]:
    """Constant rates at a server that answers at once: (N - 1) over the time between first and last arrival there."""
    print(f"rates: a constant rate for {LASTS_S} s, by the log of a server that answers at once with one token")
    worst, rows = 0.0, []
    for rate in RATES_PER_S:
        with Truth() as truth, tempfile.TemporaryDirectory() as runs:
            command = [
                *(sys.executable, "-m", "inference_bench", "load", truth.url("null"), "--runs", runs, "--json"),
                *("--rate", str(rate), "--arrivals", "constant", "--requests", str(rate * LASTS_S)),
                *("--prompt-tokens", "16", "--output-tokens", "1"),
            ]
            subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True, timeout=300)
            arrived_s = sorted(each.arrived_s for each in truth.log())[-rate * LASTS_S :]
        realised = (len(arrived_s) - 1) / (arrived_s[-1] - arrived_s[0])
        worst = max(worst, abs(realised / rate - 1))
        rows.append((f"{rate} requests/s", f"{realised:.2f}", f"{(realised / rate - 1) * 100:+.3f} %"))
    show_table(("asked", "realised", "off by"), rows)
    return [at_most("realised rate, worst", worst * 100, TOLERANCE * 100, "% off")]


def measure_start(_plan: Plan) -> list[Finding]:
    """From starting the command until the request's last byte reached the server."""
    print(f"start: `inference-bench load` started {STARTS} times, until the server has the first request")
    times_s = []
    with Truth() as truth:
        for _ in range(STARTS):
            truth.clear()
            with tempfile.TemporaryDirectory() as runs:
                begin_s = time.perf_counter()
                subprocess.run(
                    load_command(Work(truth.url("null"), 1, 1, 1), runs),
                    env=environment(),
                    stdout=subprocess.DEVNULL,
                    check=True,
                )
            times_s.append(truth.log()[0].arrived_s - begin_s)
    print("  " + ", ".join(f"{each * 1000:.0f} ms" for each in times_s))
    return [at_most("start to first request, median", median(times_s), START_S, "s")]
