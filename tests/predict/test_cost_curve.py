"""A day's cost over its volume: held to figures worked out by hand for the reference scenario."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference_bench.predict.capacity import Demand
from inference_bench.predict.cost_curve import (
    BreakEven,
    CostCurve,
    CostLine,
    HostedPrice,
    ReplicaPrice,
    break_even,
    cost_curve,
)
from predict.scenarios import REFERENCE, changed, planned

# the reference replica serves 28,727.5 requests a day at full load (tests/golden/published/capacity.json)
FULL_PER_DAY = 28_727.5


def curve(**sections: object) -> CostCurve:
    found = cost_curve([planned(changed(**sections))])  # type: ignore[arg-type]
    assert found is not None
    return found


def line(found: CostCurve, name: str) -> CostLine:
    return next(each for each in found.lines if each.name == name)


def height(found: CostLine, volume: float) -> float:
    """USD a day at a volume between two corners, as the drawn line has it."""
    for (x, y), (x2, y2) in itertools.pairwise(found.corners):
        if x < volume <= x2:
            return y + (y2 - y) * (volume - x) / (x2 - x)
    raise AssertionError(volume)


def test_a_replica_carries_its_full_load_less_the_peak_and_the_target() -> None:
    # 28,727.5 a day at full load · 0.8 / 4
    carried = dict(curve().replica_requests_per_day)
    assert carried["24 GB card, rented"] == pytest.approx(FULL_PER_DAY * 0.8 / 4, rel=1e-4)


def test_the_rented_staircase_is_24_dollars_a_replica() -> None:
    found = line(curve(traffic={"peak_factor": 1.5}), "24 GB card, rented")
    each = FULL_PER_DAY * 0.8 / 1.5
    for replicas in range(1, 9):
        assert height(found, each * (replicas - 0.5)) == pytest.approx(24 * replicas)
    assert found.asked_usd_per_day == pytest.approx(24)
    assert found.asked_replicas == 1


@settings(max_examples=60, deadline=None)
@given(st.floats(1.0, 23.0), st.floats(1.0, 6.0))
def test_the_line_is_the_price_of_the_replicas_that_a_demand_needs(steps: float, peak_factor: float) -> None:
    found = curve(traffic={"peak_factor": peak_factor}, drop=("owned",))
    each = dict(found.replica_requests_per_day)["24 GB card"]
    volume = steps * each
    assume(found.low < volume < found.high and 1e-3 < steps % 1 < 1 - 1e-3)
    needed = Demand(volume, peak_factor, 0.8, FULL_PER_DAY / 86_400).replicas
    assert height(line(found, "24 GB card"), volume) == pytest.approx(24 * needed)


def test_a_hosted_line_is_tokens_at_their_prices() -> None:
    # 4000 · 0.20 + 2000 · 0.80 = 2400 USD a million requests; with 3000 of the prompt cached at 0.02: 1860
    found = curve()
    for name, usd in (("hosted", 0.0024), ("hosted, prefix cached", 0.00186)):
        assert height(line(found, name), 2000) == pytest.approx(2000 * usd)
        assert line(found, name).asked_usd_per_day == pytest.approx(2000 * usd)
        assert line(found, name).asked_replicas is None


def met(found: CostCurve, machine: str, hosted: str) -> BreakEven:
    return next(each for each in found.break_evens if (each.machine.name, each.hosted.name) == (machine, hosted))


def test_break_evens_are_those_worked_out_by_hand() -> None:
    # 24 USD / 0.0024 = 10,000 and 24 / 0.00186 = 12,903 requests a day
    found = curve(traffic={"peak_factor": 1.5})
    assert met(found, "24 GB card, rented", "hosted").requests_per_day == pytest.approx(10_000)
    assert met(found, "24 GB card, rented", "hosted, prefix cached").requests_per_day == pytest.approx(
        12_903.2, abs=0.1
    )
    # owned: 24 · 2000 / (3 · 8760) USD over 0.0024 less 0.09 USD/h / 1197 requests an hour
    owned = 24 * 2000 / 26_280 / (0.0024 - 0.09 / (FULL_PER_DAY / 24))
    assert met(found, "24 GB card, owned", "hosted").requests_per_day == pytest.approx(owned, rel=1e-4)
    assert all(each.is_reached for each in found.break_evens)


def test_where_they_break_even_the_drawn_lines_cross() -> None:
    found = curve(traffic={"peak_factor": 1.5})
    for each in found.break_evens:
        assert each.requests_per_day is not None
        for name in (each.machine.name, each.hosted.name):
            assert height(line(found, name), each.requests_per_day) == pytest.approx(each.usd_per_day, rel=1e-6)


def test_a_peak_that_a_replica_cannot_carry_leaves_the_hosted_model_cheaper_at_every_volume() -> None:
    # of four times the mean rate and 80 % load a replica carries 5,745 a day, less than the 10,000 that break even
    found = curve(drop=("owned",))
    assert not any(each.is_reached for each in found.break_evens)
    rented, hosted = line(found, "24 GB card"), line(found, "hosted")
    volumes = [found.low * (found.high / found.low) ** (part / 400) for part in range(1, 400)]
    assert all(height(rented, volume) > height(hosted, volume) for volume in volumes)


def test_power_that_costs_more_than_a_request_is_sold_for_never_breaks_even() -> None:
    price = ReplicaPrice("a card", Demand(1.0, 1.0, 1.0, 1 / 3600), 0.1, busy_usd_per_hour=2.0)
    assert price.busy_usd_per_request == pytest.approx(2.0)
    found = break_even(price, HostedPrice("hosted", 1.0))
    assert (found.replica_buys_per_day, found.requests_per_day, found.for_good_requests_per_day) == (None, None, None)
    assert not found.is_reached


@pytest.mark.parametrize(
    ("usd_per_hour", "first", "for_good"),
    [
        # a replica carries 100 requests a day at 1 USD each: its day of 24 USD/h · 24 buys as many as it costs
        (40 / 24, 40.0, 40.0),  # 100 >= 2 · 40: the second step lies below the line from its start
        (60 / 24, 60.0, 120.0),  # 100 < 120, but 200 >= 180: two replicas' steps meet the third's line
        (90 / 24, 90.0, 810.0),  # m · 100 >= (m + 1) · 90 from m = 9 on
        (100 / 24, 100.0, None),  # each step only touches the line
        (101 / 24, None, None),
        (0.0, 0.0, 0.0),
    ],
)
def test_after_the_first_break_even_further_replicas_may_cost_more_for_a_while(
    usd_per_hour: float, first: float | None, for_good: float | None
) -> None:
    card = ReplicaPrice("a card", Demand(1.0, 2.0, 0.5, 400 / 86_400), usd_per_hour)
    assert card.replica_requests_per_day == pytest.approx(100)
    found = break_even(card, HostedPrice("hosted", 1.0))
    exact = replace(found, replica_carries_per_day=100.0)
    assert exact.requests_per_day == (None if first is None else pytest.approx(first))
    assert exact.for_good_requests_per_day == (None if for_good is None else pytest.approx(for_good))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 0.97), st.floats(0.02, 0.98))
def test_beyond_the_last_break_even_no_volume_is_cheaper_hosted_and_just_before_it_one_is(
    share: float, part: float
) -> None:
    card = ReplicaPrice("a card", Demand(1.0, 1.0, 1.0, 1.0), share * 3600)  # hosted at 1 USD, it breaks even at share
    hosted = HostedPrice("hosted", 1.0)
    found = break_even(card, hosted)
    last, carries = found.for_good_requests_per_day, card.replica_requests_per_day
    assert last is not None
    volumes = [last * (1 + (part + count) / 8) for count in range(40)]
    assert all(card.usd_per_day(volume) <= hosted.usd_per_day(volume) * (1 + 1e-9) for volume in volumes)
    replicas = round(last / (share * carries))
    before = (replicas - 1) * carries + part * (replicas * share - replicas + 1) * carries
    assert card.usd_per_day(before) > hosted.usd_per_day(before)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 100), st.floats(1e-6, 1), st.floats(1e-4, 10))
def test_a_break_even_is_reached_exactly_where_some_volume_is_cheaper_on_replicas(
    usd_per_hour: float, hosted_usd: float, rate: float
) -> None:
    price = ReplicaPrice("a card", Demand(1.0, 2.0, 0.5, rate), usd_per_hour)
    each = price.replica_requests_per_day
    found = break_even(price, HostedPrice("hosted", hosted_usd))
    best = min(24 * usd_per_hour * count / (count * each) for count in (1, 2, 7))
    assert math.isclose(best, hosted_usd) or found.is_reached is (best < hosted_usd)


def test_far_from_the_first_replicas_the_line_stays_short_and_true() -> None:
    found = curve(traffic={"requests_per_day": 5_000_000}, drop=("owned",))
    rented = line(found, "24 GB card")
    assert len(rented.corners) < 250
    assert rented.corners[0][0] == found.low
    assert rented.corners[-1][0] == pytest.approx(found.high)
    each = FULL_PER_DAY * 0.8 / 4
    assert height(rented, 20_000_000) == pytest.approx(24 * 20_000_000 / each, rel=0.01)
    assert [x for x, _ in rented.corners] == sorted(x for x, _ in rented.corners)


def test_several_machines_share_the_hosted_lines() -> None:
    faster = changed(drop=("owned",), machine={**REFERENCE["machine"], "name": "another", "bandwidth": "3 TB/s"})
    found = cost_curve([planned(changed(drop=("owned",))), planned(faster)])
    assert found is not None
    assert [each.name for each in found.lines] == ["24 GB card", "another", "hosted", "hosted, prefix cached"]
    assert len(found.break_evens) == 4


def test_without_the_price_of_a_machine_there_is_no_curve() -> None:
    assert cost_curve([planned(changed(drop=("prices", "owned")))]) is None
    assert cost_curve([planned(changed(drop=("prices.usd_per_hour", "prices.utilisation", "owned")))]) is None
    assert cost_curve([]) is None
