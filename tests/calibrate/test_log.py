"""Reading a log of requests, and what it says of its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrate.made_logs import META, write_log
from inference_bench.calibrate import RequestLog, logged_server, read_log
from inference_bench.calibrate.log_meta import read_meta
from inference_bench.errors import MeasurementTableError, RequestError


def row(queued: float = 10.0, **changes: Any) -> dict[str, Any]:
    values = {
        "input_toks": 100,
        "output_toks": 11,
        "queued_ts": queued,
        "first_token_ts": queued + 1,
        "last_token_ts": queued + 2,
    }
    return {**values, **changes}


def test_times_count_from_the_first_request_and_rows_are_put_in_order(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "log", [row(12.0), row(10.0, input_toks=7), row(11.0, extra="ignored")]))
    assert list(log.queued_s) == [0.0, 1.0, 2.0]
    assert log.prompt_tokens[0] == 7
    assert log.ttft_s == pytest.approx([1.0] * 3)
    assert log.tpot_s == pytest.approx([0.1] * 3)
    assert log.makespan_s == pytest.approx(4.0)
    assert list(log.workload().arrival.times_s) == [0.0, 1.0, 2.0]


def test_a_lone_request_of_one_token_has_no_tpot(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "log", [row(output_toks=1, last_token_ts=11.0)]))
    assert (len(log), log.tpot_s) == (1, [])


def test_a_file_alone_is_a_log_too(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "log", [row()], meta=None)
    assert read_log(folder / "requests.jsonl").meta.max_running is None


def test_requests_without_tokens_are_left_out_and_counted(tmp_path: Path) -> None:
    log = read_log(write_log(tmp_path / "log", [row(), row(first_token_ts=None, last_token_ts=None)]))
    assert len(log) == 1
    assert any("1 request(s) without tokens" in note for note in log.notes)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no finished request"),
        ([row(first_token_ts=9.0)], "run backwards"),
        ([row(last_token_ts=10.5)], "run backwards"),
        ([row(queued_ts=float("nan"))], "queued_ts is nan"),
        ([row(last_token_ts="soon")], "last_token_ts is 'soon'"),
        ([row(input_toks=0)], "input_toks is 0"),
        ([row(output_toks=2.5)], "output_toks is 2.5"),
        ([row(input_toks=True)], "line 1: input_toks is True"),
        ([row(last_token_ts=10**400)], "line 1: last_token_ts is 1000.*a time in seconds"),
        ([row(queued_ts=1e300, first_token_ts=1e300, last_token_ts=1e300)], "line 1: queued_ts is 1e.300"),
        ([row(10.0), row(1.7e9)], "more than a year after the first request"),
        ([row(last_token_ts=1e9)], "line 1: last_token_ts is 1000000000.0, more than a year"),
        ([row(num_preemptions=-3)], "line 1: num_preemptions is -3"),
        ([row(num_preemptions=True)], "line 1: num_preemptions is True"),
        ([row(preemptions=10**400)], "line 1: preemptions is 1000"),
        ([row(preempted=1.5)], "line 1: preempted is 1.5"),
        ([{"input_toks": 3}], "no output_toks, queued_ts"),
    ],
)
def test_broken_logs_are_refused(tmp_path: Path, rows: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(MeasurementTableError, match=says):
        read_log(write_log(tmp_path / "log", rows))


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no log"):
        read_log(tmp_path)
    (tmp_path / "requests.jsonl").write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(MeasurementTableError, match="one JSON object"):
        read_log(tmp_path)
    (tmp_path / "requests.jsonl").write_text("\n{oops\n", encoding="utf-8")
    with pytest.raises(MeasurementTableError, match=r"line 2, cannot be read.*not valid JSON"):
        read_log(tmp_path)
    (tmp_path / "requests.jsonl").write_text('{"a":' * 100_000, encoding="utf-8")
    with pytest.raises(MeasurementTableError, match="nested too deeply"):
        read_log(tmp_path)
    (tmp_path / "requests.jsonl").write_text("1" * 5_000, encoding="utf-8")
    with pytest.raises(MeasurementTableError, match="thousands of digits"):
        read_log(tmp_path)
    for no_path in (None, 3):
        with pytest.raises(RequestError, match="is no path"):
            read_log(no_path)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="cannot be read"):
        read_log("x" * 5_000)


def test_a_byte_order_mark_is_no_part_of_a_log(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "log", [row()], {"num_preemptions": 3})
    for name in ("requests.jsonl", "meta.json"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8-sig")
    assert (len(read_log(folder)), read_log(str(folder)).preemptions) == (1, 3)


@pytest.mark.parametrize(
    ("meta", "says"),
    [
        ({"block_size": 10**30}, "block_size is 1000"),
        ({"cache": {"block_size": 10**12}}, "block_size is 1000000000000; a whole number from 1 to 1048576"),
        ({"gpu_memory_utilization": 10**400}, "gpu_memory_utilization is 1000"),
        ({"engine_kwargs": {"gpu_memory_utilization": 1e300}}, "gpu_memory_utilization is 1e.300"),
        ({"gpu_memory_utilization": 50}, "gpu_memory_utilization is 50; a share above 0 and at most 1"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization is nan"),
        ({"num_preemptions": -1}, "num_preemptions is -1"),
        ({"num_gpu_blocks": -3}, "num_gpu_blocks is -3"),
        ({"num_gpu_blocks": 2.5}, "num_gpu_blocks is 2.5"),
        ({"max_num_seqs": 10**400}, "max_num_seqs is 1000"),
        ({"tensor_parallel_size": 10**9}, "tensor_parallel_size is 1000000000"),
        ([], r"holds \[\]; an object of settings"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_file_and_field(tmp_path: Path, meta: Any, says: str) -> None:
    with pytest.raises(MeasurementTableError, match=rf"meta\.json:? .*{says}|meta\.json: {says}"):
        read_log(write_log(tmp_path / "log", [row()], meta))


def test_a_limit_of_none_or_minus_one_is_not_set() -> None:
    found = read_meta({"num_gpu_blocks": 0, "max_num_seqs": None, "chunked_prefill_size": -1, "tp": "2"})
    assert (found.num_blocks, found.max_running, found.token_budget, found.tensor_parallel) == (None, None, None, 2)


@pytest.mark.parametrize(
    "meta",
    [
        {"num_gpu_blocks": 2_588},
        {"engine_kwargs": {"num_gpu_blocks_override": 2_588}},
        {"kv_cache": {"num_gpu_blocks": 2_588, "block_size": 16}},
        {"resolved_config": {"cache_config": {"num_gpu_blocks": 2_588, "num_gpu_blocks_override": None}}},
        {"engine": "vllm", "deep": {"er": {"kv_blocks": 2_588}}},
        {"kv_cache": {"num_kv_tokens": 41_408, "block_size": 16}},
    ],
)
def test_blocks_are_found_wherever_they_stand(meta: dict[str, Any]) -> None:
    assert read_meta(meta).num_blocks == 2_588


@pytest.mark.parametrize("name", ["num_preemptions", "preemptions", "preempted"])
def test_preemptions_are_taken_from_whoever_counted_them(tmp_path: Path, name: str) -> None:
    rows = [row(**{name: 2}), row(**{name: 1})]
    assert read_log(write_log(tmp_path / "requests", rows)).preemptions == 3
    assert read_log(write_log(tmp_path / "meta", [row()], {"stats": {name: 194}})).preemptions == 194
    folder = write_log(tmp_path / "counters", [row()])
    (folder / "timeseries.csv").write_text(f"t,{name}\n1,0\n2,5\n3,\n4,9\n", encoding="utf-8-sig")
    assert read_log(folder).preemptions == 9
    (folder / "timeseries.csv").write_text(f"t,{name}_in_this_second\n1,4\n2,0\n3,1\n", encoding="utf-8")
    assert read_log(folder).preemptions == 5
    assert read_log(write_log(tmp_path / "nobody", [row()])).preemptions is None


def test_whether_a_request_was_preempted_is_no_count(tmp_path: Path) -> None:
    assert read_log(write_log(tmp_path / "log", [row(preempted=True)])).preemptions is None


@pytest.mark.parametrize("value", ["-1", "inf", "nan", "1e300"])
def test_counters_that_cannot_be_are_refused_by_line_and_column(tmp_path: Path, value: str) -> None:
    folder = write_log(tmp_path / "log", [row()])
    (folder / "timeseries.csv").write_text(f"t,num_preemptions\n1,0\n2,{value}\n", encoding="utf-8")
    with pytest.raises(MeasurementTableError, match=r"timeseries\.csv, line 3: num_preemptions is"):
        read_log(folder)


@pytest.mark.parametrize(
    ("folder", "meta", "model", "machine"),
    [
        ("RTXPRO6000_Llama-3.1-8B", META, "Meta-Llama-3.1-8B", "RTX PRO 6000 Blackwell Server"),
        ("RTX4090_Llama-3.1-8B", {}, "Meta-Llama-3.1-8B", "RTX 4090"),
        ("2xRTXPRO6000_Qwen3-32B", {}, "Qwen3-32B", "RTX PRO 6000 Blackwell Server"),
        (
            "run7",
            {"model": "/models/Qwen3-32B", "hardware": {"name": "NVIDIA GeForce RTX 4090"}},
            "Qwen3-32B",
            "RTX 4090",
        ),
        (
            "run8",
            {"engine_kwargs": {"model": "Qwen/Qwen3-30B-A3B"}, "gpu_name": "H100"},
            "Qwen3-30B-A3B",
            "H100 SXM5 80GB",
        ),
    ],
)
def test_model_and_machine_are_found_by_their_names(
    tmp_path: Path, folder: str, meta: dict[str, Any], model: str, machine: str
) -> None:
    meta = {**meta, "tensor_parallel_size": 4}
    server = logged_server(read_log(write_log(tmp_path / folder, [row()], meta)))
    assert (server.served.model.name, server.machine.name, server.devices) == (model, machine, 4)


def test_a_server_that_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="which model"):
        logged_server(read_log(write_log(tmp_path / "run", [row()], {})))
    with pytest.raises(RequestError, match="which machine"):
        logged_server(read_log(write_log(tmp_path / "run", [row()], {"model": "Qwen3-32B"})))
    with pytest.raises(RequestError, match="data-parallel"):
        logged_server(read_log(write_log(tmp_path / "H100_Qwen3-32B", [row()], {"data_parallel_size": 2})))


def test_columns_must_be_as_long_as_one_another() -> None:
    with pytest.raises(MeasurementTableError):
        RequestLog("made", [1], [1, 2], [0.0], [1.0], [1.0])
    with pytest.raises(MeasurementTableError):
        RequestLog("made", [], [], [], [], [])
    with pytest.raises(MeasurementTableError, match="a length of 0"):
        RequestLog("made", [0], [1], [0.0], [1.0], [1.0])
    with pytest.raises(MeasurementTableError, match="beyond a year"):
        RequestLog("made", [1], [1], [0.0], [1.0], [1e300])
