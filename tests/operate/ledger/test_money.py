"""A million tokens cost what was paid over what was made, at the utilisation that was bought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inference_bench.charts.ledger import ledger_chart
from inference_bench.errors import RequestError
from inference_bench.operate.ledger.flow import Ledger
from inference_bench.operate.ledger.money import Money, Prices
from inference_bench.operate.ledger.totals import By
from inference_bench.predict.cost import HostedPrices
from inference_bench.report.ledger_report import ledger_json, ledger_text
from operate.ledger.made import HEAD, kept, line, write_lines


def hour(path: Path, *, tokens: int = 718_200, **more: object) -> Path:
    """Two requests, at the begin and at the end of an hour, in flight for 3 minutes each."""
    each = {"e2e_s": 180.0, "prompt_tokens": 1000, "cached_prompt_tokens": 400, "output_tokens": tokens // 2, **more}
    sent = [{"endpoint": "first", "end": "completed", "started_s": 0.0, "ended_s": 180.0}]
    first, last = (line(number, began_s=at_s, attempts=sent, **each) for number, at_s in ((1, 0.0), (2, 3420.0)))
    return write_lines(
        path / "ledger-a.jsonl", HEAD, {**first, "application": "chat"}, {**last, "application": "search"}
    )


def money(ledger: Ledger) -> Money:
    assert ledger.money is not None
    return ledger.money


def test_the_price_is_that_of_the_plan_at_the_same_utilisation(tmp_path: Path) -> None:
    # a plan's 2,394,000 tokens an hour at 1 USD/h cost 0.42 USD a million busy and 1.39 at 30 % utilisation
    found = kept(hour(tmp_path), prices=Prices(usd_per_hour=1.0, capacity_tokens_per_s=2_394_000 / 3600))
    assert found.paid.capacity_fraction == pytest.approx(0.3)
    assert round(money(found).usd_per_million_computed or 0, 2) == 1.39
    assert round(money(found).usd_per_million_at_capacity or 0, 2) == 0.42


def test_hours_are_the_span_of_the_records_unless_they_are_given(tmp_path: Path) -> None:
    span = kept(hour(tmp_path), prices=Prices(usd_per_hour=2.0, devices=4))
    assert (span.paid.hours, span.paid.device_hours, money(span).usd) == (1.0, 4.0, 8.0)
    assert span.paid.busy_fraction == pytest.approx(0.1)
    day = kept(hour(tmp_path), prices=Prices(usd_per_hour=2.0, devices=4, hours=24.0))
    assert (day.paid.device_hours, money(day).usd, money(day).usd_per_successful_request) == (96.0, 192.0, 96.0)
    assert day.paid.busy_fraction == pytest.approx(0.1 / 24)


def test_a_tokens_price_of_the_busy_time_times_its_share_is_that_of_the_hours_bought(tmp_path: Path) -> None:
    found = kept(hour(tmp_path), prices=Prices(usd_per_hour=2.0))
    busy = money(found).usd_per_million_if_always_busy
    assert busy is not None
    assert busy / (found.paid.busy_fraction or 0) == pytest.approx(money(found).usd_per_million_computed)


def test_two_processes_at_the_same_time_are_one_span_and_two_runs_apart_are_two(tmp_path: Path) -> None:
    hour(tmp_path / "a")
    at_once = write_lines(
        tmp_path / "b" / "ledger-b.jsonl", {**HEAD, "process": "p2"}, line(1, process="p2", began_s=1800.0)
    )
    later = write_lines(
        tmp_path / "c" / "ledger-c.jsonl", {**HEAD, "process": "p3"}, line(1, process="p3", began_s=72_000.0)
    )
    assert kept(tmp_path / "a", at_once).paid.hours == 1.0
    assert kept(tmp_path / "a", later).paid.hours == pytest.approx(1.0 + 0.5 / 3600)


def test_the_hosted_price_takes_cached_input_apart_and_no_failures(tmp_path: Path) -> None:
    path = hour(tmp_path, tokens=1000)
    write_lines(path, *path.read_text().splitlines(), line(3, began_s=1000.0, status="failed"))
    prices = Prices(usd_per_hour=1.0, hosted=HostedPrices(2.0, 10.0, 0.5))
    hosted = money(kept(path, prices=prices)).hosted
    assert hosted is not None
    # a request: 600 · 2 + 400 · 0.5 + 500 · 10 = 6,400 millionths of a dollar; 24 USD a day over that break even
    assert hosted.usd_per_request == pytest.approx(0.0064)
    assert hosted.usd == pytest.approx(0.0128)
    assert hosted.break_even_requests_per_day == pytest.approx(3750)
    assert hosted.completed_requests_per_day == pytest.approx(48)


def test_the_bill_is_shared_by_time_in_flight_and_adds_up(tmp_path: Path) -> None:
    path = hour(tmp_path)
    lines = path.read_text().splitlines()
    last = json.loads(lines[2])
    last["attempts"][0]["ended_s"] = 540.0
    write_lines(path, *lines[:2], last)
    groups = kept(tmp_path, prices=Prices(usd_per_hour=4.0, hours=1.0)).groups[By.APPLICATION]
    assert {group.name: group.usd for group in groups} == {"chat": pytest.approx(1.0), "search": pytest.approx(3.0)}


def test_more_use_than_hours_is_a_finding_and_not_cut_off(tmp_path: Path) -> None:
    found = kept(hour(tmp_path), prices=Prices(usd_per_hour=1.0, hours=0.05, capacity_tokens_per_s=1.0))
    assert (found.paid.busy_fraction or 0) > 1
    assert "longer than the hours given" in ledger_text(found)
    assert "it is too low" in ledger_text(found)


def test_without_a_price_there_is_no_money(tmp_path: Path) -> None:
    found = kept(hour(tmp_path))
    assert (found.money, found.groups[By.APPLICATION][0].usd, ledger_json(found)["cost"]) == (None, None, None)
    assert "USD" not in ledger_text(found)


@pytest.mark.parametrize(
    "bought",
    [
        {"devices": 0},
        {"usd_per_hour": -1.0},
        {"usd_per_hour": float("nan")},
        {"hours": 0.0},
        {"hours": float("inf")},
        {"capacity_tokens_per_s": 0.0},
        {"hosted": HostedPrices(-1.0, 1.0)},
        {"hosted": HostedPrices(1.0, 1.0, float("nan"))},
    ],
)
def test_what_cannot_have_been_bought_is_refused(bought: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        Prices(**bought)


# ── said and drawn ─────────────────────────────────────────────────────────────────────────────────


def test_no_line_is_wider_than_a_terminal_whatever_the_numbers(tmp_path: Path) -> None:
    prices = Prices(
        usd_per_hour=98.32, devices=64, hours=720.0, capacity_tokens_per_s=1e6, hosted=HostedPrices(2.0, 10.0)
    )
    found = kept(
        hour(tmp_path, tokens=10**14, prompt_tokens=10**14), prices=prices, by=(By.APPLICATION, By.HOUR, By.MODEL)
    )
    assert max(map(len, ledger_text(found).splitlines())) <= 100


@pytest.mark.parametrize("width_px", [720, 340])
def test_the_bars_go_from_what_was_paid_for_to_what_was_of_use(tmp_path: Path, width_px: int) -> None:
    found = kept(hour(tmp_path, user_success=False), prices=Prices(capacity_tokens_per_s=665.0))
    spec = ledger_chart(found, width_px)
    assert spec is not None
    rows = [row for layer in spec["layer"] for row in layer["data"]["values"] if "stage" in row]
    total = {
        stage: sum(row["tokens"] for row in rows if row["stage"] == stage)
        for stage in dict.fromkeys(r["stage"] for r in rows)
    }
    assert total == {"paid for": 2_394_000, "computed": 718_200, "completed": 718_200, "of use": 0}
    assert list(total) == ["paid for", "computed", "completed", "of use"]


def test_without_output_tokens_nothing_is_drawn(tmp_path: Path) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD)
    assert ledger_chart(kept(tmp_path)) is None


NEXT_TO_NOTHING = [
    Prices(usd_per_hour=2.0, hours=1e-320),
    Prices(usd_per_hour=1e308, devices=1_000, hours=1e308, capacity_tokens_per_s=1e308),
    Prices(usd_per_hour=1e308, hours=1.0, hosted=HostedPrices(1e308, 1e308)),
    Prices(usd_per_hour=1e308, hours=1.0, hosted=HostedPrices(1e-320, 1e-320)),
    Prices(usd_per_hour=1e-320, hours=1e300, capacity_tokens_per_s=1e-320, hosted=HostedPrices(1.0, 1e300)),
    Prices(usd_per_hour=1.7e308, hours=1.0),
]


@pytest.mark.parametrize("prices", NEXT_TO_NOTHING)
def test_a_figure_that_is_more_than_a_number_can_be_is_not_available(tmp_path: Path, prices: Prices) -> None:
    found = kept(hour(tmp_path), prices=prices)
    assert json.loads(json.dumps(ledger_json(found), allow_nan=False))["requests"]["sent"] == 2
    words = ledger_text(found).replace(",", " ").split()
    assert not {"inf", "-inf", "nan"} & set(words)
    assert "n/a" in words
