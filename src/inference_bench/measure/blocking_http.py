"""One blocking HTTP exchange that no server can stretch: connecting has one time, a body one size.

In:   an address and a time; a reply of http.client
Out:  a connection, TLS included, within that time; the body piece by piece
Leaves out: what a request is and what its reply means (loadtest.preflight_probe, operate.contract.wire, server_metrics_watch)
Read next by: those three.

http.client leaves two holes. Each address of a name and the TLS handshake have the whole time once more; and a chunk that says
its size is -1 is read to the end of the connection, into memory, however much was asked for.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from inference_bench.measure.target import Address

AFTER_SILENCE: Final = 0.1
"""Of the time of a question, for each one after the first that a server let go by without an answer."""

_PART_BYTES: Final = 65536
_PORTS: Final = {"http": 80, "https": 443}


class BrokenReplyError(http.client.HTTPException):
    """The reply breaks the rules of HTTP/1.1; the message says how."""


class BoundedConnection(http.client.HTTPConnection):
    """A connection of http.client that is made within its time, all of it together."""

    def __init__(self, address: Address, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        self.default_port = _PORTS[address.scheme]  # it is left out of the Host header
        super().__init__(address.host, address.port, timeout=timeout_s)
        self._address, self._timeout_s, self._tls = address, timeout_s, tls

    def connect(self) -> None:
        """Connect, and shake hands where the address asks for it."""
        self.sock = connect_within(self._address, self._timeout_s, self._tls)


def connect_within(address: Address, timeout_s: float, tls: ssl.SSLContext | None) -> socket.socket:
    """A connection to the first address that takes one, secure where there is a context, within one time for everything.

    Ignores:  the time that looking up a name takes, which no blocking program can cut
    Raises:   OSError (TimeoutError, ssl.SSLError)
    """
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    end_s = time.monotonic() + timeout_s
    failure: OSError = OSError("the name has no address")
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left_s(end_s))
            sock.connect(place)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return _secured(sock, address.host, end_s, timeout_s, tls)
    raise failure


def _secured(
    sock: socket.socket, host: str, end_s: float, timeout_s: float, tls: ssl.SSLContext | None
) -> socket.socket:
    """The same connection after the handshake, which is cut even where bytes come all the time."""
    try:
        if tls is not None:
            sock.settimeout(_left_s(end_s))  # Python holds a whole handshake to it, not each read
            sock = tls.wrap_socket(sock, server_hostname=host)
        sock.settimeout(timeout_s)
    except BaseException:
        sock.close()
        raise
    return sock


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def body_parts(response: http.client.HTTPResponse, most_bytes: int) -> Iterator[bytes]:
    """A reply's body as it comes, no more than so many bytes of it.

    Raises:   BrokenReplyError for a chunk without a size; OSError, http.client.HTTPException
    """
    left = most_bytes
    while left > 0:
        part = response.read1(min(_PART_BYTES, left))  # never more than a buffer, whatever a chunk says of itself
        if isinstance(response.chunk_left, int) and response.chunk_left < 0:
            raise BrokenReplyError("the reply breaks the rules of HTTP/1.1: a chunk has no size")
        if not part:
            return
        left -= len(part)
        yield part
