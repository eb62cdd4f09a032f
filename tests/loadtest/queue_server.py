"""A server with one place and a queue before it: every request takes the same time, so its capacity is known.

Arrivals find it as a line of customers finds one clerk: a request that arrives at t ends at max(t, the end of the one
before) + service time. Ends are absolute times, so that late wake-ups do not add up. Its whole reply is sent then: one token,
which makes TTFT the wait and the service. It runs in a process of its own: queue_server.py SERVICE_S.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_EVENTS = (
    {"choices": [{"index": 0, "text": " a", "finish_reason": None}]},
    {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
)
_BODY = "".join(f"data: {json.dumps(event)}\n\n" for event in _EVENTS).encode() + b"data: [DONE]\n\n"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
    _BODY
)
_MODELS = json.dumps({"data": [{"id": "queue"}]}).encode()


class QueueServer:
    """Answers one request at a time, in the order in which they arrive."""

    def __init__(self, service_s: float) -> None:
        self._service_s = service_s
        self._free_s = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                writer.write(reply + b"Content-Length: %d\r\n\r\n" % len(_MODELS) + _MODELS)
            else:
                self._free_s = end_s = max(time.perf_counter(), self._free_s) + self._service_s
                while (left_s := end_s - time.perf_counter()) > 0:
                    await asyncio.sleep(left_s)
                writer.write(_HEAD + _BODY)
            await writer.drain()
        writer.close()


async def _main(service_s: float) -> None:
    server = await asyncio.start_server(QueueServer(service_s).serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until whoever started it is gone


@contextmanager
def queue_server(service_s: float) -> Iterator[str]:
    """The address of one in its own process, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(service_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
