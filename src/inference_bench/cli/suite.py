"""`suite URL FILE`: does a server still give the answers that are expected of it?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import timeout_s
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.measure.store import RunFolder
from inference_bench.operate.rollout.suite import SuiteRequest, ask_suite
from inference_bench.operate.rollout.suite_file import read_suite
from inference_bench.operate.rollout.suite_outcome import SuiteOutcome, outcome_json, write_outcome
from inference_bench.report.shadow_report import suite_text
from inference_bench.units import parse_count

NOT_ALL_RIGHT: Final = 1


def run(options: argparse.Namespace) -> int:
    """Ask, keep and print; exit 1 where not every answer was the expected one."""
    suite = read_suite(Path(options.suite))
    folder = None if options.into is None else RunFolder.open(Path(options.into))
    progress = ProgressLine()
    try:
        outcome = ask_suite(suite_request(options, parse_count(options.concurrency, "concurrency")), suite, progress)
    finally:
        progress.done()
    kept = folder or RunFolder.create(Path(options.runs), "suite")
    file = write_outcome(kept.path, outcome)
    if options.json:
        print_json({**outcome_json(outcome), "run_dir": str(kept.path)})
    else:
        print(suite_text(outcome, file))
    return 0 if is_all_right(outcome) else NOT_ALL_RIGHT


def is_all_right(outcome: SuiteOutcome) -> bool:
    """Whether every question got the expected answer."""
    return outcome.num_right == len(outcome.answers)


def suite_request(options: argparse.Namespace, concurrency: int = 1) -> SuiteRequest:
    """Which server the questions go to.

    Raises:  RequestError, QuantityError
    """
    key, longest_s = api_key(options.api_key_env), timeout_s(options.timeout)
    return SuiteRequest(options.url, options.endpoint, options.served_model, key, longest_s, concurrency)
