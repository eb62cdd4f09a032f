"""When a load or its saving fails: one line says so, the exit code tells which, and what was measured is printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import inference_bench
from inference_bench.cli import load
from inference_bench.cli.main import main
from inference_bench.errors import StorageError
from measure.truth_server import TruthServer

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def start(server: TruthServer, case: str, folder: Path, *options: str) -> list[str]:
    return ["load", server.url(case), "--served-model", "m", "--runs", str(folder), "--output-tokens", "2", *options]


def test_where_no_request_completes_the_error_says_so_and_why(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(start(server, "busy_with_two", tmp_path, "--requests", "7", "--no-report")) == 3
    said = capsys.readouterr()
    assert "7 sent, 7 rejected" in said.out
    assert said.err == "inference-bench: no request completed; the first: HTTP 429: slow down\n"


@pytest.mark.parametrize("failure", [StorageError("could not write it: disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("part", ["save_json", "write_load_page"])
def test_what_was_measured_is_printed_where_it_cannot_be_kept(
    server: TruthServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    failure: BaseException,
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(load, part, fail)
    code = main(start(server, "at_once", tmp_path, "--requests", "4", "--json"))
    said = capsys.readouterr()
    assert code == (3 if isinstance(failure, StorageError) else 130)
    assert json.loads(said.out)["requests"]["completed"] == 4
    assert said.err.count("\n") == 1


def test_a_sweep_that_misses_a_level_prints_the_others_and_ends_with_3(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = ("--concurrency", "1,100000", "--requests", "3", "--no-report", "--json")
    assert main(start(server, "at_once", tmp_path, *levels)) == 3
    said = capsys.readouterr()
    assert [point["level"] for point in json.loads(said.out)["points"]] == [1]
    assert said.err.startswith("inference-bench: 1 of 2 levels were measured; concurrency 100000: ")
    assert said.err.count("\n") == 1


def test_a_polite_kill_prints_what_was_measured_like_an_interruption(server: TruthServer, tmp_path: Path) -> None:
    source = str(Path(inference_bench.__file__).parents[1])
    command = [sys.executable, "-W", "error", "-m", "inference_bench"]
    with subprocess.Popen(
        [*command, *start(server, "slow", tmp_path, "--requests", "1000", "--no-report", "--json")],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while sum(request.num_tokens == 2 for request in server.of("slow")) < 4:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline_s, "nothing was sent"
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert error == "inference-bench: interrupted; this is what was measured by then\n"
    assert json.loads(out)["requests"]["completed"] >= 2


def test_levels_are_printed_where_the_disk_fills_up_behind_them(server: TruthServer, tmp_path: Path) -> None:
    source = str(Path(inference_bench.__file__).parents[1])
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); "
        "from inference_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    options = start(server, "at_once", tmp_path, "--concurrency", "1,2", "--requests", "25", "--no-report")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", limited, *options],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 3
    assert "concurrency 2: could not write" in " ".join(done.stdout.split())
    assert done.stderr.count("\n") == 1
    assert "could not write" in done.stderr
