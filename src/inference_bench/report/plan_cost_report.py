"""The money part of a plan as a table.

In:   Plan
Out:  Table, None where no price was given
Leaves out: arithmetic
Read next by: plan_report, plan_html.
"""

from __future__ import annotations

from collections.abc import Iterator

from inference_bench.origin import Origin
from inference_bench.predict.plan import Plan
from inference_bench.predict.plan_cost import AlwaysOnCost, HostedCost, OwnedCost, RentedCost
from inference_bench.report.table import FIGURE_COLUMNS, Column, Table
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number

Row = tuple[str, str, str]  # its name, its value, how
_MILLION = "USD/M output tokens"
_GIVEN = {
    "a replica",
    "hosted",
    "hosted, prefix cached",
    "break-even",
    "break-even, prefix cached",
    "owned, price over its years",
    "owned, power while busy",
}


def format_usd(value: float | None, unit: str = "", significant: int = 3) -> str:
    """An amount of money, no cents cut off a small one.

    >>> format_usd(0.00186, "USD"), format_usd(None)
    ('0.00186 USD', 'n/a')
    """
    return NOT_AVAILABLE if value is None else f"{format_number(value, significant)} {unit}".rstrip()


def cost_table(answer: Plan) -> Table | None:
    """A row a figure; where it is known what one replica can serve, whether a break-even is ever reached."""
    cost = answer.cost
    if cost is None or cost.is_empty:
        return None
    rows: list[Row] = []
    if cost.rented is not None:
        rows += _rented(cost.rented)
    if cost.always_on is not None:
        rows += _always_on(cost.always_on)
    if cost.hosted is not None:
        rows += _hosted(cost.hosted)
    if cost.owned is not None:
        rows += _owned(cost.owned)
    cells = tuple((name, value, str(_origin(name, answer.times_origin)), how) for name, value, how in rows)
    return Table("Cost", (Column("cost, at the prices given", "l"), *FIGURE_COLUMNS), cells)


def _origin(name: str, times: Origin) -> Origin:
    """Prices are as given; what divides them by a rate is as good as the rate."""
    return Origin.GIVEN if name in _GIVEN else times


def _rented(cost: RentedCost) -> Iterator[Row]:
    yield "a replica", format_usd(cost.usd_per_hour, "USD/h"), "all its devices"
    yield "always busy", format_usd(cost.usd_per_million_busy, _MILLION), "USD/h over output tokens/h"
    if cost.usd_per_million_at_utilisation is not None:
        share = format_fraction(cost.utilisation)
        yield (
            f"bought, {share} busy",
            format_usd(cost.usd_per_million_at_utilisation, _MILLION),
            "the same / utilisation",
        )
    yield "always busy", format_usd(cost.usd_per_request_busy, "USD/request"), "USD/h · machine time a request"


def _always_on(cost: AlwaysOnCost) -> Iterator[Row]:
    how = f"{format_count(cost.replicas)} replica(s), {format_usd(cost.usd_per_day, 'USD')} a day"
    yield "always on", format_usd(cost.usd_per_request, "USD/request"), how
    yield "always on", format_usd(cost.usd_per_million_output_tokens, _MILLION), "the same over its output tokens"


def _hosted(cost: HostedCost) -> Iterator[Row]:
    yield "hosted", format_usd(cost.usd_per_request, "USD/request"), "tokens at their prices"
    if cost.usd_per_request_cached is not None:
        yield "hosted, prefix cached", format_usd(cost.usd_per_request_cached, "USD/request"), "the prefix at its price"
    for name, value in (
        ("break-even", cost.break_even_requests_per_day),
        ("break-even, prefix cached", cost.break_even_requests_per_day_cached),
    ):
        if value is not None:
            yield name, f"{format_count(round(value))} requests/day", _reached(cost, value)


def _reached(cost: HostedCost, break_even: float) -> str:
    most = f"{format_count(int(cost.replica_requests_per_day))}/day"
    if cost.is_reached(break_even):
        return f"a replica can serve {most}"
    return f"never reached: a replica serves {most}"


def _owned(cost: OwnedCost) -> Iterator[Row]:
    yield "owned, price over its years", format_usd(cost.depreciation_usd_per_hour, "USD/h"), "price / (years · 8760)"
    yield "owned, power while busy", format_usd(cost.energy_usd_per_hour, "USD/h"), "kW · USD/kWh"
    yield "owned, always busy", format_usd(cost.usd_per_million_busy, _MILLION), "both over output tokens/h"
    if cost.utilisation < 1:
        share = format_fraction(cost.utilisation)
        yield (
            f"owned, {share} busy",
            format_usd(cost.usd_per_million_at_utilisation, _MILLION),
            "price / utilisation + power",
        )
    yield "energy", f"{format_number(cost.joules_per_output_token)} J/output token", "W / (output tokens/s)"
