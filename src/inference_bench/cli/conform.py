"""`conform`: which load generators say what really happened, held to a server of known behaviour."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.conform.suite import run_suite
from inference_bench.report.conform_report import conform_json, conform_text


def run(options: argparse.Namespace) -> int:
    """Run and print; exit 1 when our own client, or one that was named, gets a case wrong or cannot run."""
    progress = ProgressLine()
    try:
        found = run_suite(options.adapters, options.case or (), progress)
    finally:
        progress.done()
    if options.json:
        print_json(conform_json(found))
    else:
        print(conform_text(found))
    return 0 if found.passed(options.adapters) else 1
