"""When did requests reach one's own service, and how long were they? Kept as a trace, without a word of what they said.

In:   calls from the service: a request has arrived; it has ended, with its token counts
Out:  a CSV file of arrival offsets and token counts, in order of arrival, which `read_trace` reads
Leaves out: prompts, answers, names, addresses: there is no parameter that could hold them
Read next by: replay.

Arrivals are stamped by a monotonic clock, so that a clock that is set while the service runs moves nothing. A request that arrived
early and ends late holds back the rows behind it, in memory, and no more than `most_open` of them: then the oldest open one is
given up. A recorder never raises into a service: when the file cannot be written it stops, with whole rows, and `trouble` says why.
A child of a fork writes nothing: rows of two processes would not be in order, so that a child makes a recorder of its own.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeGuard

from inference_bench.errors import StorageError
from inference_bench.files import shown_name
from inference_bench.operate.ledger.fork_lock import ForkLock
from inference_bench.operate.ledger.posix_file import new_file, write_all
from inference_bench.workload.checks import MOST_TOKENS

HEADER: Final = "arrival_s,prompt_tokens,output_tokens\n"
_MOST_OPEN: Final = 100_000
_IN_CHILD: Final = "this process is a child of the one that records, and needs a recorder of its own"
_NO_COUNT: Final = "a number of tokens was no whole number"


@dataclass(slots=True)
class _Row:
    """A request that has arrived.

    Where:  is_over says that it ended or was given up; prompt_tokens is None where there is nothing to write of it
    """

    arrival_s: float
    is_over: bool = False
    prompt_tokens: int | None = None
    output_tokens: int = 0


class TraceRecorder:
    """Writes arrivals and lengths while a service runs; safe to call from several threads.

    Where:    num_written, num_dropped (no tokens, no whole number of them, or given up) and trouble say what became of them
    Raises:   StorageError when the file is there already, or cannot be made
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic, most_open: int = _MOST_OPEN) -> None:
        self.num_written = self.num_dropped = 0
        self.trouble: str | None = None
        self._clock, self._most_open = clock, most_open
        self._guard, self._pid = ForkLock(), os.getpid()
        self._rows: OrderedDict[int, _Row] = OrderedDict()
        self._next = 0
        self._begin_s: float | None = None
        self._last_s = 0.0
        self._file: int | None = _new_file(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def arrived(self) -> int:
        """Note that a request has come; the number is what `ended` wants."""
        with self._guard.lock:
            now_s = self._clock()
            if self._begin_s is None:
                self._begin_s = now_s
            self._last_s = max(self._last_s, now_s - self._begin_s)  # two threads may read one clock in either order
            number, self._next = self._next, self._next + 1
            self._rows[number] = _Row(self._last_s)
            if len(self._rows) > self._most_open:
                next(iter(self._rows.values())).is_over = True
                self._write_ready()
            return number

    def ended(self, number: int, prompt_tokens: int | None, output_tokens: int | None) -> None:
        """Note how long a request was; one whose tokens are not known, or that has none, is left out and counted."""
        with self._guard.lock:
            row = self._rows.get(number) if type(number) is int else None
            if row is None or row.is_over:
                return  # given up before, or told twice
            row.is_over = True
            if not all(each is None or type(each) is int for each in (prompt_tokens, output_tokens)):
                self.trouble = self.trouble or _NO_COUNT
            elif _is_length(prompt_tokens) and _is_length(output_tokens):
                row.prompt_tokens, row.output_tokens = prompt_tokens, output_tokens
            self._write_ready()

    def close(self) -> None:
        """Write what has ended; requests still open are left out and counted."""
        with self._guard.lock:
            for row in self._rows.values():
                row.is_over = True
            self._write_ready()
            self._stop(None)

    def _write_ready(self) -> None:
        """The rows at the front that are over."""
        lines: list[str] = []
        while self._rows and next(iter(self._rows.values())).is_over:
            _, row = self._rows.popitem(last=False)
            if row.prompt_tokens is None:
                self.num_dropped += 1
            else:
                lines.append(f"{row.arrival_s:.6f},{row.prompt_tokens},{row.output_tokens}\n")
        if os.getpid() != self._pid:
            self._stop(_IN_CHILD)
        if not lines or self._file is None:
            return
        try:
            write_all(self._file, "".join(lines).encode("ascii"))
            self.num_written += len(lines)
        except OSError as error:
            self._stop((error.strerror or type(error).__name__).lower())

    def _stop(self, trouble: str | None) -> None:
        self.trouble = self.trouble or trouble
        file, self._file = self._file, None
        if file is not None:
            try:
                os.close(file)
            except OSError as error:
                self.trouble = self.trouble or (error.strerror or type(error).__name__).lower()


def _is_length(tokens: int | None) -> TypeGuard[int]:
    return tokens is not None and 1 <= tokens <= MOST_TOKENS


def _new_file(path: Path) -> int:
    """A file that only its owner reads: arrivals and lengths are of real people."""
    try:
        return new_file(path, HEADER.encode("ascii"))
    except FileExistsError:
        raise StorageError(f"{shown_name(path)} is there already; a recording gets a file of its own") from None
    except OSError as error:
        said = (error.strerror or type(error).__name__).lower()
        raise StorageError(f"could not write {shown_name(path)}: {said}") from None
