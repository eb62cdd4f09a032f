from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_bench.errors import StorageError, TraceError
from inference_bench.operate.rollout.recorder import HEADER, TraceRecorder
from inference_bench.workload import OpenLoop
from inference_bench.workload.traces import read_trace


def ticking(*times_s: float) -> Callable[[], float]:
    return iter(times_s).__next__


def test_a_recording_is_read_as_a_trace_in_order_of_arrival_whatever_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    with TraceRecorder(path, ticking(100.0, 100.25, 101.0)) as recorder:
        first, second, third = recorder.arrived(), recorder.arrived(), recorder.arrived()
        recorder.ended(third, 30, 3)
        recorder.ended(second, 20, 2)
        assert recorder.num_written == 0  # the first is still open
        recorder.ended(first, 10, 1)
        assert recorder.num_written == 3
    found = read_trace(path)
    assert isinstance(found.arrival, OpenLoop)
    assert list(found.arrival.times_s) == [0.0, 0.25, 1.0]
    assert list(found.requests.prompt_tokens) == [10, 20, 30]
    assert list(found.requests.output_tokens) == [1, 2, 3]


def test_nothing_but_three_numbers_a_request_is_written_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    with TraceRecorder(path, ticking(5.0)) as recorder:
        recorder.ended(recorder.arrived(), 7, 8)
    assert path.read_text() == "arrival_s,prompt_tokens,output_tokens\n0.000000,7,8\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_requests_without_known_tokens_or_an_end_are_left_out_and_counted(tmp_path: Path) -> None:
    with TraceRecorder(tmp_path / "t.csv", ticking(0.0, 1.0, 2.0, 3.0)) as recorder:
        numbers = [recorder.arrived() for _ in range(4)]
        recorder.ended(numbers[0], None, 5)
        recorder.ended(numbers[1], 5, 0)
        recorder.ended(numbers[2], 5, 5)
        recorder.ended(numbers[2], 9, 9)  # told twice: the first counts
    assert (recorder.num_written, recorder.num_dropped) == (1, 3)


def test_a_request_that_never_ends_holds_back_no_more_than_is_allowed(tmp_path: Path) -> None:
    with TraceRecorder(tmp_path / "t.csv", ticking(*range(10)), most_open=3) as recorder:
        recorder.arrived()
        for _ in range(4):
            recorder.ended(recorder.arrived(), 1, 1)
        assert (recorder.num_written, recorder.num_dropped) == (4, 1)


def test_a_clock_that_two_threads_read_out_of_order_never_goes_back_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with TraceRecorder(path, ticking(1.0, 3.0, 2.0)) as recorder:
        for _ in range(3):
            recorder.ended(recorder.arrived(), 1, 1)
    assert list(read_trace(path).arrival.times_s) == [0.0, 2.0, 2.0]  # type: ignore[union-attr]


def test_threads_lose_no_request(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with TraceRecorder(path) as recorder:

        def serve() -> None:
            for _ in range(200):
                recorder.ended(recorder.arrived(), 3, 4)

        threads = [threading.Thread(target=serve) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_trace(path)) == 800


def test_a_full_disk_stops_the_recording_with_whole_rows_and_never_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "t.csv", os.write
    recorder = TraceRecorder(path, ticking(0.0, 1.0, 2.0))
    recorder.ended(recorder.arrived(), 1, 1)

    def filling(file: int, content: bytes) -> int:
        if bytes(content).startswith(b"1.000000"):
            return real(file, bytes(content)[:-2])  # ends in "20,2", which reads as a row
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", filling)
    recorder.ended(recorder.arrived(), 20, 20)
    monkeypatch.undo()
    recorder.ended(recorder.arrived(), 1, 1)
    assert recorder.trouble == "no space left on device"
    assert recorder.num_written == 1
    recorder.close()
    assert path.read_text() == f"{HEADER}0.000000,1,1\n"


@pytest.mark.parametrize("tokens", ["5", 1.5, True, float("nan"), [5]])
def test_a_count_that_is_no_whole_number_is_left_out_said_and_never_raised(tmp_path: Path, tokens: object) -> None:
    path = tmp_path / "t.csv"
    with TraceRecorder(path, ticking(0.0, 1.0, 2.0)) as recorder:
        recorder.ended(recorder.arrived(), tokens, 3)  # type: ignore[arg-type]
        recorder.ended(recorder.arrived(), 3, tokens)  # type: ignore[arg-type]
        recorder.ended(recorder.arrived(), 3, 4)
        recorder.ended([], 3, 4)  # type: ignore[arg-type]
    assert (recorder.num_written, recorder.num_dropped) == (1, 2)
    assert recorder.trouble == "a number of tokens was no whole number"
    assert list(read_trace(path).requests.output_tokens) == [4]


def test_a_recording_never_takes_the_place_of_another(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("mine")
    with pytest.raises(StorageError, match="is there already"):
        TraceRecorder(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "mine"


def test_a_trace_whose_clock_goes_back_is_refused_with_its_line(tmp_path: Path) -> None:
    from inference_bench.operate.rollout.replay import Limits, replay_trace

    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n1.0,5,5\n0.5,5,5\n")
    with pytest.raises(TraceError, match=r"line 3.*before the one"):
        replay_trace(path, Limits())
    assert any("sorted by time" in note for note in replay_trace(path, Limits(), sort=True).workload.notes)
