"""`models`, `hardware`, `formats`: what is known, from where, as of when."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import print_json
from inference_bench.report.tables_report import (
    formats_rows,
    hardware_rows,
    models_rows,
    refreshed_rows,
    rows_json,
    rows_text,
)


def run(options: argparse.Namespace) -> int:
    """List the table, or the one row that was named."""
    if options.command == "models" and options.naive_error:
        return _naive_error(options.json)
    if options.command == "models" and options.refresh:
        from inference_bench.hub import load_hub_model

        rows = refreshed_rows(load_hub_model(options.refresh).spec)
    else:
        rows = {"models": models_rows, "hardware": hardware_rows, "formats": formats_rows}[options.command](
            options.name
        )
    if options.json:
        print_json(rows_json(options.command, rows))
    else:
        print(rows_text(options.command, rows))
    return 0


def _naive_error(as_json: bool) -> int:
    """The table over every known model."""
    from inference_bench.facts.load import known_models
    from inference_bench.predict.fit import cache_format
    from inference_bench.predict.naive_error import count_naive_errors, median_factor
    from inference_bench.report.fit_json import naive_error_json
    from inference_bench.report.fit_report import naive_error_text

    rows = count_naive_errors(known_models(), cache_format(None))
    if as_json:
        print_json(naive_error_json(rows, median_factor(rows)))
    else:
        print(naive_error_text(rows, median_factor(rows)))
    return 0
