"""The truth server as a process: its pacing, its log, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import inference_bench
from inference_bench.conform.pacing import parse_pace
from inference_bench.conform.truth_process import TruthProcess
from inference_bench.errors import RequestError

PATIENCE_S = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[TruthProcess]:
    with TruthProcess() as running:
        yield running


def ask(server: TruthProcess, case: str, max_tokens: int = 5, **more: object) -> bytes:
    """The raw reply, read with nothing but a socket."""
    body = json.dumps({"max_tokens": max_tokens, "stream": True, "messages": [], **more}).encode()
    head = f"POST /{case}/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode() + body)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def log_of(server: TruthProcess, case: str) -> list[dict[str, Any]]:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        log = server.log(case)
        if all(entry["ended_ns"] is not None for entry in log):
            return log
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def token_times_s(entry: dict[str, Any]) -> list[float]:
    return [time_ns / 1e9 for time_ns, _, chunks in entry["sends"] for _ in chunks]


def test_every_send_is_logged_in_order_with_its_tokens(server: TruthProcess) -> None:
    before_ns = time.perf_counter_ns()
    reply = ask(server, "several_tokens_a_chunk")
    after_ns = time.perf_counter_ns()
    (entry,) = log_of(server, "several_tokens_a_chunk")
    assert [chunks for *_, chunks in entry["sends"] if chunks] == [[3], [1], [5]]
    stamps = [entry["accepted_ns"], entry["read_ns"], *(time_ns for time_ns, *_ in entry["sends"]), entry["ended_ns"]]
    assert stamps == sorted(stamps)
    assert before_ns < stamps[0]
    assert stamps[-2] < after_ns
    assert [number for _, number, _ in entry["sends"]] == list(range(len(entry["sends"])))
    assert reply.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert entry["is_whole"]
    assert entry["is_chat"]
    assert entry["max_tokens"] == 5


def test_paced_streams_keep_absolute_deadlines(server: TruthProcess) -> None:
    """20 gaps of 5 ms after 20 ms, whatever any single send is late by."""
    ask(server, "paced,first=0.02,gap=0.005", 21)
    (entry,) = log_of(server, "paced,first=0.02,gap=0.005")
    times_s = token_times_s(entry)
    late_s = [at - entry["read_ns"] / 1e9 - 0.02 - 0.005 * number for number, at in enumerate(times_s)]
    assert len(late_s) == 21
    assert min(late_s) >= 0
    assert median(late_s) < 0.003


def test_lockstep_streams_send_on_shared_ticks(server: TruthProcess) -> None:
    case = "lockstep,first=0.03,gap=0.02"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: (time.sleep(0.003), ask(server, case, 4)), range(3)))
    firsts, *_ = [token_times_s(entry) for entry in log_of(server, case)]
    phases = [(at - firsts[0] + 0.01) % 0.02 - 0.01 for entry in log_of(server, case) for at in token_times_s(entry)]
    assert len(phases) == 12
    assert median(map(abs, phases)) < 0.003


def test_a_pausing_server_sends_nothing_while_it_stands_still(server: TruthProcess) -> None:
    case = "pausing,first=0.01,gap=0.01,period=0.4,pause=0.2"
    ask(server, case, 60)
    (entry,) = log_of(server, case)
    gaps_s = [after - before for before, after in pairwise(token_times_s(entry))]
    assert max(gaps_s) == pytest.approx(0.2, abs=0.04)
    assert sum(gap > 0.1 for gap in gaps_s) in (1, 2)


def test_a_pace_states_the_words_of_the_prompt_as_its_tokens(server: TruthProcess) -> None:
    said = {"messages": [{"role": "user", "content": "one two three"}, {"role": "user", "content": "four"}]}
    assert b'"prompt_tokens": 4' in ask(server, "null", **said)


def test_firehose_and_null_do_not_wait(server: TruthProcess) -> None:
    reply = ask(server, "firehose", 1000)
    assert reply.count(b'"content": " a"') == 1000
    assert ask(server, "null", 1000).count(b'"content": " a"') == 1
    (entry,) = log_of(server, "firehose")
    assert sum(sum(chunks) for *_, chunks in entry["sends"]) == 1000


@pytest.mark.parametrize("case", ["nothing_like_this", "paced,gap=0", "paced,gap=x", "paced,size=1"])
def test_what_is_not_served_is_said(server: TruthProcess, case: str) -> None:
    assert ask(server, case).startswith(b"HTTP/1.1 404")
    assert server.log(case) == []


def test_a_pace_is_read_or_refused() -> None:
    assert parse_pace("control") is None
    pace = parse_pace("pausing,gap=0.002")
    assert pace is not None
    assert (pace.mode, pace.gap) == ("pausing", 0.002)
    with pytest.raises(RequestError, match="seconds"):
        parse_pace("paced,gap=-1")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline_s, "the truth server outlived its starter"
        time.sleep(0.02)


def test_it_ends_with_the_block_also_in_the_middle_of_a_stream() -> None:
    with TruthProcess() as running, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, running, "paced,first=0,gap=5", 100)
        while not running.log():
            time.sleep(0.01)
        running.end()
        asked.exception(PATIENCE_S)
    wait_until_gone(running.pid)


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_when_its_starter_dies(kind: signal.Signals) -> None:
    code = (
        "import time; from inference_bench.conform.truth_process import TruthProcess\n"
        "with TruthProcess() as server:\n    print(server.pid, flush=True); time.sleep(60)"
    )
    source = str(Path(inference_bench.__file__).parents[1])
    starter = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert is_running(pid)
        starter.send_signal(kind)
        starter.wait(PATIENCE_S)
    wait_until_gone(pid)
