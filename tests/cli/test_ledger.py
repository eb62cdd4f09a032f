"""`ledger` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.ledger_options import BY
from inference_bench.cli.main import main
from inference_bench.operate.ledger import Content, ContentLog
from inference_bench.operate.ledger.totals import By
from operate.ledger.made import record, whole

KEYS = {
    "schema", "paid", "requests", "attempts", "answers", "computed", "completed", "success", "waste", "cost", "by", "sources",
    "repeated_request_ids", "repeated_request_ids_is_estimate", "same_places", "export", "rules", "reading", "notes",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record(tmp_path / "records", whole(1), whole(2, application="search", user_success=False))
    return tmp_path / "records"


def test_json_keeps_paid_work_and_success_apart_under_stable_keys(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    options = ("--usd-per-hour", "2", "--devices", "4", "--hours", "3", "--capacity", "100", "--by", "team")
    hosted = ("--hosted-input", "1", "--hosted-output", "2", "--hosted-cached", "0.5")
    found = run_json(capsys, "ledger", str(folder), *options, *hosted)
    assert set(found) == KEYS
    assert found["schema"] == "inference-bench/ledger/1"
    assert (found["paid"]["device_hours"], found["paid"]["usd"], found["paid"]["capacity_output_tokens"]) == (
        12,
        24,
        1_080_000,
    )
    assert (found["computed"]["output_tokens"], found["completed"]["requests"], found["success"]["requests"]) == (
        200,
        2,
        1,
    )
    assert found["answers"] | {"lower_bounds": 0} == {
        "input_tokens": 1000,
        "cached_input_tokens": 600,
        "output_tokens": 200,
        "reasoning_tokens": 40,
        "lower_bounds": 0,
        "num_answers": 2,
        "num_without_cached": 0,
        "num_without_reasoning": 0,
    }
    assert found["cost"]["usd_per_successful_request"] == 24
    assert found["cost"]["hosted"]["usd_per_request"] == pytest.approx(0.00055)
    assert [group["name"] for group in found["by"]["team"]] == ["core"]


def test_text_begins_with_the_four_stages(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["ledger", str(folder)]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{stage}") for stage in ("paid for", "computed", "completed", "of use")]
    assert places == sorted(places)
    assert places[-1] < text.index("Tokens of the answers")


def test_a_page_and_an_export_are_written_and_named(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    page, rows = tmp_path / "page.html", tmp_path / "rows.csv"
    assert main(["ledger", str(folder), "--report", str(page), "--export", str(rows), "--usd-per-hour", "1"]) == 0
    text = capsys.readouterr().out
    assert f"export: {rows}, 2 rows" in text
    assert f"report: {page}" in text
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert "Paid for, computed, completed, of use" in html
    assert len(rows.read_text().splitlines()) == 3


def test_a_name_in_a_record_cannot_write_into_the_page(folder: Path, tmp_path: Path) -> None:
    (file,) = folder.glob("*.jsonl")
    file.write_text(file.read_text().replace('"chat"', '"<script>alert(1)</script>"'))
    page = tmp_path / "page.html"
    assert main(["ledger", str(folder), "--report", str(page)]) == 0
    assert "<script" not in page.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--usd-per-hour", "nan"), "price an hour"),
        (("--usd-per-hour", "-1"), "price an hour"),
        (("--devices", "0"), "0 devices"),
        (("--hours", "0"), "hours"),
        (("--capacity", "fast"), "capacity"),
        (("--hosted-input", "1"), "hosted price"),
        (("--hosted-cached", "1"), "hosted price"),
        (("--export", "rows.xlsx"), "known kind"),
        (("--report", "page.txt"), "known kind"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, options: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, "ledger", str(folder), *options)


def test_every_way_to_tell_sums_apart_can_be_asked_for() -> None:
    assert tuple(By) == BY


def test_an_address_is_no_place_of_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not there" in refused(capsys, "ledger", "http://127.0.0.1:1")


def test_a_file_without_one_line_is_no_place_of_records(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    assert "neither a run folder nor a recorder's file" in refused(capsys, "ledger", str(tmp_path / "junk"))


def test_a_figure_over_next_to_no_hours_is_null_and_not_available(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    options = ("--usd-per-hour", "2", "--hours", "1e-320")
    assert run_json(capsys, "ledger", str(folder), *options)["paid"]["mean_in_flight"] is None
    assert main(["ledger", str(folder), *options]) == 0
    assert "inf" not in capsys.readouterr().out.split()


def test_a_name_that_is_no_text_costs_its_line_and_not_the_export(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("duckdb")
    (file,) = folder.glob("*.jsonl")
    file.write_text(file.read_text().replace('"chat"', '"\\ud800"'))
    rows = tmp_path / "rows.duckdb"
    assert main(["ledger", str(folder), "--export", str(rows)]) == 0
    assert "1 line is no record and left out" in capsys.readouterr().out


def test_an_interrupted_export_leaves_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inference_bench.cli.ledger.keep_ledger", interrupted)
    assert main(["ledger", str(folder), "--export", str(tmp_path / "rows.duckdb")]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


def test_purge_deletes_what_has_ended_and_says_what_it_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = ContentLog(tmp_path, 100, clock=lambda: 1_000_000.0)
    old.write("id-1", Content("a", "b"))
    old.close()
    new = ContentLog(tmp_path / "new", 3600)
    new.write("id-2", Content("a", "b"))
    new.close()
    found = run_json(capsys, "ledger", "purge", str(tmp_path), str(tmp_path / "new"))
    assert found["schema"] == "inference-bench/ledger-purge/1"
    assert [(each["deleted"], each["kept"]) for each in found["folders"]] == [(1, 0), (0, 1)]
    assert "price" not in json.dumps(found)


@pytest.mark.parametrize("options", [("purge",), ("purge", "/nowhere"), ("purge", ".", "--usd-per-hour", "1")])
def test_a_purge_of_nothing_or_with_prices_is_refused(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert refused(capsys, "ledger", *options)
