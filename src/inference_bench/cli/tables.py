"""`models`, `hardware`, `formats`: what is known, from where, as of when."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import print_json
from inference_bench.report.tables_report import formats_rows, hardware_rows, models_rows, rows_json, rows_text


def run(options: argparse.Namespace) -> int:
    """List the table, or the one row that was named."""
    rows = {"models": models_rows, "hardware": hardware_rows, "formats": formats_rows}[options.command](options.name)
    if options.json:
        print_json(rows_json(options.command, rows))
    else:
        print(rows_text(options.command, rows))
    return 0
