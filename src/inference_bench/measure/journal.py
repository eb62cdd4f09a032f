"""Where do samples go while they are measured: a file that is only added to, and that a kill at any time leaves readable.

In:   requests as they are sent, their chunks as they come, their records as they end
Out:  a journal: frames of a few bytes a token (journal_format)
Leaves out: text, which is never given to it; and fsync while it measures: a killed process loses what came in the last
      FLUSH_S, a power cut also what the system had not written yet. `close` waits until all is on the disk
Read next by: store, journal_read, load_options.

Used from one thread. Inside an event loop what is added is written at the latest FLUSH_S later, also when nothing more
comes; outside one, at once. The end of a request is written at once.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from operator import sub
from pathlib import Path
from typing import BinaryIO, Final, Self

from inference_bench.errors import MeasurementError, RunFolderError, StorageError
from inference_bench.files import shown_name
from inference_bench.measure.journal_fields import difference_to_json
from inference_bench.measure.journal_format import (
    MAGIC,
    MOST_CHUNKS,
    MOST_TIME_S,
    Kind,
    Modes,
    bare_item,
    can_hold,
    chunks_item,
    frame,
    modes_for,
    text_item,
    ticks_of,
)
from inference_bench.origin import Origin
from inference_bench.records import Channel, RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.units import KIBI

FLUSH_S: Final = 0.3

_MOST_FRAME_BYTES: Final = 64 * KIBI  # but for one item that is larger
_CONTENT: Final = Channel.CONTENT.letter
# what most requests are: only what differs is written at a request's start
USUAL: Final = RequestRecord(
    request_id="",
    origin=Origin.MEASURED,
    stage=Stage.MEASURE,
    status=RequestStatus.COMPLETED,
    planned_s=0.0,
    sent_s=0.0,
    end_s=0.0,
    token_count_source=TokenCountSource.SERVER_USAGE,
    finish_reason="length",
    http_status=200,
)


@dataclass(slots=True)
class _Stream:
    """A request in flight and what was written of it."""

    number: int
    start: RequestRecord
    last_ticks: int
    times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    letters: str = ""
    lacks_tokens: bool = False
    modes: Modes = field(default_factory=Modes)

    def holds_beginning_of(self, record: RequestRecord, tokens: Sequence[int], letters: str) -> bool:
        """Whether the chunks written so far are the first ones of this record."""
        num_written, num_chunks = len(self.times_s), len(record.chunk_times_s)
        if tokens or not self.tokens:
            are_tokens_right = self.tokens == list(tokens[:num_written])
        else:  # a chunk whose tokens are not known makes those of all unknown
            are_tokens_right = self.lacks_tokens or num_written < num_chunks
        are_times_right = self.times_s == list(record.chunk_times_s[:num_written])
        return are_times_right and are_tokens_right and self.letters == letters[:num_written]


class Journal:
    """The writer of one journal; the file is new, or one that `resume` made ready to go on."""

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        self._path = path
        self._file = _new_file(path) if file is None else file
        self._num_bytes = self._file.seek(0, os.SEEK_END)
        self._ahead = b"" if self._num_bytes else MAGIC  # what is written before the next frame
        self._items: list[bytes] = []
        self._num_item_bytes = 0
        self._streams: dict[str, _Stream] = {}
        self._free: list[int] = []
        self._numbers = count()
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._failure: StorageError | None = None

    def started(
        self,
        request_id: str,
        planned_s: float,
        sent_s: float,
        *,
        stage: Stage = Stage.MEASURE,
        group: str = "",
        index: int | None = None,
        session: int | None = None,
        turn: int | None = None,
        requested_output_tokens: int | None = None,
    ) -> None:
        """A request was sent: what is known of it then, so that a run that is killed still has it.

        Raises:   StorageError, MeasurementError for a time that is not a finite number
        """
        facts = replace(USUAL, request_id=request_id, planned_s=planned_s, sent_s=sent_s, stage=stage, group=group)
        self._start(
            replace(facts, index=index, session=session, turn=turn, requested_output_tokens=requested_output_tokens)
        )
        self._flush_soon()

    def chunks(
        self,
        request_id: str,
        times_s: Sequence[float],
        chunk_tokens: Sequence[int] = (),
        channels: str = "",
    ) -> None:
        """The chunks of a request in flight that came since the last call.

        Where:    chunk_tokens is empty where the server does not say; channels has a letter for each chunk, or is
                  empty where all are content
        Raises:   StorageError, MeasurementError for a request that was not started, or a time that is not a number
        """
        stream = self._streams.get(request_id)
        if stream is None:
            raise MeasurementError(f"request {request_id} has chunks and was not started; not written")
        letters = channels or _CONTENT * len(times_s)
        if not can_hold(len(times_s), chunk_tokens, letters):
            raise MeasurementError(f"request {request_id} has chunks without a channel or a count; not written")
        if times_s:
            self._add_chunks(stream, times_s, chunk_tokens, letters)
            self._flush_soon()

    def append(self, record: RequestRecord) -> None:
        """A request has ended: write what is not written yet, at once; it need not have been started.

        Raises:   StorageError, after which nothing is lost: it is written with what comes next; MeasurementError for a
                  record that holds NaN, of which nothing is written
        """
        _require_times(record)
        letters = record.channels or _CONTENT * len(record.chunk_times_s)
        is_plain = can_hold(len(record.chunk_times_s), record.chunk_tokens, letters)
        tokens, letters = (record.chunk_tokens, letters) if is_plain else ((), _CONTENT * len(record.chunk_times_s))
        stream = self._streams.get(record.request_id)
        start = _start_of(record) if stream is None else stream.start
        ending = difference_to_json(record, start, with_chunk_notes=not is_plain)
        stream = stream or self._start(start)
        if not stream.holds_beginning_of(record, tokens, letters):
            self._forget(stream)
        num_written = len(stream.times_s)
        if rest_s := record.chunk_times_s[num_written:]:
            self._add_chunks(stream, rest_s, tokens[num_written:], letters[num_written:])
        self._add(text_item(stream.number, Kind.END, ending))
        del self._streams[record.request_id]
        heapq.heappush(self._free, stream.number)
        self.flush()

    def note_run(self, facts: Mapping[str, object]) -> None:
        """Something about the run as a whole; what is in flight before it has no end.

        Raises:   StorageError
        """
        self._streams, self._free, self._numbers = {}, [], count()
        self._add(text_item(0, Kind.RUN, json.dumps(dict(facts), allow_nan=False, separators=(",", ":"))))
        self.flush()

    def flush(self) -> None:
        """Hand all that was added to the system; a killed process loses nothing of it.

        Raises:   StorageError; the file is then as it was, and what was added is kept for the next try
        """
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        self._failure = None
        if self._items or self._ahead:
            self._write(self._ahead + b"".join(map(frame, _packed(self._items))))
            self._ahead, self._items, self._num_item_bytes = b"", [], 0

    def close(self) -> None:
        """Write the rest and wait until the file is on the disk.

        Raises:   StorageError
        """
        if self._file.closed:
            return
        try:
            self.flush()
            with suppress(OSError):  # a file system that cannot has at least got all of it
                os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with suppress(*((StorageError,) if kind is not None else ())):
            self.close()

    def _start(self, start: RequestRecord) -> _Stream:
        sent_ticks = ticks_of(start.sent_s, start.request_id)
        text = difference_to_json(start, USUAL)
        number = heapq.heappop(self._free) if self._free else next(self._numbers)
        self._add(text_item(number, Kind.START, text))
        stream = self._streams[start.request_id] = _Stream(number, start, sent_ticks)
        return stream

    def _add_chunks(self, stream: _Stream, times_s: Sequence[float], tokens: Sequence[int], letters: str) -> None:
        ticks = [ticks_of(time_s, stream.start.request_id) for time_s in times_s]
        deltas = list(map(sub, ticks, chain((stream.last_ticks,), ticks)))
        for at in range(0, len(deltas), MOST_CHUNKS):
            part = slice(at, at + MOST_CHUNKS)
            modes = modes_for(tokens[part], letters[part])
            self._add(chunks_item(stream.number, deltas[part], tokens[part], letters[part], modes, stream.modes))
            stream.modes = modes
        stream.last_ticks = ticks[-1]
        stream.times_s += times_s
        stream.tokens += tokens
        stream.letters += letters
        stream.lacks_tokens = stream.lacks_tokens or not tokens

    def _forget(self, stream: _Stream) -> None:
        self._add(bare_item(stream.number, Kind.FORGET))
        stream.times_s, stream.tokens, stream.letters = [], [], ""
        stream.lacks_tokens, stream.modes = False, Modes()
        stream.last_ticks = ticks_of(stream.start.sent_s, stream.start.request_id)

    def _add(self, item: bytes) -> None:
        self._items.append(item)
        self._num_item_bytes += len(item)

    def _flush_soon(self) -> None:
        """See to it that what was added is written within FLUSH_S.

        Raises:   StorageError, also that of an earlier try
        """
        if self._failure is not None:
            raise self._failure
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if self._num_item_bytes >= _MOST_FRAME_BYTES:
            self.flush()
        elif self._timer is None or self._timer[0] is not loop:
            self._timer = (loop, loop.call_later(FLUSH_S, self._flush_in_time))

    def _flush_in_time(self) -> None:
        self._timer = None
        try:
            self.flush()
        except StorageError as error:
            self._failure = error

    def _write(self, content: bytes) -> None:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._num_bytes)
                self._file.seek(self._num_bytes)
            raise storage_error(self._path, error) from None
        self._num_bytes += len(content)


def storage_error(path: Path, error: OSError) -> StorageError:
    """What could not be written, in one line."""
    return StorageError(f"could not write {shown_name(path)}: {(error.strerror or type(error).__name__).lower()}")


def _new_file(path: Path) -> BinaryIO:
    try:
        return path.open("xb", buffering=0)
    except FileExistsError:
        raise RunFolderError(f"{path} already holds records; every run has a folder of its own") from None
    except OSError as error:
        raise storage_error(path, error) from None


def _start_of(record: RequestRecord) -> RequestRecord:
    """What was known of a request when it was sent."""
    return replace(
        USUAL,
        request_id=record.request_id,
        planned_s=record.planned_s,
        sent_s=record.sent_s,
        stage=record.stage,
        group=record.group,
        index=record.index,
        session=record.session,
        turn=record.turn,
        requested_output_tokens=record.requested_output_tokens,
    )


def _require_times(record: RequestRecord) -> None:
    """Refuse a record whose chunks cannot be written, before any of it is.

    Raises:   MeasurementError
    """
    for time_s in record.chunk_times_s:
        if not -MOST_TIME_S < time_s < MOST_TIME_S:
            ticks_of(time_s, record.request_id)


def _packed(items: Iterable[bytes]) -> Iterator[bytes]:
    """Items put together to bodies of frames."""
    body = bytearray()
    for item in items:
        if body and len(body) + len(item) > _MOST_FRAME_BYTES:
            yield bytes(body)
            body.clear()
        body += item
    if body:
        yield bytes(body)
