"""An OpenAI-compatible server of exactly known behaviour, which writes down every send.

In:   requests on the loopback interface; the first part of the path names a case, or a pace (see pacing)
Out:  the case's bytes at its times, and at /_log, as JSON, what was sent when, on the clock of time.perf_counter_ns
Leaves out: being a process (truth_host), what a client should make of it (oracle)
Read next by: truth_host.

One thread a connection: a send blocks only its own stream. The stamp of a send is taken just before the system call.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from inference_bench.conform.pacing import Asked, paced_steps, parse_pace
from inference_bench.conform.script import Ending, Script, Step, head, refusal
from inference_bench.conform.table import case_named
from inference_bench.errors import InferenceBenchError
from inference_bench.units import GIGA, KIBI, MEBI

LOG_PATH: Final = "/_log"
CLEAR_PATH: Final = "/_clear"
MODEL: Final = "conform"

_PATIENCE_S: Final = 30.0
_BEFORE_RESET_S: Final = 0.05  # so that what was sent before has been read
_BACKLOG: Final = 1024
_MOST_BYTES: Final = 16 * MEBI
_READ_BYTES: Final = 64 * KIBI
_JSON: Final = "application/json"


@dataclass(slots=True)
class Entry:
    """What happened to one request. Unit: nanoseconds of the server's clock.

    Where:    sends holds [when, number of the step, tokens of each content event it completed]
    """

    case: str
    accepted_ns: int
    read_ns: int
    max_tokens: int
    is_chat: bool
    prompt_words: int
    sends: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    ended_ns: int | None = None
    is_whole: bool = False  # every step was taken by the socket


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: bytes


class TruthServer:
    """Listens on a free port of the loopback interface."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._log: list[Entry] = []
        self._epoch_ns = time.perf_counter_ns()

    def serve(self) -> None:
        """Accept connections for ever; run it in a thread of its own."""
        while True:
            connection, _ = self._listener.accept()
            accepted_ns = time.perf_counter_ns()
            threading.Thread(target=self._serve_one, args=(connection, accepted_ns), daemon=True).start()

    def _serve_one(self, connection: socket.socket, accepted_ns: int) -> None:
        with connection, suppress(OSError, ValueError):  # the client went away, or sent no HTTP
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_PATIENCE_S)
            asked = _read_request(connection)
            if asked.method == "POST" and asked.path.endswith("/completions"):
                self._complete(connection, asked, accepted_ns)
            else:
                _answer(connection, self._other(asked))

    def _other(self, asked: _Request) -> Script:
        if asked.path == LOG_PATH:
            return _json([asdict(entry) for entry in self._log])
        if asked.path == CLEAR_PATH:
            self._log.clear()
            return _json({})
        if asked.path.endswith("/models"):
            return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1}]})
        if asked.path.endswith(("/health", "/v1/health")):
            return _json({})
        return refusal("404 Not Found", b'{"error": {"message": "no such route"}}', _JSON)

    def _complete(self, connection: socket.socket, asked: _Request, accepted_ns: int) -> None:
        name = asked.path.split("/")[1]
        body = json.loads(asked.body)
        count = int(body.get("max_tokens") or body.get("max_completion_tokens") or 1)
        is_chat, read_ns = asked.path.endswith("/chat/completions"), time.perf_counter_ns()
        entry = Entry(name, accepted_ns, read_ns, count, is_chat, _count_words(body))
        try:
            top, steps, ending = self._plan(entry)
        except InferenceBenchError as error:
            said = json.dumps({"error": {"message": str(error)}}).encode()
            _answer(connection, refusal("404 Not Found", said, _JSON))
            return
        self._log.append(entry)
        try:
            connection.sendall(top)
            for number, (due_ns, step) in enumerate(steps):
                _sleep_until(due_ns)
                entry.sends.append((time.perf_counter_ns(), number, step.chunks))
                connection.sendall(step.wire)
            entry.is_whole = True
            _end(connection, ending)
        finally:
            entry.ended_ns = time.perf_counter_ns()

    def _plan(self, entry: Entry) -> tuple[bytes, Iterator[tuple[int, Step]], Ending]:
        pace = parse_pace(entry.case)
        if pace is not None:
            asked = Asked(entry.max_tokens, entry.is_chat, entry.prompt_words)
            steps = paced_steps(pace, asked, entry.read_ns, self._epoch_ns)
            return head(), steps, Ending.CLOSE
        script = case_named(entry.case).script
        return script.head, _scripted(script, entry.read_ns), script.ending


def _count_words(body: Mapping[str, Any]) -> int:
    """What a pace states as the prompt's tokens."""
    messages = body.get("messages")
    texts = [each.get("content") for each in messages] if isinstance(messages, list) else [body.get("prompt")]
    return sum(len(str(text).split()) for text in texts)


def _scripted(script: Script, begin_ns: int) -> Iterator[tuple[int, Step]]:
    for step in script.steps:
        yield begin_ns + round(step.at_s * GIGA), step


def _sleep_until(due_ns: int) -> None:
    while (left_ns := due_ns - time.perf_counter_ns()) > 0:
        time.sleep(left_ns / GIGA)


def _end(connection: socket.socket, ending: Ending) -> None:
    if ending is Ending.RESET:
        time.sleep(_BEFORE_RESET_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif ending is Ending.HANG:
        connection.recv(1)


def _answer(connection: socket.socket, script: Script) -> None:
    connection.sendall(script.head + b"".join(step.wire for step in script.steps))


def _json(value: object) -> Script:
    return refusal("200 OK", json.dumps(value).encode(), _JSON)


def _read_request(connection: socket.socket) -> _Request:
    """One request, whole.

    Raises:   ValueError for what is not one, or a larger one than any test sends
    """
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(connection, len(received))
    top, _, body = received.partition(b"\r\n\r\n")
    first, *lines = top.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while len(body) < int(headers.get("content-length", "0")):
        body += _receive(connection, len(body))
    method, path, _ = first.split()
    return _Request(method, path.partition("?")[0], body)


def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    part = connection.recv(_READ_BYTES)
    if not part or num_bytes > _MOST_BYTES:
        raise ValueError
    return part
