"""A server that answers at once but for the first part of every period, in which it stands still: a process of its own.

In:   seconds frozen and seconds of a period as arguments; stdin, which stays open for as long as the starter lives
Out:  one line on stdout, the port; then an event stream of one token to every POST

It is one loop over sockets, so that all who waited are answered within a few milliseconds of its waking: the truth server's
threads would need tens. Requests are read while it is frozen; only answers wait.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
TOKEN = {"choices": [{"index": 0, "text": " a", "finish_reason": "length"}]}
COUNTS = {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": 9}}
ANSWER = HEAD + "".join(f"data: {text}\n\n" for text in (json.dumps(TOKEN), json.dumps(COUNTS), "[DONE]")).encode()


class FrozenServer:
    """The process, as seen by the one who started it."""

    def __init__(self, frozen_s: float, period_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(frozen_s), str(period_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(5.0)
        finally:
            self._process.kill()
            self._process.wait()


def serve(frozen_s: float, period_s: float) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    listener.setblocking(False)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    poll = selectors.DefaultSelector()
    poll.register(listener, selectors.EVENT_READ)
    received: dict[socket.socket, bytes] = {}
    waiting: list[socket.socket] = []
    begin_s = time.monotonic()
    while True:
        left_s = frozen_s - (time.monotonic() - begin_s) % period_s
        if left_s <= 0:
            for connection in waiting:
                connection.sendall(ANSWER)
                connection.close()
            waiting.clear()
        for key, _ in poll.select(left_s if left_s > 0 else None):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is listener:
                accepted, _ = listener.accept()
                received[accepted] = b""
                poll.register(accepted, selectors.EVENT_READ)
                continue
            part = connection.recv(65536)
            received[connection] += part
            if not part or is_whole(received[connection]):
                poll.unregister(connection)
                del received[connection]
                waiting += [connection] if part else []


def is_whole(data: bytes) -> bool:
    top, blank, body = data.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(blank) and len(body) >= int(lengths[0] if lengths else 0)


if __name__ == "__main__":
    threading.Thread(target=serve, args=(float(sys.argv[1]), float(sys.argv[2])), daemon=True).start()
    while os.read(0, 1):
        pass
    os._exit(0)
