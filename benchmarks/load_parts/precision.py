"""How far are the percentiles from the server's log, on an idle machine and beside two processes that never rest?

ITL p99 is that of all pauses between chunks, less the same of the log. TTFT p99 is that of all first chunks, each from when
this client turned to the request, less the same of the log, where a request begins when its last byte reached the server, by
the kernel's clock: connecting and writing count against the client. The receipt alone, by how much each first chunk's
stamp is later than its send, is printed beside.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inference_bench.stats import quantile
from load_parts.clients import Work, run_own
from load_parts.findings import Finding, Plan, show_table
from load_parts.truth import Sent, Truth, gaps_s

STREAMS, TOKENS, REQUESTS = 64, 200, 128
PACE = "paced"  # its own numbers; some tools split addresses at commas
HOGS = 2
ITL_S, TTFT_S, SHARE = 50e-6, 0.3e-3, 0.95

Seen = list[tuple[float, tuple[float, ...]]]  # of each request when it was sent, and its chunks


@dataclass(frozen=True, slots=True)
class Errors:
    """Client less log. Unit: seconds."""

    itl_p50_s: float
    itl_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    receipt_p99_s: float
    is_valid: bool


def measure_precision(plan: Plan) -> list[Finding]:
    findings = []
    for with_hogs in (False, True):
        beside = f"beside {HOGS} hogs" if with_hogs else "alone"
        print(
            f"precision {beside}: {plan.runs} runs of {REQUESTS} requests, {STREAMS} at once, {TOKENS} tokens every 10 ms"
        )
        with Truth() as truth, hogs(HOGS if with_hogs else 0):
            print(f"  the server runs at {truth.priority} priority, the client at a niceness of {plan.niceness}")
            found = [one_run(truth, plan.niceness) for _ in range(plan.runs)]
        _show(found)
        least = -(-len(found) * SHARE // 1)
        for what, most_s, values in (
            ("ITL p99", ITL_S, [each.itl_p99_s for each in found]),
            ("TTFT p99", TTFT_S, [each.ttft_p99_s for each in found]),
        ):
            good = sum(abs(value) <= most_s for value in values)
            target = f"within {most_s * 1e6:.0f} µs of the log in {least:.0f} of {len(found)} runs"
            findings.append(Finding(f"{what} {beside}", target, f"{good} of {len(found)} runs", good >= least))
    return findings


def one_run(truth: Truth, niceness: int) -> Errors:
    truth.clear()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times"
        said = run_own(Work(truth.url(PACE), REQUESTS, TOKENS, STREAMS), dump=file, niceness=niceness)
        seen: Seen = pickle.loads(file.read_bytes())
    return errors_of(seen, truth.log(), is_valid=said["health"]["valid"])


def errors_of(seen: Seen, sent: list[Sent], *, is_valid: bool) -> Errors:
    seen_gaps_s, sent_gaps_s = gaps_s([times for _, times in seen]), gaps_s([each.sends_s for each in sent])
    if len(seen_gaps_s) != len(sent_gaps_s):
        raise SystemExit(f"{len(seen_gaps_s)} pauses were seen, and {len(sent_gaps_s)} sent")
    seen_ttfts_s = sorted(times[0] - sent_s for sent_s, times in seen)
    sent_ttfts_s = sorted(each.sends_s[0] - each.arrived_s for each in sent)
    firsts = zip(sorted(times[0] for _, times in seen), sorted(each.sends_s[0] for each in sent), strict=True)
    late_s = sorted(got_s - true_s for got_s, true_s in firsts)
    return Errors(
        *(quantile(seen_gaps_s, q) - quantile(sent_gaps_s, q) for q in (0.5, 0.99)),
        *(quantile(seen_ttfts_s, q) - quantile(sent_ttfts_s, q) for q in (0.5, 0.99)),
        quantile(late_s, 0.99),
        is_valid,
    )


def _show(found: list[Errors]) -> None:
    rows = []
    for what, name in (
        ("ITL p50", "itl_p50_s"),
        ("ITL p99", "itl_p99_s"),
        ("TTFT p50", "ttft_p50_s"),
        ("TTFT p99", "ttft_p99_s"),
        ("first chunk's stamp after its send, p99", "receipt_p99_s"),
    ):
        values = [getattr(each, name) * 1e6 for each in found]
        rows.append((what, *(f"{value:+.0f} µs" for value in (median(values), min(values), max(values)))))
    show_table(("off by", "median", "least", "most"), rows)
    print(f"  the client called {sum(not each.is_valid for each in found)} of {len(found)} runs invalid")


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Processes that never rest."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
