"""What is on the wire between client and server? As much of HTTP and of event streams as a proxy needs to count what it hands on.

In:   asyncio streams
Out:  Asked (a request), Said (the head of a reply), events of a stream one by one, and the text in each
Leaves out: faults (proxy)
Read next by: proxy.

Written apart from the client's own parsers, so that what they say can be held to this.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from inference_bench.units import KIBI, MEBI

_READ_BYTES: Final = 64 * KIBI
_MOST_BYTES: Final = 64 * MEBI
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    lines: tuple[bytes, ...] = field(repr=False)
    body: bytes = field(repr=False)

    def header(self, name: str) -> str | None:
        """A header's value; None where it was not sent."""
        return _header(self.lines, name)

    def for_host(self, host: str) -> bytes:
        """The same request, for another host."""
        kept = [line for line in self.lines if not line.lower().startswith(b"host:")]
        return b"\r\n".join([kept[0], f"Host: {host}".encode(), *kept[1:], b"", b""]) + self.body


@dataclass(frozen=True, slots=True)
class Said:
    """The head of a reply."""

    lines: tuple[bytes, ...]

    @property
    def status(self) -> int:
        """The status code; 0 for what is no status line."""
        words = self.lines[0].split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    @property
    def is_stream(self) -> bool:
        """Whether events follow."""
        return self.status == 200 and "event-stream" in (_header(self.lines, "content-type") or "")

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in HTTP chunks."""
        return "chunked" in (_header(self.lines, "transfer-encoding") or "").lower()

    @property
    def num_bytes(self) -> int | None:
        """The length of the body, where it is said."""
        value = _header(self.lines, "content-length") or ""
        return int(value) if value.isdigit() else None


def _header(lines: tuple[bytes, ...], name: str) -> str | None:
    start = f"{name.lower()}:".encode()
    found = next((line for line in lines if line.lower().startswith(start)), None)
    return None if found is None else found[len(start) :].strip().decode("latin-1")


async def read_asked(reader: asyncio.StreamReader) -> Asked:
    """One request, whole.

    Raises:   ValueError, OSError, EOFError for what is none
    """
    lines = await _read_head(reader)
    length = _header(lines, "content-length") or "0"
    if not length.isdigit() or int(length) > _MOST_BYTES:
        raise ValueError(length[:20])
    return Asked(lines, await reader.readexactly(int(length)))


async def read_said(reader: asyncio.StreamReader) -> Said:
    """The head of a reply.

    Raises:   OSError, EOFError
    """
    return Said(await _read_head(reader))


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, ...]:
    head = await reader.readuntil(b"\r\n\r\n")
    return tuple(head[:-4].split(b"\r\n"))


async def events(reader: asyncio.StreamReader, said: Said) -> AsyncIterator[bytes]:
    """Each event of a stream with the blank line that ends it; then what is left, if anything.

    Raises:   OSError, EOFError where the stream breaks off inside
    """
    waiting = b""
    async for part in body_parts(reader, said):
        waiting += part
        while (end := _EVENT_END.search(waiting)) is not None:
            yield waiting[: end.end()]
            waiting = waiting[end.end() :]
    if waiting:
        yield waiting


async def body_parts(reader: asyncio.StreamReader, said: Said) -> AsyncIterator[bytes]:
    """The body as it comes, without its framing.

    Raises:   OSError, EOFError where it breaks off inside
    """
    if said.is_chunked:
        while (size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)) > 0:
            yield (await reader.readexactly(size + 2))[:-2]
        return
    left = said.num_bytes
    while left is None or left > 0:
        part = await reader.read(_READ_BYTES if left is None else min(left, _READ_BYTES))
        if not part:
            if left:
                raise asyncio.IncompleteReadError(b"", left)
            return
        left = None if left is None else left - len(part)
        yield part


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event says."""

    text: str = field(repr=False)
    is_end: bool


def piece_of(event: bytes) -> Piece:
    """The text in an event, and whether it is the one with the reason to end."""
    text, is_end = "", False
    for line in event.splitlines():
        if not line.startswith(b"data:"):
            continue
        try:
            choice = json.loads(line[5:])["choices"][0]
            said = choice["delta"].get("content") if "delta" in choice else choice.get("text")
            is_end = is_end or choice.get("finish_reason") is not None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            continue
        text += said if isinstance(said, str) else ""
    return Piece(text, is_end)
