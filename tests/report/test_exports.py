"""A run in the layouts of other programs: their names, their units, their definitions, by hand."""

from __future__ import annotations

import builtins
import csv
import io
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import MissingExtraError, RequestError, StorageError, TooFewSamplesError
from inference_bench.loadtest.workload_memory import asked_of
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.report.exports import EXPORT_FORMS, write_export
from inference_bench.report.exports_guidellm import guidellm_json
from inference_bench.report.exports_run import ExportedRun
from inference_bench.report.exports_summary import concurrency_of, rate_of, summary_of
from inference_bench.report.exports_vllm import vllm_json
from inference_bench.workload import Fixed, GammaArrivals, Poisson, RequestShape, closed_loop, generate

CREATED = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)

# sent a quarter of a second late; first token half a second later; then gaps of 1 s and 2 s; 1 s of tail
GOOD = RequestRecord(
    request_id="a",
    origin=Origin.MEASURED,
    stage=Stage.MEASURE,
    status=RequestStatus.COMPLETED,
    planned_s=1.0,
    sent_s=1.25,
    end_s=5.75,
    chunk_times_s=(1.75, 2.75, 4.75),
    prompt_tokens=10,
    cached_prompt_tokens=4,
    output_tokens=4,
    requested_output_tokens=8,
    token_count_source=TokenCountSource.SERVER_USAGE,
    finish_reason="stop",
    http_status=200,
    group="g",
    index=0,
)
BAD = replace(
    GOOD,
    request_id="=b",
    status=RequestStatus.FAILED,
    planned_s=2.0,
    sent_s=2.0,
    end_s=3.25,
    chunk_times_s=(2.5,),
    output_tokens=None,
    prompt_tokens=None,
    cached_prompt_tokens=None,
    finish_reason=None,
    error='@SUM(A1) said "no",\nthen went',
    index=1,
)
WARM = replace(GOOD, request_id="w", stage=Stage.WARMUP, planned_s=0.0, sent_s=0.0)


def a_run(*records: RequestRecord, **changes: Any) -> ExportedRun:
    run = ExportedRun(Path("runs/20260301T120005Z-load"), records, "m", "http://127.0.0.1:8000", CREATED)
    return replace(run, **changes)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def exported(tmp_path: Path, form: str, *records: RequestRecord) -> Path:
    return write_export(a_run(*records), form, tmp_path / "out")


def test_a_row_a_request_in_csv_with_empty_cells_for_what_is_not_known(tmp_path: Path) -> None:
    good, bad, warm = rows_of(exported(tmp_path, "csv", GOOD, BAD, WARM).read_text(encoding="utf-8"))
    assert {name: good[name] for name in ("request_id", "group", "stage", "status", "index", "session")} == {
        "request_id": "a",
        "group": "g",
        "stage": "measure",
        "status": "completed",
        "index": "0",
        "session": "",
    }
    times = ("planned_s", "sent_s", "first_chunk_s", "last_chunk_s", "end_s", "ttft_s", "e2e_s", "longest_gap_s")
    assert [float(good[name]) for name in times] == [1.0, 1.25, 1.75, 4.75, 5.75, 0.75, 3.75, 2.0]
    assert (good["tpot_s"], good["num_chunks"], good["send_delay_s"], good["error"]) == ("1.0", "3", "0.25", "")
    assert (bad["output_tokens"], bad["tpot_s"], bad["longest_gap_s"], bad["finish_reason"]) == ("", "", "", "")
    assert warm["stage"] == "warmup"


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_words_that_a_spreadsheet_would_compute_stay_words(tmp_path: Path, sign: str) -> None:
    (row,) = rows_of(exported(tmp_path, "csv", replace(BAD, error=f"{sign}1+1", planned_s=-0.5)).read_text("utf-8"))
    assert row["error"].startswith("'")
    assert row["request_id"] == "'=b"
    assert row["planned_s"] == "-0.5"


