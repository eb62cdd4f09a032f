"""A real engine's log beside its simulation, as JSON with stable keys and as text for a terminal.

In:   LoggedServer, LogComparison, Calibration
Out:  a dict ready for JSON or a text of at most 100 columns
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from inference_bench.calibrate import Calibration, FittedNumber, LogComparison, LoggedServer
from inference_bench.report.simulate_json import memory_json
from inference_bench.report.simulate_report import listed
from inference_bench.report.text import printable, table, wrap
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

SCHEMA: Final = "inference-bench/simulate-against/1"
Json = dict[str, Any]
_WORDS: Final = {"ttft": "TTFT", "tpot": "TPOT", "makespan": "makespan"}
_NUMBERS: Final = {
    "bandwidth": "share of the bandwidth",
    "compute": "share of the compute",
    "fixed_s": "fixed time a step",
    "serial": "share not overlapped",
}


def against_json(server: LoggedServer, found: LogComparison, fitted: Calibration | None = None) -> Json:
    """The stable keys of `simulate --against --json`.

    Where:  errors are those after fitting where a fit was asked for; uncalibrated_errors are those of what is expected of the
            engine, bound_errors those at both peaks of the machine
    """
    last = found if fitted is None else fitted.after
    return {
        "schema": SCHEMA,
        "origin": "simulated",
        "log": server.log.name,
        "requests": last.num_requests,
        "model": server.served.model.name,
        "machine": server.machine.name,
        "devices": server.devices,
        "engine": server.engine,
        "memory": memory_json(server.setup.memory),
        "max_running": server.setup.scheduler.max_running,
        "token_budget": server.setup.scheduler.token_budget,
        "measured": last.measured.values,
        "simulated": last.simulated.values,
        "errors": last.errors,
        "uncalibrated_errors": None if fitted is None else found.errors,
        "bound_errors": None if fitted is None else fitted.before.errors,
        "preemptions": dataclasses.asdict(last.preemptions),
        "fitted": None if fitted is None else {str(each.name): _fitted_json(each) for each in fitted.fitted},
        "runs": None if fitted is None else fitted.num_runs,
        "notes": [*last.notes, *(fitted.notes if fitted is not None else ())],
    }


def _fitted_json(each: FittedNumber) -> Json:
    return {"value": each.value, "interval": None if each.interval is None else dataclasses.asdict(each.interval)}


def against_text(server: LoggedServer, found: LogComparison, fitted: Calibration | None = None) -> str:
    """Measured beside simulated, what was fitted, and what both rest on."""
    last = found if fitted is None else fitted.after
    devices = "" if server.devices == 1 else f"{server.devices} × "
    head = (
        f"log {server.log.name}, {format_count(last.num_requests)} requests: {server.served.model.name} on "
        f"{devices}{server.machine.name} by {server.engine}, measured and simulated"
    )
    notes = (*last.notes, *(fitted.notes if fitted is not None else ()))
    sections = [
        wrap(printable(head)),
        _errors(found, fitted),
        _preemptions(last),
        "" if fitted is None else _fitted(fitted),
        listed("assumptions and notes", list(dict.fromkeys((*server.setup.notes, *notes)))),
    ]
    return "\n\n".join(section for section in sections if section)


def _errors(found: LogComparison, fitted: Calibration | None) -> str:
    names = list(found.measured.values)
    columns: list[tuple[str, ...]] = [
        ("seconds", *(_name(name) for name in names)),
        ("measured", *(format_seconds(found.measured.values[name]) for name in names)),
        ("simulated", *(format_seconds(found.simulated.values[name]) for name in names)),
        ("error", *(_error(found.errors[name]) for name in names)),
    ]
    if fitted is not None:
        columns += [
            ("calibrated", *(format_seconds(fitted.after.simulated.values[name]) for name in names)),
            ("error left", *(_error(fitted.after.errors[name]) for name in names)),
        ]
    headers, *rows = zip(*columns, strict=True)
    align = f"l{'r' * (len(columns) - 1)}"
    return f"{table(headers, rows, align)}\n{wrap(f'error: simulated over measured, less one{_before(fitted)}')}"


def _before(fitted: Calibration | None) -> str:
    """What the column that was not calibrated is, and how far off the peaks alone are."""
    if fitted is None:
        return ""
    at_peaks = ", ".join(f"{_name(name)} {_error(fitted.before.errors[name])}" for name in ("ttft_p50", "tpot_p50"))
    return f"; simulated: as expected of the engine, nothing fitted (at both peaks of the machine: {at_peaks})"


def _name(name: str) -> str:
    kind, _, point = name.partition("_")
    return " ".join(filter(None, (_WORDS.get(kind, kind), point)))


def _error(error: float | None) -> str:
    if error is None:
        return NOT_AVAILABLE
    return format_fraction(error) if error <= 0 else f"+{format_fraction(error)}"


def _preemptions(found: LogComparison) -> str:
    counts = found.preemptions
    measured = "n/a (the log does not say)" if counts.measured is None else f"{format_count(counts.measured)} times"
    return wrap(f"requests gave way: measured {measured}, simulated {format_count(counts.simulated)} times")


def _fitted(fitted: Calibration) -> str:
    rows = [
        (_NUMBERS[each.name], _number(each, each.value), _interval(each), f"{each.interval.confidence:.0%}")
        if each.interval is not None
        else (_NUMBERS[each.name], _number(each, each.value), NOT_AVAILABLE, "")
        for each in fitted.fitted
    ]
    text = table(("fitted", "value", "interval", "of resampled logs"), rows, "lrrr")
    return f"{text}\n{format_count(fitted.num_runs)} simulations"


def _number(each: FittedNumber, value: float) -> str:
    return format_seconds(value) if each.name.endswith("_s") else format_number(value)


def _interval(each: FittedNumber) -> str:
    if each.interval is None:
        return NOT_AVAILABLE
    return f"{_number(each, each.interval.low)} – {_number(each, each.interval.high)}"
