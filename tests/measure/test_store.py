"""What is written survives: exact round trips, killed writers, full disks."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import MeasurementError, RunFolderError, StorageError
from inference_bench.measure.journal_fields import values_from_json
from inference_bench.measure.journal_read import NEVER_ENDED
from inference_bench.measure.store import RunFolder, read_progress, read_records, record_from_json, record_to_json
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, ServerTimings, Stage, TokenCountSource
from measure.full_disk import file_size_limit

NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)

RECORD = RequestRecord(
    request_id="measure-b4-00007",
    origin=Origin.MEASURED,
    stage=Stage.MEASURE,
    status=RequestStatus.COMPLETED,
    planned_s=0.125,
    sent_s=0.125 + 2**-20,
    end_s=0.375,
    chunk_times_s=(0.25, 0.3125),
    prompt_tokens=12,
    output_tokens=2,
    token_count_source=TokenCountSource.SERVER_USAGE,
    server_timings=ServerTimings(12, 0, 0.05, 2, None),
)

TIMES = st.floats(0, 1e6, allow_nan=False)
COUNTS = st.none() | st.integers(0, 2**40)
TEXTS = st.none() | st.text(max_size=20)
TIMINGS = st.builds(ServerTimings, COUNTS, COUNTS, st.none() | TIMES, COUNTS, st.none() | TIMES)
RECORDS = st.builds(
    RequestRecord,
    request_id=st.text(max_size=20),
    origin=st.sampled_from(Origin),
    stage=st.sampled_from(Stage),
    status=st.sampled_from(RequestStatus),
    planned_s=TIMES,
    sent_s=TIMES,
    end_s=TIMES,
    chunk_times_s=st.lists(TIMES, max_size=4).map(tuple),
    prompt_tokens=COUNTS,
    cached_prompt_tokens=COUNTS,
    output_tokens=COUNTS,
    requested_output_tokens=COUNTS,
    token_count_source=st.sampled_from(TokenCountSource),
    finish_reason=TEXTS,
    http_status=COUNTS,
    error=TEXTS,
    group=st.text(max_size=5),
    server_timings=st.none() | TIMINGS,
    chunk_tokens=st.lists(st.integers(0, 2**20), max_size=4).map(tuple),
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "verify", NOON)


@settings(max_examples=60)
@given(RECORDS)
def test_a_record_comes_back_exactly_as_it_was(record: RequestRecord) -> None:
    line = record_to_json(record)
    assert "\n" not in line
    assert record_from_json(line) == record


def test_a_record_of_a_version_without_tokens_of_chunks_is_read(run: RunFolder) -> None:
    line = record_to_json(replace(RECORD, chunk_tokens=(1, 1)))
    assert record_from_json(line) == replace(RECORD, chunk_tokens=(1, 1))
    assert record_from_json(line.replace(',"chunk_tokens":[1,1]', "")) == RECORD
    with pytest.raises(ValueError, match="its fields"):
        record_from_json(line.replace('"planned_s":0.125,', ""))


def test_a_number_of_400_digits_in_a_line_is_refused() -> None:
    line = record_to_json(replace(RECORD, server_timings=ServerTimings(prefill_s=0.5)))
    assert '"prefill_s":0.5' in line
    with pytest.raises(ValueError, match="prefill_s"):
        record_from_json(line.replace('"prefill_s":0.5', f'"prefill_s":1{"0" * 400}'))
    with pytest.raises(ValueError, match="prompt_tokens"):
        record_from_json(line.replace('"prompt_tokens":12', f'"prompt_tokens":1{"0" * 400}'))
    with pytest.raises(ValueError, match="prompt_tokens"):
        values_from_json(b'{"prompt_tokens":1%s}' % (b"0" * 400))


def test_records_come_back_in_the_order_they_were_written(run: RunFolder) -> None:
    records = tuple(replace(RECORD, request_id=f"r{number}") for number in range(50))
    with run.open_writer() as writer:
        for record in records:
            writer.append(record)
    stored = read_records(run.path)
    assert (stored.records, stored.num_dropped_lines) == (records, 0)


def test_each_record_is_readable_before_the_writer_is_closed(run: RunFolder) -> None:
    with run.open_writer() as writer:
        for number in range(1, 4):
            writer.append(RECORD)
            assert len(read_records(run.path).records) == number


def test_a_run_without_requests_has_no_records(run: RunFolder) -> None:
    assert read_records(run.path).records == ()


def test_records_of_an_earlier_version_are_read(run: RunFolder) -> None:
    (run.path / "requests.jsonl").write_text(record_to_json(RECORD) + "\n")
    assert read_records(run.path).records == (RECORD,)
    with pytest.raises(RunFolderError, match="already holds records"):
        run.open_writer()
    with pytest.raises(RunFolderError, match="only a run that has one can be resumed"):
        run.resume_writer()


def test_a_last_line_cut_anywhere_is_dropped_and_counted(run: RunFolder) -> None:
    line = record_to_json(RECORD).encode()
    file = run.path / "requests.jsonl"
    for cut in range(1, len(line) + 1):
        file.write_bytes(line + b"\n" + line[:cut])
        stored = read_records(run.path)
        assert (stored.records, stored.num_dropped_lines) == ((RECORD,), 1)


BROKEN = {
    "not JSON": "{",
    "a list": "[]",
    "blank": "",
    "another object": '{"a": 1}',
    "NaN": record_to_json(RECORD).replace('"planned_s":0.125', '"planned_s":NaN'),
    "an infinite time": record_to_json(RECORD).replace('"planned_s":0.125', '"planned_s":1e999'),
    "text as a time": record_to_json(RECORD).replace('"planned_s":0.125', '"planned_s":"0.125"'),
    "a fraction of a token": record_to_json(RECORD).replace('"prompt_tokens":12', '"prompt_tokens":12.5', 1),
    "true tokens": record_to_json(RECORD).replace('"prompt_tokens":12', '"prompt_tokens":true', 1),
    "an unknown status": record_to_json(RECORD).replace('"completed"', '"fine"'),
    "an extra field": record_to_json(RECORD)[:-1] + ',"prompt":"text"}',
    "chunk times that are no list": record_to_json(RECORD).replace("[0.25,0.3125]", "0.2"),
    "deep nesting": '{"a":' * 100_000,
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_line_in_the_file_is_an_error_that_names_it(run: RunFolder, line: str) -> None:
    good = record_to_json(RECORD)
    (run.path / "requests.jsonl").write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(RunFolderError, match="line 2 is not a request record"):
        read_records(run.path)


def test_nan_is_never_written(run: RunFolder) -> None:
    with run.open_writer() as writer:
        writer.append(RECORD)
        with pytest.raises(MeasurementError, match="measure-b4-00007"):
            writer.append(replace(RECORD, end_s=math.nan))
        writer.append(RECORD)
    assert len(read_records(run.path).records) == 2
    with pytest.raises(MeasurementError):
        run.update_meta({"rate": math.inf})


def test_a_folder_is_named_by_time_and_name_and_never_reused(tmp_path: Path) -> None:
    first, second = (RunFolder.create(tmp_path / "runs", "my load: b=4/..", NOON) for _ in range(2))
    assert first.path.name == "20260301T120005Z-my-load-b-4"
    assert second.path.name == "20260301T120005Z-my-load-b-4-2"


def test_meta_is_kept_merged_and_versioned(run: RunFolder) -> None:
    run.update_meta({"engine": "llama.cpp"})
    run.update_meta({"seed": 3})
    meta = RunFolder.open(run.path).read_meta()
    assert meta == {
        "schema_version": 1,
        "name": "verify",
        "created": "2026-03-01T12:00:05+00:00",
        "engine": "llama.cpp",
        "seed": 3,
    }
    assert sorted(path.name for path in run.path.iterdir()) == ["meta.json"]


def test_meta_that_json_cannot_hold_leaves_the_old_one(run: RunFolder) -> None:
    with pytest.raises(MeasurementError):
        run.update_meta({"when": NOON})
    assert run.read_meta()["name"] == "verify"


@pytest.mark.parametrize("meta", [None, "{", "[]", '{"schema_version": 2}', "{}"])
def test_what_is_not_a_run_folder_is_refused(tmp_path: Path, meta: str | None) -> None:
    if meta is not None:
        (tmp_path / "meta.json").write_text(meta)
    with pytest.raises(RunFolderError, match=str(tmp_path)):
        read_records(tmp_path)


def test_a_second_writer_for_the_same_run_is_refused(run: RunFolder) -> None:
    with run.open_writer() as writer:
        writer.append(RECORD)
    with pytest.raises(RunFolderError, match="already holds records"):
        run.open_writer()


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.*(exists|not a directory)"):
        RunFolder.create(tmp_path / "file", "run")
    with pytest.raises(StorageError, match="no such file"):
        RunFolder(tmp_path / "gone").open_writer()


def test_a_disk_that_fills_up_is_one_error_and_loses_nothing(run: RunFolder) -> None:
    records = tuple(replace(RECORD, request_id=f"r{number}") for number in range(5))
    file = run.path / "requests.journal"
    with run.open_writer() as writer:
        for record in records[:3]:
            writer.append(record)
        num_bytes = file.stat().st_size
        with file_size_limit(num_bytes + 7):
            with pytest.raises(StorageError, match=r"could not write .*requests\.journal: file too large"):
                writer.append(records[3])
            assert file.stat().st_size == num_bytes
            assert read_records(run.path).records == records[:3]
        writer.append(records[4])
    stored = read_records(run.path)
    assert (stored.records, stored.num_dropped_lines) == (records, 0)


def test_a_disk_that_is_full_at_the_end_does_not_hide_why_the_run_ended(run: RunFolder) -> None:
    def fail() -> None:
        with run.open_writer() as writer:
            with pytest.raises(StorageError):
                writer.append(RECORD)
            raise ZeroDivisionError

    with file_size_limit(0), pytest.raises(ZeroDivisionError):
        fail()


def test_a_full_disk_leaves_the_old_meta_whole(run: RunFolder) -> None:
    before = (run.path / "meta.json").read_bytes()
    with file_size_limit(10), pytest.raises(StorageError, match=r"meta\.json"):
        run.update_meta({"notes": "x" * 100})
    assert (run.path / "meta.json").read_bytes() == before
    assert json.loads(before)["schema_version"] == 1
    assert len(list(run.path.iterdir())) == 1


def test_records_that_are_a_pipe_are_refused_at_once(run: RunFolder) -> None:
    os.mkfifo(run.path / "requests.jsonl")
    with pytest.raises(RunFolderError, match="not a regular file"):
        read_records(run.path)
    os.mkfifo(run.path / "requests.journal")
    with pytest.raises(RunFolderError, match="not a regular file"):
        read_records(run.path)


def test_the_records_of_processes_that_measured_together_are_read_in_the_order_they_ended(run: RunFolder) -> None:
    for shard in (0, 1):
        with run.open_writer(shard) as writer:
            for number in range(shard, 6, 2):
                writer.append(replace(RECORD, request_id=f"r{number}", end_s=1.0 + number))
    assert [record.request_id for record in read_records(run.path).records] == [f"r{number}" for number in range(6)]


def a_run_cut_short(run: RunFolder) -> None:
    """Point a is whole; of point b one request has ended and one has not; the last frame is cut."""
    writer = run.open_writer()
    for number in range(3):
        writer.append(replace(RECORD, request_id=f"a{number}", group="a", index=number))
    writer.append(replace(RECORD, request_id="b0", group="b", index=0, end_s=8.0))
    writer.started("b1", 5.0, 5.0, group="b", index=1)
    writer.chunks("b1", [9.5])
    writer.append(replace(RECORD, request_id="b2", group="b", index=2))
    writer.close()
    file = run.path / "requests.journal"
    os.truncate(file, file.stat().st_size - 1)


def test_a_run_that_was_cut_short_says_which_parts_are_done(run: RunFolder) -> None:
    a_run_cut_short(run)
    progress = read_progress(run.path)
    assert set(progress.groups) == {"a", "b"}
    assert (progress.groups["a"].num_ended, progress.groups["a"].num_unfinished) == (3, 0)
    assert progress.groups["a"].indices == {0, 1, 2}
    assert (progress.groups["b"].num_ended, progress.groups["b"].num_unfinished) == (1, 1)
    assert progress.groups["b"].indices == {0}
    assert (progress.last_s, progress.num_resumed) == (9.5, 0)


def test_a_run_is_resumed_behind_what_it_wrote_and_a_part_that_was_begun_is_measured_anew(run: RunFolder) -> None:
    a_run_cut_short(run)
    with run.resume_writer(void_groups=["b"]) as writer:
        for number in range(3):
            writer.append(replace(RECORD, request_id=f"b{number}", group="b", index=number, end_s=20.0))
    stored = read_records(run.path)
    assert [record.request_id for record in stored.records] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [record.end_s for record in stored.records if record.group == "b"] == [20.0] * 3
    assert (stored.num_voided, stored.num_unfinished, stored.num_resumed, stored.num_dropped_lines) == (2, 1, 1, 0)


def test_a_run_is_resumed_where_it_stopped(run: RunFolder) -> None:
    a_run_cut_short(run)
    with run.resume_writer() as writer:
        writer.append(replace(RECORD, request_id="b2", group="b", index=2, end_s=20.0))
    records = read_records(run.path).records
    assert [(record.request_id, record.error) for record in records[3:]] == [
        ("b0", None),
        ("b1", NEVER_ENDED),
        ("b2", None),
    ]
    assert records[4].end_s == 9.5


def test_a_run_cannot_be_resumed_on_a_full_disk_and_is_as_it_was(run: RunFolder) -> None:
    a_run_cut_short(run)
    before = read_records(run.path).records
    with file_size_limit(0), pytest.raises(StorageError, match=r"requests\.journal"):
        run.resume_writer(void_groups=["a"])
    assert read_records(run.path).records == before
