"""Published measurements, one value a row: reading the tidy table format, and refusing what cannot be trusted.

In:   a CSV file with a header (docs/measurements.md lists the columns)
Out:  MeasuredRow
Leaves out: what a row asks of the model (see query)
Read next by: query.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.errors import MeasurementTableError
from inference_bench.units import TERA

UNIT_OF_METRIC: Final = {
    "decode_tok_s": "tok/s",
    "tpot_ms": "ms",
    "prefill_tok_s": "tok/s",
    "ttft_ms": "ms",
    "output_tok_s": "tok/s",
    "e2e_latency_s": "s",
}
METRICS_OF_PHASE: Final = {
    "decode": ("decode_tok_s", "tpot_ms", "output_tok_s"),
    "prefill": ("prefill_tok_s", "ttft_ms"),
    "e2e": ("output_tok_s", "e2e_latency_s"),
}
NEEDED: Final = (
    *("model", "weight_format", "hardware", "engine", "phase", "batch_or_concurrency"),
    *("input_len", "output_len", "metric", "value", "unit"),
)
OPTIONAL: Final = ("source", "date", "params", "kv_format", "n_devices", "parallelism", "engine_version", "notes")
# notes by which a table doubts a value: it contradicts others, or its format and lengths are placeholders
_SUSPECT: Final = re.compile(r"(?<!\bnot )(?<!\bno )(?<![\w-])suspect(?![\w-])", re.IGNORECASE)
NOT_STATED: Final = "not stated in file"
MAX_TABLE_BYTES: Final = 64 << 20
_PLAIN_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_WORDS: Final = ("nan", "inf", "infinity")  # what programs print for a number that they do not have
_MAX_FIELD_CHARS: Final = 2000
_LARGEST_LENGTH: Final = 100_000_000
_SMALLEST: Final = 1e-6  # of a value in its own unit
_LARGEST: Final = float(TERA)


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One published value.

    Where:  row is its line in the file, the header being line 1; batch is None where the table gives no number
            ("max-throughput"); input_tokens and output_tokens are None where left empty
    """

    file: str
    row: int
    source: str
    date: str
    model: str
    params_billions: float | None
    weight_format: str
    kv_format: str
    hardware: str
    devices: int
    parallelism: str
    engine: str
    engine_version: str
    phase: str
    batch_text: str
    batch: int | None
    input_tokens: int | None
    output_tokens: int | None
    metric: str
    value: float
    notes: str

    @property
    def place(self) -> str:
        """Where the row stands."""
        return f"{self.file} row {self.row}"

    @property
    def is_suspect(self) -> bool:
        """Whether the table itself doubts the value; such rows are predicted and left out of the scores."""
        return _SUSPECT.search(" ".join(self.notes.split())) is not None or NOT_STATED in self.notes


def read_rows(path: Path) -> tuple[MeasuredRow, ...]:
    """Every row of a table.

    Raises:  MeasurementTableError with the row, for a missing column, a wrong unit or a value that is no positive number
    """
    return tuple(each_row(path))


def each_row(path: Path) -> Iterator[MeasuredRow]:
    """The rows of a table one after another; raises what `read_rows` does."""
    return _rows(_shown(path.name), _text(path))


def _text(path: Path) -> str:
    name = _shown(path.name)
    try:
        if not path.is_file():
            raise MeasurementTableError(f"{_shown(str(path))}: {_what_it_is(path)}; give CSV files of measurements")
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise MeasurementTableError(f"{name} is larger than {MAX_TABLE_BYTES >> 20} MiB; split the table")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = path.read_bytes()[: error.start].count(b"\n") + 1
        raise MeasurementTableError(f"{name} row {row}: not UTF-8 text; a CSV table is needed") from None
    except OSError as error:
        raise MeasurementTableError(f"{name} cannot be read: {error.strerror}") from None


def _what_it_is(path: Path) -> str:
    """Why a path cannot be read as a file."""
    if path.exists():
        return "not a regular file"
    return "a link that leads to no file" if path.is_symlink() else "no such file"


