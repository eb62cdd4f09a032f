"""The records of a trace file one by one: rows of a CSV table, lines of JSON, or elements of one JSON array.

In:   a path
Out:  Record: its number in the file and its values by name, as text (CSV) or JSON values
Leaves out: what the values mean (trace_formats); the file is read as it is needed and never held
Read next by: traces, servegen.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

from inference_bench.errors import TraceError
from inference_bench.files import shown_name
from inference_bench.units import MEBI

MAX_RECORD_BYTES: Final = 64 * MEBI

_MOST_NAMED: Final = 12
_PEEK_BYTES: Final = 4096
_CHUNK_BYTES: Final = MEBI
_BOM: Final = codecs.BOM_UTF8
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_COMPRESSED: Final = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")
_LFS_POINTER: Final = b"version https://git-lfs"


class Shape(Enum):
    """How the records lie in the file."""

    CSV = "CSV"
    JSON_LINES = "JSON Lines"
    JSON_ARRAY = "JSON array"


class Record(NamedTuple):
    """One row."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace file whose shape is known by its first character."""

    path: Path
    shape: Shape

    def place(self, number: int) -> str:
        """Where a record stands, for messages."""
        return f"{shown_name(self.path)} {'record' if self.shape is Shape.JSON_ARRAY else 'line'} {number}"

    def records(self) -> Iterator[Record]:
        """Every record in the file's order; blank lines are passed over.

        Raises:   TraceError, naming the line, for what is not UTF-8, not JSON, or not a row of the table
        """
        try:
            with self.path.open("rb") as file:
                yield from _READERS[self.shape](self, file)
        except OSError as error:
            raise TraceError(
                f"{shown_name(self.path)} cannot be read: {(error.strerror or str(error)).lower()}"
            ) from None

    def refuse(self, number: int, detail: str) -> NoReturn:
        """Raise for a record that says something it may not."""
        raise TraceError(f"{self.place(number)}: {detail}")


def open_source(path: Path) -> TraceSource:
    """The file, looked at but not read yet.

    Raises:   TraceError for a file that is missing, empty, compressed, or not a regular file
    """
    head = _read_head(path)
    if head is None:
        raise TraceError(f"{shown_name(path)} is not a regular file; give a CSV, JSON or JSON Lines file")
    if head.startswith(_COMPRESSED):
        raise TraceError(f"{shown_name(path)} is compressed; unpack it and give the file inside")
    if head.startswith(_LFS_POINTER):
        raise TraceError(f"{shown_name(path)} is a Git LFS pointer and not the data; fetch the file that it points to")
    text = head.removeprefix(_BOM).lstrip()
    if not text:
        raise TraceError(f"{shown_name(path)} is empty; a trace holds at least one request")
    shapes = {b"[": Shape.JSON_ARRAY, b"{": Shape.JSON_LINES}
    return TraceSource(path, shapes.get(text[:1], Shape.CSV))


