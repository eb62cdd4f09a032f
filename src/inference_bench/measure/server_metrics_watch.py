"""Ask a server once a second how it does, beside a run and without disturbing it.

In:   a Target, the run's clock, the run folder
Out:  ServerMetrics, and a line a sample in `server_metrics.jsonl` as it comes
Leaves out: what a page says (server_metrics)
Read next by: loadtest.

A thread of its own, a short connection each time, and a limit of less than a second on all of it: connecting, asking and
reading. A server that is slow, dead, or says too much costs samples and never delays a request: whatever goes wrong is
counted and said. The page is read in well under a millisecond, in which the thread that sends requests has to wait; stamps of
the kernel do not.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from inference_bench.errors import InferenceBenchError, RequestError, ServerError
from inference_bench.measure.blocking_http import connect_within
from inference_bench.measure.prometheus_text import MAX_PAGE_BYTES
from inference_bench.measure.server_metrics import (
    SERVER_METRICS_FILE,
    ServerMetrics,
    ServerSample,
    read_page,
    sample_to_json,
)
from inference_bench.measure.target import Target
from inference_bench.units import KIBI, MEBI, format_seconds

PERIOD_S: Final = 1.0
TIMEOUT_S: Final = 0.8
SETTLE_S: Final = 0.2  # after the last reply, until a server has counted it
_MOST_STRANGE: Final = 10  # pages without a figure: some servers show one only once it is not 0
_PART_BYTES: Final = 256 * KIBI
_LEAST_S: Final = 0.001
_WHY: Final = {
    401: "it wants a key that it was not given",
    403: "it does not show them to this client",
    404: "it has none at that path: SGLang shows them when started with --enable-metrics",
    501: "it does not show them: llama.cpp does when started with --metrics",
}


class ServerWatch:
    """Samples a server's metrics while the `with` block runs.

    Where:    the block begins once the first answer has come or failed, and the last is waited for in the end, so that
              counters can be compared with all that came between. A server that answers that it has no such page is not asked
              again
    """

    def __init__(
        self,
        target: Target,
        clock: Callable[[], float],
        folder: Path | None = None,
        *,
        path: str = "/metrics",
        period_s: float = PERIOD_S,
        timeout_s: float = TIMEOUT_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._fetch = PageFetcher(target, path, timeout_s)
        self._clock, self._period_s, self._settle_s = clock, period_s, settle_s
        self._timeout_s = timeout_s
        self._file = None if folder is None else _SampleFile(folder / SERVER_METRICS_FILE)
        self._samples: list[ServerSample] = []
        self._server: str | None = None
        self._num_failed = self._num_late = 0
        self._trouble: str | None = None
        self._cpu_s = 0.0
        self._gives_up = False
        self._lock = threading.Lock()
        self._begun, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="server metrics", daemon=True)

    @property
    def result(self) -> ServerMetrics:
        """What was seen so far."""
        with self._lock:
            trouble = self._trouble or (None if self._file is None else self._file.trouble)
            return ServerMetrics(
                self._server, tuple(self._samples), self._num_failed, self._num_late, trouble, self._cpu_s
            )

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(2 * self._timeout_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._gives_up = True  # interrupted: nobody waits for a last sample
        self._ending.set()
        self._thread.join(0.0 if self._gives_up else self._settle_s + 3 * self._timeout_s)
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _run(self) -> None:
        begin_s, tick = time.perf_counter(), 0
        while not self._gives_up and not self._ending.is_set():
            self._sample()
            self._begun.set()
            due = max(tick + 1, int((time.perf_counter() - begin_s) / self._period_s) + 1)
            self._num_late += due - tick - 1
            tick = due
            self._ending.wait(max(0.0, begin_s + tick * self._period_s - time.perf_counter()))
        if not self._gives_up:
            time.sleep(self._settle_s)
            self._sample()

    def _sample(self) -> None:
        """One question, whatever comes of it."""
        cpu_s, at_s = time.thread_time(), self._clock()
        try:
            text = self._fetch()
            read = read_page(text, at_s, self._clock() - at_s)
            if read is None:
                self._gives_up = not self._samples and self._num_failed + 1 >= _MOST_STRANGE
                raise ServerError("its page of metrics has no figure of a server that is known here")
            self._keep(*read)
        except _NoPageError as error:
            self._gives_up = True
            self._fail(str(error))
        except (InferenceBenchError, OSError, ValueError, http.client.HTTPException) as error:
            self._fail(_words(error, self._timeout_s))
        self._cpu_s += time.thread_time() - cpu_s

    def _keep(self, server: str, sample: ServerSample) -> None:
        with self._lock:
            self._server = server
            self._samples.append(sample)
            if self._file is not None:
                self._file.append(sample_to_json(server, sample))

    def _fail(self, why: str) -> None:
        with self._lock:
            self._num_failed += 1
            self._trouble = self._trouble or f"the server's own metrics: {why}"


class _NoPageError(ServerError):
    """A server that will not show its metrics, however often it is asked."""


def _words(error: Exception, timeout_s: float) -> str:
    """What went wrong, in words of ours: nothing that a server said is repeated."""
    if isinstance(error, TimeoutError):
        return f"no whole answer within {format_seconds(timeout_s)}"
    if isinstance(error, ServerError):
        return str(error)
    if isinstance(error, ssl.SSLError):
        return "the connection could not be made secure"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it closed without an answer"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return "the answer was cut short" if isinstance(error, http.client.IncompleteRead) else "the answer is no HTTP"


def require_page_path(path: str) -> str:
    """The path, which can stand in a request.

    Raises:   RequestError
    """
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise RequestError(
            f"the path of the server's metrics {path[:80]!r} must begin with / and hold printable ASCII without spaces, such "
            "as /metrics"
        )
    return path


class PageFetcher:
    """Fetches one page again and again, each time over a connection of its own, within a time in all."""

    def __init__(self, target: Target, path: str = "/metrics", timeout_s: float = TIMEOUT_S) -> None:
        self._address, self._timeout_s = target.address, timeout_s
        self._tls = ssl.create_default_context() if target.address.scheme == "https" else None
        lines = [
            f"GET {target.address.base_path}{require_page_path(path)} HTTP/1.1",
            f"Host: {target.address.host_header}",
        ]
        lines += ["Accept: text/plain", "Connection: close"]
        if target.api_key is not None:
            lines.append(f"Authorization: {target.api_key.authorization()}")
        lines += (f"{name}: {value}" for name, value in target.extra_headers.items())
        self._request = "\r\n".join([*lines, "", ""]).encode("ascii")

    def __call__(self) -> str:
        """The page as text.

        Raises:   ServerError, OSError (TimeoutError), http.client.HTTPException
        """
        end_s = time.monotonic() + self._timeout_s
        with connect_within(self._address, self._timeout_s, self._tls) as connection:
            connection.settimeout(max(_LEAST_S, end_s - time.monotonic()))
            connection.sendall(self._request)
            received = _read_all(connection, end_s)
        response = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]
        response.begin()
        if response.status != http.HTTPStatus.OK:
            why = _WHY.get(response.status, f"it answered with HTTP status {response.status}")
            raise (_NoPageError if response.status in {*_WHY, 405, 410} else ServerError)(why)
        page = response.read()
        if len(page) > MAX_PAGE_BYTES:
            raise ServerError(f"its page of metrics is larger than {MAX_PAGE_BYTES // MEBI} MiB")
        return page.decode("utf-8", "replace")


def _read_all(connection: socket.socket, end_s: float) -> bytes:
    """Everything until the server closes.

    Raises:   ServerError for more than a page may hold, TimeoutError
    """
    parts: list[bytes] = []
    num_bytes = 0
    while (left_s := end_s - time.monotonic()) > 0:
        connection.settimeout(left_s)
        part = connection.recv(_PART_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
        num_bytes += len(part)
        if num_bytes > MAX_PAGE_BYTES + MEBI:
            raise ServerError(f"its page of metrics is larger than {MAX_PAGE_BYTES // MEBI} MiB")
    raise TimeoutError


class _Received:
    """What came, in place of a socket."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, mode: str) -> io.BytesIO:
        del mode
        return io.BytesIO(self._received)


class _SampleFile:
    """Lines appended to a file that is made with the first of them; what cannot be written is left out and said."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._is_closed = False
        self.trouble: str | None = None

    def append(self, line: str) -> None:
        """Write a line whole or not at all."""
        if self._is_closed or self.trouble is not None:
            return
        try:
            if self._handle is None:
                self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
            data = f"{line}\n".encode()
            length = os.fstat(self._handle).st_size
            if os.write(self._handle, data) < len(data):
                os.ftruncate(self._handle, length)
                raise OSError(0, "disk full")
        except OSError as error:
            why = (error.strerror or type(error).__name__).lower()
            self.trouble = f"the server's own metrics could not be written to the run folder: {why}"

    def close(self) -> None:
        """No line is written from now on, by whichever thread."""
        self._is_closed = True
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
            self._handle = None
