"""`load`: what a server delivers, in a closed loop or on a schedule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.verify import api_key
from inference_bench.cli.workload_options import LOAD_DEFAULTS, workload_from
from inference_bench.loadtest.flow import LoadRequest, LoadRun, measure_load
from inference_bench.report.load_report import load_json, load_text
from inference_bench.units import parse_seconds
from inference_bench.verify.saved import save_json
from inference_bench.workload import Workload

_CONCURRENCY: Final = "1"


def run(options: argparse.Namespace) -> int:
    """Measure and print; exit 3 when no request completed."""
    request = LoadRequest(
        url=options.url,
        endpoint=options.endpoint,
        served_model=options.served_model,
        api_key=api_key(options.api_key_env),
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=parse_seconds(options.timeout, "timeout"),
        workload=_workload(options),
    )
    progress = ProgressLine()
    try:
        result: LoadRun = measure_load(request, progress)
    finally:
        progress.done()
    found = load_json(result)
    save_json(result.run_dir, found)
    if options.json:
        print_json(found)
    else:
        print(load_text(result, options.definitions))
    return 0 if result.metrics.requests.completed else 3


def _workload(options: argparse.Namespace) -> Workload:
    """What is asked for; one request at a time where nothing says when they are sent."""
    if options.trace is None and options.rate is None and options.concurrency is None:
        options.concurrency = _CONCURRENCY
    return workload_from(options, LOAD_DEFAULTS)
