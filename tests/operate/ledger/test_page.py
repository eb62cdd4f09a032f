"""The page's chart says what its colours are, its cards are meters of what they name, and its counts are those of the JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from inference_bench.charts.ledger import ledger_chart
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.ledger.flow import Ledger
from inference_bench.operate.ledger.money import Prices
from inference_bench.operate.ledger.totals import REST, By
from inference_bench.report.ledger_report import ledger_html, ledger_json, ledger_text
from inference_bench.report.report_html import Provenance
from operate.ledger.made import FIRST, HEAD, SECOND, attempt, kept, line, record, whole, write_lines

MADE = Provenance("ledger", "inference-bench ledger records", "2026-11-30 00:00:00 UTC", {})
PRICES = Prices(usd_per_hour=1.0, hours=1.0)


def page(ledger: Ledger) -> str:
    return ledger_html(ledger, MADE, json.dumps)


def drawn(ledger: Ledger) -> list[str]:
    """The names that have a part of a bar."""
    spec = ledger_chart(ledger)
    assert spec is not None
    rows = [row for layer in spec["layer"] for row in layer["data"]["values"] if "stage" in row]
    return list(dict.fromkeys(row["name"] for row in rows))


def two_of_each(path: Path) -> Path:
    """Two applications of one team, each with a server and a model of its own."""
    second = (attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100),)
    record(path, whole(1), whole(2, application="search", attempts=second, answered_by=SECOND))
    return path


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (By.APPLICATION, ["chat", "search"]),
        (By.TEAM, ["core"]),
        (By.MODEL, ["model-a", "model-b"]),
        (By.ENDPOINT, ["first", "second"]),
    ],
)
def test_the_caption_names_what_the_legend_shows(tmp_path: Path, by: By, names: list[str]) -> None:
    ledger = kept(two_of_each(tmp_path), by=(by,))
    assert drawn(ledger) == names
    assert re.findall(r"colours are (\w+)", page(ledger)) == [f"{by}s"]


def test_of_several_ways_the_first_that_was_asked_for_has_the_colours(tmp_path: Path) -> None:
    ledger = kept(two_of_each(tmp_path), by=(By.ENDPOINT, By.APPLICATION))
    assert drawn(ledger) == ["first", "second"]
    assert "colours are endpoints" in page(ledger)


def test_of_many_hours_the_largest_have_colours_in_their_order(tmp_path: Path) -> None:
    # tokens of the hours from 13Z to 21Z: 2, 3, 4, 5, 1, 2, 3, 4, 5
    sent = [line(number, began_s=3600.0 * number, output_tokens=number % 5 + 1) for number in range(1, 10)]
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, *sent)
    assert drawn(kept(tmp_path, by=(By.HOUR,))) == ["2026-11-30 15Z", "2026-11-30 16Z", "2026-11-30 21Z", REST]


def filled(html: str) -> dict[str, float]:
    """How far the line above each card is drawn, in percent."""
    found = re.findall(r'<rect class="line" width="([\d.]+)%" height="3" /></svg><dt>([^<]+)</dt>', html)
    return {name: float(percent) for percent, name in found}


def test_each_share_is_a_meter_of_itself(tmp_path: Path) -> None:
    record(tmp_path, *(whole(number) for number in range(10)), whole(10, output_tokens=30, user_success=False))
    ledger = kept(tmp_path, prices=Prices(hours=1.0))
    lines = filled(page(ledger))
    assert set(lines) == {"busy", "of use", "wasted"}
    assert lines["wasted"] == pytest.approx(100 * 30 / 1030, abs=0.01)
    assert lines["of use"] == pytest.approx(100 * 10 / 11, abs=0.01)
    assert lines["busy"] == pytest.approx(100 * (ledger.paid.busy_fraction or 0), abs=0.01)


def test_text_json_and_page_have_the_same_attempts_computed_and_refused(tmp_path: Path) -> None:
    refused = attempt(AttemptEnd.REFUSED, FIRST, http_status=503)
    good = attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100)
    record(tmp_path, *(whole(number, attempts=(refused, good), answered_by=SECOND) for number in range(3)))
    ledger = kept(tmp_path, prices=PRICES)
    attempts = ledger_json(ledger)["attempts"]
    assert (attempts["sent"], attempts["computed"], attempts["refused"]) == (6, 3, 3)
    for said in (" ".join(ledger_text(ledger).split()), page(ledger)):
        assert "3 attempts" in said
        assert "6 attempts sent, 3 were refused or reached no server and computed nothing, and 3 had tokens" in said
    assert re.search(r"computed\s+3 attempts", ledger_text(ledger))
