"""A log of requests as an engine served them: lengths, when each was queued, its first and its last token.

In:   a folder with requests.jsonl and, if there are, meta.json and timeseries.csv; or such a file of requests
Out:  RequestLog, from which the same requests can be sent again: its Workload
Leaves out: what the prompts held: the log has no content, so prefix caching cannot be simulated from it; how its lines are
read (log_rows)
Read next by: served_log, comparison, fitting.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final

from inference_bench.calibrate.log_meta import LogMeta, read_meta
from inference_bench.calibrate.log_rows import LONGEST_S, LogRow, count_preemptions, read_object, read_rows
from inference_bench.errors import MeasurementTableError, RequestError
from inference_bench.facts.fields import shown
from inference_bench.files import NOT_THERE, what_stands_at
from inference_bench.workload import OpenLoop, Requests, Workload

_REQUESTS: Final = "requests.jsonl"
_META: Final = "meta.json"
_TIMESERIES: Final = "timeseries.csv"


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Requests in the order in which they were queued; times count from the first.

    Where:  TTFT is from queueing to the first token; preemptions are the engine's own count, None where it was not written
            down; notes say what was left out
    Unit:   seconds
    Raises:  MeasurementTableError for no request, times that run backwards, or lengths below 1
    """

    name: str
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    queued_s: Sequence[float]
    first_token_s: Sequence[float]
    last_token_s: Sequence[float]
    meta: LogMeta = field(default_factory=LogMeta)
    preemptions: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = (self.prompt_tokens, self.output_tokens, self.queued_s, self.first_token_s, self.last_token_s)
        if not self.queued_s or len({len(column) for column in columns}) != 1:
            raise MeasurementTableError(f"the log {self.name} holds no request, or columns of different lengths")
        if least := [count for count in (*self.prompt_tokens, *self.output_tokens) if count < 1]:
            raise MeasurementTableError(f"the log {self.name} holds a length of {least[0]}; at least 1 is needed")
        before = -math.inf
        for index, (queued, first, last) in enumerate(
            zip(self.queued_s, self.first_token_s, self.last_token_s, strict=True)
        ):
            if not before <= queued <= first <= last <= LONGEST_S:
                raise MeasurementTableError(
                    f"the log {self.name}: times of request {index} run backwards, or beyond a year: queued {shown(queued)}, first "
                    f"token {shown(first)}, last token {shown(last)} s (the one before was queued at {before} s)"
                )
            before = queued

    def __len__(self) -> int:
        return len(self.queued_s)

    @property
    def ttft_s(self) -> list[float]:
        """Time to first token of each request, from when it was queued."""
        return [first - queued for queued, first in zip(self.queued_s, self.first_token_s, strict=True)]

    @property
    def tpot_s(self) -> list[float]:
        """Time per output token after the first, of requests that have one."""
        return [
            (last - first) / (count - 1)
            for first, last, count in zip(self.first_token_s, self.last_token_s, self.output_tokens, strict=True)
            if count > 1
        ]

    @property
    def makespan_s(self) -> float:
        """From the first request to the last token."""
        return max(self.last_token_s) - self.queued_s[0]

    def workload(self) -> Workload:
        """The same requests at the same times."""
        requests = Requests(array("q", self.prompt_tokens), array("q", self.output_tokens))
        return Workload(
            f"log {self.name}", requests, OpenLoop(array("d", self.queued_s), "as logged"), notes=self.notes
        )


def read_log(path: Path | str) -> RequestLog:
    """The log in a folder, or in a file of requests.

    Raises:  MeasurementTableError naming the file, line and field; RequestError where there is none
    """
    if not isinstance(path, str | PathLike):
        raise RequestError(f"a log is given by the path of its folder or file; {shown(path)} is no path")
    given = Path(path)
    try:
        is_folder = given.is_dir()
        file = given / _REQUESTS if is_folder else given
        is_there = file.is_file()
    except OSError as error:
        raise RequestError(f"the log at {shown(str(path))} cannot be read: {error.strerror or error}") from None
    if not is_there:
        found = what_stands_at(file)
        said = f"there is no log at {path}" if found == NOT_THERE else f"the log {file} is {found}"
        raise RequestError(f"{said}: a folder with {_REQUESTS}, or such a file, is needed")
    folder = file.parent
    whole = folder.resolve()
    own = () if file.name == _REQUESTS else (file.stem,)
    meta = read_meta(read_object(folder / _META), (*own, whole.name, whole.parent.name), str(folder / _META))
    rows, dropped = read_rows(file)
    name = own[0] if own else whole.name
    if not rows:
        raise MeasurementTableError(f"the log {name} holds no finished request ({dropped} without a first token)")
    return _log(name, sorted(rows, key=lambda row: row.times_s[0]), dropped, meta, folder)


def _log(name: str, rows: Sequence[LogRow], dropped: int, meta: LogMeta, folder: Path) -> RequestLog:
    began = rows[0]
    for row in rows:
        row.require_near(began)
    queued, first, last = ([row.times_s[index] - began.times_s[0] for row in rows] for index in range(3))
    notes = ["the log has no content of prompts: what a prefix cache found is not simulated"]
    if dropped:
        notes.append(f"{dropped} request(s) without tokens were left out")
    return RequestLog(
        name=name,
        prompt_tokens=[row.prompt_tokens for row in rows],
        output_tokens=[row.output_tokens for row in rows],
        queued_s=queued,
        first_token_s=first,
        last_token_s=last,
        meta=meta,
        preemptions=count_preemptions(rows, meta, folder / _TIMESERIES),
        notes=tuple(notes),
    )