def test_a_row_a_chunk_says_when_it_came_what_it_holds_and_where_it_went(tmp_path: Path) -> None:
    record = replace(GOOD, chunk_tokens=(1, 2, 1), channels="rcc")
    rows = rows_of(exported(tmp_path, "csv-chunks", record, BAD).read_text(encoding="utf-8"))
    assert [tuple(row.values()) for row in rows] == [
        ("a", "0", "1.75", "1", "r"),
        ("a", "1", "2.75", "2", "c"),
        ("a", "2", "4.75", "1", "c"),
        ("'=b", "0", "2.5", "", "c"),
    ]


def test_parquet_holds_every_request_with_its_chunks_as_lists(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    record = replace(GOOD, chunk_tokens=(1, 2, 1), channels="rcc", document_valid=True)
    table = parquet.read_table(exported(tmp_path, "parquet", record, BAD)).to_pydict()
    assert table["request_id"] == ["a", "=b"]
    assert table["chunk_times_s"] == [[1.75, 2.75, 4.75], [2.5]]
    assert table["chunk_tokens"] == [[1, 2, 1], None]
    assert (table["channels"], table["document_valid"]) == (["rcc", ""], [True, None])
    assert (table["output_tokens"], table["planned_s"]) == ([4, None], [1.0, 2.0])
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_parquet_without_its_package_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real_import = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"inference-bench\[parquet\]"):
        exported(tmp_path, "parquet", GOOD)


# vllm bench serve --save-result --save-detailed


def test_vllms_file_has_its_names_in_its_units() -> None:
    (found,) = vllm_json(a_run(GOOD, BAD, WARM))
    assert {
        name: found[name] for name in ("date", "backend", "model_id", "tokenizer_id", "num_prompts", "request_rate")
    } == {
        "date": "20260301-120005",
        "backend": "openai",
        "model_id": "m",
        "tokenizer_id": None,
        "num_prompts": 2,
        "request_rate": None,
    }
    assert (found["duration"], found["completed"], found["failed"]) == (4.5, 1, 1)  # 1.25 s to 5.75 s
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (10, 4)
    assert found["output_throughput"] == pytest.approx(4 / 4.5)
    assert found["total_token_throughput"] == pytest.approx(14 / 4.5)
    assert (found["input_lens"], found["output_lens"]) == ([10, None], [4, 0])
    assert (found["ttfts"], found["itls"]) == ([0.5, 0.0], [[1.0, 2.0], []])
    assert (found["latencies"], found["start_times"], found["queue_times"]) == ([3.5, 0.0], [1.25, 2.0], [0.25, 0.0])
    assert (found["generated_texts"], found["errors"]) == (["", ""], ["", BAD.error])
    assert (found["mean_ttft_ms"], found["p99_ttft_ms"], found["std_ttft_ms"]) == (500.0, 500.0, 0.0)
    assert found["mean_tpot_ms"] == 1000.0  # 3 s over the 3 tokens after the first
    assert (found["mean_itl_ms"], found["median_itl_ms"], found["std_itl_ms"]) == (1500.0, 1500.0, 500.0)
    assert found["p99_itl_ms"] == pytest.approx(1990.0)
    assert (found["mean_e2el_ms"], found["max_concurrent_requests"]) == (3500.0, 1)
    assert found["max_output_tokens_per_s"] == 1.0


def test_vllms_file_has_null_where_the_server_counts_nothing() -> None:
    (found,) = vllm_json(a_run(replace(GOOD, output_tokens=None)))
    assert (found["output_lens"], found["total_output_tokens"], found["output_throughput"]) == ([None], None, None)
    assert (found["mean_tpot_ms"], found["mean_ttft_ms"]) == (None, 500.0)


