"""One HTTP exchange with a server that may do anything: whole replies and streams, both bounded in time and size.

In:   a Target, a method, a path and a body
Out:  Reply and Stream as they came; NoReplyError where there was none
Leaves out: what is asked (server), what it means (reading)
Read next by: server.

http.client does it: nothing here is timed finely, and a check should not stand on the client that the load generator is made of.
"""

from __future__ import annotations

import http.client
import json
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from inference_bench import __version__
from inference_bench.errors import ServerError, StreamError
from inference_bench.measure.blocking_http import BoundedConnection, BrokenReplyError, body_parts
from inference_bench.measure.sse import SseDecoder
from inference_bench.measure.target import Target
from inference_bench.units import MEBI

MAX_REPLY_BYTES: Final = 4 * MEBI

_CLOSES_WITHIN_S: Final = 0.3
_LEAST_S: Final = 0.05
_DONE: Final = b"[DONE]"
_STREAM_TYPE: Final = "text/event-stream"


class NoReplyError(ServerError):
    """There was no reply, or half of one; is_gone says that nothing took the connection."""

    def __init__(self, message: str, *, is_gone: bool = False) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class SilentError(NoReplyError):
    """All of the time of an exchange went by without a whole reply."""


class OutOfTimeError(ServerError):
    """The time for the whole check is used up."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. value is its JSON, None where it was none, and then text is what it says."""

    status: int
    content_type: str
    value: Any
    took_s: float
    text: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it is the JSON object that was asked for."""
        return self.status == 200 and isinstance(self.value, dict)


@dataclass(slots=True)
class Stream:
    """A reply that may be a stream: its events so far.

    Where:    value is its JSON where it was no stream; was_cut says that reading stopped early on purpose; closed_after whether
              the server closed the connection once the reply was whole, None where that was not looked at
    """

    status: int
    content_type: str
    payloads: list[bytes] = field(default_factory=list)
    value: Any = None
    num_comments: int = 0
    was_cut: bool = False
    is_done: bool = False
    closed_after: bool | None = None

    @property
    def is_stream(self) -> bool:
        """Whether it says that it is one."""
        return self.status == 200 and self.content_type == _STREAM_TYPE


class Wire:
    """Exchanges with one server until a deadline; safe to use from several threads."""

    def __init__(self, target: Target, timeout_s: float, budget_s: float) -> None:
        self.target = target
        self.num_requests = 0
        self._open: set[socket.socket] = set()
        self._is_abandoned = False
        self.timeout_s = timeout_s
        self._end_s = time.monotonic() + budget_s
        self._tls = ssl.create_default_context() if target.address.scheme == "https" else None

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, key: str | None = "own", most_s: float = math.inf
    ) -> Reply:
        """A whole reply.

        Where:    key is "own" for the target's, None for none, or another one that is sent instead; most_s is for what is not
                  worth the usual time
        Raises:   NoReplyError, OutOfTimeError
        """
        began_s = time.monotonic()
        with self._exchange(method, path, body, key, most_s) as (response, _):
            content = _whole(response)
            value, took_s = _json(content), time.monotonic() - began_s
            text = content.decode("utf-8", "replace") if value is None else ""
            return Reply(response.status, _type_of(response), value, took_s, text)

    @contextmanager
    def stream(self, path: str, body: bytes) -> Iterator[tuple[Stream, Iterator[bytes]]]:
        """A stream that fills as its payloads are taken; leaving the block closes the connection.

        Raises:   NoReplyError, OutOfTimeError; StreamError for an event without end
        """
        with self._exchange("POST", path, body, "own") as (response, sock):
            found = Stream(response.status, _type_of(response))
            if not found.is_stream:
                found.value = _json(_whole(response))
                yield found, iter(())
            else:
                yield found, _payloads(found, response)
                if not found.was_cut:
                    found.closed_after = response.will_close or _is_closed(sock)

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: bytes | None, key: str | None, most_s: float = math.inf
    ) -> Iterator[tuple[http.client.HTTPResponse, socket.socket]]:
        timeout_s = min(self._seconds_left(), most_s)
        connection = BoundedConnection(self.target.address, timeout_s, self._tls)
        late = threading.Event()
        self.num_requests += 1
        timer: threading.Timer | None = None
        sock: socket.socket | None = None
        try:
            connection.connect()
            sock = connection.sock
            self._open.add(sock)
            # looked at after the line above: abandon sets it before it goes through those that are open
            if self._is_abandoned:
                raise ConnectionAbortedError
            timer = threading.Timer(timeout_s, _cut, (sock, late))
            timer.daemon = True
            timer.start()
            connection.request(method, self.target.address.base_path + path, body, self._headers(key))
            with connection.getresponse() as response:
                yield response, sock
            if late.is_set():
                raise TimeoutError
        except (OSError, http.client.HTTPException) as error:
            raise self._no_reply(error, timeout_s, is_late=late.is_set()) from None
        finally:
            if timer is not None:
                timer.cancel()
            if sock is not None:
                self._open.discard(sock)
            connection.close()

    def abandon(self) -> None:
        """Break off every exchange that is under way, in whatever thread, and let none begin."""
        self._is_abandoned = True
        for sock in tuple(self._open):
            _shut(sock)

    def _headers(self, key: str | None) -> dict[str, str]:
        plain = {"User-Agent": f"inference-bench/{__version__}", "Content-Type": "application/json"}
        if key == "own":
            return plain | dict(self.target.secret_headers)
        others = {name: value for name, value in self.target.extra_headers.items() if name.lower() != "authorization"}
        return plain | others | ({} if key is None else {"Authorization": f"Bearer {key}"})

    def _seconds_left(self) -> float:
        left_s = self._end_s - time.monotonic()
        if left_s < _LEAST_S:
            raise OutOfTimeError("the time for the whole check was used up")
        return min(self.timeout_s, left_s)

    def _no_reply(self, error: Exception, timeout_s: float, *, is_late: bool) -> NoReplyError:
        if is_late or isinstance(error, TimeoutError):
            return SilentError(f"no whole reply within {timeout_s:.3g} s")
        if isinstance(error, ConnectionRefusedError):
            return NoReplyError("nothing took the connection", is_gone=True)
        if isinstance(error, BrokenReplyError):
            return NoReplyError(str(error))
        if isinstance(error, http.client.HTTPException | ConnectionError):
            return NoReplyError("the connection was closed before the reply was whole")
        said = getattr(error, "strerror", None) or type(error).__name__
        return NoReplyError(f"no connection ({str(said).lower()})")


def _whole(response: http.client.HTTPResponse) -> bytes:
    """A reply to its end, or as much of it as is taken."""
    return b"".join(body_parts(response, MAX_REPLY_BYTES))


def _payloads(found: Stream, response: http.client.HTTPResponse) -> Iterator[bytes]:
    decoder, num_bytes = SseDecoder(), 0
    for data in body_parts(response, MAX_REPLY_BYTES + 1):
        num_bytes += len(data)
        if num_bytes > MAX_REPLY_BYTES:
            raise StreamError("the stream is longer than anything that was asked for; gave up reading")
        found.num_comments += data.count(b"\n:") + data.startswith(b":")
        for payload in decoder.feed_bytes(data):
            if payload == _DONE:
                found.is_done = True
            else:
                found.payloads.append(payload)
                yield payload


def _is_closed(sock: socket.socket) -> bool:
    """Whether the other side closes an idle connection now, rather than keep it."""
    with suppress(OSError, ValueError):
        readable, _, _ = select.select([sock], [], [], _CLOSES_WITHIN_S)
        return bool(readable) and sock.recv(1, socket.MSG_PEEK) == b""
    return True


def _cut(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    _shut(sock)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _type_of(response: http.client.HTTPResponse) -> str:
    return (response.headers.get_content_type() or "").lower()


def _json(content: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(content)
    return None
