"""A log of requests as an engine served them: lengths, when each was queued, its first and its last token.

In:   a folder with requests.jsonl and, if there are, meta.json and timeseries.csv; or such a file of requests
Out:  RequestLog, from which the same requests can be sent again: its Workload
Leaves out: what the prompts held: the log has no content, so prefix caching cannot be simulated from it
Read next by: served_log, comparison, fitting.
"""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.calibrate.log_meta import LogMeta, read_meta
from inference_bench.errors import MeasurementTableError, RequestError
from inference_bench.workload import OpenLoop, Requests, Workload

_REQUESTS: Final = "requests.jsonl"
_META: Final = "meta.json"
_TIMESERIES: Final = "timeseries.csv"
_TOKENS: Final = ("input_toks", "output_toks")
_TIMES: Final = ("queued_ts", "first_token_ts", "last_token_ts")
_PREEMPTIONS: Final = ("num_preemptions", "preemptions", "num_preempted")
_MOST_TOKENS: Final = 1 << 30


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
        before = -math.inf
        for index, (queued, first, last) in enumerate(
            zip(self.queued_s, self.first_token_s, self.last_token_s, strict=True)
        ):
            if not before <= queued <= first <= last < math.inf:
                raise MeasurementTableError(
                    f"the log {self.name}: times of request {index} run backwards: queued {queued}, first token {first}, last "
                    f"token {last} s (the one before was queued at {before} s)"
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


def read_log(path: Path) -> RequestLog:
    """The log in a folder, or in a file of requests.

    Raises:  MeasurementTableError naming the file and line; RequestError where there is none
    """
    folder, file = (path, path / _REQUESTS) if path.is_dir() else (path.parent, path)
    if not file.is_file():
        raise RequestError(f"there is no log at {path}: a folder with {_REQUESTS}, or such a file, is needed")
    whole = folder.resolve()
    meta = read_meta(_read_object(folder / _META), (whole.name, whole.parent.name))
    rows, dropped = _read_rows(file)
    return _log(whole.name if path.is_dir() else file.stem, rows, dropped, meta, folder)


def _log(name: str, rows: Sequence[Mapping[str, Any]], dropped: int, meta: LogMeta, folder: Path) -> RequestLog:
    ordered = sorted(rows, key=lambda row: float(row["queued_ts"]))
    if not ordered:
        raise MeasurementTableError(f"the log {name} holds no finished request ({dropped} without a first token)")
    began = float(ordered[0]["queued_ts"])
    queued, first, last = ([float(row[column]) - began for row in ordered] for column in _TIMES)
    notes = ["the log has no content of prompts: what a prefix cache found is not simulated"]
    if dropped:
        notes.append(f"{dropped} request(s) without tokens were left out")
    log = RequestLog(
        name=name,
        prompt_tokens=[row["input_toks"] for row in ordered],
        output_tokens=[row["output_toks"] for row in ordered],
        queued_s=queued,
        first_token_s=first,
        last_token_s=last,
        meta=meta,
        notes=tuple(notes),
    )
    return replace(log, preemptions=_preemptions(ordered, meta, folder))


def _read_rows(file: Path) -> tuple[list[dict[str, Any]], int]:
    """The finished requests of a file, and how many never gave a token."""
    rows, dropped = [], 0
    for line, values in _json_lines(file):
        where = f"{file}, line {line}"
        if missing := [name for name in (*_TOKENS, *_TIMES) if name not in values]:
            raise MeasurementTableError(
                f"{where}: no {', '.join(missing)}; {', '.join((*_TOKENS, *_TIMES))} are needed of each request"
            )
        if values["first_token_ts"] is None or values["output_toks"] in (0, None):
            dropped += 1
            continue
        for name in _TOKENS:
            if not isinstance(values[name], int) or not 1 <= values[name] <= _MOST_TOKENS:
                raise MeasurementTableError(
                    f"{where}: {name} is {values[name]!r}; a whole number of at least 1 is needed"
                )
        for name in _TIMES:
            if (
                isinstance(values[name], bool)
                or not isinstance(values[name], int | float)
                or not math.isfinite(values[name])
            ):
                raise MeasurementTableError(f"{where}: {name} is {values[name]!r}; a time in seconds is needed")
        rows.append(values)
    return rows, dropped


def _json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                values = json.loads(line)
                if not isinstance(values, dict):
                    raise MeasurementTableError(f"{file}, line {number}: one JSON object a request is needed")
                yield number, values
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, MeasurementTableError):
            raise
        raise MeasurementTableError(f"{file} cannot be read as a log of requests: {error}") from None


def _read_object(file: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is none."""
    try:
        values = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise MeasurementTableError(f"{file} cannot be read: {error}") from None
    return values if isinstance(values, dict) else {}


def _preemptions(rows: Sequence[Mapping[str, Any]], meta: LogMeta, folder: Path) -> int | None:
    """How often requests gave way, if anything says so: the log's meta, its requests, or its counters."""
    if meta.preemptions is not None:
        return meta.preemptions
    for name in _PREEMPTIONS:
        counts = [row[name] for row in rows if isinstance(row.get(name), int)]
        if len(counts) == len(rows):
            return int(sum(counts))
    return _counted(folder / _TIMESERIES)


def _counted(file: Path) -> int | None:
    """The preemptions of a file of counters: the last value where it only grows, as counters do, else the sum."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            table = csv.DictReader(text)
            column = next((name for name in table.fieldnames or () if name and "preempt" in name.casefold()), None)
            values = [float(row[column]) for row in table] if column else []
    except (OSError, ValueError, TypeError, csv.Error):
        return None
    if not values or not all(0 <= value < math.inf for value in values):
        return None
    return int(values[-1] if values == sorted(values) else sum(values))
