"""`verify`: measured against ceilings, with a report to look at."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from inference_bench.cli.api_key import api_key
from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import drawn_page
from inference_bench.measure.here import remember_probe
from inference_bench.report.json_result import verify_json
from inference_bench.report.text_result import verify_text
from inference_bench.report.verify_html import verify_html
from inference_bench.units import parse_count, parse_seconds
from inference_bench.verify.flow import verify_server
from inference_bench.verify.plan import PROBE_BUDGET_S, QUICK, QUICK_PROBE_BUDGET_S, Plan
from inference_bench.verify.saved import save_json, save_page
from inference_bench.verify.session import VerifyRequest


def run(options: argparse.Namespace) -> int:
    """Measure, write the report, and say where it is."""
    progress = ProgressLine()
    request = VerifyRequest(
        url=options.url,
        model=options.model,
        machine=machine_named(options.on) if options.on else None,
        weights=options.weights,
        cache=options.kv,
        served_model=options.served_model,
        endpoint=options.endpoint,
        api_key=api_key(options.api_key_env),
        num_threads=parse_count(options.threads, "threads") if options.threads else None,
        plan=QUICK if options.quick else Plan(),
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=parse_seconds(options.timeout, "timeout"),
        probe_budget_s=QUICK_PROBE_BUDGET_S if options.quick else PROBE_BUDGET_S,
    )
    try:
        result = verify_server(request, progress)
        progress("writing the report")
        if result.probe:
            remember_probe(result.probe)
        found = verify_json(result)
        save_json(result.run_dir, found)  # first: what was measured is kept even if the page cannot be drawn
        page = save_page(result.run_dir, drawn_page(partial(verify_html, result)))
    finally:
        progress.done()
    if options.json:
        print_json(found)
    else:
        print(verify_text(result))
        print(f"\nreport: {page}")
    return 0
