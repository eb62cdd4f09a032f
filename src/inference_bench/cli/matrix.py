"""`verify --matrix`: the same model in several formats, caches and engines, under one roof."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.cli.machine import machine_to_measure
from inference_bench.cli.main import INTERRUPTED
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import drawn_page
from inference_bench.errors import RequestError
from inference_bench.measure.here import remember_probe
from inference_bench.report.json_result import verify_json
from inference_bench.report.matrix_html import matrix_html
from inference_bench.report.matrix_report import matrix_json, matrix_text
from inference_bench.report.text_result import verify_text
from inference_bench.report.verify_html import verify_html
from inference_bench.units import parse_count, parse_seconds
from inference_bench.verify import matrix
from inference_bench.verify.matrix_axes import parse_axes
from inference_bench.verify.result import VerifyResult
from inference_bench.verify.saved import REPORT_FILE, save_json, save_page, save_text

FAILED: Final = 3
_OF_ONE_RUN: Final = (
    *("url", "weights", "kv", "engine", "slots", "context", "ttft_p99", "itl_p99", "save_profile"),
    *("quick", "thorough", "served_model", "api_key_env"),
)


def run_matrix(options: argparse.Namespace) -> int:
    """Measure every combination, write one report, and say where it is; 3 when one that composes failed, 130 when interrupted.

    Raises:  RequestError for an option that is of one run alone
    """
    request = request_from(options)
    progress = ProgressLine()
    try:
        result = matrix.run_matrix(request, progress, _keep)
        progress("writing the report")
        if result.probe:
            remember_probe(result.probe)
        found = matrix_json(result)
        save_json(result.folder, found)  # first: what was measured is kept even if the page cannot be drawn
        save_text(result.folder, text := matrix_text(result))
        page = save_page(result.folder, drawn_page(partial(matrix_html, result, REPORT_FILE)))
    finally:
        progress.done()
    if options.json:
        print_json(found)
    else:
        print(text)
        print(f"\nreport: {page}")
    if result.is_interrupted:
        return INTERRUPTED
    return FAILED if result.failed else 0


def request_from(options: argparse.Namespace) -> matrix.MatrixRequest:
    """What a person asked for.

    Raises:  RequestError, UnknownNameError, QuantityError
    """
    given = [name for name in _OF_ONE_RUN if getattr(options, name, None) not in (None, False)]
    if given:
        name = "a URL" if given[0] == "url" else f"--{given[0].replace('_', '-')}"
        raise RequestError(
            f"{name} is for one run, and a matrix varies what is run; name it as an axis, or leave it out"
        )
    return matrix.MatrixRequest(
        axes=parse_axes(options.matrix),
        model=Path(options.model) if options.model else None,
        machine=machine_to_measure(options.on),
        num_threads=parse_count(options.threads, "threads") if options.threads else None,
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=parse_seconds(options.timeout, "timeout"),
    )


def _keep(result: VerifyResult) -> None:
    """A finished verification in its own folder, at once."""
    save_json(result.run_dir, verify_json(result))
    save_text(result.run_dir, verify_text(result))
    save_page(result.run_dir, drawn_page(partial(verify_html, result)))
