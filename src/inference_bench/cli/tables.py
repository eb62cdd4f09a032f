"""`models`, `hardware`, `formats`: what is known, from where, as of when."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import print_json
from inference_bench.errors import RequestError
from inference_bench.facts.models import ModelSpec
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
        rows = refreshed_rows(_from_hub(options.refresh))
    else:
        rows = {"models": models_rows, "hardware": hardware_rows, "formats": formats_rows}[options.command](
            options.name
        )
    if options.json:
        print_json(rows_json(options.command, rows))
    else:
        print(rows_text(options.command, rows))
    return 0


def _from_hub(text: str) -> ModelSpec:
    """The model as its config on the hub reads now.

    Raises:  RequestError for what is no hub id
    """
    from inference_bench.hub import load_hub_model, parse_hub_id

    hub_id = parse_hub_id(text)
    if hub_id is None:
        raise RequestError(f"{text[:80]!r} is not an id on the Hugging Face hub; write for example Qwen/Qwen3-8B")
    return load_hub_model(hub_id).spec


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
