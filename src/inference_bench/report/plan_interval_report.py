"""How far a plan's figures may be off, and what published servers show, as tables.

In:   Plan
Out:  Tables, None where times are no expectation of an engine
Leaves out: arithmetic
Read next by: plan_report, plan_html, plan_json.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from inference_bench.report.plan_cost_report import format_usd
from inference_bench.report.table import Column, Table
from inference_bench.units import NOT_AVAILABLE, format_count, format_number, format_seconds

if TYPE_CHECKING:
    from inference_bench.predict.plan import Plan
    from inference_bench.predict.plan_expected import PlanEnd

_DIGITS: Final = 4
Value = float | None


class Ranged(NamedTuple):
    """A figure and its interval; None is no value."""

    key: str
    name: str
    middle: Value
    low: Value
    high: Value
    show: Callable[[Value], str]


def intervals(answer: Plan) -> list[Ranged]:
    """The figures that depend on speed, each with the ends of its interval in order; those without a value left out."""
    found = answer.interval
    if found is None:
        return []
    rows = []
    for (key, name, middle, show), fast, slow in zip(
        _figures(answer), _figures(found.fast), _figures(found.slow), strict=True
    ):
        ends = [value for value in (fast[2], slow[2]) if value is not None]
        if middle is not None and ends:
            rows.append(Ranged(key, name, middle, min(ends), max(ends), show))
    return rows


def _figures(at: Plan | PlanEnd) -> list[tuple[str, str, Value, Callable[[Value], str]]]:
    """The figures of a plan, or of one end of it."""
    latency, load, full = at.latency, at.load, at.load.full
    rented = at.cost.rented if at.cost else None
    always_on = at.cost.always_on if at.cost else None
    return [
        ("ttft_s", "TTFT, alone", latency.ttft_cached_s if load.prefix_cached else latency.ttft_s, _seconds),
        ("solo_step_s", "solo step", latency.solo_step_s, _seconds),
        ("solo_tokens_per_s", "solo pace", latency.solo_tokens_per_s, _rate),
        ("solo_e2e_s", "E2E, alone", latency.e2e_cached_s if load.prefix_cached else latency.e2e_s, _seconds),
        ("step_s", "step", full.step_s if full else None, _seconds),
        ("tpot_s", "TPOT, prefills in between", full.effective_step_s if full else None, _seconds),
        ("e2e_s", "E2E, prefills in between", load.e2e_s, _seconds),
        ("output_tokens_per_s", "output rate", full.output_tokens_per_s if full else None, _rate),
        ("requests_per_hour", "requests an hour", full.requests_per_hour if full else None, _count),
        ("replicas", "replicas", at.demand.replicas if at.demand else None, _count),
        ("usd_per_million_busy", "USD/M, always busy", rented.usd_per_million_busy if rented else None, format_usd),
        (
            "usd_per_million_always_on",
            "USD/M, always on",
            always_on.usd_per_million_output_tokens if always_on else None,
            format_usd,
        ),
    ]


def _seconds(value: Value) -> str:
    return format_seconds(value, _DIGITS)


def _rate(value: Value) -> str:
    return NOT_AVAILABLE if value is None else f"{format_number(value, _DIGITS)} tokens/s"


def _count(value: Value) -> str:
    return NOT_AVAILABLE if value is None else format_count(round(value))


def interval_table(answer: Plan) -> Table | None:
    """A row a figure: where it is expected, and between what 4 of 5 measurements lie."""
    rows = tuple(
        (row.name, row.show(row.middle), f"{row.show(row.low)} .. {row.show(row.high)}") for row in intervals(answer)
    )
    title = f"interval at batch {format_count(answer.load.batch)} ({answer.times_origin})"
    return Table("Interval", (Column(title, "l"), *_WITHIN), rows) if rows else None


_WITHIN: Final = (Column("expected"), Column("4 of 5 measurements within"))


def serving_table(answer: Plan) -> Table | None:
    """What servers show at the planned batch, waiting included."""
    check = answer.serving
    if check is None:
        return None
    rows = tuple(
        (name, _seconds(found.seconds), f"{_seconds(found.low_s)} .. {_seconds(found.high_s)}", how)
        for name, found, how in (
            ("TPOT", check.tpot, "prompts of others in between"),
            ("TTFT", check.ttft, "waiting included"),
        )
        if found is not None
    )
    title = f"published servers, {format_count(check.concurrency)} at once"
    return Table("Published servers", (Column(title, "l"), *_WITHIN, Column("how", "l")), rows)