def test_vllms_statistics_of_nothing_are_zero_as_it_writes_them() -> None:
    (found,) = vllm_json(a_run(BAD))
    assert (found["completed"], found["mean_ttft_ms"], found["p99_itl_ms"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (closed_loop("c", [RequestShape(1, 1)], 4, 8), ("inf", 1.0, 4)),
        (generate(Poisson(20.0), Fixed(1), Fixed(1), 3), (20.0, 1.0, None)),
        (generate(GammaArrivals(20.0, 2.0), Fixed(1), Fixed(1), 3), (20.0, 0.25, None)),
    ],
)
def test_vllms_file_says_how_requests_were_sent(workload: Any, expected: tuple[object, ...]) -> None:
    (found,) = vllm_json(a_run(GOOD, asked={"g": asked_of(workload)}))
    assert (found["request_rate"], found["burstiness"], found["max_concurrency"]) == expected


def test_a_sweep_is_a_line_a_part_for_vllm_and_a_benchmark_a_part_for_guidellm(tmp_path: Path) -> None:
    other = replace(GOOD, group="h", request_id="c")
    lines = exported(tmp_path, "vllm", GOOD, other).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["g", "h"]
    assert [one["config"]["run_index"] for one in guidellm_json(a_run(GOOD, other))["benchmarks"]] == [0, 1]


# GuideLLM's benchmarks.json


def test_guidellms_file_has_its_names_units_and_definitions() -> None:
    report = guidellm_json(a_run(GOOD, BAD, WARM))
    assert (report["metadata"]["version"], report["metadata"]["guidellm_version"]) == (2, "0.8.1")
    (found,) = report["benchmarks"]
    epoch_s = CREATED.timestamp()
    assert (found["start_time"], found["end_time"], found["duration"]) == (epoch_s + 1.25, epoch_s + 5.75, 4.5)
    assert {status: len(found["requests"][status]) for status in ("successful", "incomplete", "errored")} == {
        "successful": 1,
        "incomplete": 0,
        "errored": 1,
    }
    (one,) = found["requests"]["successful"]
    assert (one["output"], one["request_args"]) == ("", None)
    assert (one["request_latency"], one["request_dispatch_delay"], one["request_scheduled_latency"]) == (
        4.5,
        0.25,
        4.75,
    )
    assert (one["time_to_first_token_ms"], one["inter_token_latency_ms"]) == (500.0, 1000.0)
    assert one["time_per_output_token_ms"] == 875.0  # 3.5 s from the send to the last token, over 4
    assert (one["prompt_tokens"], one["cached_tokens"], one["output_tokens"], one["total_tokens"]) == (10, 4, 4, 14)
    assert one["output_tokens_per_second"] == pytest.approx(4 / 4.5)
    assert one["info"]["timings"]["request_start"] == epoch_s + 1.25
    assert one["info"]["timings"]["first_token_iteration"] == epoch_s + 1.75
    assert one["info"]["timings"]["token_iterations"] == 3
    (failed,) = found["requests"]["errored"]
    assert (failed["info"]["status"], failed["info"]["error"]) == ("errored", BAD.error)
    assert failed["output_tokens"] == 1  # it takes each chunk for a token where it has no count
    assert found["metrics"]["request_totals"] == {"successful": 1, "incomplete": 0, "errored": 1, "total": 2}
    assert found["metrics"]["time_to_first_token_ms"]["successful"]["percentiles"]["p99"] == 500.0
    assert found["metrics"]["request_latency"]["total"]["mean"] == pytest.approx((4.5 + 1.25) / 2)


def test_guidellm_takes_the_requested_number_where_none_is_counted_and_tells_reasoning_apart() -> None:
    record = replace(GOOD, output_tokens=None, channels="rrc")
    (found,) = guidellm_json(a_run(record))["benchmarks"]
    (one,) = found["requests"]["successful"]
    assert (one["output_tokens"], one["time_to_first_output_token_ms"]) == (8, 3500.0)
    (silent,) = guidellm_json(a_run(replace(record, channels="rrr")))["benchmarks"][0]["requests"]["successful"]
    assert (silent["time_to_first_token_ms"], silent["time_to_first_output_token_ms"]) == (500.0, None)


