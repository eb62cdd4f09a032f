"""`load`: what a server delivers, in a closed loop or on a schedule, at one level or at many."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference_bench.cli.load_choice import LoadChoice, load_choice, require_search
from inference_bench.cli.load_page import require_page_name, write_load_page
from inference_bench.cli.main import INTERRUPTED, WORLD_FAILED
from inference_bench.cli.output import ProgressLine, one_line, print_json
from inference_bench.files import shown_name
from inference_bench.loadtest.flow import measure_load
from inference_bench.loadtest.sweep import measure_sweep
from inference_bench.report.load_report import load_json, load_text
from inference_bench.report.sweep_report import sweep_json, sweep_text
from inference_bench.verify.saved import save_json


def run(options: argparse.Namespace) -> int:
    """Measure and print; exit 3 when no request completed, 130 when it was interrupted after some were measured."""
    require_page_name(options)
    require_search(options)
    choice = load_choice(options)
    progress = ProgressLine()
    if options.find_capacity:
        return _find_capacity(choice, options, progress)
    try:
        found, text, num_completed, is_interrupted = _measure(choice, options, progress)
    finally:
        progress.done()
    if options.json:
        print_json(found)
    else:
        print(text)
    if is_interrupted:
        print("inference-bench: interrupted; this is what was measured by then", file=sys.stderr)
        return INTERRUPTED
    return 0 if num_completed else WORLD_FAILED


def _measure(
    choice: LoadChoice, options: argparse.Namespace, progress: Callable[[str], None]
) -> tuple[dict[str, Any], str, int, bool]:
    """What was found as JSON, saved already, and as text; how many requests completed; whether it was stopped."""
    if choice.plan is not None:
        sweep = measure_sweep(choice.request, choice.plan, choice.workload_at, progress, choice.resume)
        found = sweep_json(sweep)
        save_json(sweep.run_dir, found)
        num_completed = sum(point.metrics.requests.completed for point in sweep.points)
        text = _with_page(sweep_text(sweep), write_load_page(options, sweep))
        return found, text, num_completed, sweep.is_interrupted
    result = measure_load(choice.request, progress)
    found = load_json(result)
    save_json(result.run_dir, found)
    text = _with_page(load_text(result, options.definitions), write_load_page(options, result))
    return found, text, result.metrics.requests.completed, result.is_interrupted


def _find_capacity(choice: LoadChoice, options: argparse.Namespace, progress: ProgressLine) -> int:
    """Search and print; exit 1 where no rate is known to keep the promise."""
    from inference_bench.cli.load_capacity import find  # late: few look for it

    try:
        found, text, run_dir, code = find(choice, options, progress)
    finally:
        progress.done()
    save_json(run_dir, found)
    if options.json:
        print_json(found)
    else:
        print(text)
    return code


def _with_page(text: str, page: Path | None) -> str:
    return text if page is None else f"{text}\nreport: {one_line(shown_name(page))}"
