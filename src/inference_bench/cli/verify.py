"""`verify`: measured against ceilings, fitted, and held to what was predicted, with a report to look at."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.cli.api_key import api_key
from inference_bench.cli.machine import machine_to_measure
from inference_bench.cli.main import INTERRUPTED
from inference_bench.cli.output import ProgressLine, one_line, print_json
from inference_bench.cli.report_page import drawn_page
from inference_bench.engines.base import LLAMA_CPP
from inference_bench.errors import MeasurementError, RequestError, StorageError
from inference_bench.files import require_writable_place
from inference_bench.measure.here import remember_probe
from inference_bench.report.json_result import verify_json
from inference_bench.report.text_result import verify_text
from inference_bench.report.verify_html import verify_html
from inference_bench.simulate.rate_search import Limits
from inference_bench.simulate.step_profile import save_profile
from inference_bench.units import parse_count, parse_seconds
from inference_bench.verify.flow import VerifyInterrupted, verify_server
from inference_bench.verify.plan import QUICK, THOROUGH, Plan
from inference_bench.verify.result import VerifyResult
from inference_bench.verify.saved import REPORT_FILE, save_json, save_page, save_text
from inference_bench.verify.session import VerifyRequest

MISSED: Final = 1


def run(options: argparse.Namespace) -> int:
    """Measure, write the report, and say where it is.

    Where:   1 where an objective that was asked for is kept at no rate; 3 and 130 where the server or a person ended the run
             after its steps were fitted: what there is was written and printed by then
    """
    if options.matrix:
        from inference_bench.cli.matrix import run_matrix

        return run_matrix(options)
    request = request_from(options)
    if options.save_profile:
        require_writable_place(options.save_profile, "profile file")
    progress = ProgressLine()
    try:
        result = verify_server(request, progress)
        progress("writing the report")
        first_error = _write_and_print(result, options.json, progress)
    except VerifyInterrupted as interrupted:
        progress.done()
        return _interrupted(interrupted.run_dir)
    finally:
        progress.done()
    if result.is_interrupted:
        return _interrupted(result.run_dir)
    if result.trouble is not None:
        raise MeasurementError(f"{result.trouble}; what was measured by then is in {result.run_dir}")
    if first_error is not None:
        raise first_error
    _save_profile(options.save_profile, result)  # last: where there is none, all else is written and said
    return MISSED if request.objective is not None and _is_missed(result) else 0


def _write_and_print(result: VerifyResult, as_json: bool, progress: ProgressLine) -> StorageError | None:
    """Every file for itself, and what they say on stdout whether or not they can be written; returns the first that cannot."""
    found, text = verify_json(result), verify_text(result)
    errors: list[StorageError] = []
    saves: list[Callable[[], object]] = [
        partial(save_json, result.run_dir, found),  # first: what was measured is kept even if the page cannot be drawn
        partial(save_text, result.run_dir, text),
        lambda: save_page(result.run_dir, drawn_page(partial(verify_html, result))),
    ]
    if result.probe is not None:
        saves.append(partial(remember_probe, result.probe))
    try:
        for save in saves:
            try:
                save()
            except StorageError as error:
                errors.append(error)
    finally:
        progress.done()
        if as_json:
            print_json(found)
        else:
            print(text)
    page = result.run_dir / REPORT_FILE
    if not as_json and page.is_file():
        print(f"\nreport: {page}")
    return errors[0] if errors else None


def _interrupted(run_dir: Path) -> int:
    print(one_line(f"inference-bench: interrupted; what was measured is in {run_dir}"), file=sys.stderr)
    return INTERRUPTED


def request_from(options: argparse.Namespace) -> VerifyRequest:
    """What a person asked for.

    Raises:  RequestError, QuantityError
    """
    if options.url is not None:
        _refuse_settings_of_a_start(options)
    return VerifyRequest(
        url=options.url,
        model=options.model,
        machine=machine_to_measure(options.on),
        weights=options.weights,
        cache=options.kv,
        served_model=options.served_model,
        endpoint=options.endpoint,
        api_key=api_key(options.api_key_env),
        engine=options.engine or LLAMA_CPP,
        num_threads=_count(options.threads, "threads"),
        num_slots=_count(options.slots, "slots"),
        context_tokens=_count(options.context, "context"),
        plan=QUICK if options.quick else THOROUGH if options.thorough else Plan(),
        runs_load=not options.no_load,
        objective=_objective(options),
        runs=Path(options.runs),
        seed=options.seed,
        timeout_s=parse_seconds(options.timeout, "timeout"),
    )


def _refuse_settings_of_a_start(options: argparse.Namespace) -> None:
    given = [name for name in ("engine", "slots", "context", "threads") if getattr(options, name) is not None]
    if given:
        raise RequestError(
            f"--{given[0]} is a setting of a server that is started here, and {options.url} already runs; leave one of them out"
        )


def _count(text: str | None, what: str) -> int | None:
    return None if text is None else parse_count(text, what)


def _objective(options: argparse.Namespace) -> Limits | None:
    if options.ttft_p99 is None and options.itl_p99 is None:
        return None
    if options.no_load:
        raise RequestError(
            "--ttft-p99 and --itl-p99 say what a load has to keep, and --no-load runs none; give one of them"
        )
    return Limits(
        None if options.ttft_p99 is None else parse_seconds(options.ttft_p99, "TTFT p99"),
        None if options.itl_p99 is None else parse_seconds(options.itl_p99, "ITL p99"),
    )


def _save_profile(file: str | None, result: VerifyResult) -> None:
    if file is None:
        return
    if result.calibration is None:
        raise RequestError("no step time was fitted, so that there is no profile to save; the report's notes say why")
    save_profile(result.calibration.profile, Path(file))


def _is_missed(result: VerifyResult) -> bool:
    """Whether no rate that was run keeps what was asked for."""
    return result.capacity is None or result.capacity.measured_rate is None
