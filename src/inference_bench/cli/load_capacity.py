"""`load --find-capacity`: the highest rate that a real server keeps its promise at."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from inference_bench.cli.given import number
from inference_bench.cli.load_choice import PROMISED, LoadChoice
from inference_bench.cli.main import INTERRUPTED, WORLD_FAILED
from inference_bench.loadtest.capacity import Limits
from inference_bench.loadtest.capacity_run import CapacityRun, measure_capacity
from inference_bench.loadtest.capacity_search import SearchPlan
from inference_bench.report.load_capacity_report import capacity_run_json, capacity_run_text
from inference_bench.units import parse_count, parse_fraction, parse_seconds


def find(
    choice: LoadChoice, options: argparse.Namespace, progress: Callable[[str], None]
) -> tuple[CapacityRun, dict[str, Any], str, int]:
    """Search; what was found, also as JSON and as text, and the exit code: 1 where no rate is known to pass.

    Where:   it is 3 where the search could not go on
    """
    limits = Limits(
        **{
            f"{name}_s": _seconds(getattr(options, name), name)
            for name in PROMISED
            if getattr(options, name) is not None
        }
    )
    result = measure_capacity(
        choice.request,
        choice.workload_of,
        limits,
        _plan(options),
        progress,
        guesses_first_rate=options.rate is None,
        max_s=math.inf if options.max_time is None else parse_seconds(options.max_time, "longest search"),
    )
    code = 0 if result.found.low_rate is not None else 1
    if result.found.is_interrupted or result.found.trouble is not None:
        code = INTERRUPTED if result.found.is_interrupted else WORLD_FAILED
    return result, capacity_run_json(result), capacity_run_text(result), code


def _seconds(text: str, name: str) -> float:
    return parse_seconds(text, f"objective for {name.replace('_', ' ')}")


def _plan(options: argparse.Namespace) -> SearchPlan:
    values: dict[str, Any] = {"seed": options.seed}
    if options.rate is not None:
        values["first_rate"] = number(options.rate, "rate")
    if options.share is not None:
        values["share"] = parse_fraction(options.share, "share of good requests")
    if options.half_width is not None:
        values["half_width"] = parse_fraction(options.half_width, "half-width")
    if options.max_requests is not None:
        values["max_requests"] = parse_count(options.max_requests, "most requests")
    return SearchPlan(**values)
