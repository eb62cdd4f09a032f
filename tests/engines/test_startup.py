"""A server that is brought up: what it must have done before it counts, and what is said of one that has not."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.test_process import is_gone
from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.engines.ports import choose_port
from inference_bench.engines.process import ServerProcess
from inference_bench.engines.startup import EngineWords, StartedServer, Startup
from inference_bench.engines.vllm_log import find_python_failure
from inference_bench.errors import ServerStartError

WORDS = EngineWords("fake", find_python_failure, ((re.compile("no kernel"), "use another format"),))

# Answers /health and /v1/models as every engine does; what it does with a request for tokens is its last argument.
ENGINE = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, how = int(sys.argv[1]), sys.argv[2]
print("loading", file=sys.stderr, flush=True)
tries = 0

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments): pass
    def reply(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "m"}]}).encode())
    def do_POST(self):
        global tries
        tries += 1
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = json.dumps({"usage": {"completion_tokens": 1}}).encode()
        if how == "dies":
            print("ERROR 11-30 14:00:00 [core.py:1] ValueError: no kernel for this machine", file=sys.stderr, flush=True)
            import os; os._exit(1)
        if how == "model unknown": self.reply(404, b'{"error": {"message": "the model `x` does not exist"}}')
        elif how == "half": self.reply(200, good[:-3])
        elif how == "page": self.reply(200, b"<html>hello</html>", "text/html")
        elif how == "large": self.reply(200, b"[" + b"0," * 5_000_000 + b"0]")
        elif how == "no token": self.reply(200, json.dumps({"usage": {"completion_tokens": 0}}).encode())
        elif how == "silent": time.sleep(600)
        elif how == "late" and tries < 3: self.reply(503, b'{"error": {"message": "loading"}}')
        elif asked.get("model") != "m": self.reply(404, b"{}")
        else: self.reply(200, good)

ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def wait_until_open(port: int) -> None:
    """A loaded machine may take its time to start a process, which is not what is tested."""
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture
def bring_up(tmp_path: Path) -> Iterator[object]:
    running: list[ServerProcess] = []

    def start(how: str, timeout_s: float = 20.0, said: list[str] | None = None) -> ServerProcess:
        port = choose_port()
        command = [sys.executable, "-c", ENGINE, str(port), how]
        process = ServerProcess.keep(command, log_path=tmp_path / "log", env=dict(os.environ), grace_s=1.0)
        running.append(process)
        wait_until_open(port)
        progress = None if said is None else said.append
        startup = Startup(WORDS, "model", process, tmp_path / "log", time.monotonic() + timeout_s, progress)
        startup.wait_answer(f"http://127.0.0.1:{port}", "m")
        return process

    yield start
    for process in running:
        process.stop()
    assert all(is_gone(process.pid) for process in running)


def test_a_server_is_ready_when_a_token_came_back_however_often_it_was_asked(bring_up) -> None:
    said: list[str] = []
    assert bring_up("late", said=said).is_running()
    assert said == ["waiting for the first token"]


def test_a_server_that_answers_its_health_page_and_dies_on_the_first_request_is_told_with_its_own_words(
    bring_up,
) -> None:
    with pytest.raises(
        ServerStartError, match=r"ValueError: no kernel for this machine \(ended with exit status 1\)"
    ) as caught:
        bring_up("dies")
    assert "; use another format; log: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("model unknown", "HTTP 404"),
        ("half", "JSON"),
        ("page", "text/html instead of JSON"),
        ("large", "(the reply holds no token|not finished)"),
        ("no token", "the reply holds no token"),
        ("silent", "within"),
    ],
)
def test_a_server_that_never_gives_a_token_is_not_ready_whatever_else_it_answers(bring_up, how: str, what: str) -> None:
    began = time.monotonic()
    with pytest.raises(ServerStartError, match=f"did not answer in time .*{what}") as caught:
        bring_up(how, timeout_s=1.0)
    assert time.monotonic() - began < 15
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


def test_a_log_is_waited_for_only_so_long(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\n")
    process = ServerProcess([sys.executable, "-c", "pass"], log_path=tmp_path / "other", env=dict(os.environ))
    startup = Startup(WORDS, "model", process, tmp_path / "log", time.monotonic(), None)
    assert startup.wait_in_log("one", 30) == "one\n"
    assert startup.wait_in_log("two", 0.05) == "one\n"
    assert startup.left_s() == 0
    process.stop()


def test_a_started_server_tells_how_it_is_and_ends_with_the_block(tmp_path: Path) -> None:
    process = ServerProcess(
        [sys.executable, "-c", "import time; time.sleep(600)"], log_path=tmp_path / "log", env=dict(os.environ)
    )
    with StartedServer(process, "http://x", EngineIdentity("x", "test"), EngineFigures()) as server:
        assert server.is_running()
        assert server.pid == process.pid
        assert server.describe_end() == "still runs"
    assert is_gone(process.pid)
    assert not server.is_running()
