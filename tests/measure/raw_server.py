"""A server that answers with bytes as they are, for tests of what no HTTP library would send."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PATIENCE_S = 10.0


@dataclass
class RawServer:
    """Where it listens, and what became of its connections."""

    port: int = 0
    gone_s: list[float] = field(default_factory=list)  # when a client was seen to go away, on perf_counter
    sent_s: list[float] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def raw_server(
    steps: Iterable[tuple[float, bytes]], hangs: bool = True, num_connections: int = 1
) -> Iterator[RawServer]:
    """Each connection gets the bytes of every step so long after the step before; then it is held open, or closed."""
    server, steps = RawServer(), tuple(steps)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        server.port = listener.getsockname()[1]
        threads = [
            threading.Thread(target=_answer, args=(listener, server, steps, hangs)) for _ in range(num_connections)
        ]
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(PATIENCE_S)


def _answer(listener: socket.socket, server: RawServer, steps: tuple[tuple[float, bytes], ...], hangs: bool) -> None:
    with suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            received = b""
            while not received.endswith(b"}"):
                received += connection.recv(65536)
            for wait_s, data in steps:
                time.sleep(wait_s)
                server.sent_s.append(time.perf_counter())
                connection.sendall(data)
            if not hangs:
                return
            with suppress(OSError):
                while connection.recv(65536):
                    pass
            server.gone_s.append(time.perf_counter())
