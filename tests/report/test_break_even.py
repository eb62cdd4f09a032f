"""The break-even of a plan's figure, tables, text, JSON and chart is one: where the staircase of replicas meets the hosted line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inference_bench.charts.break_even import break_even_chart
from inference_bench.charts.grammar import Spec
from inference_bench.predict.plan import Plan
from inference_bench.report.plan_cost_report import cost_table
from inference_bench.report.plan_figures import plan_figures
from inference_bench.report.plan_json import plan_json
from inference_bench.report.plan_report import plan_text
from inference_bench.report.plan_tables import compared_table
from inference_bench.units import format_count, format_number
from predict.scenarios import changed, planned
from test_charts import labels, layers, rows

NEVER = "hosted costs less at every volume"


def priced(*, owned: bool = False, traffic: dict[str, Any] | None = None, **prices: float) -> Plan:
    drop = ("prices.hosted_cached", "prices.utilisation", *(() if owned else ("owned",)))
    return planned(changed(drop=drop, traffic=traffic or {}, prices=prices))


def figure(answer: Plan) -> tuple[str, str, str]:
    (found,) = [each for each in plan_figures(answer) if each.name == "break-even"]
    return f"{found.value} {found.unit}".strip(), found.beside, found.detail


def table(answer: Plan) -> dict[str, list[str]]:
    found = cost_table(answer)
    assert found is not None
    return {row[0]: [row[1], row[3]] for row in found.rows}


def chart(answer: Plan) -> Spec:
    found = break_even_chart(answer)
    assert found is not None
    return found


def rings(spec: Spec) -> list[float]:
    return [
        row["requests_per_day"] for layer in layers(spec, "point") if layer["mark"]["size"] > 100 for row in rows(layer)
    ]


# ── worked by hand: the reference replica serves 28,727.5 requests a day at full load ──────────────


def test_a_replica_that_its_peak_leaves_too_little_never_breaks_even_anywhere_it_is_said() -> None:
    # at four times the mean and 80 % it carries 28,727.5 · 0.8 / 4 = 5,745; its 24 USD buy 24 / 0.0024 = 10,000 requests
    answer = priced(traffic={"requests_per_day": 12_000})
    assert figure(answer) == (
        "never", NEVER, "one replica's day buys 10,000 hosted requests; it carries 5,745 at the peak"
    )  # fmt: skip
    shown = table(answer)
    assert shown["break-even"] == ["never: hosted costs less", "at every volume"]
    assert shown["a replica's day buys"] == ["10,000 requests/day", "at the peak it carries 5,745"]
    assert dict(row[:2] for row in compared_table([answer]).rows)["break-even/day"] == "never"
    assert "never: hosted costs less  predicted  at every volume" in plan_text(answer)
    assert NEVER in labels(chart(answer))
    # three replicas, 72 USD a day, for what is 28.80 USD hosted
    assert shown["always on"][1] == "the same over its output tokens"
    assert "3 replica(s), 72.0 USD a day" in plan_text(answer)
    assert shown["hosted"] == ["28.8 USD/day", "the daily volume at that"]
    hosted = plan_json(answer)["cost"]["hosted"]
    assert hosted["break_even_requests_per_day"] == pytest.approx(10_000), "the figure of one replica stays"
    (found,) = hosted["break_evens"]
    assert (found["requests_per_day"], found["for_good_requests_per_day"]) == (None, None)
    assert found["replica_buys_requests_per_day"] == pytest.approx(10_000)
    assert found["replica_carries_requests_per_day"] == pytest.approx(5_745.5, rel=1e-4)


def test_where_a_second_replica_costs_more_again_the_volume_from_which_it_does_not_is_said_too() -> None:
    # at 1.5 times the mean a replica carries 15,321.3 and buys 10,000; two carry 30,642.7, which is beyond the third's 30,000
    answer = priced(traffic={"requests_per_day": 16_000, "peak_factor": 1.5})
    assert figure(answer)[:2] == ("10,000 requests a day", "first; for good from 20,000")
    assert table(answer)["break-even"] == ["10,000 requests/day", "first; for good from 20,000"]
    assert "break-even 10,000" in labels(chart(answer))
    assert "from 20,000 requests a day on the machines always cost less" in chart(answer)["description"]
    # 16,000 lie between: two replicas cost 48 USD, the hosted model 38.40
    assert "2 replica(s), 48.0 USD a day" in plan_text(answer)
    assert table(answer)["hosted"][0] == "38.4 USD/day"


def test_prices_of_nothing_are_said_as_such() -> None:
    assert figure(priced(usd_per_hour=0))[:2] == ("always", "replicas cost less at every volume")
    free = priced(hosted_input=0, hosted_output=0)
    assert figure(free)[:2] == ("never", NEVER)
    assert "a replica's day buys" not in table(free)
    assert break_even_chart(free) is None


# ── any scenario ───────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=80, deadline=None)
@given(
    usd_per_hour=st.floats(0.05, 20),
    hosted_output=st.floats(0.05, 20),
    peak_factor=st.floats(1, 8),
    target=st.floats(0.2, 1),
    volume=st.floats(10, 1e6),
    cached=st.booleans(),
    owned=st.booleans(),
)
def test_figure_tables_text_json_and_chart_agree_with_the_costs_themselves(
    usd_per_hour: float,
    hosted_output: float,
    peak_factor: float,
    target: float,
    volume: float,
    cached: bool,
    owned: bool,
) -> None:
    traffic = {
        "peak_factor": peak_factor, "target_utilisation": target, "requests_per_day": volume, "prefix_cache": cached
    }  # fmt: skip
    answer = priced(owned=owned, traffic=traffic, usd_per_hour=usd_per_hour, hosted_output=hosted_output)
    full, spec, shown = answer.load.full, chart(answer), table(answer)
    assert full is not None
    carries, price = (
        86_400 / full.machine_seconds_per_request * target / peak_factor,
        4000 * 0.2e-6 + 2000e-6 * hosted_output,
    )
    buys = 24 * usd_per_hour / price
    assume(abs(buys / carries - 1) > 1e-6)
    met = buys < carries
    # the rented machine: everywhere it is said, by what a full replica costs against its requests
    assert (figure(answer)[0] != "never") is met
    assert figure(answer)[0] == (f"{format_number(buys)} requests a day" if met else "never")
    assert shown["break-even"][0] == (
        f"{format_count(round(buys))} requests/day" if met else "never: hosted costs less"
    )
    assert dict(row[:2] for row in compared_table([answer]).rows)["break-even/day"] == figure(answer)[0].split()[0]
    assert f"{shown['break-even'][0]}  " in plan_text(answer)
    found = plan_json(answer)["cost"]["hosted"]["break_evens"]
    assert found[0]["requests_per_day"] == (pytest.approx(buys) if met else None)
    # owned too: as many rings as break-evens, at the volumes of the table
    assert rings(spec) == [each["requests_per_day"] for each in found if each["requests_per_day"] is not None]
    names = ["break-even", *(["break-even, owned"] if owned else [])]
    rows_met = [shown[name][0] for name in names if not shown[name][0].startswith("never")]
    assert rows_met == [f"{format_count(round(each))} requests/day" for each in rings(spec)]
    assert (NEVER in labels(spec)) is (not rows_met)
    # and the costs at the volume that was asked for do not contradict it
    cost, for_good = answer.cost, found[0]["for_good_requests_per_day"]
    assert cost is not None
    assert cost.always_on is not None
    own, hosted = cost.always_on.usd_per_day, price * volume
    assert shown["hosted"][0] == f"{format_number(hosted)} USD/day"
    if not met or volume < buys:
        assert own > hosted * (1 - 1e-9)
    elif for_good is not None and volume > for_good:
        assert own < hosted * (1 + 1e-9)
