"""What is in these files, by hash, at the speed at which they can be read?

In:   paths of regular files
Out:  a SHA-256 and a size each, and while that lasts how far it is
Leaves out: which files (folder)
Read next by: from_files, adapters.

One thread reads the next piece while another hashes this one: Python lets go of its lock in both, so that a file takes as long as the
slower of the two. SHA-256 goes through a file in order, on one core; a disk that is quicker than one core is kept busy by several files
at once, one for each core: hashing is what takes a core, reading takes little of it (benchmarks/manifest_hash.py). A file that is not
what it was when it was opened is refused.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from inference_bench.errors import ModelFileError
from inference_bench.files import open_regular, shown_name
from inference_bench.units import KIBI, format_bytes, format_count, format_si

PIECE_BYTES: Final = 4096 * KIBI
_TELL_EVERY_S: Final = 0.2
_MOST_AT_ONCE: Final = 4

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file, and what it is called in a manifest."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class HashedFile:
    """What is in a file."""

    num_bytes: int
    sha256: str


class _StoppedError(Exception):
    """Somebody else failed, or a person pressed Ctrl-C: what is left need not be hashed."""


@dataclass(slots=True)
class _Meter:
    """How far it is, said a few times a second; told by several threads."""

    say: Progress
    num_files: int
    total_bytes: int
    began_s: float = field(default_factory=time.monotonic)
    num_done: int = 0
    done_bytes: int = 0
    said_s: float = 0.0
    is_stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, num_bytes: int, num_files: int = 0) -> None:
        """Raises:   _StoppedError."""
        if self.is_stopped:
            raise _StoppedError
        with self.lock:
            self.done_bytes += num_bytes
            self.num_done += num_files
            now = time.monotonic()
            if now - self.said_s >= _TELL_EVERY_S:
                self.said_s = now
                self.say(self._text(now - self.began_s))

    def _text(self, elapsed_s: float) -> str:
        rate = f", {format_si(self.done_bytes / elapsed_s, 'B/s')}" if elapsed_s > 0 else ""
        share = f"{self.done_bytes / self.total_bytes:.0%}" if self.total_bytes else ""
        return (
            f"hashing {format_bytes(self.done_bytes)} of {format_bytes(self.total_bytes)} ({share}), "
            f"{format_count(self.num_done)} of {format_count(self.num_files)} files{rate}"
        )


def hash_files(
    files: Sequence[NamedFile],
    progress: Progress | None = None,
    known: Mapping[str, str] | None = None,
    at_once: int | None = None,
) -> dict[str, HashedFile]:
    """The size and the hash of each file, by its name.

    Where:    known are hashes that were taken already, by name: those files are not read again; at_once is how many are read
              together, by default what the processors allow
    Raises:   ModelFileError for a file that cannot be read, or that changes meanwhile
    """
    told = known or {}
    sizes = {file.name: _size(file) for file in files}
    to_read = [file for file in files if file.name not in told]
    meter = _Meter(progress or (lambda _text: None), len(to_read), sum(sizes[file.name] for file in to_read))
    found = {file.name: HashedFile(sizes[file.name], told[file.name]) for file in files if file.name in told}
    with ThreadPoolExecutor(at_once or _count_at_once(), "hash") as pool:
        coming = {file.name: pool.submit(_hash_file, file, meter) for file in to_read}
        try:
            found.update((name, each.result()) for name, each in coming.items())
        except BaseException:
            meter.is_stopped = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {file.name: found[file.name] for file in files}


def _count_at_once() -> int:
    """One core for each file."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_AT_ONCE, cores)


def _hash_file(file: NamedFile, meter: _Meter) -> HashedFile:
    """The size and the hash of one file.

    Raises:   ModelFileError
    """
    try:
        with open_regular(file.path) as opened, closing(_pieces(opened)) as pieces:
            before = os.fstat(opened.fileno())
            digest, num_read = hashlib.sha256(), 0
            for piece in pieces:
                digest.update(piece)
                num_read += len(piece)
                meter.add(len(piece))
            after = (os.fstat(opened.fileno()), file.path.stat())
    except OSError as error:
        raise unreadable(file, error) from None
    if num_read != before.st_size or any(_state(each) != _state(before) for each in after):
        raise ModelFileError(
            f"{shown_name(file.name)} changed while it was hashed; wait until nothing writes it, and try again"
        )
    meter.add(0, num_files=1)
    return HashedFile(num_read, digest.hexdigest())


def _pieces(opened: BinaryIO) -> Generator[bytes | memoryview, None, None]:
    """The pieces of a file, of one that has several read ahead by a thread."""
    first = opened.read(PIECE_BYTES)
    yield first
    if len(first) == PIECE_BYTES:
        with ThreadPoolExecutor(1, "read-ahead") as reader:
            yield from _ahead(opened, reader)


def _ahead(opened: BinaryIO, reader: ThreadPoolExecutor) -> Generator[memoryview, None, None]:
    """What is left of a file, in two places in turn: one is read into while the other is used."""
    places = [memoryview(bytearray(PIECE_BYTES)) for _ in range(2)]
    read: Callable[[memoryview], int] = opened.readinto  # type: ignore[attr-defined]
    coming, turn = reader.submit(read, places[0]), 0
    while num_bytes := coming.result():
        full, turn = places[turn][:num_bytes], 1 - turn
        coming = reader.submit(read, places[turn])
        yield full


def _state(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _size(file: NamedFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError as error:
        raise unreadable(file, error) from None


def unreadable(file: NamedFile, error: OSError) -> ModelFileError:
    """Why a file of a model cannot be read."""
    return ModelFileError(f"{shown_name(file.name)} cannot be read: {(error.strerror or str(error)).lower()}")
