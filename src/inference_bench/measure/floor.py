"""How fast is the measuring client itself: the same client against a server that does nothing.

In:   nothing
Out:  ClientFloor: what this client would report for an infinitely fast model on this machine
Leaves out: a network; the null server runs in a thread of this process and shares its time, so the floor errs high
Read next by: verify, load reports.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import run_closed_loop
from inference_bench.measure.target import Target
from inference_bench.metrics import ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import median
from inference_bench.workload import RequestShape, closed_loop

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_CHUNK: Final = b'data: {"object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
_FINISH: Final = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
_RECEIVE_BYTES: Final = 65536
_WAIT_S: Final = 5.0
_PACE_S: Final = 0.0005  # far enough apart that each chunk is a read of its own


@dataclass(frozen=True, slots=True)
class ClientFloor:
    """The client's own share of what it reports.

    Where:    ttft_s is the median time to connect, send and read the first chunk of a reply that was ready at once;
              chunk_cpu_s is the processor time that one chunk costs when it comes alone: streams that together bring
              chunks faster than 1 / chunk_cpu_s measure this client and not the server
    Unit:     seconds
    """

    ttft_s: float
    chunk_cpu_s: float | None
    num_requests: int


def measure_client_floor(num_requests: int = 10, num_chunks: int = 33) -> ClientFloor:
    """Run this client against a null server on this machine, one request at a time; well under a second.

    Formula:  chunk_cpu_s = (processor time with n chunks a request - with 1) / (requests · (n - 1)); None where noise
              hides it
    Raises:   MeasurementError when a request fails, which says that loopback networking does not work here
    """
    single, single_cpu_s = _run(num_requests, 1)
    _, many_cpu_s = _run(num_requests, max(2, num_chunks))
    waits_s = [wait_s for record in single if (wait_s := ttft_s(record)) is not None]
    more_cpu_s = many_cpu_s - single_cpu_s
    chunk_cpu_s = more_cpu_s / (num_requests * (max(2, num_chunks) - 1)) if more_cpu_s > 0 else None
    return ClientFloor(median(waits_s), chunk_cpu_s, num_requests)


def _run(num_requests: int, num_chunks: int) -> tuple[tuple[RequestRecord, ...], float]:
    shape = RequestShape(prompt_tokens=16, output_tokens=num_chunks)
    workload = closed_loop("client floor", [shape], concurrency=1, num_requests=num_requests)
    with _null_server(num_requests, num_chunks) as port:
        target = Target(f"http://127.0.0.1:{port}")
        begin_s = time.thread_time()
        records = run_closed_loop(target, workload, timeouts=Timeouts(_WAIT_S, _WAIT_S, 2 * _WAIT_S)).records
        cpu_s = time.thread_time() - begin_s
    if any(record.status is not RequestStatus.COMPLETED for record in records):
        raise MeasurementError("the client's own floor could not be measured: a request to a local null server failed")
    return records, cpu_s


@contextmanager
def _null_server(num_requests: int, num_chunks: int) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_WAIT_S)
        thread = threading.Thread(target=_serve, args=(listener, num_requests, num_chunks), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
    thread.join(2 * _WAIT_S)


def _serve(listener: socket.socket, num_requests: int, num_chunks: int) -> None:
    for _ in range(num_requests):
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                _answer(connection, num_chunks)


def _answer(connection: socket.socket, num_chunks: int) -> None:
    connection.settimeout(_WAIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _read_request(connection)
    connection.sendall(_HEAD + _CHUNK)
    for _ in range(num_chunks - 1):
        time.sleep(_PACE_S)
        connection.sendall(_CHUNK)
    connection.sendall(_FINISH)


def _read_request(connection: socket.socket) -> None:
    """Read until the body has come: nothing but its end closes two objects at once."""
    received = b""
    while not (b"\r\n\r\n" in received and received.endswith(b"}}")):
        if not (part := connection.recv(_RECEIVE_BYTES)):
            return
        received += part
