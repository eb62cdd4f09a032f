"""The money part of a plan: rented, always on, owned, or hosted.

In:   Scenario, FullLoad of the case that is planned for, Demand, and the price of a device hour
Out:  PlanCost; parts whose prices were not given are None
Leaves out: which prices are true: all of them are the scenario's
Read next by: plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.predict.capacity import Demand, FullLoad
from inference_bench.predict.cost import (
    always_on_usd_per_request,
    break_even_requests_per_day,
    depreciation_usd_per_hour,
    energy_usd_per_hour,
    joules_per_token,
    owned_usd_per_million_tokens,
    usd_per_million_tokens,
)
from inference_bench.predict.scenario import Scenario
from inference_bench.units import HOURS_PER_DAY, MEGA, SECONDS_PER_DAY, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class RentedCost:
    """A replica by the hour.

    Where:  usd_per_hour is of all its devices; utilisation the share of the bought hours that is busy, None not given
    Unit:   USD
    """

    usd_per_hour: float
    utilisation: float | None
    usd_per_million_busy: float
    usd_per_million_at_utilisation: float | None
    usd_per_request_busy: float


@dataclass(frozen=True, slots=True)
class AlwaysOnCost:
    """The replicas that the demand needs, paid for all day.

    Unit:  USD
    """

    replicas: int
    usd_per_day: float
    usd_per_request: float
    usd_per_million_output_tokens: float


@dataclass(frozen=True, slots=True)
class HostedCost:
    """The same requests behind a price a token, and the volume from which one replica that is always on costs less.

    Where:  the cached figures are with the prefix in the host's cache, None without a prefix; the break-evens are None
            without a price an hour; replica_requests_per_day is what one replica serves at full load: a break-even beyond
            it is never reached, with however many replicas
    Unit:   USD, requests a day
    """

    usd_per_request: float
    usd_per_request_cached: float | None
    break_even_requests_per_day: float | None
    break_even_requests_per_day_cached: float | None
    replica_requests_per_day: float

    def is_reached(self, break_even: float | None) -> bool | None:
        """Whether a replica can serve the volume that breaks even."""
        return None if break_even is None else break_even <= self.replica_requests_per_day


@dataclass(frozen=True, slots=True)
class OwnedCost:
    """A replica of one's own.

    Where:  energy is drawn while busy, the price is spread over every hour
    Unit:   USD; J a token
    """

    depreciation_usd_per_hour: float
    energy_usd_per_hour: float
    utilisation: float
    usd_per_million_busy: float
    usd_per_million_at_utilisation: float
    joules_per_output_token: float

    @property
    def usd_per_hour(self) -> float:
        """Both while it is busy."""
        return self.depreciation_usd_per_hour + self.energy_usd_per_hour


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What the plan costs; a part is None where its prices were not given."""

    rented: RentedCost | None
    always_on: AlwaysOnCost | None
    hosted: HostedCost | None
    owned: OwnedCost | None

    @property
    def is_empty(self) -> bool:
        """Whether no price was given."""
        return self.rented is None and self.hosted is None and self.owned is None


def plan_cost(scenario: Scenario, load: FullLoad, demand: Demand | None, usd_per_device_hour: float | None) -> PlanCost:
    """What the tokens of a scenario cost.

    Unit:  USD
    """
    hourly = None if usd_per_device_hour is None else usd_per_device_hour * scenario.devices
    return PlanCost(
        rented=None if hourly is None else _rented(scenario, load, hourly),
        always_on=None if hourly is None or demand is None else _always_on(scenario, demand, hourly),
        hosted=_hosted(scenario, load, hourly),
        owned=_owned(scenario, load),
    )


def _rented(scenario: Scenario, load: FullLoad, hourly: float) -> RentedCost:
    tokens, utilisation = load.output_tokens_per_hour, scenario.prices.utilisation
    return RentedCost(
        usd_per_hour=hourly,
        utilisation=utilisation,
        usd_per_million_busy=usd_per_million_tokens(hourly, tokens),
        usd_per_million_at_utilisation=None
        if utilisation is None
        else usd_per_million_tokens(hourly, tokens, utilisation),
        usd_per_request_busy=hourly * load.machine_seconds_per_request / SECONDS_PER_HOUR,
    )


def _always_on(scenario: Scenario, demand: Demand, hourly: float) -> AlwaysOnCost:
    request = always_on_usd_per_request(hourly, demand.requests_per_day, demand.replicas)
    return AlwaysOnCost(
        replicas=demand.replicas,
        usd_per_day=HOURS_PER_DAY * hourly * demand.replicas,
        usd_per_request=request,
        usd_per_million_output_tokens=request / scenario.traffic.output_tokens * MEGA,
    )


def _hosted(scenario: Scenario, load: FullLoad, hourly: float | None) -> HostedCost | None:
    prices, traffic = scenario.prices.hosted, scenario.traffic
    if prices is None:
        return None
    plain = prices.usd_per_request(traffic.prompt_tokens, traffic.output_tokens)
    cached = None
    if traffic.prefix_tokens:
        cached = prices.usd_per_request(traffic.prompt_tokens, traffic.output_tokens, traffic.prefix_tokens)
    return HostedCost(
        usd_per_request=plain,
        usd_per_request_cached=cached,
        break_even_requests_per_day=None if hourly is None else break_even_requests_per_day(hourly, plain),
        break_even_requests_per_day_cached=None
        if hourly is None or cached is None
        else break_even_requests_per_day(hourly, cached),
        replica_requests_per_day=load.requests_per_s * SECONDS_PER_DAY,
    )


def _owned(scenario: Scenario, load: FullLoad) -> OwnedCost | None:
    owned, devices = scenario.owned, scenario.devices
    if owned is None:
        return None
    depreciation = depreciation_usd_per_hour(owned.price_usd * devices, owned.years)
    energy = energy_usd_per_hour(owned.watts * devices, owned.usd_per_kwh)
    tokens = load.output_tokens_per_hour
    return OwnedCost(
        depreciation_usd_per_hour=depreciation,
        energy_usd_per_hour=energy,
        utilisation=owned.utilisation,
        usd_per_million_busy=owned_usd_per_million_tokens(depreciation, energy, tokens),
        usd_per_million_at_utilisation=owned_usd_per_million_tokens(depreciation, energy, tokens, owned.utilisation),
        joules_per_output_token=joules_per_token(owned.watts * devices, load.output_tokens_per_s),
    )
