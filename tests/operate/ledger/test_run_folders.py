"""A run folder is accounted as a recorder's is: its warm-up, its failures and what was cut short too."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inference_bench.measure.store import RunFolder
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.ledger.export import LedgerExport
from inference_bench.operate.ledger.flow import keep_ledger
from inference_bench.operate.ledger.money import Prices
from inference_bench.operate.ledger.totals import UNKNOWN, By
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from operate.ledger.made import RELEASE_A, entries, kept, record, whole


def request(number: int, **more: Any) -> RequestRecord:
    values: dict[str, Any] = {
        "request_id": f"r{number}",
        "origin": Origin.MEASURED,
        "stage": Stage.MEASURE,
        "status": RequestStatus.COMPLETED,
        "planned_s": float(number),
        "sent_s": float(number),
        "end_s": number + 0.5,
        "chunk_times_s": (number + 0.1, number + 0.2, number + 0.3),
        "prompt_tokens": 10,
        "cached_prompt_tokens": 4,
        "output_tokens": 3,
        "token_count_source": TokenCountSource.SERVER_USAGE,
        "http_status": 200,
        **more,
    }
    return RequestRecord(**values)


def run_of(parent: Path, *records: RequestRecord) -> Path:
    folder = RunFolder.create(parent, "load", datetime(2026, 11, 30, 12, tzinfo=UTC))
    folder.update_meta({"target": "http://someone:word@host:8000/v1", "served_model": "model-a"})
    with folder.open_writer() as writer:
        for each in records:
            writer.append(each)
    return folder.path


def test_each_ending_of_a_request_is_counted_as_what_it_is(tmp_path: Path) -> None:
    nothing: dict[str, Any] = {
        "chunk_times_s": (),
        "output_tokens": None,
        "prompt_tokens": None,
        "cached_prompt_tokens": None,
    }
    path = run_of(
        tmp_path,
        request(0, stage=Stage.WARMUP),
        request(1),
        request(2, document_valid=False),
        request(3, status=RequestStatus.TRUNCATED, output_tokens=None),
        request(4, status=RequestStatus.REJECTED, http_status=429, **nothing),
        request(5, status=RequestStatus.FAILED, http_status=500, **nothing),
        request(6, status=RequestStatus.FAILED, http_status=None, **nothing),
        request(7, status=RequestStatus.TIMED_OUT, **nothing),
        request(8, status=RequestStatus.CANCELLED),
    )
    ends = [entry.attempts[0].end for entry in entries(path)]
    assert ends == [
        AttemptEnd.COMPLETED,
        AttemptEnd.COMPLETED,
        AttemptEnd.COMPLETED,
        AttemptEnd.INTERRUPTED,
        AttemptEnd.REFUSED,
        AttemptEnd.SERVER_ERROR,
        AttemptEnd.NOT_REACHED,
        AttemptEnd.TIMED_OUT,
        AttemptEnd.CANCELLED,
    ]
    sums = kept(path).sums
    assert (sums.num_requests, sums.num_warm_up, sums.num_completed, sums.num_useful) == (9, 1, 3, 1)
    assert (sums.computed_output_tokens, sums.completed_output_tokens, sums.useful_output_tokens) == (15, 9, 3)
    assert {each.waste.name: each.output_tokens for each in sums.wastes()} == {
        "WARM_UP": 3,
        "NOT_USEFUL": 3,
        "INTERRUPTED": 3,
        "CANCELLED": 3,
    }
    assert sums.num_lower_bounds == 1  # of the one that broke off, chunks were counted


def test_a_run_stands_with_its_server_without_who_asked_it(tmp_path: Path) -> None:
    ledger = kept(run_of(tmp_path, request(1)), by=(By.ENDPOINT, By.MODEL, By.HOUR))
    names = {by: [group.name for group in groups] for by, groups in ledger.groups.items()}
    assert names == {By.ENDPOINT: ["host:8000"], By.MODEL: ["model-a"], By.HOUR: ["2026-11-30 12Z"]}


def test_a_run_stands_with_the_manifest_of_what_it_measured_and_one_of_an_earlier_version_with_none(
    tmp_path: Path,
) -> None:
    path = run_of(tmp_path, request(1))
    RunFolder.open(path).update_meta({"manifest_sha256": RELEASE_A})
    (found,) = entries(path)
    assert (found.manifest_sha256, found.attempts[0].manifest_sha256) == (RELEASE_A, RELEASE_A)
    ledger = kept(path, run_of(tmp_path, request(2)), by=(By.MANIFEST,))
    assert {group.name for group in ledger.groups[By.MANIFEST]} == {RELEASE_A, UNKNOWN}


def test_reasoning_is_counted_where_each_chunk_has_a_count(tmp_path: Path) -> None:
    path = run_of(
        tmp_path,
        request(1, channels="rrc", chunk_tokens=(2, 2, 1), output_tokens=5),
        request(2, channels="rrc"),
    )
    assert [entry.reasoning_tokens for entry in entries(path)] == [4, None]


def test_no_reasoning_is_none_at_all_only_where_the_server_keeps_it_apart(tmp_path: Path) -> None:
    apart = run_of(tmp_path, request(1, channels="rrc", chunk_tokens=(2, 2, 1), output_tokens=5), request(2))
    assert [entry.reasoning_tokens for entry in entries(apart)] == [4, 0]
    never = run_of(tmp_path, request(3), request(4))
    assert [entry.reasoning_tokens for entry in entries(never)] == [None, None]
    assert kept(never).sums.reasoning_tokens is None


def test_a_copy_of_a_run_is_counted_once_and_the_same_ids_in_another_run_are_not_a_copy(tmp_path: Path) -> None:
    first = run_of(tmp_path, request(1), request(2))
    second = run_of(tmp_path, request(1), request(3))
    shutil.copytree(first, tmp_path / "copy")
    ledger = kept(first, tmp_path / "copy", second)
    assert (ledger.sums.num_requests, ledger.num_same_places, ledger.num_repeated_ids) == (4, 1, 1)


def test_runs_and_recorders_are_one_account(tmp_path: Path) -> None:
    record(tmp_path / "records", whole(1))
    assert kept(tmp_path / "records", run_of(tmp_path, request(1))).sums.output_tokens == 103


def test_half_a_letter_in_a_run_is_exported_as_a_mark(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    run = run_of(tmp_path, request(1, request_id="id-\ud800"))
    export = LedgerExport(tmp_path / "out.duckdb")
    keep_ledger([run], Prices(), sinks=(export,))
    export.finish()
    with duckdb.connect(str(tmp_path / "out.duckdb"), read_only=True) as found:
        assert found.execute("select request_id from requests").fetchall() == [("id-?",)]
