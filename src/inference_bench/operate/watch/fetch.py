"""One question to a server that may be slow, dead or strange: what came back, or why nothing did.

In:   a Target, a path, perhaps a JSON body, a time for all of it
Out:  Reply; or Unanswered, which says whether a connection was taken
Leaves out: what is asked, and what the answers mean (observer)
Read next by: observer.

A new connection each time, as anything that watches would use: a kept one says nothing of whether a new user gets in. The exchange is
that of the load client (measure.http1); names are looked up in threads of their own that nobody waits for, since a dead name server
can hold one for half a minute, and asyncio's own few threads would then keep every other server waiting.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from inference_bench import __version__
from inference_bench.measure.http1 import (
    Dialer,
    ExchangeError,
    FailureKind,
    HttpRequest,
    Limits,
    RunClock,
    Timeouts,
    open_exchange,
)
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.prometheus_text import MAX_PAGE_BYTES
from inference_bench.measure.target import Target
from inference_bench.units import format_bytes_binary, format_seconds

_LOOKED_UP_AGAIN_S: Final = 60.0
_AFTER_FAILURE_S: Final = 10.0  # a new dialer reads the certificates of the system again, which costs more than a look
_WORDS: Final = {
    FailureKind.LOST: "the connection ended before the answer did",
    FailureKind.BROKEN: "the answer is no HTTP/1.1",
    FailureKind.TOO_LARGE: f"the answer is larger than {format_bytes_binary(MAX_PAGE_BYTES)}",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes
    took_s: float

    def json(self) -> Any:
        """Its JSON, None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Unanswered(Exception):
    """No whole HTTP answer; was_answered says that one had begun, was_connected that a connection was taken."""

    def __init__(self, why: str, *, was_connected: bool, was_answered: bool = False, timed_out: bool = False) -> None:
        super().__init__(why)
        self.was_connected, self.was_answered, self.timed_out = was_connected, was_answered, timed_out


class Fetcher:
    """Asks one server."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._dialer: Dialer | None = None
        self._looked_up_s = 0.0
        self._lookup: asyncio.Future[object] | None = None
        self._headers = (
            ("User-Agent", f"inference-bench/{__version__}"),
            ("Accept", "*/*"),
            ("Accept-Encoding", "identity"),
            *target.secret_headers,
        )

    async def __call__(self, path: str, timeout_s: float, body: object = None) -> Reply:
        """The answer to a GET, or to a POST where there is a body.

        Raises:   Unanswered
        """
        begin_s = time.monotonic()
        progress = _Progress()
        try:
            async with asyncio.timeout(timeout_s):
                dialer = await self._found()
                return await self._exchange(dialer, path, timeout_s, body, begin_s, progress)
        except TimeoutError:
            raise self._unanswered(
                f"no whole answer within {format_seconds(timeout_s)}", progress, timed_out=True
            ) from None
        except ExchangeError as error:
            timed_out = error.kind is FailureKind.TIMED_OUT
            why = _WORDS.get(error.kind, str(error))
            why = f"no whole answer within {format_seconds(timeout_s)}" if timed_out else why
            raise self._unanswered(why, progress, timed_out=timed_out) from None
        except OSError as error:
            raise self._unanswered(f"no connection ({(error.strerror or 'no address').lower()})", progress) from None

    def _unanswered(self, why: str, progress: _Progress, timed_out: bool = False) -> Unanswered:
        if time.monotonic() - self._looked_up_s >= _AFTER_FAILURE_S:
            self._dialer = None  # the name may lead elsewhere by now
        return Unanswered(
            why, was_connected=progress.was_connected, was_answered=progress.was_answered, timed_out=timed_out
        )

    async def _exchange(
        self, dialer: Dialer, path: str, timeout_s: float, body: object, begin_s: float, progress: _Progress
    ) -> Reply:
        data = b"" if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else (*self._headers, ("Content-Type", "application/json"))
        request = HttpRequest("GET" if body is None else "POST", path, headers, data)
        limits, timeouts = Limits(max_reply_bytes=MAX_PAGE_BYTES), Timeouts(timeout_s, timeout_s, timeout_s)
        async with open_exchange(dialer, request, RunClock(), timeouts, limits) as exchange:
            progress.was_connected = True
            head = await exchange.head()
            progress.was_answered = True
            parts = bytearray()
            while (part := await exchange.next_part()) is not None:
                parts += part.data
            return Reply(head.status, bytes(parts), time.monotonic() - begin_s)

    async def _found(self) -> Dialer:
        """Who dials; its name is looked up before, again after a failure and after a while.

        Raises:   OSError
        """
        if self._dialer is not None and time.monotonic() - self._looked_up_s < _LOOKED_UP_AGAIN_S:
            return self._dialer
        address = self._target.address
        if self._lookup is None:  # one at a time, however long it takes
            self._lookup = in_own_thread(
                lambda: socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            )
            self._lookup.add_done_callback(self._forget_lookup)
        await asyncio.shield(self._lookup)
        self._dialer, self._looked_up_s = Dialer(address, StampSource.USER), time.monotonic()
        return self._dialer

    def _forget_lookup(self, done: asyncio.Future[object]) -> None:
        self._lookup = None
        if not done.cancelled():
            done.exception()  # somebody has looked, so that asyncio does not complain


@dataclass(slots=True)
class _Progress:
    """How far an exchange came."""

    was_connected: bool = False
    was_answered: bool = False


def in_own_thread(work: Callable[[], object]) -> asyncio.Future[Any]:
    """What a function that blocks comes to, in a thread that does not keep the program from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: object, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def run() -> None:
        value: object = None
        failure: Exception | None = None
        try:
            value = work()
        except Exception as error:
            failure = error
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, value, failure)
            except RuntimeError:  # closed just now: nobody waits any more
                return

    threading.Thread(target=run, name="watch", daemon=True).start()
    return done
