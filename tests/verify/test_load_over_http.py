"""The real client against a server that keeps the law by its own arithmetic: one request at a time, 2 ms a step, 1 ms a position."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from inference_bench.measure.load import LoadOptions
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.measure.target import Target
from inference_bench.records import RequestStatus
from inference_bench.verify.load_check import check_load, sending
from inference_bench.verify.load_prediction import PREDICTION_FILE
from inference_bench.verify.load_workload import LoadBudget
from verify.load_servers import POSITION_S, STEP_S, server_model

SHORT = LoadBudget(seconds=4.0, fewest=8, finds_capacity=False, has_past=False)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_CHUNK = b'data: {"object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'


class OneAtATime:
    """Whoever comes first is answered first; times add up without a simulator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_s = 0.0

    def answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(30.0)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            body = _body_of(connection)
            words, count = len(body["prompt"].split()), body["max_tokens"]
            with self._lock:
                first_s = max(time.monotonic(), self._free_s) + STEP_S + words * POSITION_S
                self._free_s = first_s + (count - 1) * (STEP_S + POSITION_S)
            connection.sendall(_HEAD)
            for number in range(count):
                _sleep_until(first_s + number * (STEP_S + POSITION_S))
                connection.sendall(_CHUNK)
            usage = {"prompt_tokens": words, "completion_tokens": count, "total_tokens": words + count}
            last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": usage}
            connection.sendall(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def _body_of(connection: socket.socket) -> dict[str, object]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return json.loads(body)


@contextmanager
def lawful_port() -> Iterator[int]:
    server = OneAtATime()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=server.answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def test_the_client_sends_what_was_predicted_and_finds_about_what_the_law_says(tmp_path: Path) -> None:
    folder, model = RunFolder.create(tmp_path, "verify"), server_model(slots=1)
    with lawful_port() as port, folder.open_writer() as writer:
        options = LoadOptions(writer=writer.append, prompts=PromptMaker(0))
        checked = check_load(model, sending(Target(f"http://127.0.0.1:{port}"), options), folder, SHORT)
    rows = checked.load.rows
    assert [row.place for row in rows] == ["below", "near"]
    for row in rows:
        assert row.num_completed == row.num_requests >= 8
        assert row.realised_rate == pytest.approx(row.rate, rel=0.5)
        for name in ("ttft_p50_s", "e2e_p50_s", "output_tokens_per_s", "duration_s"):
            figure = row.figure(name)
            assert figure is not None
            assert figure.error == pytest.approx(0.0, abs=0.4), (row.place, name)
        assert not any("prompts are as long as asked" in note for note in row.notes)
    stored = read_records(folder.path).records
    assert {record.group for record in stored} == {"load-below", "load-near"}
    assert all(record.status is RequestStatus.COMPLETED for record in stored)
    predicted = json.loads((folder.path / PREDICTION_FILE).read_text())["loads"]
    for load in predicted:
        sent = {record.index: record for record in stored if record.group == f"load-{load['place']}"}
        assert [sent[index].prompt_tokens for index in sorted(sent)] == load["prompt_tokens"]
        assert [sent[index].output_tokens for index in sorted(sent)] == load["output_tokens"]
