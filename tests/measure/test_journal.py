"""What is written while it is measured comes back: exact, small, and at the latest a second after it came."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inference_bench
from inference_bench.errors import MeasurementError, StorageError
from inference_bench.measure.journal import Journal
from inference_bench.measure.journal_read import NEVER_ENDED, JournalContent, read_journal
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, ServerTimings, Stage, TokenCountSource
from measure.full_disk import file_size_limit

TICK_S = 2**-27
MICRO = 1e-6

RECORD = RequestRecord(
    request_id="measure-b4-00007",
    origin=Origin.MEASURED,
    stage=Stage.MEASURE,
    status=RequestStatus.COMPLETED,
    planned_s=0.125,
    sent_s=0.25,
    end_s=2.5,
    chunk_times_s=(0.5, 0.75, 2.25),
    prompt_tokens=12,
    output_tokens=3,
    token_count_source=TokenCountSource.SERVER_USAGE,
    finish_reason="stop",
    http_status=200,
)

TIMES = st.integers(0, 2**45).map(lambda ticks: ticks * TICK_S)
COUNTS = st.none() | st.integers(0, 2**40)
TEXTS = st.none() | st.text(max_size=20)
SECONDS = st.none() | st.floats(0, 1e6)
CHUNKS = st.tuples(TIMES, st.integers(0, 2**32 - 1), st.sampled_from("crt"))


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    chunks = draw(st.lists(CHUNKS, max_size=6))
    letters = "".join(letter for _, _, letter in chunks)
    return RequestRecord(
        request_id=draw(st.text(max_size=20)),
        origin=draw(st.sampled_from(Origin)),
        stage=draw(st.sampled_from(Stage)),
        status=draw(st.sampled_from(RequestStatus)),
        planned_s=draw(TIMES),
        sent_s=draw(TIMES),
        end_s=draw(TIMES),
        chunk_times_s=tuple(time_s for time_s, _, _ in chunks),
        prompt_tokens=draw(COUNTS),
        cached_prompt_tokens=draw(COUNTS),
        output_tokens=draw(COUNTS),
        requested_output_tokens=draw(COUNTS),
        token_count_source=draw(st.sampled_from(TokenCountSource)),
        finish_reason=draw(TEXTS),
        http_status=draw(COUNTS),
        error=draw(TEXTS),
        group=draw(st.text(max_size=5)),
        server_timings=draw(st.none() | st.builds(ServerTimings, COUNTS, COUNTS, SECONDS, COUNTS, SECONDS)),
        chunk_tokens=draw(st.sampled_from(((), tuple(count for _, count, _ in chunks), (1,) * len(chunks)))),
        channels="" if set(letters) <= {"c"} else letters,
        first_byte_s=draw(st.none() | TIMES),
        document_valid=draw(st.none() | st.booleans()),
        index=draw(COUNTS),
        session=draw(COUNTS),
        turn=draw(COUNTS),
    )


def written(path: Path, *all_records: RequestRecord) -> JournalContent:
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for record in all_records:
            journal.append(record)
    return read_journal(path)


@settings(max_examples=100, deadline=None)
@given(st.lists(records(), max_size=4))
def test_records_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, some: list[RequestRecord]) -> None:
    content = written(tmp_path_factory.getbasetemp() / "any.journal", *some)
    assert (content.records, content.num_dropped_bytes, content.num_unfinished) == (tuple(some), 0, 0)


@settings(max_examples=60, deadline=None)
@given(records(), st.lists(st.integers(0, 6), max_size=3), st.booleans())
def test_chunks_that_were_written_while_it_ran_are_not_written_twice(
    tmp_path_factory: pytest.TempPathFactory, record: RequestRecord, cuts: list[int], knows_tokens: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.journal"
    whole = len(record.chunk_times_s)
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        journal.started(record.request_id, record.planned_s, record.sent_s, stage=record.stage, group=record.group)
        for begin, end in pairwise(sorted({0, *(min(cut, whole) for cut in cuts)})):
            tokens = record.chunk_tokens[begin:end] if knows_tokens else ()
            journal.chunks(record.request_id, record.chunk_times_s[begin:end], tokens, record.channels[begin:end])
        journal.append(record)
    assert read_journal(path).records == (record,)


def test_a_record_with_other_chunks_than_were_said_while_it_ran_is_the_one_that_counts(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.started(RECORD.request_id, RECORD.planned_s, RECORD.sent_s)
        journal.chunks(RECORD.request_id, [0.5, 1.5])
        journal.append(RECORD)
    assert read_journal(tmp_path / "j").records == (RECORD,)


@pytest.mark.parametrize("last_is_said", [True, False])
def test_a_server_that_stops_counting_makes_no_chunk_be_written_twice(tmp_path: Path, last_is_said: bool) -> None:
    record = replace(RECORD, chunk_times_s=tuple(0.5 + number / 64 for number in range(200)))
    with Journal(tmp_path / "j") as journal:
        journal.started(record.request_id, record.planned_s, record.sent_s)
        journal.chunks(record.request_id, record.chunk_times_s[:150], (1, 2) * 75)
        if last_is_said:
            journal.chunks(record.request_id, record.chunk_times_s[150:])
        journal.append(record)
    assert read_journal(tmp_path / "j").records == (record,)
    assert (tmp_path / "j").stat().st_size < 1.5 * 4 * 200


def test_a_server_that_takes_its_counts_back_has_none(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.started(RECORD.request_id, RECORD.planned_s, RECORD.sent_s)
        journal.chunks(RECORD.request_id, RECORD.chunk_times_s, (1, 1, 1))
        journal.append(RECORD)
    assert read_journal(tmp_path / "j").records == (RECORD,)


def test_counts_that_do_not_match_the_chunks_are_kept_as_they_are(tmp_path: Path) -> None:
    odd = replace(RECORD, chunk_tokens=(1, -2, 2**40, 7), channels="cx")
    assert written(tmp_path / "j", odd, RECORD).records == (odd, RECORD)


def test_times_are_off_by_less_than_a_tenth_of_a_microsecond_and_pauses_do_not_drift(tmp_path: Path) -> None:
    start_s, gap_s, num_chunks = 86_400 / 7, 1 / 99, 20_000  # neither is a whole number of ticks
    times_s = tuple(start_s + gap_s * number for number in range(num_chunks))
    kept = written(tmp_path / "j", replace(RECORD, chunk_times_s=times_s)).records[0].chunk_times_s
    assert max(abs(after - before) for before, after in zip(times_s, kept, strict=True)) <= 0.005 * MICRO
    assert kept[-1] - kept[0] == pytest.approx(gap_s * (num_chunks - 1), abs=0.01 * MICRO)


def test_a_pause_of_hours_and_a_clock_that_went_back_are_kept(tmp_path: Path) -> None:
    odd = replace(RECORD, chunk_times_s=(0.5, 40.0, 36_000.0, 35_000.0, 35_000.0))
    assert written(tmp_path / "j", odd).records == (odd,)


def test_times_that_are_no_numbers_are_refused_and_leave_no_trace(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.started("a", 0.0, 0.0)
        for bad in (float("nan"), float("inf"), 1e300):
            with pytest.raises(MeasurementError, match="measure-b4-00007 has a time"):
                journal.append(replace(RECORD, chunk_times_s=(0.5, bad, 0.75)))
            with pytest.raises(MeasurementError, match="has a time"):
                journal.append(replace(RECORD, first_byte_s=bad))
            with pytest.raises(MeasurementError, match="has a time"):
                journal.chunks("a", [bad])
        journal.append(RECORD)
    assert read_journal(tmp_path / "j").records[0] == RECORD


def test_chunks_need_a_request_that_was_started_and_a_count_for_each(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(MeasurementError, match="was not started"):
            journal.chunks("a", [1.0])
        journal.started("a", 0.0, 0.0)
        with pytest.raises(MeasurementError, match="without a channel or a count"):
            journal.chunks("a", [1.0, 2.0], [1])
        with pytest.raises(MeasurementError, match="without a channel or a count"):
            journal.chunks("a", [1.0, 2.0], [], "cx")
        journal.chunks("a", [])


def test_what_was_in_flight_is_cancelled_where_the_run_ended_and_keeps_its_chunks(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.started("a", 1.0, 1.25, stage=Stage.COOLDOWN, group="g", index=7, session=2, turn=1)
        journal.started("b", 2.0, 2.0, requested_output_tokens=64)
        journal.chunks("a", [3.0, 4.0], [1, 2], "rc")
        journal.append(replace(RECORD, end_s=9.0))
    content = read_journal(tmp_path / "j")
    assert content.num_unfinished == 2
    first, a, b = content.records
    assert first.end_s == 9.0
    assert (a.request_id, a.planned_s, a.sent_s, a.end_s, a.stage, a.group) == ("a", 1.0, 1.25, 9.0, "cooldown", "g")
    assert (a.index, a.session, a.turn) == (7, 2, 1)
    assert (a.chunk_times_s, a.chunk_tokens, a.channels) == ((3.0, 4.0), (1, 2), "rc")
    assert (b.chunk_times_s, b.requested_output_tokens, b.output_tokens, b.http_status) == ((), 64, None, None)
    for record in (a, b):
        assert (record.status, record.error, record.origin) == (RequestStatus.CANCELLED, NEVER_ENDED, Origin.MEASURED)
        assert (record.finish_reason, record.token_count_source) == (None, TokenCountSource.UNKNOWN)


def test_a_name_that_is_used_again_is_another_request(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.started("a", 1.0, 1.0)
        journal.started("a", 2.0, 2.0)
        journal.append(replace(RECORD, request_id="a"))
    again, cut = read_journal(tmp_path / "j").records
    assert (again, cut.planned_s) == (replace(RECORD, request_id="a"), 1.0)


def test_a_million_chunks_of_one_request_are_written_in_parts(tmp_path: Path) -> None:
    long = replace(RECORD, chunk_times_s=tuple(number / 1024 for number in range(1_000_000)))
    content = written(tmp_path / "j", long, RECORD)
    assert content.records == (long, RECORD)
    assert (tmp_path / "j").stat().st_size < 4.1e6


# what it costs: the issue allows 10 bytes a token


def paced(number: int, num_tokens: int, gap_s: float) -> RequestRecord:
    rng = random.Random(number)
    sent_s = number * 0.013 + 1e-4
    times_s = [sent_s + 0.05]
    while len(times_s) < num_tokens:
        times_s.append(times_s[-1] + gap_s * rng.uniform(0.98, 1.02))
    return replace(
        RECORD,
        request_id=f"measure-c64-{number:05d}",
        group="c64",
        index=number,
        planned_s=number * 0.013,
        sent_s=sent_s,
        first_byte_s=times_s[0] - 1e-5,
        end_s=times_s[-1] + 1e-4,
        chunk_times_s=tuple(times_s),
        prompt_tokens=128,
        output_tokens=num_tokens,
        requested_output_tokens=num_tokens,
        finish_reason="length",
    )


def record_as_it_comes(path: Path, streams: list[RequestRecord], period_s: float) -> float:
    """Bytes a token where chunks are written every `period_s` of the streams' own time, as they come; see Journal."""

    async def run(journal: Journal) -> None:
        now_s = 0.0
        done = dict.fromkeys((record.request_id for record in streams), -1)
        while any(count >= 0 or count == -1 for count in done.values()):
            now_s += period_s
            for record in streams:
                count = done[record.request_id]
                if count == -1 and record.sent_s <= now_s:
                    journal.started(
                        record.request_id,
                        record.planned_s,
                        record.sent_s,
                        group=record.group,
                        index=record.index,
                        requested_output_tokens=record.requested_output_tokens,
                    )
                    count = 0
                if count >= 0:
                    new = [time_s for time_s in record.chunk_times_s[count:] if time_s <= now_s]
                    journal.chunks(record.request_id, new)
                    count += len(new)
                    if record.end_s <= now_s:
                        journal.append(record)
                        count = -2
                done[record.request_id] = count
            journal.flush()

    with Journal(path) as journal:
        asyncio.run(run(journal))
    content = read_journal(path)
    assert content.num_unfinished == 0
    assert sorted(record.request_id for record in content.records) == [record.request_id for record in streams]
    return path.stat().st_size / sum(len(record.chunk_times_s) for record in streams)


