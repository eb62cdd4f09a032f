"""What a load costs this client, how far its percentiles are from the truth, and what other tools need for the same.

Method: a server in a process of its own paces 64 streams at 10 ms a token to absolute times and logs every send on the clock
that all processes of the machine share (load_parts/pacer.py). Each client runs in a process of its own. Processor time is
that of a long run less that of a short one, children included: starting cancels. Percentiles are held against the server's
log. Tools are found where INFERENCE_BENCH_<TOOL> says (docs/conformance.md); those that are not here are left out by name.
Figures mean something on an otherwise idle machine; ratios survive a busy one better, since all feel it. Every target is
printed with what was found and whether it was met.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

from load_parts.findings import Finding, Plan
from load_parts.paced import measure_firehose, measure_paced
from load_parts.precision import measure_precision
from load_parts.rates import measure_rates, measure_start
from load_parts.summary import measure_summary

PARTS: dict[str, Callable[[Plan], list[Finding]]] = {
    "start": measure_start,
    "rates": measure_rates,
    "summary": measure_summary,
    "precision": measure_precision,
    "paced": measure_paced,
    "firehose": measure_firehose,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone; several may be named")
    parser.add_argument("--runs", type=int, default=Plan().runs, help="of precision, each way; default 20")
    parser.add_argument("--rounds", type=int, default=Plan().rounds, help="of paced and firehose; default 3")
    parser.add_argument("--peer", action="append", default=[], help="only these beside this client, such as sglang-rs")
    parser.add_argument("--nice", type=int, default=0, help="niceness of this client in precision; below 0 wants leave")
    options = parser.parse_args()
    plan = Plan(options.runs, options.rounds, tuple(options.peer), options.nice)
    print(__doc__.partition("\n\n")[2].strip())
    print(
        f"\n{platform.platform()}, CPython {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}\n"
    )
    findings, begin_s = [], time.monotonic()
    for name in options.only or PARTS:
        findings += PARTS[name](plan)
        print()
    print(f"targets, after {time.monotonic() - begin_s:.0f} s")
    for finding in findings:
        print(finding.line)


if __name__ == "__main__":
    main()
