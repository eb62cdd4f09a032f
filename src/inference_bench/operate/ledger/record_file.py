"""How do lines get into files of one process each, whole or not at all, whatever happens to the process or the disk?

In:   values of a line
Out:  files in a folder: a line that says whose they are, then a line a record; a new file at a size, and after a fork
Leaves out: what a line may hold (recorder)
Read next by: recorder, lines.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import StorageError
from inference_bench.files import shown_name
from inference_bench.operate.ledger.posix_file import new_file, write_all

SCHEMA_NAME: Final = "inference-bench/ledger-record/"  # the version stands behind it
VERSION: Final = 1
MOST_COUNT: Final = 1 << 53  # beyond which JSON's numbers are no longer whole everywhere
MOST_S: Final = 1e10  # three hundred years, beyond which no time of a request is one


class RecordFile:
    """The files of this process, one after the other.

    Where:    process is a number of its own for each process; num_unsaid are the records lost since the file last said so
    """

    def __init__(self, folder: Path, rotate_bytes: int, fsync_s: float | None) -> None:
        self._folder, self._rotate_bytes, self._fsync_s = folder, rotate_bytes, fsync_s
        self._file: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self.process, self._sequence, self._number = secrets.token_hex(6), 0, 0
        self._begun_s, self._begun = time.monotonic(), datetime.now(UTC)
        self._synced_s, self._num_bytes, self.num_unsaid = self._begun_s, 0, 0

    def next_sequence(self, e2e_s: float) -> tuple[int, float]:
        """The number of a record, and when its request began on this process's own clock, if it ends now."""
        if self._pid != os.getpid():  # a child of a fork: the file is its parent's
            self._close()
            self._begin()
        self._sequence += 1
        return self._sequence, round(time.monotonic() - self._begun_s - e2e_s, 6)

    def write(self, values: dict[str, Any]) -> None:
        """One line, in a file with room for it.

        Raises:   OSError, after which the file is as it was
        """
        line = _line(values)
        if self._file is not None and self._num_bytes + len(line) > self._rotate_bytes:
            self.end()
        file = self._new_file() if self._file is None else self._file
        if self.num_unsaid:
            self._say_lost(file)
        write_all(file, line)
        self._num_bytes += len(line)

    def sync_when_due(self) -> None:
        """Wait for the disk where that is asked for and due.

        Raises:   OSError
        """
        if self._fsync_s is not None and (now_s := time.monotonic()) - self._synced_s >= self._fsync_s:
            self.sync()
            self._synced_s = now_s

    def sync(self) -> None:
        """Wait for the disk.

        Raises:   OSError
        """
        if self._file is not None:
            os.fsync(self._file)

    def end(self) -> None:
        """End the file; a line after it begins another."""
        if self._file is None or self._pid != os.getpid():
            return
        with suppress(OSError):
            if self.num_unsaid:
                self._say_lost(self._file)
        with suppress(OSError):  # a file system that cannot has at least got all of it
            os.fsync(self._file)
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None  # first, so that no child of a fork closes it again
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def _say_lost(self, file: int) -> None:
        line = _line({"v": VERSION, "process": self.process, "dropped": self.num_unsaid})
        write_all(file, line)
        self._num_bytes += len(line)
        self.num_unsaid = 0

    def _new_file(self) -> int:
        name = f"ledger-{self._begun:%Y%m%dT%H%M%SZ}-{self._pid}-{self.process}-{self._number:04d}.jsonl"
        begun = self._begun.isoformat(timespec="milliseconds")
        head = _line({"schema": f"{SCHEMA_NAME}{VERSION}", "process": self.process, "begun": begun})
        self._file, self._num_bytes = new_file(self._folder / name, head), len(head)
        self._number += 1
        return self._file


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def storage_error(folder: Path, error: OSError) -> StorageError:
    """What could not be written, in one line."""
    return StorageError(f"could not record to {shown_name(folder)}: {(error.strerror or type(error).__name__).lower()}")
