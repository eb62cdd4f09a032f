"""Published measurements, one value a row: reading the tidy table format, and refusing what cannot be trusted.

In:   a CSV file with a header (docs/measurements.md lists the columns)
Out:  MeasuredRow
Leaves out: what a row asks of the model (see query)
Read next by: query.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.errors import MeasurementTableError

UNIT_OF_METRIC: Final = {
    "decode_tok_s": "tok/s",
    "tpot_ms": "ms",
    "prefill_tok_s": "tok/s",
    "ttft_ms": "ms",
    "output_tok_s": "tok/s",
    "e2e_latency_s": "s",
}
PHASES: Final = ("decode", "prefill", "e2e")
NEEDED: Final = (
    *("model", "weight_format", "hardware", "engine", "phase", "batch_or_concurrency"),
    *("input_len", "output_len", "metric", "value", "unit"),
)
OPTIONAL: Final = ("source", "date", "params", "kv_format", "n_devices", "parallelism", "engine_version", "notes")
MAX_TABLE_BYTES: Final = 64 << 20
_MAX_FIELD_CHARS: Final = 2000
_LARGEST_LENGTH: Final = 100_000_000


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
        return "suspect" in self.notes


def read_rows(path: Path) -> tuple[MeasuredRow, ...]:
    """Every row of a table.

    Raises:  MeasurementTableError with the row, for a missing column, a wrong unit or a value that is no positive number
    """
    return tuple(_rows(path.name, _text(path).splitlines(keepends=True)))


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise MeasurementTableError(f"{path}: no such file; give CSV files of measurements")
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise MeasurementTableError(f"{path.name} is larger than {MAX_TABLE_BYTES >> 20} MiB; split the table")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise MeasurementTableError(f"{path.name} is not UTF-8 text; a CSV table is needed") from None
    except OSError as error:
        raise MeasurementTableError(f"{path.name} cannot be read: {error.strerror}") from None


def _rows(name: str, lines: Sequence[str]) -> Iterator[MeasuredRow]:
    reader = csv.DictReader(lines, strict=True)
    try:
        header = reader.fieldnames or ()
        if missing := [column for column in NEEDED if column not in header]:
            raise MeasurementTableError(
                f"{name} row 1: the header has no column {', '.join(missing)}; needed are {', '.join(NEEDED)}"
            )
        for values in reader:
            yield _row(name, reader.line_num, values)
    except csv.Error as error:
        raise MeasurementTableError(f"{name} row {max(1, reader.line_num)}: not readable as CSV ({error})") from None


def _row(name: str, number: int, values: Mapping[str | None, str | list[str] | None]) -> MeasuredRow:
    what = f"{name} row {number}"
    if None in values or any(not isinstance(values.get(column), str) for column in NEEDED):
        raise MeasurementTableError(f"{what}: the number of fields differs from the header")
    text = {str(key): value.strip()[:_MAX_FIELD_CHARS] for key, value in values.items() if isinstance(value, str)}
    metric, phase = text["metric"], text["phase"]
    if metric not in UNIT_OF_METRIC:
        raise MeasurementTableError(f"{what}: metric {metric[:40]!r} is not known; known: {', '.join(UNIT_OF_METRIC)}")
    if text["unit"] != UNIT_OF_METRIC[metric]:
        raise MeasurementTableError(
            f"{what}: {metric} is in {UNIT_OF_METRIC[metric]}, this row says {text['unit'][:20]!r}; convert the value"
        )
    if phase not in PHASES:
        raise MeasurementTableError(f"{what}: phase {phase[:40]!r} is not known; known: {', '.join(PHASES)}")
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
        phase=phase,
        batch_text=text["batch_or_concurrency"],
        batch=_batch(text["batch_or_concurrency"], f"{what}: batch_or_concurrency"),
        input_tokens=_whole(text["input_len"], f"{what}: input_len", least=0),
        output_tokens=_whole(text["output_len"], f"{what}: output_len", least=0),
        metric=metric,
        value=_positive(text["value"], f"{what}: value", is_needed=True) or 0.0,
        notes=text.get("notes", ""),
    )


def _positive(text: str, what: str, *, is_needed: bool) -> float | None:
    if not text and not is_needed:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise MeasurementTableError(f"{what} is {text[:40]!r}; a number above zero is needed")
    return value


def _whole(text: str, what: str, *, least: int) -> int | None:
    """A whole number; None where the field is empty."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != int(value) or not least <= value <= _LARGEST_LENGTH:
        raise MeasurementTableError(f"{what} is {text[:40]!r}; a whole number from {least} is needed")
    return int(value)


def _batch(text: str, what: str) -> int | None:
    """A batch or concurrency; None for words such as "max-throughput", which the row is then reported with."""
    return None if text and text[0].isalpha() else _whole(text, what, least=1)
