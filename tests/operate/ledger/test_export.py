"""Other programs read every request back, with types, and nothing that a spreadsheet would compute."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.ledger.export import ATTEMPT_COLUMNS, REQUEST_COLUMNS, LedgerExport
from inference_bench.operate.ledger.flow import keep_ledger
from inference_bench.operate.ledger.money import Prices
from operate.ledger.made import HEAD, RELEASE_A, RELEASE_B, SECOND, attempt, line, record, whole, write_lines

KINDS = ("csv", "parquet", "duckdb")


def exported(source: Path, path: Path) -> Path:
    export = LedgerExport(path)
    keep_ledger([source], Prices(), sinks=(export,))
    export.finish()
    return path


def answers(tmp_path: Path) -> Path:
    broken = attempt(AttemptEnd.SERVER_ERROR, http_status=500)
    good = attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100)
    more = (whole(number) for number in range(2, 9_000)) if tmp_path.name == "many" else ()
    record(tmp_path, whole(1, attempts=(broken, good), answered_by=SECOND, is_fallback=True), *more)
    return tmp_path


EXPECTED: dict[str, Any] = {
    "request_id": "request-1", "application": "chat", "team": "core", "endpoint": "second", "model": "model-b", "status": "completed",
    "finish_reason": "stop", "is_completed": True, "user_success": None, "is_useful": True, "is_fallback": True, "ttft_s": 0.2,
    "e2e_s": 1.0, "input_tokens": 500, "cached_input_tokens": 300, "output_tokens": 100, "reasoning_tokens": 20, "num_attempts": 2,
    "computed_input_tokens": 200, "computed_output_tokens": 100, "wasted_output_tokens": 0, "error": None,
    "manifest_sha256": RELEASE_B,
}  # fmt: skip


def test_csv_comes_back(tmp_path: Path) -> None:
    path = exported(answers(tmp_path / "records"), tmp_path / "out.csv")
    with path.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert tuple(row) == REQUEST_COLUMNS
    for name, value in EXPECTED.items():
        said = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        assert row[name] == said
    assert datetime.fromisoformat(row["at"]).tzinfo is not None


def test_times_are_written_without_the_dust_of_their_sums_and_come_back_as_they_were(tmp_path: Path) -> None:
    sent = [{"endpoint": "first", "end": "refused", "started_s": 0.1, "ended_s": 0.3},
            {"endpoint": "first", "end": "completed", "started_s": 0.3, "ended_s": 0.36201, "output_tokens": 5}]  # fmt: skip
    source = write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(1, attempts=sent, e2e_s=1234.567891))
    with exported(source, tmp_path / "out.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert 0.3 - 0.1 + (0.36201 - 0.3) != 0.26201
    assert (row["in_flight_s"], row["e2e_s"]) == ("0.26201", "1234.567891")
    assert float(row["e2e_s"]) == 1234.567891


def test_parquet_comes_back_with_its_types_and_attempts(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    (row,) = pq.read_table(exported(answers(tmp_path / "records"), tmp_path / "out.parquet")).to_pylist()
    assert tuple(row) == (*REQUEST_COLUMNS, "attempts")
    assert {name: row[name] for name in EXPECTED} == EXPECTED
    assert isinstance(row["at"], datetime)
    assert [
        (each["endpoint"], each["end"], each["is_answer"], each["manifest_sha256"]) for each in row["attempts"]
    ] == [("first", "server_error", False, RELEASE_A), ("second", "completed", True, RELEASE_B)]


def test_duckdb_comes_back_with_its_types_and_attempts_as_a_table(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = exported(answers(tmp_path / "records"), tmp_path / "out.duckdb")
    with duckdb.connect(str(path), read_only=True) as found:
        names = [row[0] for row in found.execute("describe requests").fetchall()]
        types = {row[0]: row[1] for row in found.execute("describe requests").fetchall()}
        (row,) = found.execute("select * from requests").fetchall()
        joined = found.execute(
            'select a.number, a."end", a.http_status, r.application from attempts a join requests r using (source, sequence) '
            "order by a.number"
        ).fetchall()
        attempt_names = [row[0] for row in found.execute("describe attempts").fetchall()]
    assert tuple(names) == REQUEST_COLUMNS
    assert {name: dict(zip(names, row, strict=True))[name] for name in EXPECTED} == EXPECTED
    assert (types["at"], types["output_tokens"], types["e2e_s"], types["is_useful"], types["team"]) == (
        "TIMESTAMP WITH TIME ZONE",
        "BIGINT",
        "DOUBLE",
        "BOOLEAN",
        "VARCHAR",
    )
    assert joined == [(1, "server_error", 500, "chat"), (2, "completed", None, "chat")]
    assert tuple(attempt_names) == ("source", "sequence", "number", *ATTEMPT_COLUMNS)


def test_every_batch_is_in_the_file(tmp_path: Path) -> None:
    path = exported(answers(tmp_path / "many"), tmp_path / "out.csv")
    assert len(path.read_text().splitlines()) == 9_000


@pytest.mark.parametrize("word", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"])
def test_a_word_that_a_spreadsheet_would_compute_stays_a_word(tmp_path: Path, word: str) -> None:
    source = write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(1, application=word, team=word, model=word))
    with exported(source, tmp_path / "out.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert {row[name][:2] for name in ("application", "team", "model")} == {f"'{word[0]}".replace("\r", " ")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_there_is_replaced_whole_and_what_is_abandoned_leaves_it_as_it_was(
    tmp_path: Path, kind: str
) -> None:
    source, path = answers(tmp_path / "records"), tmp_path / f"out.{kind}"
    path.write_text("before")
    export = LedgerExport(path)
    keep_ledger([source], Prices(), sinks=(export,))
    export.abandon()
    assert path.read_text() == "before"
    exported(source, path)
    assert path.read_bytes()[:6] != b"before"
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, "records"]


@pytest.mark.parametrize("name", ["out.xlsx", "out", "folder/out.csv", "taken.csv"])
def test_a_name_that_no_export_can_have_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "taken.csv").mkdir()
    with pytest.raises(RequestError):
        LedgerExport(tmp_path / name)
