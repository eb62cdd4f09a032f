"""`probe`: this machine's own ceilings."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.measure.here import remember_probe
from inference_bench.measure.probe_here import ProbeDevice, probe_here
from inference_bench.report.probe_report import probe_json, probe_text
from inference_bench.units import parse_seconds


def run(options: argparse.Namespace) -> int:
    """Measure, remember for `here`, and print."""
    progress = ProgressLine()
    try:
        result = probe_here(
            ProbeDevice(options.device), progress=progress, budget_s=parse_seconds(options.budget, "budget")
        )
    finally:
        progress.done()
    remember_probe(result)
    if options.json:
        print_json(probe_json(result))
    else:
        print(probe_text(result))
    return 0
