"""What did a journal keep: its records, those of requests that never ended too, whatever state the file is in.

In:   a file that `journal` wrote, perhaps killed while it did, perhaps changed by someone since
Out:  JournalContent: RequestRecords, and what could not be read
Leaves out: what the run was (store); where a damaged file is damaged is said, and nothing is guessed behind it
Read next by: store.

An end of the file that is no whole frame is what a kill leaves; it is left out and counted. The same with whole frames
behind it is damage, and an error. Memory grows with the file as it is, never with a number that is written in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import SEEK_END
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from inference_bench.errors import RunFolderError
from inference_bench.files import open_regular, shown_name
from inference_bench.measure.journal import USUAL
from inference_bench.measure.journal_fields import TICK_S, object_from_json, plain_values, values_from_json
from inference_bench.measure.journal_format import (
    CHECK_BYTES,
    CHUNKS,
    MAGIC,
    MOST_FRAME_BYTES,
    FormatError,
    Kind,
    Modes,
    TokenMode,
    check_of,
    letters_of,
    read_chunks,
    read_head,
    read_text,
    read_varint,
    ticks_of,
)
from inference_bench.records import RequestRecord, RequestStatus, TokenCountSource
from inference_bench.units import MEBI

NEVER_ENDED: Final = "the run ended before it did"

_BLOCK_BYTES: Final = MEBI
_MOST_HEAD_BYTES: Final = 16
_MOST_TAIL_BYTES: Final = MEBI  # searched for frames behind a place that is none
_MOST_CHECKED_BYTES: Final = 512 * MEBI  # by that search
_MOST_ZEROS_BYTES: Final = 64 * MEBI  # that a power cut leaves at the end of a file
_USUAL: Final = plain_values(USUAL)


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What a journal holds.

    Where:    records are in the order in which they ended, and those that never did are CANCELLED, where the run ended;
              `voided` ones were measured again later and are not in `records`; num_bytes is how much could be read, and
              num_dropped_bytes what a kill cut short behind it; runs are what was noted about the run, in order
    """

    records: tuple[RequestRecord, ...]
    num_unfinished: int
    num_voided: int
    num_bytes: int
    num_dropped_bytes: int
    runs: tuple[dict[str, Any], ...] = ()


@dataclass(slots=True)
class _Open:
    """A request of which the end was not read yet."""

    values: dict[str, Any]
    deltas: list[array[int]] = field(default_factory=list)
    tokens: list[tuple[int, ...] | None] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    modes: Modes = field(default_factory=Modes)

    def times_s(self) -> tuple[float, ...]:
        """The chunks' times: whole ticks added up, so that no rounding does."""
        if not self.deltas:
            return ()
        deltas = self.deltas[0] if len(self.deltas) == 1 else chain.from_iterable(self.deltas)
        sent_ticks = ticks_of(self.values["sent_s"], "a request")
        return tuple(map(TICK_S.__mul__, islice(accumulate(deltas, initial=sent_ticks), 1, None)))

    def chunk_tokens(self) -> tuple[int, ...]:
        """The tokens of each chunk; () where any is not known."""
        if None in self.tokens:
            return ()
        return tuple(chain.from_iterable(part for part in self.tokens if part is not None))

    def channels(self) -> str:
        """The letter of each chunk; "" where all are content."""
        found = "".join(self.letters)
        return "" if found.count("c") == len(found) else found


