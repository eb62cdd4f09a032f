"""A load run that is killed while answers stream in: its folder has them, and says that it was cut short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import inference_bench
from inference_bench.cli.main import main
from inference_bench.measure.journal_read import NEVER_ENDED
from inference_bench.measure.store import read_records
from inference_bench.records import RequestRecord, RequestStatus
from measure.truth_server import TruthServer

PATIENCE_S = 60.0


@contextmanager
def load_process(url: str, runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-W", "error", "-m", "inference_bench", "load", url, "--runs", str(runs)]
    command += ["--served-model", "truth", "--concurrency", "2", "--requests", "100", "--output-tokens", "2000"]
    source = str(Path(inference_bench.__file__).parents[1])
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def in_flight(runs: Path) -> list[RequestRecord]:
    """Requests of the measured group that have not ended."""
    return [
        record
        for folder in runs.glob("*-load")
        for record in read_records(folder).records
        if record.error == NEVER_ENDED and record.group == "measure"
    ]


def test_a_killed_load_run_keeps_the_tokens_of_requests_in_flight(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with TruthServer() as server, load_process(server.url("slow"), tmp_path) as process:
        deadline_s = time.monotonic() + PATIENCE_S
        while not any(len(record.chunk_times_s) >= 60 for record in in_flight(tmp_path)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s, "no chunk of a request in flight was written"
            time.sleep(0.05)
        process.kill()
        process.wait()
    cut = in_flight(tmp_path)
    assert 1 <= len(cut) <= 2
    assert all(record.status is RequestStatus.CANCELLED for record in cut)
    assert all(list(record.chunk_times_s) == sorted(record.chunk_times_s) for record in cut)
    (folder,) = tmp_path.iterdir()
    assert main(["report", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["finished"], found["in_flight_at_the_end"]) == (False, len(cut))
    assert found["requests"]["cancelled"] == len(cut)
    assert found["arrivals_proof"] is not None
