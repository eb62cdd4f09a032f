"""`suite URL FILE`: does a server still give the answers that are expected of it?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import timeout_s
from inference_bench.cli.main import INTERRUPTED
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.measure.store import RunFolder
from inference_bench.operate.rollout.suite import SuiteRequest, ask_suite
from inference_bench.operate.rollout.suite_file import read_suite
from inference_bench.operate.rollout.suite_outcome import SuiteOutcome, outcome_json, write_outcome
from inference_bench.report.shadow_report import suite_text
from inference_bench.units import parse_count

NOT_ALL_RIGHT: Final = 1


def run(options: argparse.Namespace) -> int:
    """Ask, print and keep; exit 1 where not every answer was the expected one."""
    suite = read_suite(Path(options.suite))
    request = suite_request(options, parse_count(options.concurrency, "concurrency"))
    folders = [] if options.into is None else [RunFolder.open(Path(options.into))]

    def make_folder() -> None:
        """Before the first question: what cannot be kept is not asked for."""
        if not folders:
            folders.append(RunFolder.create(Path(options.runs), "suite"))

    progress = ProgressLine()
    try:
        outcome = ask_suite(request, suite, progress, make_folder)
    finally:
        progress.done()
    _keep_and_say(options, outcome, folders[0].path)
    if outcome.is_interrupted:
        print("inference-bench: interrupted; this is what was answered by then", file=sys.stderr)
        return INTERRUPTED
    return 0 if is_all_right(outcome) else NOT_ALL_RIGHT


def _keep_and_say(options: argparse.Namespace, outcome: SuiteOutcome, folder: Path) -> None:
    """What was found is printed even where it cannot be kept, and then what kept it from that is raised."""
    file: Path | None = None
    try:
        file = write_outcome(folder, outcome)
    finally:
        if options.json:
            print_json({**outcome_json(outcome), "run_dir": str(folder)})
        else:
            print(suite_text(outcome, file))


def is_all_right(outcome: SuiteOutcome) -> bool:
    """Whether every question was asked and got the expected answer."""
    return outcome.num_right == len(outcome.answers)


def suite_request(options: argparse.Namespace, concurrency: int = 1) -> SuiteRequest:
    """Which server the questions go to.

    Raises:  RequestError, QuantityError
    """
    key, longest_s = api_key(options.api_key_env), timeout_s(options.timeout)
    return SuiteRequest(options.url, options.endpoint, options.served_model, key, longest_s, concurrency)
