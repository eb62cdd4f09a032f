"""Bytes of a GGUF file, piece by piece, so that a test can plant any lie. Shares no code with the reader."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)


def text(value: str | bytes, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw)) + raw


def entry(key: str | bytes, value_type: int, payload: bytes, order: str = "<") -> bytes:
    return text(key, order) + struct.pack(order + "I", value_type) + payload


def uint32(key: str, value: int) -> bytes:
    return entry(key, UINT32, struct.pack("<I", value))


def array(element_type: int, count: int, payload: bytes) -> bytes:
    return struct.pack("<IQ", element_type, count) + payload


def tensor(name: str | bytes, shape: Sequence[int], ggml_type: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, ggml_type, offset)


def gguf(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    data: bytes = b"",
    alignment: int = 32,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_entries: int | None = None,
    num_tensors: int | None = None,
) -> bytes:
    """A little-endian file; the counts may lie. Padded to the alignment only where data follows."""
    num_tensors = len(tensors) if num_tensors is None else num_tensors
    num_entries = len(entries) if num_entries is None else num_entries
    head = magic + struct.pack("<IQQ", version, num_tensors, num_entries) + b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data if data else head


@dataclass
class RecordingSource:
    """Hands out the given bytes, then zeros up to `size`, and remembers what was asked for.

    `size_known` False hides the size; `piece` limits what one read returns.
    """

    head: bytes
    size_in_fact: int | None = None
    size_known: bool = True
    piece: int | None = None
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def _end(self) -> int:
        return len(self.head) if self.size_in_fact is None else self.size_in_fact

    @property
    def size(self) -> int | None:
        return self._end if self.size_known else None

    def read(self, offset: int, num_bytes: int) -> bytes:
        self.reads.append((offset, num_bytes))
        wanted = num_bytes if self.piece is None else min(num_bytes, self.piece)
        end = max(offset, min(offset + wanted, self._end))
        return self.head[offset:end].ljust(end - offset, b"\0")

    @property
    def furthest_byte(self) -> int:
        return max(offset + num_bytes for offset, num_bytes in self.reads)

    @property
    def num_bytes_read(self) -> int:
        return sum(num_bytes for _, num_bytes in self.reads)
