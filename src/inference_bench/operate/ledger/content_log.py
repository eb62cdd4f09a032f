"""Where may prompts and answers be written? Nowhere, but for a folder that somebody named, for a time that somebody named.

In:   a folder and a retention time; the text of requests, from a recorder that was told to log it
Out:  files that only their owner may read, of one line a request; none of them older than the retention time once it is purged
Leaves out: sizes and times, which stand in the recorder's own files; deleting what a copy or a backup holds
Read next by: recorder, cli.

A file holds the requests of one short span. Its name says when it ends: a span's begin and the retention time, so that no text is
kept for longer; and how long that time is, so that a clock that was wrong keeps nothing for longer either: the file ends as well that
time after it was last written to, and one that claims to come from the future by more than that time is deleted. Files that ended are
deleted when a log is opened, with every new span, and by `purge_content`.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from inference_bench.errors import RequestError, StorageError
from inference_bench.files import shown_name
from inference_bench.operate.ledger.fork_lock import ForkLock
from inference_bench.operate.ledger.posix_file import new_file, write_all
from inference_bench.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SCHEMA: Final = "inference-bench/content/1"
_FILE: Final = re.compile(r"content-until-(\d{1,12})(?:-for-(\d{1,9}))?-\d+-[0-9a-f]{8}\.jsonl")
_SPANS: Final = 10  # in a retention time
_MOST_RETENTION_S: Final = 3_650 * SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Content:
    """What was said; it shows itself in no message."""

    prompt: str = field(repr=False)
    output: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Purge:
    """What a purge deleted and what it left; files that it could not delete are in neither."""

    num_deleted: int
    num_deleted_bytes: int
    num_kept: int
    num_failed: int = 0


class ContentLog:
    """The text of requests, in files of its own; safe to use from several threads and, after a fork, from each process."""

    def __init__(self, folder: Path, retention_s: float, clock: Callable[[], float] = time.time) -> None:
        if not (math.isfinite(retention_s) and 1 <= retention_s <= _MOST_RETENTION_S):
            raise RequestError(f"a retention time of {retention_s:g} s is not one; give 1 s to ten years")
        self.folder = folder
        self.retention_s = retention_s
        self._clock = clock
        self._span_s = min(retention_s / _SPANS, SECONDS_PER_HOUR)
        self._guard = ForkLock()
        self._file: int | None = None
        self._pid = 0
        self._until_s = -math.inf
        self._from_s = math.inf
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _failed(folder, error) from None
        purge_content(folder, clock)

    def write(self, request_id: str, content: Content) -> None:
        """One request.

        Raises:   StorageError
        """
        values = {"request_id": request_id, "prompt": content.prompt, "output": content.output}
        line = json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        with self._guard.lock:
            try:
                write_all(self._current_file(), line)
            except OSError as error:
                raise _failed(self.folder, error) from None

    def close(self) -> None:
        """Close the file of the current span."""
        with self._guard.lock:
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None  # first, so that no child of a fork closes it again
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def _current_file(self) -> int:
        """The file of this span and this process.

        Raises:   OSError
        """
        now_s = self._clock()
        if self._file is not None and self._pid == os.getpid() and self._from_s <= now_s < self._until_s:
            return self._file
        self._close()
        purge_content(self.folder, self._clock)
        ends_s = math.floor(now_s + self.retention_s)
        kept_s = math.ceil(self.retention_s)
        name = f"content-until-{ends_s}-for-{kept_s}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        self._file = new_file(self.folder / name, json.dumps({"schema": SCHEMA}).encode("ascii") + b"\n")
        self._pid, self._from_s, self._until_s = os.getpid(), now_s, now_s + self._span_s
        return self._file


def purge_content(folder: Path, clock: Callable[[], float] = time.time) -> Purge:
    """Delete what a log's retention time has ended for; no other file, and nothing through a link.

    Raises:   RequestError for what is no folder
    """
    now_s = clock()
    deleted = num_bytes = kept = failed = 0
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise RequestError(
            f"{shown_name(folder)} is not a folder of a content log: {(error.strerror or '').lower()}"
        ) from None
    for path in found:
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            status = path.lstat()
            kept_s = _MOST_RETENTION_S if match[2] is None else int(match[2])  # an older name does not say it
            if _is_kept(now_s, int(match[1]), kept_s, status.st_mtime):
                kept += 1
            elif stat.S_ISREG(status.st_mode):
                path.unlink()
                deleted, num_bytes = deleted + 1, num_bytes + status.st_size
        except FileNotFoundError:  # another process was quicker
            continue
        except OSError:
            failed += 1
    return Purge(deleted, num_bytes, kept, failed)


def _is_kept(now_s: float, ends_s: float, kept_s: float, written_s: float) -> bool:
    """Whether a file's retention time goes on, whatever its writer's clock was.

    Where:    kept_s is the retention time, or the longest there may be; written_s is the file system's own time
    """
    ends_s = min(ends_s, written_s + kept_s)
    return now_s < ends_s <= now_s + 2 * kept_s


def _failed(folder: Path, error: OSError) -> StorageError:
    return StorageError(
        f"could not write content to {shown_name(folder)}: {(error.strerror or type(error).__name__).lower()}"
    )