def _shown(text: str) -> str:
    """A file's name as one line of a message can hold it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _rows(name: str, text: str) -> Iterator[MeasuredRow]:
    lines = _numbered(name, text)
    _, header = next(lines, (1, []))
    columns = [column.strip() for column in header]
    _check_header(name, columns)
    for number, fields in lines:
        if len(fields) != len(columns):
            raise MeasurementTableError(
                f"{name} row {number}: {len(fields)} fields, the header has {len(columns)}; quote fields with a comma"
            )
        values = {column: field.strip()[:_MAX_FIELD_CHARS] for column, field in zip(columns, fields, strict=True)}
        yield _row(name, number, values)


def _numbered(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of every row that is not blank, with the line it begins on: a quoted field may span several."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    before = 0
    try:
        for fields in reader:
            number, before = before + 1, reader.line_num
            if any("\0" in field for field in fields):
                raise MeasurementTableError(f"{name} row {number}: holds a NUL byte; a CSV table is needed")
            if fields:
                yield number, fields
    except csv.Error as error:
        raise MeasurementTableError(f"{name} row {before + 1}: not readable as CSV ({error})") from None


def _check_header(name: str, columns: Sequence[str]) -> None:
    if missing := [column for column in NEEDED if column not in columns]:
        raise MeasurementTableError(
            f"{name} row 1: the header has no column {', '.join(missing)}; needed are {', '.join(NEEDED)}"
        )
    known = [column for column in columns if column in (*NEEDED, *OPTIONAL)]
    if twice := next((column for column in known if known.count(column) > 1), None):
        raise MeasurementTableError(f"{name} row 1: the header names column {twice} twice; keep one of them")


def _row(name: str, number: int, text: Mapping[str, str]) -> MeasuredRow:
    what = f"{name} row {number}"
    _check_kind(what, text["metric"], text["unit"], text["phase"])
    return MeasuredRow(
        file=name,
        row=number,
        source=text.get("source") or name.removesuffix(".csv"),
        date=text.get("date", ""),
        model=text["model"],
        params_billions=_positive(text.get("params", ""), f"{what}: params", is_needed=False),
        weight_format=text["weight_format"],
        kv_format=text.get("kv_format", ""),
        hardware=text["hardware"],
        devices=_whole(text.get("n_devices", ""), f"{what}: n_devices", least=1) or 1,
        parallelism=text.get("parallelism", ""),
        engine=text["engine"],
        engine_version=text.get("engine_version", ""),
        phase=text["phase"],
        batch_text=text["batch_or_concurrency"],
        batch=_batch(text["batch_or_concurrency"], f"{what}: batch_or_concurrency"),
        input_tokens=_whole(text["input_len"], f"{what}: input_len", least=0, may_round=True),
        output_tokens=_whole(text["output_len"], f"{what}: output_len", least=0, may_round=True),
        metric=text["metric"],
        value=_positive(text["value"], f"{what}: value", is_needed=True) or 0.0,
        notes=text.get("notes", ""),
    )


def _check_kind(what: str, metric: str, unit: str, phase: str) -> None:
    """Refuse a metric, a unit or a phase that is not known."""
    if metric not in UNIT_OF_METRIC:
        raise MeasurementTableError(f"{what}: metric {metric[:40]!r} is not known; known: {', '.join(UNIT_OF_METRIC)}")
    if unit != UNIT_OF_METRIC[metric]:
        raise MeasurementTableError(
            f"{what}: {metric} is in {UNIT_OF_METRIC[metric]}, this row says {unit[:20]!r}; convert the value"
        )
    if phase not in METRICS_OF_PHASE:
        raise MeasurementTableError(f"{what}: phase {phase[:40]!r} is not known; known: {', '.join(METRICS_OF_PHASE)}")


def _positive(text: str, what: str, *, is_needed: bool) -> float | None:
    """A number in a range that any real measurement lies in; None where the field is empty and may be."""
    if not text and not is_needed:
        return None
    value = _number(text)
    if not _SMALLEST <= value <= _LARGEST:
        raise MeasurementTableError(
            f"{what} is {text[:40]!r}; a number above zero, from {_SMALLEST:g} to {_LARGEST:g}, is needed"
        )
    return value


def _number(text: str) -> float:
    """A number in the digits 0 to 9, without separators; anything else is not a number."""
    return float(text) if _PLAIN_NUMBER.fullmatch(text) else math.nan


def _whole(text: str, what: str, *, least: int, may_round: bool = False) -> int | None:
    """A whole number, or the nearest one to a mean; None where the field is empty."""
    if not text:
        return None
    value = _number(text)
    if not least <= value <= _LARGEST_LENGTH or (value != int(value) and not may_round):
        raise MeasurementTableError(
            f"{what} is {text[:40]!r}; a {'' if may_round else 'whole '}number from {least} to {_LARGEST_LENGTH:,} is needed"
        )
    return round(value)


def _batch(text: str, what: str) -> int | None:
    """A batch or concurrency; None for words such as "max-throughput", which the row is then reported with."""
    is_word = text[:1].isalpha() and text.casefold() not in _NOT_WORDS
    return None if is_word else _whole(text, what, least=1)
