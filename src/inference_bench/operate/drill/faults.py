"""How can a server fail? The ways that a proxy between client and server can make it look so.

In:   nothing; these are plain immutable values
Out:  Fault; the bytes of the replies that no server sends
Leaves out: doing it (proxy), killing processes (servers)
Read next by: proxy, scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FaultKind(StrEnum):
    """What goes wrong with a reply."""

    SLOW_FIRST = "slow_first"  # the first token comes late
    STALL = "stall"  # some tokens, then silence
    RESET = "reset"  # some tokens, then the connection is reset
    TOO_MANY = "too_many"  # HTTP 429 with Retry-After
    SERVER_ERROR = "server_error"  # HTTP 500
    GARBAGE = "garbage"  # an event that is no JSON: of every two replies one at the start, one after some tokens


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail.

    Where:    after_events is how many pieces of text pass before it; delay_s is how long the first is held back
    """

    kind: FaultKind
    after_events: int = 0
    delay_s: float = 0.0
    retry_after_s: int = 0


STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
GARBAGE_EVENT: Final = b'data: {"choices": [{"delta": {"cont\n\n'
LAST_CHUNK: Final = b"0\r\n\r\n"


def as_chunk(data: bytes) -> bytes:
    """Bytes as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def refusal_of(fault: Fault) -> bytes | None:
    """The whole reply of a fault that is a status; None for one that is not."""
    if fault.kind is FaultKind.TOO_MANY:
        return _refusal("429 Too Many Requests", f"Retry-After: {fault.retry_after_s}\r\n")
    if fault.kind is FaultKind.SERVER_ERROR:
        return _refusal("500 Internal Server Error", "")
    return None


def _refusal(status: str, more: str) -> bytes:
    body = '{"error": {"message": "a drill is going on"}}'
    top = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}Connection: close"
    )
    return f"{top}\r\n\r\n{body}".encode()