def _read_head(path: Path) -> bytes | None:
    """The first bytes; None for what reading could block on, such as a pipe."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return file.read(_PEEK_BYTES)
    except FileNotFoundError:
        raise TraceError(f"there is no file {shown_name(path)}; give the path of a trace") from None
    except OSError as error:
        raise TraceError(f"{shown_name(path)} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # a null character
        raise TraceError(f"{shown_name(path)!r} is not a path") from None


def _text_lines(source: TraceSource, file: BinaryIO) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(iter(partial(file.readline, MAX_RECORD_BYTES + 1), b""), start=1):
        if len(line) > MAX_RECORD_BYTES:
            source.refuse(number, f"longer than {MAX_RECORD_BYTES // MEBI} MiB; no request is written that long")
        try:
            yield number, (line.removeprefix(_BOM) if number == 1 else line).decode()
        except UnicodeDecodeError as error:
            source.refuse(number, f"not UTF-8 at byte {error.start} of the line; save the file as UTF-8")


def _csv_records(source: TraceSource, file: BinaryIO) -> Iterator[Record]:
    rows = csv.reader(line for _, line in _text_lines(source, file))
    try:
        header = [name.strip() for name in next(filter(None, rows), [])]
        if len(set(header)) < len(header):
            twice = next(name for name in header if header.count(name) > 1)
            source.refuse(rows.line_num, f"two columns are called {twice[:40]!r}; name each column once")
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                source.refuse(rows.line_num, _uneven(row, header))
            yield Record(rows.line_num, dict(zip(header, row, strict=True)))
    except csv.Error as error:
        source.refuse(rows.line_num, f"not a row of a CSV table: {error}")


def _uneven(row: Sequence[str], header: Sequence[str]) -> str:
    """What a row of the wrong number of fields lacks, or has too much."""
    said = f"{len(row)} fields in a table of {len(header)} columns"
    if len(row) > len(header):
        return f"{said}; what stands behind {header[-1][:40]!r} has no column"
    missing = ", ".join(repr(name[:40]) for name in header[len(row) : len(row) + _MOST_NAMED])
    return f"{said}; nothing stands for {missing}"


def _json_line_records(source: TraceSource, file: BinaryIO) -> Iterator[Record]:
    for number, line in _text_lines(source, file):
        if line.strip():
            yield _object(source, number, _parse(source, number, line))


def _json_array_records(source: TraceSource, file: BinaryIO) -> Iterator[Record]:
    """Elements of one array; the text is decoded in pieces, and what was read is dropped."""
    pieces = _ArrayText(source, file)
    pieces.expect("[", 0)
    if pieces.skip_if("]"):
        return
    number = 0
    while True:
        number += 1
        yield _object(source, number, pieces.element(number))
        if not pieces.skip_if(","):
            break
    pieces.expect("]", number)
    if not pieces.is_at_end():
        source.refuse(number, "more text after the end of the array")


class _ArrayText:
    """The unread text of an array: at least the element that is asked for."""

    def __init__(self, source: TraceSource, file: BinaryIO) -> None:
        self._source, self._file = source, file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._json = json.JSONDecoder(parse_constant=_refuse_constant)
        self._text, self._at, self._is_whole = "", 0, False
        self._number = 0

    def skip_if(self, mark: str) -> bool:
        self._skip_space()
        found = self._text.startswith(mark, self._at)
        self._at += len(mark) if found else 0
        return found

    def expect(self, mark: str, number: int) -> None:
        if not self.skip_if(mark):
            found = repr(self._text[self._at : self._at + 16]) if not self.is_at_end() else "the end of the file"
            self._source.refuse(number, f"expected {mark!r} behind it, found {found}")

    def element(self, number: int) -> object:
        self._number = number
        self._skip_space()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                is_cut = isinstance(error, ValueError) and not self._is_whole
                if is_cut and len(self._text) - self._at <= MAX_RECORD_BYTES:
                    self._read()
                    continue
                self._source.refuse(number, f"not JSON: {_json_fault(error, has_place=False)}")
            if end == len(self._text) and not self._is_whole:  # a number may go on
                self._read()
                continue
            self._at = end
            return value

    def is_at_end(self) -> bool:
        self._skip_space()
        return self._at == len(self._text)

    def _skip_space(self) -> None:
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._is_whole:
                return
            self._read()

    def _read(self) -> None:
        part = self._file.read(_CHUNK_BYTES)
        self._is_whole = not part
        try:
            text = self._decode(part, final=self._is_whole)
        except UnicodeDecodeError:
            self._source.refuse(self._number, "not UTF-8 here or behind it; save the file as UTF-8")
        self._text, self._at = self._text[self._at :] + text, 0


def _parse(source: TraceSource, number: int, text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        source.refuse(number, f"not JSON: {_json_fault(error)}")


def _json_fault(error: Exception, has_place: bool = True) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}" if has_place else error.msg
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that JSON has")


def _object(source: TraceSource, number: int, value: object) -> Record:
    if not isinstance(value, dict):
        source.refuse(number, f"a JSON object for each request is needed, found {type(value).__name__}")
    return Record(number, value)


_READERS: Final = {
    Shape.CSV: _csv_records,
    Shape.JSON_LINES: _json_line_records,
    Shape.JSON_ARRAY: _json_array_records,
}
