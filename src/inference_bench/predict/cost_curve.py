"""What a day costs at any daily volume: on replicas that are paid for all day, and behind a price a token.

In:   Plans of one scenario, each on a machine with a price
Out:  CostCurve: lines of USD a day over requests a day, and where they meet
Leaves out: which volume comes (the scenario's); idle power of owned machines
Read next by: charts.break_even, report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.predict.capacity import Demand
from inference_bench.predict.cost import break_even_requests_per_day
from inference_bench.predict.plan import Plan
from inference_bench.units import HOURS_PER_DAY, SECONDS_PER_DAY, SECONDS_PER_HOUR

_ROOM: Final = 10.0  # the curve reaches beyond what it has to show, as a factor
_EVERY_STEP: Final = 24  # replicas up to which each step is drawn; beyond, the line runs through the ends of some
_STRIDE: Final = 1.1  # from one of those to the next, as a factor


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    """Machines of one kind that are paid for all day: the replicas that a volume needs, times their price.

    Where:  demand says how many a volume needs, at its peak and target load; fixed_usd_per_hour is of one replica whether it
            works or not, busy_usd_per_hour is on top while it works (power of an owned machine)
    Unit:   USD an hour, requests a day
    """

    name: str
    demand: Demand
    fixed_usd_per_hour: float
    busy_usd_per_hour: float = 0.0
    is_owned: bool = False

    @property
    def replica_requests_per_day(self) -> float:
        """The volume that one replica carries, as loaded as it may be at the peak.

        Formula:  rate of one replica · target utilisation / peak factor · 86400
        Unit:     requests a day
        """
        demand = self.demand
        return demand.replica_requests_per_s * demand.target_utilisation / demand.peak_factor * SECONDS_PER_DAY

    @property
    def busy_usd_per_request(self) -> float:
        """What a request adds to the cost of a machine that is there anyway: its share of an hour's power."""
        return self.busy_usd_per_hour / (self.demand.replica_requests_per_s * SECONDS_PER_HOUR)

    def replicas(self, requests_per_day: float) -> int:
        """Replicas that a daily volume needs."""
        return replace(self.demand, requests_per_day=requests_per_day).replicas

    def usd_per_day(self, requests_per_day: float, replicas: int | None = None) -> float:
        """A day's cost.

        Formula:  24 · replicas · fixed USD/h + requests a day · busy USD a request
        Unit:     USD a day
        """
        count = self.replicas(requests_per_day) if replicas is None else replicas
        return HOURS_PER_DAY * count * self.fixed_usd_per_hour + requests_per_day * self.busy_usd_per_request


@dataclass(frozen=True, slots=True)
class HostedPrice:
    """The same requests behind a price a token.

    Unit:  USD a request
    """

    name: str
    usd_per_request: float
    is_cached: bool = False

    def usd_per_day(self, requests_per_day: float) -> float:
        """A day's cost: requests · USD a request."""
        return requests_per_day * self.usd_per_request


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From which volume replicas cost less than the hosted model, as the peak and the target load let them be used.

    Formula:  one replica pays from v = 24 · fixed USD/h / (hosted - busy USD a request), n of them from n · v, up to n times the
              c that each carries: first from v, if v <= c; for good from m · v, m the least number for which m · c >= (m + 1) · v
    Where:    replica_buys_per_day is v, None where a request costs no less power than the hosted model asks for it;
              replica_carries_per_day is c; between c and m · v each further replica costs more than the hosted model until
              enough comes
    Unit:     requests a day
    """

    machine: ReplicaPrice
    hosted: HostedPrice
    replica_buys_per_day: float | None
    replica_carries_per_day: float

    @property
    def is_reached(self) -> bool:
        """Whether replicas cost less at any volume; if one alone does not, more do not either."""
        return self.requests_per_day is not None

    @property
    def requests_per_day(self) -> float | None:
        """The first volume at which both cost the same; None where the hosted model costs less at every volume."""
        buys = self.replica_buys_per_day
        return None if buys is None or buys > self.replica_carries_per_day else buys

    @property
    def for_good_requests_per_day(self) -> float | None:
        """The volume beyond which replicas always cost less; None where there is none."""
        first, carries = self.requests_per_day, self.replica_carries_per_day
        if first is None or first == carries:
            return None
        return max(1, math.ceil(round(first / (carries - first), 9))) * first

    @property
    def usd_per_day(self) -> float | None:
        """What a day costs at the first volume."""
        return None if self.requests_per_day is None else self.hosted.usd_per_day(self.requests_per_day)


@dataclass(frozen=True, slots=True)
class CostLine:
    """USD a day over requests a day, corner by corner.

    Where:  asked_usd_per_day and replicas are those of the volume that was asked for, None without one or for a hosted line
    """

    name: str
    is_hosted: bool
    corners: tuple[tuple[float, float], ...]
    asked_usd_per_day: float | None
    asked_replicas: int | None


@dataclass(frozen=True, slots=True)
class CostCurve:
    """A day's cost over its volume, for each machine with a price and for the hosted model.

    Where:  low and high are the ends of every line; replica_requests_per_day is what one replica of each machine carries
    Unit:   requests a day, USD a day
    """

    lines: tuple[CostLine, ...]
    break_evens: tuple[BreakEven, ...]
    replica_requests_per_day: tuple[tuple[str, float], ...]
    asked_requests_per_day: float | None
    low: float
    high: float


def cost_curve(plans: Sequence[Plan]) -> CostCurve | None:
    """Cost a day over volume of one scenario on each machine that has a price; None where no machine has one.

    Unit:  requests a day, USD a day
    """
    machines = [price for plan in plans for price in _replica_prices(plan)]
    if not machines:
        return None
    hosted = next((found for plan in plans if (found := hosted_prices(plan))), ())
    met = tuple(break_even(machine, price) for machine in machines for price in hosted)
    asked = plans[0].scenario.traffic.requests_per_day
    shown = [machine.replica_requests_per_day for machine in machines]
    shown += [found.replica_buys_per_day for found in met if found.replica_buys_per_day is not None]
    shown += [] if asked is None else [asked]
    low, high = min(shown) / _ROOM, max(shown) * _ROOM
    return CostCurve(
        lines=(
            *(_stairs(machine, asked, low, high) for machine in machines),
            *(_straight(price, asked, low, high) for price in hosted),
        ),
        break_evens=met,
        replica_requests_per_day=tuple((machine.name, machine.replica_requests_per_day) for machine in machines),
        asked_requests_per_day=asked,
        low=low,
        high=high,
    )


def break_even(machine: ReplicaPrice, hosted: HostedPrice) -> BreakEven:
    """Where the staircase of replicas meets the line of the hosted model, if it does.

    Unit:     requests a day
    """
    buys = break_even_requests_per_day(
        machine.fixed_usd_per_hour, hosted.usd_per_request - machine.busy_usd_per_request
    )
    return BreakEven(machine, hosted, buys, machine.replica_requests_per_day)


def break_evens(plan: Plan) -> tuple[BreakEven, ...]:
    """Every price of a plan's machine against every price of the hosted model: those that its curve shows."""
    return tuple(break_even(machine, hosted) for machine in _replica_prices(plan) for hosted in hosted_prices(plan))


