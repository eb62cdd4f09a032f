"""`serve` as a process: it says where it is, answers, ends with Ctrl-C, and says when its engine has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import inference_bench
from engines.test_process import wait_until_gone
from inference_bench.cli.main import main

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    source = str(Path(inference_bench.__file__).parents[1])
    command = [
        sys.executable,
        "-m",
        "inference_bench",
        "serve",
        "--json",
        "--threads",
        "1",
        "--context",
        "512",
        *options,
    ]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or lines[-1] not in ("}\n", ""):
                lines.append(process.stdout.readline())
            yield process, json.loads("".join(lines))
        finally:
            process.kill()


def test_it_says_where_it_is_answers_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    with serving("--log", str(log)) as (process, said):
        assert said["schema"] == "inference-bench/serve/1"
        assert said["url"].startswith("http://127.0.0.1:")
        with urlopen(said["url"] + "/v1/models", timeout=30) as reply:
            assert [each["id"] for each in json.load(reply)["data"]] == [said["model"]]
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
        assert (process.returncode, complaint) == (0, "")
        assert wait_until_gone(said["pid"])
    assert "n_ctx" in log.read_text(encoding="utf-8", errors="replace")


def test_an_engine_that_ends_by_itself_is_said_and_is_exit_3() -> None:
    with serving() as (process, said):
        os.kill(said["pid"], signal.SIGKILL)
        began_s = time.monotonic()
        _, complaint = process.communicate(timeout=30)
        assert time.monotonic() - began_s < 20
        assert process.returncode == 3
        assert complaint.startswith("inference-bench: the engine ended by itself")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--slots", "0"), "0 slots cannot serve anything"),
        (("--port", "99999"), "there is no port 99999"),
        (("--engine", "foo"), "no engine 'foo' can be started"),
        (("nothing.gguf",), "serves .gguf files; 'nothing.gguf' is not there"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_2(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
