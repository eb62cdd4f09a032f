"""The lines of a log of requests, each held to what can be.

In:   requests.jsonl, meta.json and timeseries.csv as files
Out:  LogRow; how often requests gave way
Leaves out: what they are put together to (log)
Read next by: log.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_bench.calibrate.log_meta import MOST_PREEMPTIONS, PREEMPTIONS, LogMeta
from inference_bench.errors import MeasurementTableError
from inference_bench.facts.fields import shown
from inference_bench.simulate.json_text import parse_json

LONGEST_S: Final = 366 * 86_400.0  # from a log's first request to its end: beyond a year two clocks are mixed
_TOKENS: Final = ("input_toks", "output_toks")
_TIMES: Final = ("queued_ts", "first_token_ts", "last_token_ts")
_MOST_TOKENS: Final = 1 << 30
_MOST_TIME_S: Final = 1e11  # seconds since 1970 are 2e9; beyond this the unit is another, or the clock too coarse


class LogRow(NamedTuple):
    """One finished request and where it stands.

    Where:  times_s are when it was queued, its first and its last token, by the engine's clock
    Unit:   seconds
    """

    where: str
    prompt_tokens: int
    output_tokens: int
    times_s: tuple[float, float, float]
    preemptions: int | None

    def require_near(self, first: LogRow) -> None:
        """Refuse a request that lies more than a year after the log's first.

        Raises:  MeasurementTableError naming the line and field
        """
        for name, time_s in zip(_TIMES, self.times_s, strict=True):
            if time_s - first.times_s[0] > LONGEST_S:
                raise MeasurementTableError(
                    f"{self.where}: {name} is {shown(time_s)}, more than a year after the first request was queued "
                    f"({shown(first.times_s[0])}, {first.where}); all times must be of one clock"
                )


def read_rows(file: Path) -> tuple[list[LogRow], int]:
    """The finished requests of a file, and how many never gave a token.

    Raises:  MeasurementTableError naming the line and field
    """
    rows, dropped = [], 0
    for line, values in _json_lines(file):
        where = f"{file}, line {line}"
        if missing := [name for name in (*_TOKENS, *_TIMES) if name not in values]:
            raise MeasurementTableError(
                f"{where}: no {', '.join(missing)}; {', '.join((*_TOKENS, *_TIMES))} are needed of each request"
            )
        if _is_unfinished(values):
            dropped += 1
        else:
            rows.append(_row(values, where))
    return rows, dropped


def _is_unfinished(values: Mapping[str, Any]) -> bool:
    output = values["output_toks"]
    return (
        values["first_token_ts"] is None
        or values["last_token_ts"] is None
        or output is None
        or (output == 0 and not isinstance(output, bool))
    )


def _row(values: Mapping[str, Any], where: str) -> LogRow:
    prompt_tokens, output_tokens = (_length(values[name], f"{where}: {name}") for name in _TOKENS)
    queued, first, last = (_time(values[name], f"{where}: {name}") for name in _TIMES)
    if not queued <= first <= last:
        raise MeasurementTableError(
            f"{where}: its times run backwards: queued_ts {queued!r}, first_token_ts {first!r}, last_token_ts {last!r}"
        )
    return LogRow(where, prompt_tokens, output_tokens, (queued, first, last), _own_preemptions(values, where))


def _length(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_TOKENS:
        raise MeasurementTableError(f"{what} is {shown(value)}; a whole number from 1 to {_MOST_TOKENS} is needed")
    return value


def _time(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST_TIME_S:
        raise MeasurementTableError(
            f"{what} is {shown(value)}; a time in seconds is needed, of at most {_MOST_TIME_S:g}"
        )
    return float(value)


def _own_preemptions(values: Mapping[str, Any], where: str) -> int | None:
    """How often a request gave way, where its line counts it; "preempted" may be a plain yes or no instead."""
    for name in PREEMPTIONS:
        value = values.get(name)
        if isinstance(value, bool) and name == "preempted":
            continue
        if isinstance(value, int | float):
            return _preemption_count(value, f"{where}: {name}")
    return None


def _preemption_count(value: float, what: str) -> int:
    if isinstance(value, bool) or not 0 <= value <= MOST_PREEMPTIONS or value != int(value):
        raise MeasurementTableError(f"{what} is {shown(value)}; a whole number of at least 0 is needed")
    return int(value)


def _json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    line = 0
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for line, text in enumerate(lines, start=1):
                if not text.strip():
                    continue
                values = parse_json(text)
                if not isinstance(values, dict):
                    raise ValueError("one JSON object a request is needed")
                yield line, values
    except MeasurementTableError:
        raise
    except UnicodeDecodeError as error:
        raise MeasurementTableError(
            f"{file} cannot be read as a log of requests: it is no UTF-8 text: {error}"
        ) from None
    except (OSError, ValueError) as error:
        raise MeasurementTableError(f"{file}, line {line}, cannot be read as a request of a log: {error}") from None


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is none.

    Raises:  MeasurementTableError for a file that holds something else
    """
    try:
        values = parse_json(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise MeasurementTableError(f"{file} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise MeasurementTableError(f"{file} holds {shown(values)}; an object of settings is needed")
    return values


# --- how often requests gave way ----------------------------------------------------------------------------------


def count_preemptions(rows: Sequence[LogRow], meta: LogMeta, counters: Path) -> int | None:
    """How often requests gave way, if anything says so: the log's meta, its requests, or its counters.

    Raises:  MeasurementTableError for a count that cannot be
    """
    if meta.preemptions is not None:
        return meta.preemptions
    counts = [row.preemptions for row in rows if row.preemptions is not None]
    return sum(counts) if len(counts) == len(rows) else _counted(counters)


def _counted(file: Path) -> int | None:
    """The preemptions of a file of counters: the last value where it only grows, as counters do, else the sum."""
    if not file.is_file():
        return None
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            table = csv.DictReader(lines)
            column = next((name for name in table.fieldnames or () if name and "preempt" in name.casefold()), None)
            texts = [] if column is None else [(line, row[column]) for line, row in enumerate(table, start=2)]
            values = [(line, float(text)) for line, text in texts if text and text.strip()]
    except (OSError, ValueError, csv.Error):
        return None
    counts = [_counter(value, f"{file}, line {line}: {column}") for line, value in values]
    if not counts:
        return None
    return int(counts[-1] if counts == sorted(counts) else sum(counts))


def _counter(value: float, what: str) -> float:
    if not (math.isfinite(value) and 0 <= value <= MOST_PREEMPTIONS):
        raise MeasurementTableError(f"{what} is {shown(value)}; a count of at least 0 is needed")
    return value