def chosen_break_even(plan: Plan) -> BreakEven | None:
    """The one that a plan is read by: rented where there is a price for it, with the prefix cached where it is here too."""
    found = break_evens(plan)
    cached = (each for each in found if each.hosted.is_cached and plan.load.prefix_cached)
    return next(cached, found[0] if found else None)


def _replica_prices(plan: Plan) -> Iterator[ReplicaPrice]:
    """The machine of a plan as it is rented and as it is owned, where there are prices for it."""
    cost, full, traffic = plan.cost, plan.load.full, plan.scenario.traffic
    if cost is None or full is None:
        return
    demand = Demand(
        traffic.requests_per_day or 1.0, traffic.peak_factor, traffic.target_utilisation, full.requests_per_s
    )
    devices = plan.scenario.devices
    name = plan.machine.name if devices == 1 else f"{devices} × {plan.machine.name}"
    if cost.rented is not None:
        yield ReplicaPrice(name if cost.owned is None else f"{name}, rented", demand, cost.rented.usd_per_hour)
    if cost.owned is not None:
        owned = cost.owned
        yield ReplicaPrice(f"{name}, owned", demand, owned.depreciation_usd_per_hour, owned.energy_usd_per_hour, True)


def hosted_prices(plan: Plan) -> tuple[HostedPrice, ...]:
    """The hosted model of a plan; once more with the prefix in its cache, where that costs less."""
    found = plan.cost.hosted if plan.cost else None
    if found is None:
        return ()
    plain = HostedPrice("hosted", found.usd_per_request)
    if found.usd_per_request_cached is None or found.usd_per_request_cached == found.usd_per_request:
        return (plain,)
    return plain, HostedPrice("hosted, prefix cached", found.usd_per_request_cached, True)


def _stairs(price: ReplicaPrice, asked: float | None, low: float, high: float) -> CostLine:
    """A step for each replica; far from the first, a line through the ends of some of them."""
    each = price.replica_requests_per_day
    corners = [(low, price.usd_per_day(low))]
    count, last = price.replicas(low), price.replicas(high)
    while count <= last:
        end = min(count * each, high)
        if count <= _EVERY_STEP:
            start = max((count - 1) * each, low)
            corners.append((start, price.usd_per_day(start, count)))
        corners.append((end, price.usd_per_day(end, count)))
        count = count + 1 if count < _EVERY_STEP else max(count + 1, math.floor(count * _STRIDE))
    if corners[-1][0] < high:
        corners.append((high, price.usd_per_day(high)))
    usd, replicas = (None, None) if asked is None else (price.usd_per_day(asked), price.replicas(asked))
    return CostLine(price.name, False, tuple(corners), usd, replicas)


def _straight(price: HostedPrice, asked: float | None, low: float, high: float) -> CostLine:
    corners = ((low, price.usd_per_day(low)), (high, price.usd_per_day(high)))
    return CostLine(price.name, True, corners, None if asked is None else price.usd_per_day(asked), None)
