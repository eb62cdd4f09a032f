"""`shadow URL`: recorded arrivals replayed against a second server, beside the run that recorded them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import number, refuse, timeout_s
from inference_bench.cli.load import require_completed, with_page
from inference_bench.cli.load_page import require_page_name, write_load_page
from inference_bench.cli.main import INTERRUPTED
from inference_bench.cli.objective_options import objective_from
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.suite import NOT_ALL_RIGHT, is_all_right, suite_request
from inference_bench.compare_runs.shadow import compare_shadow
from inference_bench.loadtest.flow import LoadRequest
from inference_bench.measure.text_checks import examine_with, read_schema, structured_check
from inference_bench.operate.rollout.replay import Limits, Replay, replay_run, replay_trace
from inference_bench.operate.rollout.shadow import ShadowRun, measure_shadow
from inference_bench.operate.rollout.suite import ask_suite
from inference_bench.operate.rollout.suite_file import read_suite
from inference_bench.operate.rollout.suite_outcome import SuiteOutcome, write_outcome
from inference_bench.report.load_report import load_json, load_text
from inference_bench.report.shadow_report import shadow_json, shadow_text
from inference_bench.units import parse_count, parse_seconds
from inference_bench.verify.saved import save_json, save_text


def run(options: argparse.Namespace) -> int:
    """Replay, keep, draw and print; exit 1 where a suite's answers are not all as expected, 3 when no request completed."""
    require_page_name(options)
    limits = _limits(options)
    replay = _replay(options, limits)
    suite = None if options.suite is None else read_suite(Path(options.suite))
    request = _request(options)
    progress = ProgressLine()
    outcome: SuiteOutcome | None = None
    page: Path | None = None
    try:
        shadow = measure_shadow(request, replay, limits, options.primary or (), progress)
        try:
            save_text(shadow.load.run_dir, load_text(shadow.load))
            save_json(shadow.load.run_dir, load_json(shadow.load))
            if suite is not None and not shadow.load.is_interrupted:
                outcome = ask_suite(suite_request(options), suite, progress)
                write_outcome(shadow.load.run_dir, outcome)
            page = write_load_page(options, shadow.load)
        finally:
            progress.done()
            _say(options, shadow, outcome, page)  # also where it cannot be kept
    finally:
        progress.done()
    if shadow.load.is_interrupted or (outcome is not None and outcome.is_interrupted):
        print("inference-bench: interrupted; this is what was measured by then", file=sys.stderr)
        return INTERRUPTED
    require_completed(shadow.load.records)
    return 0 if outcome is None or is_all_right(outcome) else NOT_ALL_RIGHT


def _say(options: argparse.Namespace, shadow: ShadowRun, outcome: SuiteOutcome | None, page: Path | None) -> None:
    beside = compare_shadow(shadow)
    if options.json:
        print_json(shadow_json(beside, outcome))
    else:
        print(with_page(shadow_text(beside, outcome), page))


def _limits(options: argparse.Namespace) -> Limits:
    count, time = options.limit_max_requests, options.limit_for
    return Limits(
        1.0 if options.limit_speed is None else number(options.limit_speed, "speed"),
        None if count is None else parse_count(count, "requests"),
        None if time is None else parse_seconds(time, "time to replay"),
    )


def _replay(options: argparse.Namespace, limits: Limits) -> Replay:
    if options.source is not None:
        refuse(options, ("trace_format",), "a run folder is replayed, and no trace")
        return replay_run(Path(options.source), limits, options.part)
    refuse(options, ("part",), "a trace has no parts")
    return replay_trace(Path(options.trace), limits, options.trace_format, sort=options.sort_trace)


def _request(options: argparse.Namespace) -> LoadRequest:
    schema = None if options.json_schema is None else read_schema(Path(options.json_schema))
    return LoadRequest(
        url=options.url,
        endpoint=options.endpoint,
        served_model=options.served_model,
        api_key=api_key(options.api_key_env),
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=timeout_s(options.timeout),
        document_schema=schema,
        examine=None if schema is None else examine_with([structured_check(schema)]),
        objective=objective_from(options),
    )