@pytest.mark.parametrize(
    ("num_streams", "gap_s", "most_bytes"),
    [(64, 0.01, 6.0), (1, 0.01, 6.0), (64, 0.2, 7.0), (1, 0.2, 8.0), (1, 1.0, 10.0), (64, 1.0, 8.0)],
)
def test_a_token_takes_at_most_ten_bytes_also_where_each_is_written_alone(
    tmp_path: Path, num_streams: int, gap_s: float, most_bytes: float
) -> None:
    streams = [paced(number, 256, gap_s) for number in range(num_streams)]
    assert 4 < record_as_it_comes(tmp_path / "j", streams, 0.5) <= most_bytes


def test_several_tokens_a_chunk_and_reasoning_take_at_most_ten_bytes_a_chunk(tmp_path: Path) -> None:
    streams = [replace(paced(number, 256, 0.01), chunk_tokens=(1, 3) * 128, channels="rc" * 128) for number in range(4)]
    written(tmp_path / "j", *streams)
    assert (tmp_path / "j").stat().st_size / 1024 <= 10


# what a kill leaves

KILLED = """
import asyncio, os, sys, time
from pathlib import Path
from inference_bench.measure.journal import Journal

async def run():
    journal, begin_s, sent = Journal(Path(sys.argv[1])), time.monotonic(), 0
    for stream in range(3):
        journal.started(f"r{stream}", 0.0, 0.0)
    while True:
        await asyncio.sleep(0.02)
        now_s = time.monotonic() - begin_s
        for stream in range(3):
            journal.chunks(f"r{stream}", [now_s])
        sent += 1
        os.write(1, b"%d %.6f\\n" % (sent, now_s))
        if sent == int(sys.argv[2]):  # a server that says nothing more
            await asyncio.sleep(3600)

asyncio.run(run())
"""


