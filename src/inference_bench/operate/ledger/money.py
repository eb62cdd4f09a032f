"""What did the tokens cost that were really made, on the hours that were really bought?

In:   prices and hours; Sums; for how long something was in flight
Out:  Paid, and Money where a price was given
Leaves out: which prices are true; owned hardware (predict.cost has its formulas)
Read next by: flow.

The formulas are those of a plan (predict.cost): what is new here is that the utilisation is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from inference_bench.errors import RequestError
from inference_bench.operate.ledger.totals import Sums
from inference_bench.predict.cost import HostedPrices, break_even_requests_per_day, usd_per_million_tokens
from inference_bench.units import SECONDS_PER_DAY, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Prices:
    """What a person says was bought.

    Where:    usd_per_hour is of one device; hours are of the clock, None for the span of the records; capacity is what all devices
              together make at full load; hosted is what the same tokens cost elsewhere
    Raises:   RequestError for what cannot have been bought
    """

    usd_per_hour: float | None = None
    devices: int = 1
    hours: float | None = None
    capacity_tokens_per_s: float | None = None
    hosted: HostedPrices | None = None

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise RequestError(f"{self.devices} devices cannot be paid for; give 1 or more")
        hosted = self.hosted
        for value, what in (
            (self.usd_per_hour, "price an hour"),
            (None if hosted is None else hosted.input_usd, "hosted price of input"),
            (None if hosted is None else hosted.output_usd, "hosted price of output"),
            (None if hosted is None else hosted.cached_usd, "hosted price of cached input"),
        ):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise RequestError(f"the {what} is {value:g}; give 0 USD or more")
        for value, what in ((self.hours, "number of hours"), (self.capacity_tokens_per_s, "capacity")):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise RequestError(f"the {what} is {value:g}; give more than 0")


Found = TypeVar("Found", "Paid", "HostedMoney", "Money")


@dataclass(frozen=True, slots=True)
class Paid:
    """Capacity that was paid for, and how much of it was busy.

    Where:    span_s is from the first request to the last end of each run, overlapping runs once; busy_s is how long at least one
              request was in flight; mean_in_flight is how many were, over the hours; capacity_fraction is output tokens computed over
              what the capacity would have made in these hours
    """

    devices: int
    hours: float
    are_hours_given: bool
    span_s: float
    busy_s: float
    bridged_s: float
    mean_in_flight: float | None
    capacity_tokens_per_s: float | None
    capacity_output_tokens: float | None
    capacity_fraction: float | None

    @property
    def device_hours(self) -> float | None:
        """Hours of all devices together; None for more than there are numbers."""
        return _finite(self.devices * self.hours)

    @property
    def busy_fraction(self) -> float | None:
        """The share of the hours in which something was in flight; None without hours."""
        return _finite(self.busy_s / (self.hours * SECONDS_PER_HOUR)) if self.hours > 0 else None


@dataclass(frozen=True, slots=True)
class HostedMoney:
    """The completed answers at a price a token.

    Unit:     USD; requests a day
    Where:    num_requests are those whose tokens are known; of num_without_cached nobody said how much was cached, so that all their
              input has the price of input that was not; a break-even is None where nothing is paid by the hour
    """

    num_requests: int
    num_without_cached: int
    usd: float | None
    usd_per_request: float | None
    break_even_requests_per_day: float | None
    completed_requests_per_day: float | None


@dataclass(frozen=True, slots=True)
class Money:
    """What was paid, over what came of it.

    Unit:     USD
    Where:    usd and the figures over it are None without a price an hour; per million output tokens at the utilisation bought, of all
              that were computed, of whole answers, and of those of use; if_always_busy is what a computed one would have cost at the
              pace of the busy time; at_capacity what it costs at the capacity stated
    """

    usd: float | None
    usd_per_million_computed: float | None
    usd_per_million_completed: float | None
    usd_per_million_useful: float | None
    usd_per_million_if_always_busy: float | None
    usd_per_million_at_capacity: float | None
    usd_per_successful_request: float | None
    hosted: HostedMoney | None


def _finite(value: float) -> float | None:
    """None for what is more than a number can be, as over next to no hours."""
    return value if math.isfinite(value) else None


def _finite_ones(found: Found) -> Found:
    """The same figures, each None that is not finite."""
    none = [name for name in found.__slots__ if type(value := getattr(found, name)) is float and _finite(value) is None]
    changed: dict[str, Any] = dict.fromkeys(none)
    return replace(found, **changed) if none else found


def paid_capacity(prices: Prices, sums: Sums, span_s: float, busy_s: float, bridged_s: float) -> Paid:
    """What was bought, and how much of it was busy."""
    hours = prices.hours if prices.hours is not None else span_s / SECONDS_PER_HOUR
    rate = prices.capacity_tokens_per_s
    made = None if rate is None else rate * hours * SECONDS_PER_HOUR
    return _finite_ones(
        Paid(
            devices=prices.devices,
            hours=hours,
            are_hours_given=prices.hours is not None,
            span_s=span_s,
            busy_s=busy_s,
            bridged_s=bridged_s,
            mean_in_flight=sums.in_flight_s / (hours * SECONDS_PER_HOUR) if hours > 0 else None,
            capacity_tokens_per_s=rate,
            capacity_output_tokens=made,
            capacity_fraction=sums.computed_output_tokens / made if made else None,
        )
    )


def money_of(prices: Prices, paid: Paid, sums: Sums) -> Money | None:
    """What it cost; None where no price was given."""
    if prices.usd_per_hour is None and prices.hosted is None:
        return None
    hourly = None if prices.usd_per_hour is None else prices.usd_per_hour * prices.devices
    usd = None if hourly is None else hourly * paid.hours
    useful = sums.num_useful
    return _finite_ones(
        Money(
            usd=usd,
            usd_per_million_computed=_per_million(hourly, sums.computed_output_tokens, paid.hours),
            usd_per_million_completed=_per_million(hourly, sums.completed_output_tokens, paid.hours),
            usd_per_million_useful=_per_million(hourly, sums.useful_output_tokens, paid.hours),
            usd_per_million_if_always_busy=_per_million(
                hourly, sums.computed_output_tokens, min(paid.busy_s / SECONDS_PER_HOUR, paid.hours)
            ),
            usd_per_million_at_capacity=_per_million(hourly, paid.capacity_output_tokens, paid.hours),
            usd_per_successful_request=usd / useful if usd is not None and useful else None,
            hosted=None if prices.hosted is None else _hosted(prices.hosted, hourly, sums, paid.hours),
        )
    )


def _per_million(hourly: float | None, tokens: float | None, hours: float) -> float | None:
    """The price of a million tokens that were made in so many hours: the utilisation is in their number."""
    if hourly is None or not tokens or hours <= 0 or (rate := _finite(tokens / hours)) is None:
        return None
    return usd_per_million_tokens(hourly, rate) if rate > 0 else None


def _hosted(hosted: HostedPrices, hourly: float | None, sums: Sums, hours: float) -> HostedMoney | None:
    if not sums.num_billed:
        return None
    usd = hosted.usd_per_request(sums.billed_input_tokens, sums.billed_output_tokens, sums.billed_cached_tokens)
    each = usd / sums.num_billed
    return _finite_ones(
        HostedMoney(
            num_requests=sums.num_billed,
            num_without_cached=sums.num_billed_without_cached,
            usd=usd,
            usd_per_request=each,
            break_even_requests_per_day=None if hourly is None else break_even_requests_per_day(hourly, each),
            completed_requests_per_day=sums.num_completed / (hours * SECONDS_PER_HOUR) * SECONDS_PER_DAY
            if hours
            else None,
        )
    )
