"""Which figures stand behind a log beside its simulation? Its sentences and tables, as a terminal and a page both show them.

In:   LoggedServer, LogComparison, Calibration
Out:  sentences, and Tables of texts
Leaves out: how they look (against_report, against_html); every number was computed before
Read next by: against_report, against_html.
"""

from __future__ import annotations

from typing import Final

from inference_bench.calibrate import Calibration, FittedNumber, LogComparison, LoggedServer
from inference_bench.report.table import Column, Table
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

_WORDS: Final = {"ttft": "TTFT", "tpot": "TPOT", "makespan": "makespan"}
_NUMBERS: Final = {
    "bandwidth": "share of the bandwidth",
    "compute": "share of the compute",
    "fixed_s": "fixed time a step",
    "serial": "share not overlapped",
}


def server_words(server: LoggedServer) -> str:
    """Which model ran on what, by which engine."""
    devices = "" if server.devices == 1 else f"{server.devices} × "
    return f"{server.served.model.name} on {devices}{server.machine.name} by {server.engine}"


def log_words(server: LoggedServer, found: LogComparison) -> str:
    """Which log it is."""
    return f"log {server.log.name}, {format_count(found.num_requests)} requests"


def all_notes(server: LoggedServer, last: LogComparison, fitted: Calibration | None) -> list[str]:
    """What both sides rest on, each once."""
    notes = (*last.notes, *(fitted.notes if fitted is not None else ()))
    return list(dict.fromkeys((*server.setup.notes, *notes)))


def errors_table(found: LogComparison, fitted: Calibration | None) -> Table:
    """Measured beside simulated, by mean and percentile."""
    names = list(found.measured.values)
    columns: list[tuple[str, ...]] = [
        ("seconds", *(statistic_name(name) for name in names)),
        ("measured", *(format_seconds(found.measured.values[name]) for name in names)),
        ("simulated", *(format_seconds(found.simulated.values[name]) for name in names)),
        ("error", *(error_words(found.errors[name]) for name in names)),
    ]
    if fitted is not None:
        columns += [
            ("calibrated", *(format_seconds(fitted.after.simulated.values[name]) for name in names)),
            ("error left", *(error_words(fitted.after.errors[name]) for name in names)),
        ]
    titles, *rows = zip(*columns, strict=True)
    note = f"error: simulated over measured, less one{_before(fitted)}"
    return Table("Errors", (Column(titles[0], "l"), *map(Column, titles[1:])), tuple(rows), note)


def _before(fitted: Calibration | None) -> str:
    """What the column that was not calibrated is, and how far off the peaks alone are."""
    if fitted is None:
        return ""
    at_peaks = ", ".join(
        f"{statistic_name(name)} {error_words(fitted.before.errors[name])}" for name in ("ttft_p50", "tpot_p50")
    )
    return f"; simulated: as expected of the engine, nothing fitted (at both peaks of the machine: {at_peaks})"


def statistic_name(name: str) -> str:
    """What is compared, as people call it."""
    kind, _, point = name.partition("_")
    return " ".join(filter(None, (_WORDS.get(kind, kind), point)))


def error_words(error: float | None) -> str:
    """A signed error as percent."""
    if error is None:
        return NOT_AVAILABLE
    return format_fraction(error) if error <= 0 else f"+{format_fraction(error)}"


def preemptions_words(found: LogComparison) -> str:
    """How often requests gave way, there and here."""
    counts = found.preemptions
    measured = "n/a (the log does not say)" if counts.measured is None else f"{format_count(counts.measured)} times"
    return f"requests gave way: measured {measured}, simulated {format_count(counts.simulated)} times"


def fitted_table(fitted: Calibration | None) -> Table | None:
    """The numbers that fit the log; None where none were fitted."""
    if fitted is None:
        return None
    rows = tuple(
        (_NUMBERS[each.name], _number(each, each.value), _interval(each), f"{each.interval.confidence:.0%}")
        if each.interval is not None
        else (_NUMBERS[each.name], _number(each, each.value), NOT_AVAILABLE, "")
        for each in fitted.fitted
    )
    columns = (Column("fitted", "l"), *map(Column, ("value", "interval", "of resampled logs")))
    return Table("Fitted", columns, rows, f"{format_count(fitted.num_runs)} simulations")


def _number(each: FittedNumber, value: float) -> str:
    return format_seconds(value) if each.name.endswith("_s") else format_number(value)


def _interval(each: FittedNumber) -> str:
    if each.interval is None:
        return NOT_AVAILABLE
    return f"{_number(each, each.interval.low)} – {_number(each, each.interval.high)}"
