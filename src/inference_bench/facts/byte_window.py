"""Reads the front of a file of any size through one sliding window, whoever hands out the bytes.

In:   a ByteSource: a file, a browser's dropped file, a remote file read by range
Out:  ByteWindow: the next bytes or numbers, or a ModelFileError that says what was wanted and where the file ends
Leaves out: what the bytes mean
Read next by: gguf; safetensors, which opens its files here too.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import Any, Final, Protocol

from inference_bench.errors import ModelFileError
from inference_bench.files import NOT_THERE, REGULAR, what_stands_at
from inference_bench.units import MEBI

WINDOW_BYTES: Final = MEBI  # read at once
MAX_HEADER_BYTES: Final = 512 * MEBI  # 260k tokens with merges and scores take about 20 MB


class ByteSource(Protocol):
    """Something that hands out byte ranges of one file."""

    @property
    def size(self) -> int | None:
        """Bytes in the whole file, None where that is not known."""

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Up to num_bytes from offset on; empty at and past the end of the file."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file on disk, open for reading."""

    file: FileIO
    size: int

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Up to num_bytes from offset on."""
        self.file.seek(offset)
        return self.file.read(num_bytes)


@contextmanager
def open_model_file(path: str | os.PathLike[str], kind: str, hint: str = "") -> Iterator[FileSource]:
    """One regular file, unbuffered; a folder, a pipe or a device is refused before it is opened.

    Where:    kind is what an error calls the file, "GGUF"; hint follows when it is no regular file

    Raises:   ModelFileError if it cannot be read, also while it is
    """
    name = os.fspath(path)
    try:
        found = what_stands_at(name)
        if found not in (REGULAR, NOT_THERE):
            raise ModelFileError(f"cannot read the {kind} file {name!r}: it is {found}{hint}")
        with open(name, "rb", buffering=0) as file:
            yield FileSource(file, os.stat(name).st_size)
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"cannot read the {kind} file {name!r}: {reason}") from error


def shown(text: str) -> str:
    """Text from a file as an error prints it: quoted, on one line, not longer than 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


class ByteWindow:
    """A position in a byte source, with the bytes that follow it in one sliding window."""

    def __init__(self, source: ByteSource, name: str) -> None:
        self.order = "<"
        self._source = source
        self._name = name
        self._window = b""
        self._window_start = 0
        self._at = 0  # within the window, or past its end after a skip

    @property
    def offset(self) -> int:
        """Where in the file the next byte is."""
        return self._window_start + self._at

    def error(self, detail: str) -> ModelFileError:
        """The error for a header that says something it may not."""
        return ModelFileError(f"cannot read the GGUF header of {self._name!r}: {detail}")

    def truncated(self, what: str, end: int, size: int) -> ModelFileError:
        """The error for a file that ends before what it promises."""
        return self.error(f"truncated or lying: {what} would reach byte {end}, the file ends at byte {size}")

    def check_room(self, num_bytes: int, what: str) -> None:
        """Refuse a claim that goes past the end of the file or of the longest header allowed."""
        end, size = self.offset + num_bytes, self._source.size
        if size is not None and end > size:
            raise self.truncated(what, end, size)
        if end > MAX_HEADER_BYTES:
            raise self.error(f"{what} would reach byte {end}; allowed: a header of up to {MAX_HEADER_BYTES} bytes")

    def peek(self, num_bytes: int) -> bytes:
        """The next bytes, fewer at the end of the source."""
        if self._at + num_bytes > len(self._window):
            start = self.offset
            self._window = self._read(start, num_bytes)
            self._window_start, self._at = start, 0
        return self._window[self._at : self._at + num_bytes]

    def take(self, num_bytes: int, what: str) -> bytes:
        """The next bytes, all of them."""
        self.check_room(num_bytes, what)
        taken = self.peek(num_bytes)
        if len(taken) < num_bytes:
            raise self.truncated(what, self.offset + num_bytes, self.offset + len(taken))
        self._at += num_bytes
        return taken

    def unpack(self, codes: str, what: str) -> tuple[Any, ...]:
        """The next numbers, as struct codes in the byte order of the file."""
        form = self.order + codes
        return struct.unpack(form, self.take(struct.calcsize(form), what))

    def skip(self, num_bytes: int, what: str) -> None:
        """Step over bytes without reading them."""
        self.check_room(num_bytes, what)
        self._at += num_bytes

    def skip_strings(self, count: int, what: str) -> None:
        """Step over so many length-prefixed strings: the loop where most of a header's time goes."""
        length_at = struct.Struct(self.order + "Q").unpack_from
        window, at = self._window, self._at
        for _ in range(count):
            if at + 8 > len(window):
                self._at = at
                self.take(8, what)
                window, at = self._window, self._at - 8
            at += 8 + length_at(window, at)[0]
        self._at = at
        self.check_room(0, what)

    def _read(self, start: int, needed: int) -> bytes:
        """At least the bytes needed, unless the source ends before, and no more than a window where that is enough."""
        wanted = max(needed, WINDOW_BYTES)
        if self._source.size is not None:
            wanted = max(0, min(wanted, self._source.size - start))
        pieces: list[bytes] = []
        got = 0
        while got < min(needed, wanted):
            pieces.append(self._source.read(start + got, wanted - got)[: wanted - got])
            if not pieces[-1]:
                break
            got += len(pieces[-1])
        return b"".join(pieces)
