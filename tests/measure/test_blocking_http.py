"""Whatever a server does, a blocking exchange ends in its time and keeps no more than was asked for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.errors import ServerError
from inference_bench.loadtest.preflight_probe import ask
from inference_bench.measure import blocking_http
from inference_bench.measure.blocking_http import BoundedConnection, BrokenReplyError, body_parts, connect_within
from inference_bench.measure.server_metrics_watch import PageFetcher
from inference_bench.measure.target import Target, parse_address
from inference_bench.operate.contract.wire import Wire
from inference_bench.units import MEBI

PATIENCE_S = 20.0
LIMIT_S = 0.5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Endless:
    """One connection, to which these bytes are sent first and then the others again and again, until it is closed."""

    def __init__(self, first: bytes, again: bytes, pause_s: float) -> None:
        self.first, self.again, self.pause_s = first, again, pause_s
        self.num_sent = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def serve(self) -> None:
        self.listener.settimeout(PATIENCE_S)
        end_s = time.monotonic() + PATIENCE_S
        with suppress(OSError):
            connection, _ = self.listener.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                connection.recv(65536)
                connection.sendall(self.first)
                while time.monotonic() < end_s:
                    connection.sendall(self.again)
                    self.num_sent += len(self.again)
                    time.sleep(self.pause_s)


@contextmanager
def endless(first: bytes, again: bytes, pause_s: float = 0.0) -> Iterator[Endless]:
    server = Endless(first, again, pause_s)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            server.listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S + 5)
        server.listener.close()
    assert not thread.is_alive()


ROUTES: dict[str, Callable[[Target], object]] = {
    "preflight": lambda target: ask(target, "GET", "/v1/models", LIMIT_S),
    "check": lambda target: Wire(target, LIMIT_S, PATIENCE_S).ask("GET", "/v1/models"),
    "metrics": lambda target: PageFetcher(target, "/metrics", LIMIT_S)(),
}


@pytest.mark.parametrize("size", [b"-1", b"-2", b"-ffffffff"])
def test_a_chunk_of_a_size_below_0_is_given_up_at_once(size: bytes) -> None:
    with endless(HEAD + size + b"\r\n", b"x" * 65536) as server:
        address = parse_address(f"http://127.0.0.1:{server.port}")
        with closing(BoundedConnection(address, PATIENCE_S, None)) as connection:
            connection.request("GET", "/v1/models")
            with pytest.raises(BrokenReplyError, match="a chunk has no size"):
                list(body_parts(connection.getresponse(), 4 * MEBI))
    assert server.num_sent < 64 * MEBI  # what the system holds for a socket, and not what comes in all that time


@pytest.mark.parametrize("ask_for_it", [ROUTES["preflight"], ROUTES["check"]], ids=["preflight", "check"])
def test_such_a_reply_is_said_to_be_broken(ask_for_it: Callable[[Target], object]) -> None:
    with endless(HEAD + b"-1\r\n", b"x" * 65536) as server, pytest.raises(ServerError, match="a chunk has no size"):
        ask_for_it(Target(f"http://127.0.0.1:{server.port}"))
    assert server.num_sent < 64 * MEBI


@pytest.mark.parametrize("size", [b"7fffffffffffffff", b"ffffffffffffffffffff"])
def test_of_a_chunk_of_absurd_size_no_more_is_taken_than_was_asked_for(size: bytes) -> None:
    with endless(HEAD + size + b"\r\n", b"x" * 65536) as server:
        address = parse_address(f"http://127.0.0.1:{server.port}")
        with closing(BoundedConnection(address, PATIENCE_S, None)) as connection:
            connection.request("GET", "/v1/models")
            assert sum(map(len, body_parts(connection.getresponse(), MEBI))) == MEBI


@pytest.mark.parametrize("name", ROUTES)
def test_a_handshake_that_trickles_is_cut_at_the_time_limit(name: str) -> None:
    record = b"\x16\x03\x03\x40\x00"  # a record of 16 KiB, of which a byte comes now and then
    with endless(record, b"\x02", 0.05) as server:
        begin_s = time.monotonic()
        with pytest.raises((ServerError, TimeoutError)):
            ROUTES[name](Target(f"https://127.0.0.1:{server.port}"))
        assert time.monotonic() - begin_s < PATIENCE_S / 2


class Clock:
    """Time that passes only where a fake socket waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def fake_sockets(clock: Clock, connects_s: list[float]) -> Any:
    """As many addresses as there are times that connecting takes; one that takes longer than its time limit ends with it."""
    left = list(connects_s)

    class Fake:
        def __init__(self, *_: object) -> None:
            self.timeout_s = 0.0

        def settimeout(self, timeout_s: float) -> None:
            self.timeout_s = timeout_s

        def setsockopt(self, *_: object) -> None:
            pass

        def connect(self, _: object) -> None:
            takes_s = left.pop(0)
            clock.now_s += min(takes_s, self.timeout_s)
            if takes_s > self.timeout_s:
                raise TimeoutError

        def close(self) -> None:
            pass

    places = [(0, 0, 0, "", ("127.0.0.1", 1))] * len(connects_s)
    return SimpleNamespace(
        getaddrinfo=lambda *_, **__: places, socket=Fake, SOCK_STREAM=0, IPPROTO_TCP=0, TCP_NODELAY=0
    )


def test_all_addresses_of_a_name_share_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(blocking_http, "time", clock)
    monkeypatch.setattr(blocking_http, "socket", fake_sockets(clock, [2.0, 60.0, 60.0]))
    with pytest.raises(TimeoutError):
        connect_within(parse_address("http://here"), 1.0, None)
    assert clock.now_s == 1.0


def test_the_handshake_has_what_connecting_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(blocking_http, "time", clock)
    monkeypatch.setattr(blocking_http, "socket", fake_sockets(clock, [2.0]))
    given_s: list[float] = []

    def wrap_socket(sock: Any, server_hostname: str) -> Any:
        given_s.append(sock.timeout_s)
        return sock

    tls: Any = SimpleNamespace(wrap_socket=wrap_socket)
    found: Any = connect_within(parse_address("https://here"), 3.0, tls)
    assert given_s == [1.0]
    assert found.timeout_s == 3.0