@contextmanager
def killed_writer(path: Path, num_chunks: int) -> Iterator[subprocess.Popen[bytes]]:
    source = str(Path(inference_bench.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", KILLED, str(path), str(num_chunks)],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_kill_loses_at_most_the_last_second_of_requests_in_flight(tmp_path: Path) -> None:
    with killed_writer(tmp_path / "j", 100_000) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(120)]
        process.kill()
        lines += [line.split() for line in process.stdout if line.endswith(b"\n")]
    times_s = [float(time_s) for _, time_s in lines]
    content = read_journal(tmp_path / "j")
    assert content.num_unfinished == 3
    for record in content.records:
        kept_s = record.chunk_times_s
        assert kept_s == pytest.approx(times_s[: len(kept_s)], abs=MICRO)
        assert kept_s[-1] >= times_s[-1] - 1.0
        assert len(kept_s) > 20


def test_what_came_last_is_written_also_when_nothing_more_comes(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with killed_writer(path, 5) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline()
        for _ in range(1000):
            if path.exists() and [len(r.chunk_times_s) for r in read_journal(path).records] == [5, 5, 5]:
                break
            signal.sigtimedwait([], 0.02)
        else:
            pytest.fail("the last chunks were never written")


# full disks


@pytest.mark.parametrize("room", [0, 1, 7, 30, 50])
def test_a_disk_that_fills_up_while_it_measures_is_said_and_leaves_the_file_whole(tmp_path: Path, room: int) -> None:
    path = tmp_path / "j"

    async def run() -> None:
        journal = Journal(path)
        journal.append(RECORD)
        with file_size_limit(path.stat().st_size + room):
            journal.started("a", 3.0, 3.0)
            journal.chunks("a", [3.5, 4.0])
            await asyncio.sleep(0.5)  # the write that fails is the journal's own
            with pytest.raises(StorageError, match=r"could not write .*j: file too large"):
                journal.chunks("a", [4.5])
            assert read_journal(path).records == (RECORD,)
        journal.append(replace(RECORD, request_id="a", planned_s=3.0, sent_s=3.0, chunk_times_s=(3.5, 4.0, 4.5, 5.0)))
        journal.close()

    asyncio.run(run())
    content = read_journal(path)
    assert [record.request_id for record in content.records] == [RECORD.request_id, "a"]
    assert content.records[1].chunk_times_s == (3.5, 4.0, 4.5, 5.0)