class _Streams:
    """Items put together to records."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.runs: list[dict[str, Any]] = []
        self.num_unfinished = 0
        self.num_voided = 0
        self._open: dict[int, _Open] = {}
        self._segment_start = 0  # the first record since the run was begun or resumed

    def take(self, body: bytes) -> None:
        """All items of one frame.

        Raises:   FormatError, IndexError, ValueError for items that no journal has
        """
        at = 0
        while at < len(body):
            number, kind, at = read_head(body, at)
            if kind >= CHUNKS:
                at = self._add_chunks(body, at, number, kind)
            elif kind == Kind.FORGET:
                stream = self._stream(number)
                self._open[number] = _Open(stream.values)
            elif kind <= Kind.RUN:
                text, at = read_text(body, at)
                self._take_text(number, kind, text)
            else:
                raise FormatError(f"an item of the unknown kind {kind}")

    def _take_text(self, number: int, kind: int, text: bytes) -> None:
        if kind == Kind.RUN:
            self._note_run(object_from_json(text))
        elif kind == Kind.END:
            self._end(self._stream(number), values_from_json(text))
            del self._open[number]
        elif number in self._open:
            raise FormatError("a request begins where another has not ended")
        else:
            self._open[number] = _Open(_USUAL | values_from_json(text))

    def _stream(self, number: int) -> _Open:
        stream = self._open.get(number)
        if stream is None:
            raise FormatError("a request goes on that did not begin")
        return stream

    def _add_chunks(self, body: bytes, at: int, number: int, kind: int) -> int:
        stream = self._stream(number)
        chunks, at = read_chunks(body, at, kind, stream.modes)
        stream.modes = chunks.modes
        count = len(chunks.deltas)
        stream.deltas.append(chunks.deltas)
        match chunks.modes.tokens:
            case TokenMode.NONE:
                stream.tokens.append(None)
            case TokenMode.ONES:
                stream.tokens.append((1,) * count)
            case _:
                stream.tokens.append(chunks.tokens)
        stream.letters.append(letters_of(chunks.modes, count, chunks.letters))
        return at

    def _end(self, stream: _Open, ending: dict[str, Any]) -> None:
        noted = {"chunk_tokens": stream.chunk_tokens(), "channels": stream.channels()}
        self.records.append(RequestRecord(**(stream.values | noted | ending), chunk_times_s=stream.times_s()))

    def _note_run(self, facts: dict[str, Any]) -> None:
        self.close_segment()
        voided = facts.get("void_groups", [])
        if not isinstance(voided, list):
            raise FormatError("groups that are no list")
        kept = [record for record in self.records if record.group not in voided]
        self.num_voided += len(self.records) - len(kept)
        self.records = kept
        self.runs.append(facts)
        self._segment_start = len(kept)

    def close_segment(self) -> None:
        """What is still open never ended: it was in flight until the last moment that is known."""
        cut = [self._cut(stream) for stream in self._open.values()]
        self._open = {}
        self.num_unfinished += len(cut)
        segment = [*self.records[self._segment_start :], *cut]
        last_s = max((record.end_s for record in segment), default=0.0)
        self.records += (replace(record, end_s=last_s) for record in cut)

    def _cut(self, stream: _Open) -> RequestRecord:
        times_s = stream.times_s()
        return RequestRecord(
            **stream.values
            | {
                "status": RequestStatus.CANCELLED,
                "error": NEVER_ENDED,
                "token_count_source": TokenCountSource.UNKNOWN,
                "finish_reason": None,
                "http_status": None,
                "chunk_times_s": times_s,
                "chunk_tokens": stream.chunk_tokens(),
                "channels": stream.channels(),
                "end_s": max((*times_s, stream.values["sent_s"])),
            }
        )


def read_journal(path: Path) -> JournalContent:
    """All records of a journal.

    Raises:   RunFolderError for a file that is none, or that is damaged before its end; OSError
    """
    streams = _Streams()
    with open_regular(path) as file:
        num_bytes = _require_magic(file, path)
        for end, body in _frames(file, num_bytes):
            try:
                streams.take(body)
            except (ValueError, IndexError, RecursionError) as error:
                raise _damaged(path, num_bytes, str(error)) from None
            num_bytes = end
        size = file.seek(0, SEEK_END)
        if num_bytes < size and _is_followed(file, num_bytes, size):
            raise _damaged(path, num_bytes, "a frame is not as it was written")
    streams.close_segment()
    return JournalContent(
        tuple(streams.records),
        streams.num_unfinished,
        streams.num_voided,
        num_bytes,
        size - num_bytes,
        tuple(streams.runs),
    )


def _damaged(path: Path, at: int, why: str) -> RunFolderError:
    return RunFolderError(
        f"{shown_name(path)} is damaged at byte {at} ({why}); a copy of the file that ends there can be read"
    )


def _require_magic(file: BinaryIO, path: Path) -> int:
    """How long the beginning is; 0 where a kill cut it short."""
    found = file.read(len(MAGIC))
    if found == MAGIC:
        return len(MAGIC)
    if MAGIC.startswith(found):
        return 0
    raise RunFolderError(f"{shown_name(path)} is not a journal of this version: it begins with something else")


def _frames(file: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """(offset behind it, body) of each frame, up to the end or the first that is none."""
    buffer, at = b"", 0
    while offset:
        if len(buffer) - at < _MOST_HEAD_BYTES + MOST_FRAME_BYTES:
            buffer, at = buffer[at:] + file.read(_BLOCK_BYTES), 0
        body_at, length = _frame_head(buffer, at)
        if not _is_whole(buffer, body_at, length):
            return
        offset += body_at + length - at
        at = body_at + length
        yield offset, buffer[body_at:at]


def _frame_head(buffer: bytes, at: int) -> tuple[int, int]:
    """(where the body begins, its length) of a frame; a length of 0 where there is no head of one."""
    try:
        length, at = read_varint(buffer, at)
    except (IndexError, FormatError):
        return at, 0
    return at + CHECK_BYTES, length if length <= MOST_FRAME_BYTES else 0


def _is_whole(buffer: bytes, body_at: int, length: int) -> bool:
    """Whether a body of this length stands here, as it was written."""
    if not length or body_at + length > len(buffer):
        return False
    return check_of(buffer[body_at : body_at + length]) == buffer[body_at - CHECK_BYTES : body_at]


def _is_followed(file: BinaryIO, at: int, size: int) -> bool:
    """Whether whole frames stand behind a place that is none: two, or one that ends the file; also where it is too much to tell."""
    file.seek(at)
    tail = file.read(_MOST_TAIL_BYTES)
    if size - at > len(tail):
        return not _are_zeros(file, tail, size - at)
    num_checked = 0
    for begin in range(1, len(tail)):
        body_at, length = _frame_head(tail, begin)
        if (end := body_at + length) > len(tail):
            continue
        num_checked += length
        if _is_whole(tail, body_at, length) and (end == len(tail) or _is_whole(tail, *_frame_head(tail, end))):
            return True
        if num_checked > _MOST_CHECKED_BYTES:
            return True
    return False


def _are_zeros(file: BinaryIO, tail: bytes, num_bytes: int) -> bool:
    if num_bytes > _MOST_ZEROS_BYTES:
        return False
    while tail:
        if tail.strip(b"\0"):
            return False
        tail = file.read(_BLOCK_BYTES)
    return True
