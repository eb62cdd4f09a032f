"""What do the bytes of a journal mean: frames, and the items in them.

In:   times, token counts and channels of chunks; JSON of what else is known
Out:  bytes, and the same back
Leaves out: which stream an item belongs to and when it is written (journal), what the items add up to (journal_read)
Read next by: journal, journal_read.

A journal begins with MAGIC. A frame is the length of its body (varint), three bytes of the CRC-32 of that length and that
body, and the body: items, one after the other. An item begins with its stream's number and its kind (varint). Times are
whole ticks of 2^-27 s, so that no pause between two of them is ever rounded twice; chunks hold the ticks since the chunk
before, the first those since the send. A varint has seven bits a byte, the lowest first.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from zlib import crc32

from inference_bench.errors import MeasurementError
from inference_bench.units import KIBI

MAGIC: Final = b"inference-bench journal 1\n"
TICKS_PER_S: Final = 1 << 27
MOST_TICKS: Final = 1 << 62
MOST_TIME_S: Final = float(MOST_TICKS // TICKS_PER_S)
MOST_FRAME_BYTES: Final = 256 * KIBI
MOST_CHUNKS: Final = 4 * KIBI  # of one item
CHECK_BYTES: Final = 3

CHUNKS: Final = 8  # an item of chunks; its three lower bits say what else it holds
_ONE: Final = 1  # one chunk, so that no count follows
_MODES: Final = 2  # a byte that says how tokens and channels are written from here on in this stream
_WIDE: Final = 4  # ticks of eight bytes, signed
_KIND_BITS: Final = 4
_MOST_U32: Final = (1 << 32) - 1
_MOST_NUMBER: Final = 1 << 32
_LETTERS: Final = "crt"
_EACH_LETTER: Final = 3


class Kind(IntEnum):
    """What an item that holds no chunks says."""

    START = 0  # JSON: a request was sent
    END = 1  # JSON: it has ended; what differs from its start
    FORGET = 2  # nothing: the chunks of this stream written so far do not count
    RUN = 3  # JSON: about the run; streams in flight before it never ended


class TokenMode(IntEnum):
    """How the tokens of chunks are written."""

    NONE = 0
    ONES = 1  # nothing: one in each chunk
    U8 = 2
    U32 = 3


@dataclass(frozen=True, slots=True)
class Modes:
    """How tokens and channels of a stream's chunks are written.

    Where:    channel is the letter that all have, by its place in "crt"; 3 where each chunk has its own
    """

    tokens: TokenMode = TokenMode.NONE
    channel: int = 0

    @property
    def byte(self) -> int:
        """The modes as they are written."""
        return self.tokens | self.channel << 2


_MODES_OF: Final = tuple(Modes(TokenMode(byte & 3), byte >> 2) for byte in range(16))


@dataclass(slots=True)
class Chunks:
    """An item of chunks as it is read; `letters` and `tokens` are empty where the mode says it all."""

    deltas: array[int]
    modes: Modes
    tokens: tuple[int, ...]
    letters: str


class FormatError(ValueError):
    """Bytes that no journal has; says which."""


def ticks_of(time_s: float, what: str) -> int:
    """A time in whole ticks, off by at most 4 ns.

    Raises:   MeasurementError for one that is not finite, or that no run has
    """
    try:
        ticks = round(time_s * TICKS_PER_S)
    except (ValueError, OverflowError):
        raise MeasurementError(f"{what} has a time that is not a number; not written") from None
    if abs(ticks) >= MOST_TICKS:
        raise MeasurementError(f"{what} has a time of {time_s:g} s, which no run lasts; not written")
    return ticks


def varint(number: int) -> bytes:
    """A number of 0 or more in as few bytes as it needs."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at this place, and the place behind it.

    Raises:   IndexError where the data ends first, FormatError for one longer than any that is written
    """
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number, shift = number & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        if (shift := shift + 7) > 42:
            raise FormatError("a number is too long")


def frame(body: bytes) -> bytes:
    """A body with its length and its check before it."""
    return varint(len(body)) + check_of(body) + body


def check_of(body: bytes) -> bytes:
    """Three bytes by which a frame that was changed is known."""
    return crc32(body, len(body)).to_bytes(4, "little")[:CHECK_BYTES]


def text_item(number: int, kind: Kind, text: str) -> bytes:
    """An item that holds a text.

    Raises:   MeasurementError for one that is too long
    """
    content = text.encode()
    if len(content) > MOST_FRAME_BYTES // 2:
        raise MeasurementError(f"a record of {len(content)} bytes beside its chunks is too long; not written")
    return varint(number << _KIND_BITS | kind) + varint(len(content)) + content


def bare_item(number: int, kind: Kind) -> bytes:
    """An item that holds nothing."""
    return varint(number << _KIND_BITS | kind)


def chunks_item(
    number: int, deltas: Sequence[int], tokens: Sequence[int], letters: str, modes: Modes, before: Modes
) -> bytes:
    """An item of at most MOST_CHUNKS chunks.

    Where:    tokens is empty where they are not known; letters has one for each chunk; modes is how these two are written
              (`modes_for`), before how the stream's last ones were
    """
    wide = min(deltas) < 0 or max(deltas) > _MOST_U32
    kind = CHUNKS | (_ONE * (len(deltas) == 1)) | (_MODES * (modes != before)) | (_WIDE * wide)
    parts = [varint(number << _KIND_BITS | kind)]
    if len(deltas) != 1:
        parts.append(varint(len(deltas)))
    if modes != before:
        parts.append(bytes((modes.byte,)))
    parts.append(struct.pack(f"<{len(deltas)}{'q' if wide else 'I'}", *deltas))
    if modes.tokens >= TokenMode.U8:
        parts.append(struct.pack(f"<{len(tokens)}{'B' if modes.tokens is TokenMode.U8 else 'I'}", *tokens))
    if modes.channel == _EACH_LETTER:
        parts.append(letters.encode("ascii"))
    return b"".join(parts)


def modes_for(tokens: Sequence[int], letters: str) -> Modes:
    """How these are written in the fewest bytes; see `chunks_item`."""
    kind = TokenMode.NONE
    if tokens:
        most = max(tokens)
        kind = TokenMode.U32 if most > 255 else TokenMode.ONES if most == min(tokens) == 1 else TokenMode.U8
    is_all_alike = letters.count(letters[0]) == len(letters)
    return Modes(kind, _LETTERS.index(letters[0]) if is_all_alike else _EACH_LETTER)


def can_hold(num_chunks: int, tokens: Sequence[int], letters: str) -> bool:
    """Whether items of chunks can hold these: a count of 32 bits or none, and a known channel, for every chunk."""
    fits = not tokens or (len(tokens) == num_chunks and 0 <= min(tokens) <= max(tokens) <= _MOST_U32)
    return fits and len(letters) == num_chunks and set(letters) <= set(_LETTERS)


def read_head(body: bytes, at: int) -> tuple[int, int, int]:
    """(stream, kind, the place behind it) of the item that begins here; chunks have a kind of 8 or more.

    Raises:   IndexError, FormatError
    """
    head, at = read_varint(body, at)
    if head >> _KIND_BITS > _MOST_NUMBER:
        raise FormatError("a stream's number is too large")
    return head >> _KIND_BITS, head & ((1 << _KIND_BITS) - 1), at


def read_text(body: bytes, at: int) -> tuple[bytes, int]:
    """The text of an item, and the place behind it.

    Raises:   IndexError, FormatError
    """
    length, at = read_varint(body, at)
    return _slice(body, at, length), at + length


def read_chunks(body: bytes, at: int, kind: int, before: Modes) -> tuple[Chunks, int]:
    """The chunks of an item of this kind, and the place behind it.

    Raises:   IndexError, FormatError
    """
    count, at = (1, at) if kind & _ONE else read_varint(body, at)
    if not 0 < count <= MOST_CHUNKS:
        raise FormatError(f"an item of {count} chunks")
    modes = before
    if kind & _MODES:
        if body[at] >= len(_MODES_OF):
            raise FormatError("an unknown way to write tokens")
        modes, at = _MODES_OF[body[at]], at + 1
    deltas, at = _numbers(body, at, count, "q" if kind & _WIDE else "I")
    tokens: tuple[int, ...] = ()
    if modes.tokens >= TokenMode.U8:
        found, at = _numbers(body, at, count, "B" if modes.tokens is TokenMode.U8 else "I")
        tokens = tuple(found)
    letters = ""
    if modes.channel == _EACH_LETTER:
        letters, at = _slice(body, at, count).decode("ascii", "replace"), at + count
    return Chunks(deltas, modes, tokens, letters), at


def _numbers(body: bytes, at: int, count: int, code: str) -> tuple[array[int], int]:
    found: array[int] = array(code)
    size = count * found.itemsize
    found.frombytes(_slice(body, at, size))
    if sys.byteorder == "big":
        found.byteswap()
    return found, at + size


def _slice(body: bytes, at: int, length: int) -> bytes:
    part = body[at : at + length]
    if len(part) != length:
        raise FormatError("an item is longer than its frame")
    return part


def letters_of(modes: Modes, count: int, letters: str) -> str:
    """The letter of each chunk, written out."""
    return letters if modes.channel == _EACH_LETTER else _LETTERS[modes.channel] * count
