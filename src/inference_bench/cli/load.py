"""`load`: what a server delivers at fixed concurrency."""

from __future__ import annotations

import argparse
from pathlib import Path

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.verify import api_key
from inference_bench.measure.closed_run import LoadRequest, LoadRun, measure_load
from inference_bench.report.load_report import load_json, load_text
from inference_bench.units import parse_count, parse_seconds, parse_tokens
from inference_bench.verify.saved import save_json


def run(options: argparse.Namespace) -> int:
    """Measure and print; exit 3 when no request completed."""
    request = LoadRequest(
        url=options.url,
        concurrency=parse_count(options.concurrency, "concurrency"),
        num_requests=parse_count(options.requests, "requests"),
        prompt_tokens=parse_tokens(options.prompt_tokens, "prompt tokens"),
        output_tokens=parse_tokens(options.output_tokens, "output tokens"),
        endpoint=options.endpoint,
        served_model=options.served_model,
        api_key=api_key(options.api_key_env),
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=parse_seconds(options.timeout, "timeout"),
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
        print(load_text(result))
    return 0 if result.metrics.requests.completed else 3
