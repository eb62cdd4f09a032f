"""`simulate --against`: a real engine's log of requests beside the simulation of the server that wrote it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from inference_bench.calibrate import (
    Calibration,
    LogComparison,
    LoggedServer,
    Stated,
    calibrate,
    compare_with_log,
    logged_server,
    read_log,
)
from inference_bench.calibrate.comparison import comparison_of
from inference_bench.cli.given import refuse
from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import provenance, say_where, write_report
from inference_bench.cli.server_options import FLEET_NAMES
from inference_bench.errors import RequestError
from inference_bench.hub import load_model
from inference_bench.predict.scenario import DEFAULT_BANDWIDTH_SHARE, DEFAULT_MFU
from inference_bench.simulate.run import simulate
from inference_bench.simulate.step_profile import load_profile, save_profile
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import parse_count, parse_fraction, parse_tokens

# what the log says itself, and what is not simulated beside one
_NOT_BESIDE: Final = (
    *("requests", "rate", "arrivals", "prompt_tokens", "output_tokens", "max_output_tokens", "shared_prefix", "turns"),
    *("samples", "trace", "trace_format", "trace_columns", "trace_fix", "time_scale", "concurrency"),
    *("policy", "max_batch", "dispatch_timeout", "preemption", "order", "speculate"),
    *("kv_memory", "block_size", "overhead", "usd_per_hour", "records", "workers", "max_ttft", "max_gap"),
    *FLEET_NAMES,
)
# the same, of options that have a default
_LEFT_ALONE: Final = {"seed": 0, "seeds": "1", "simulator": "auto", "backend": "local"}
_SHARES: Final = ("mfu", "bandwidth_share")
Parsed = TypeVar("Parsed")


def run_against(options: argparse.Namespace) -> int:
    """Compare, fit if asked, and print."""
    refuse(options, _NOT_BESIDE, "the log says what was asked, and of which server")
    for name, default in _LEFT_ALONE.items():
        if getattr(options, name) != default:
            refuse(options, (name,), "a log is simulated once, as it was served")
    if options.prefix_cache:
        raise RequestError("a log has no content of prompts, so what a prefix cache would find cannot be simulated")
    if options.calibrate:
        refuse(options, ("profile", "engine", *_SHARES), "how fast steps are is fitted")
    elif options.save_profile is not None:
        raise RequestError("nothing is fitted, so there is no profile to save; ask for the fit too")
    log = read_log(Path(options.against))
    server = logged_server(log, _stated(options))
    progress = ProgressLine()
    try:
        progress(f"simulating {len(log)} requests")
        fitted = calibrate(server) if options.calibrate else None
        step_time = _step_time(options, server) if fitted is None else server.at_shares(fitted.shares)
        outcome = simulate(log.workload(), server.setup, step_time)
        unfitted = None if fitted is None else compare_with_log(log, server.setup, server.expected())
    finally:
        progress.done()
    found = unfitted or comparison_of(log, outcome, step_time)
    if options.chart is not None:
        from inference_bench.charts.simulation_runs import against_chart  # late: charts load much
        from inference_bench.cli.picture import write_chart

        write_chart(against_chart(log, outcome), options.chart, "no request has two tokens")
    if options.report is not None:
        from inference_bench.report.against_html import against_html

        write_report(options.report, partial(against_html, server, found, fitted, outcome, provenance(options)))
    if fitted is not None and options.save_profile is not None:
        save_profile(fitted.profile(f"the log {log.name}", _today()), Path(options.save_profile))
    _print(server, found, fitted, options)
    say_where(options)
    return 0


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _stated(options: argparse.Namespace) -> Stated:
    """What the options say of the server; the log says the rest."""
    return Stated(
        model=None if options.model is None else load_model(options.model),
        machine=None if options.on is None else machine_named(options.on),
        devices=_parsed(options.devices, parse_count, "devices"),
        engine=options.engine,
        num_blocks=_parsed(options.kv_blocks, parse_count, "blocks of the cache"),
        max_running=_parsed(options.max_running, parse_count, "sequences that run"),
        token_budget=_parsed(options.token_budget, parse_tokens, "positions of a step"),
        weights=options.weights,
        cache=options.kv,
    )


def _parsed(text: str | None, parse: Callable[[str, str], Parsed], what: str) -> Parsed | None:
    return None if text is None else parse(text, what)


def _step_time(options: argparse.Namespace, server: LoggedServer) -> StepTime:
    """At stated shares of the peaks, as a profile says, or as it is expected of the engine."""
    if options.profile is not None:
        refuse(options, _SHARES, "the profile says how fast steps are")
        return load_profile(Path(options.profile)).step_time(server.served, server.machine, server.devices)
    if all(getattr(options, name) is None for name in _SHARES):
        return server.expected()
    bandwidth, mfu = options.bandwidth_share, options.mfu
    return server.at_shares(
        Shares(
            DEFAULT_BANDWIDTH_SHARE if bandwidth is None else parse_fraction(bandwidth, "share of the bandwidth"),
            DEFAULT_MFU if mfu is None else parse_fraction(mfu, "share of the compute"),
        )
    )


def _print(server: LoggedServer, found: LogComparison, fitted: Calibration | None, options: argparse.Namespace) -> None:
    if options.json:
        from inference_bench.report.against_report import against_json

        print_json(against_json(server, found, fitted))
        return
    from inference_bench.report.against_report import against_text

    print(against_text(server, found, fitted))