@pytest.mark.parametrize(
    ("workload", "strategy"),
    [
        (closed_loop("c", [RequestShape(1, 1)], 4, 8), {"type_": "concurrent", "streams": 4}),
        (generate(Poisson(20.0), Fixed(1), Fixed(1), 3), {"type_": "poisson", "rate": 20.0}),
        (generate(GammaArrivals(20.0, 2.0), Fixed(1), Fixed(1), 3), {"type_": "trace"}),
    ],
)
def test_guidellms_file_says_how_requests_were_sent(workload: Any, strategy: dict[str, object]) -> None:
    (found,) = guidellm_json(a_run(GOOD, asked={"g": asked_of(workload)}))["benchmarks"]
    assert found["config"]["strategy"] == strategy
    has_schedule = strategy["type_"] != "concurrent"
    assert (found["metrics"]["request_dispatch_delay"] is not None) is has_schedule


def test_its_percentile_is_a_value_that_occurred_by_weight() -> None:
    summary = summary_of([(3.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, 0.0)])
    assert (summary["mean"], summary["median"], summary["mode"], summary["count"]) == (1.75, 1.0, 1.0, 4)
    assert summary["variance"] == pytest.approx((2 * 0.5625 + 0.0625 + 1.5625) / 4)
    assert (summary["percentiles"]["p75"], summary["percentiles"]["p90"], summary["max"]) == (2.0, 3.0, 3.0)
    assert summary["total_sum"] == 7.0


def test_its_summary_of_nothing_is_zeros() -> None:
    summary = summary_of([])
    assert (summary["count"], summary["mean"], summary["max"], summary["percentiles"]["p99"]) == (0, 0.0, 0.0, 0.0)


def test_its_rate_gives_each_event_the_time_to_the_middle_of_its_neighbours() -> None:
    # events at 1 s and 3 s of 4: begin and end count for nothing, with half a second each
    summary = rate_of([(1.0, 1.0), (3.0, 1.0), (9.0, 1.0)], 0.0, 4.0)
    assert (summary["count"], summary["min"], summary["max"]) == (2, 0.0, pytest.approx(1 / 1.5))
    assert summary["mean"] == pytest.approx(2 / 4)


def test_its_concurrency_is_weighed_by_time() -> None:
    summary = concurrency_of([(0.0, 3.0), (1.0, 2.0)], 0.0, 4.0)
    assert summary["mean"] == pytest.approx((1 * 1 + 2 * 1 + 1 * 1 + 0 * 1) / 4)
    assert (summary["max"], summary["count"], summary["median"]) == (2.0, 2, 1.0)


# writing


def test_a_form_that_is_not_known_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="csv, csv-chunks, vllm, guidellm, parquet"):
        exported(tmp_path, "xlsx", GOOD)
    assert len(EXPORT_FORMS) == 5


@pytest.mark.parametrize("form", ["vllm", "guidellm"])
def test_a_run_without_a_measured_request_has_no_result_to_write(tmp_path: Path, form: str) -> None:
    with pytest.raises(TooFewSamplesError):
        exported(tmp_path, form, WARM)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", EXPORT_FORMS)
def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    with pytest.raises(StorageError, match=r"could not write .*no such file"):
        write_export(a_run(GOOD), form, tmp_path / "gone" / "out")


def test_parquet_does_not_replace_a_pipe(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    os.mkfifo(tmp_path / "out")
    with pytest.raises(RequestError, match="not a regular file"):
        exported(tmp_path, "parquet", GOOD)


@pytest.mark.parametrize("form", ["csv", "csv-chunks", "vllm", "guidellm"])
def test_every_text_form_is_written_for_every_ending(tmp_path: Path, form: str) -> None:
    records = [replace(GOOD, request_id=status, status=status, chunk_times_s=()) for status in RequestStatus]
    assert exported(tmp_path, form, GOOD, *records).stat().st_size > 70
