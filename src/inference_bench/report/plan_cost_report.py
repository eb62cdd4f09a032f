"""The money part of a plan as a table.

In:   Plan
Out:  Table, None where no price was given
Leaves out: arithmetic
Read next by: plan_report, plan_html.
"""

from __future__ import annotations

from collections.abc import Iterator

from inference_bench.origin import Origin
from inference_bench.predict.cost_curve import BreakEven, break_evens, hosted_prices
from inference_bench.predict.plan import Plan
from inference_bench.predict.plan_cost import AlwaysOnCost, OwnedCost, RentedCost
from inference_bench.report.table import FIGURE_COLUMNS, Column, Table
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number

Row = tuple[str, str, str]  # its name, its value, how
_MILLION = "USD/M output tokens"
_GIVEN = {
    "a replica",
    "hosted",
    "hosted, prefix cached",
    "a replica's day buys",
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
    """A row a figure; break-evens are those of the chart."""
    cost = answer.cost
    if cost is None or cost.is_empty:
        return None
    rows: list[Row] = []
    if cost.rented is not None:
        rows += _rented(cost.rented)
    if cost.always_on is not None:
        rows += _always_on(cost.always_on)
    rows += _hosted(answer)
    for found in break_evens(answer):
        rows += _break_even(found)
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


def _hosted(answer: Plan) -> Iterator[Row]:
    """A request, and the day that was asked for."""
    for price in hosted_prices(answer):
        how = "the prefix at its price" if price.is_cached else "tokens at their prices"
        yield price.name, format_usd(price.usd_per_request, "USD/request"), how
        if answer.demand is not None:
            day = price.usd_per_day(answer.demand.requests_per_day)
            yield price.name, format_usd(day, "USD/day"), "the daily volume at that"


def _break_even(found: BreakEven) -> Iterator[Row]:
    """Where both cost the same, and below it what decides."""
    is_cached, is_owned = found.hosted.is_cached, found.machine.is_owned
    which = (
        ", owned, cached"
        if is_owned and is_cached
        else ", owned"
        if is_owned
        else ", prefix cached"
        if is_cached
        else ""
    )
    yield f"break-even{which}", *_said(found)
    if found.replica_buys_per_day is not None:
        carries = f"at the peak it carries {format_count(int(found.replica_carries_per_day))}"
        name = "an owned one's day buys" if is_owned else "a replica's day buys"
        yield name, f"{_count(found.replica_buys_per_day)} requests/day", carries


def _said(found: BreakEven) -> tuple[str, str]:
    """The volume, and which side costs less from there on: what break_even_words says, within a column."""
    first, last = found.requests_per_day, found.for_good_requests_per_day
    if first is None:
        return "never: hosted costs less", "at every volume"
    if first == 0:
        return "always: replicas cost less", "at every volume"
    volume = f"{_count(first)} requests/day"
    if last is None:
        return volume, "the same there, else more"
    return volume, "then replicas cost less" if last == first else f"first; for good from {_count(last)}"


def _count(requests: float) -> str:
    return format_count(round(requests))


def break_even_volume(found: BreakEven) -> str:
    """The first volume; or that it is never met, or that there is nothing to meet."""
    if found.requests_per_day is None:
        return "never"
    return format_number(found.requests_per_day) if found.requests_per_day else "always"


def break_even_words(found: BreakEven) -> str:
    """Which side costs less, and from where on."""
    first, last = found.requests_per_day, found.for_good_requests_per_day
    if first is None:
        return "hosted costs less at every volume"
    if last is None:
        return "there both cost the same; else hosted costs less"
    if not first:
        return "replicas cost less at every volume"
    if first == last:
        return "from there on replicas cost less"
    return f"first; for good from {_count(last)}"


def replica_day_words(found: BreakEven) -> str:
    """What decides: what one replica's day would pay for, beside what the replica carries."""
    carries = f"it carries {format_count(int(found.replica_carries_per_day))} at the peak"
    if found.replica_buys_per_day is None:
        return f"a request costs more power than it is sold for; {carries}"
    return f"one replica's day buys {_count(found.replica_buys_per_day)} hosted requests; {carries}"


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
