"""A load run that is killed or interrupted keeps what was measured, and does not hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import inference_bench
from inference_bench.measure.journal_read import NEVER_ENDED
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.records import RequestStatus

from .truth_server import TruthServer

PATIENCE_S = 30.0
CONCURRENCY = 3


@contextmanager
def running_load(url: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    source = str(Path(inference_bench.__file__).parents[1])
    script = str(Path(__file__).with_name("load_loop.py"))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", script, url, str(folder), str(CONCURRENCY), "100000", *more],
        env={**os.environ, "PYTHONPATH": source},
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, "the load run ended by itself"
        assert time.monotonic() < deadline_s, "nothing was recorded"
        time.sleep(0.01)


def num_ended(folder: Path) -> int:
    return sum(record.error != NEVER_ENDED for record in read_records(folder).records)


def test_a_killed_run_loses_at_most_the_requests_in_flight(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "killed")
    with TruthServer() as server, running_load(server.url("steady"), run.path) as process:
        wait_until(lambda: num_ended(run.path) >= 10, process)
        num_finished = sum(request.finished for request in server.requests)
        process.kill()
        process.wait()
        stored = read_records(run.path)
    ended = [record for record in stored.records if record.error != NEVER_ENDED]
    assert len(ended) >= 10
    assert len(ended) >= num_finished - CONCURRENCY
    assert all(record.status is RequestStatus.COMPLETED for record in ended)
    assert all(len(record.chunk_times_s) == 10 for record in ended)
    assert len({record.request_id for record in stored.records}) == len(stored.records)


def test_an_interrupted_run_writes_what_was_in_flight_as_cancelled_and_ends_at_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "interrupted")
    with TruthServer() as server, running_load(server.url("slow"), run.path) as process:
        wait_until(lambda: num_ended(run.path) >= 4, process)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=PATIENCE_S)
        num_started = len(server.requests)
    stored = read_records(run.path)
    cancelled = [record for record in stored.records if record.status is RequestStatus.CANCELLED]
    completed = [record for record in stored.records if record.status is RequestStatus.COMPLETED]
    assert (process.returncode, complaints) == (130, b"")
    assert len(completed) >= 4
    assert 1 <= len(cancelled) <= CONCURRENCY
    assert len(completed) + len(cancelled) == len(stored.records)
    assert num_started <= len(stored.records)
    assert stored.num_dropped_lines == 0


def test_an_interrupted_schedule_writes_what_was_in_flight_as_cancelled_and_ends_at_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "interrupted")
    with TruthServer() as server, running_load(server.url("slow"), run.path, "50") as process:
        wait_until(lambda: num_ended(run.path) >= 4, process)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=PATIENCE_S)
        num_started = len(server.requests)
    stored = read_records(run.path)
    statuses = [record.status for record in stored.records]
    assert (process.returncode, complaints) == (130, b"")
    assert statuses.count(RequestStatus.COMPLETED) >= 4
    assert statuses.count(RequestStatus.CANCELLED) >= 1
    assert set(statuses) == {RequestStatus.COMPLETED, RequestStatus.CANCELLED}
    assert num_started <= len(stored.records)
    assert stored.num_dropped_lines == 0
