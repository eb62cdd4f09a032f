"""`load`: what a server delivers, in a closed loop or on a schedule, at one level or at many."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference_bench.cli.load_choice import LoadChoice, load_choice, require_search
from inference_bench.cli.load_page import require_page_name, write_load_page
from inference_bench.cli.main import INTERRUPTED, WORLD_FAILED
from inference_bench.cli.output import ProgressLine, one_line, print_json
from inference_bench.errors import MeasurementError
from inference_bench.files import shown_name
from inference_bench.loadtest.flow import LoadRun, measure_load
from inference_bench.loadtest.sweep import SweepRun, measure_sweep
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.report.load_report import load_json, load_text
from inference_bench.report.sweep_report import sweep_json, sweep_text
from inference_bench.verify.saved import save_json, save_text


@dataclass(frozen=True, slots=True)
class _Found:
    """What came of a load, in the forms it is said in."""

    result: LoadRun | SweepRun
    json: dict[str, Any]
    text: str


def run(options: argparse.Namespace) -> int:
    """Measure, keep and print; exit 3 when no request completed, 130 when it was interrupted after some were measured.

    Where:   what was measured is printed even where it cannot be kept
    """
    require_page_name(options)
    require_search(options)
    choice = load_choice(options)
    progress = ProgressLine()
    if options.find_capacity:
        return _find_capacity(choice, options, progress)
    page = None
    try:
        found = _measure(choice, options, progress)
        try:
            save_text(found.result.run_dir, found.text)
            save_json(found.result.run_dir, found.json)
            page = write_load_page(options, found.result)
        finally:
            progress.done()
            _say(options, found.json, with_page(found.text, page))
    finally:
        progress.done()
    if found.result.is_interrupted:
        return _interrupted()
    _require_all_levels(found.result)
    require_completed(_records_of(found.result))
    return 0


def _measure(choice: LoadChoice, options: argparse.Namespace, progress: Callable[[str], None]) -> _Found:
    if choice.plan is not None:
        sweep = measure_sweep(choice.request, choice.plan, choice.workload_at, progress, choice.resume)
        return _Found(sweep, sweep_json(sweep), sweep_text(sweep))
    result = measure_load(choice.request, progress)
    return _Found(result, load_json(result), load_text(result, options.definitions))


def _records_of(result: LoadRun | SweepRun) -> Sequence[RequestRecord]:
    if isinstance(result, LoadRun):
        return result.records
    return [record for point in result.points for record in point.records]


def _require_all_levels(result: LoadRun | SweepRun) -> None:
    """Every level that was named is measured; a search for saturation may end where a server does.

    Raises:  MeasurementError
    """
    if isinstance(result, SweepRun) and len(result.points) < len(result.plan.levels):
        done, asked = len(result.points), len(result.plan.levels)
        raise MeasurementError(f"{done} of {asked} levels were measured; {result.notes[-1]}")


def require_completed(records: Sequence[RequestRecord]) -> None:
    """Something was delivered.

    Raises:  MeasurementError
    """
    measured = [record for record in records if record.stage is Stage.MEASURE]
    if not any(record.status is RequestStatus.COMPLETED for record in measured):
        first = next((record.error for record in measured if record.error is not None), "no reason given")
        raise MeasurementError(f"no request completed; the first: {first}")


def _find_capacity(choice: LoadChoice, options: argparse.Namespace, progress: ProgressLine) -> int:
    """Search and print; exit 1 where no rate is known to keep the promise."""
    from inference_bench.cli.load_capacity import find  # late: few look for it

    try:
        result, found, text, code = find(choice, options, progress)
    finally:
        progress.done()
    page = None
    try:
        save_text(result.run_dir, text)
        save_json(result.run_dir, found)
        page = write_load_page(options, result)
    finally:
        _say(options, found, with_page(text, page))
    if code == WORLD_FAILED:
        raise MeasurementError("the search could not go on; this is what was found by then")
    return _interrupted() if code == INTERRUPTED else code


def _say(options: argparse.Namespace, found: dict[str, Any], text: str) -> None:
    if options.json:
        print_json(found)
    else:
        print(text)


def _interrupted() -> int:
    print("inference-bench: interrupted; this is what was measured by then", file=sys.stderr)
    return INTERRUPTED


def with_page(text: str, page: Path | None) -> str:
    """The text, and where the page is."""
    return text if page is None else f"{text}\nreport: {one_line(shown_name(page))}"
