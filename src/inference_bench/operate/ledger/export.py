"""The requests of a ledger for other programs: CSV, Parquet, or a DuckDB file.

In:   Entries as they are read
Out:  one file, whole or not at all: a row a request, with what all of its attempts made a server compute; in Parquet the attempts as a
      list in each row, in DuckDB as a table of their own
Leaves out: sums, which the other program can make; text, which no Entry holds
Read next by: cli.

Rows are written a few thousand at a time. In CSV a value that a spreadsheet would compute has an apostrophe before it, and what is not
known is an empty cell; elsewhere it is null. Times are to the microsecond, without the dust of their sums and differences. docs/ledger.md
has the columns.
"""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from inference_bench.errors import MissingExtraError, RequestError, StorageError
from inference_bench.files import require_writable_place, shown_name
from inference_bench.operate.ledger.entry import Entry
from inference_bench.operate.ledger.totals import Share

EXPORT_SUFFIXES: Final = (".csv", ".parquet", ".duckdb")
_BATCH_ROWS: Final = 8_192
_COMPUTED: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_NAME_CHARS: Final = 40
_DECIMALS: Final = 6  # of a time in seconds: what a recorder writes


def _seconds(value: float | None) -> float | None:
    """A time to the microsecond, which is written in as few digits and read back as it is."""
    return None if value is None else round(value, _DECIMALS)


# name → kind, value: one row a request
_REQUEST: Final[dict[str, tuple[str, Callable[[Entry, Sequence[Share]], Any]]]] = {
    "source": ("str", lambda e, _: e.source),
    "sequence": ("int", lambda e, _: e.sequence),
    "request_id": ("str", lambda e, _: e.request_id),
    "at": ("time", lambda e, _: e.at),
    "application": ("str", lambda e, _: e.application),
    "team": ("str", lambda e, _: e.team),
    "endpoint": ("str", lambda e, _: e.endpoint),
    "model": ("str", lambda e, _: e.model),
    "status": ("str", lambda e, _: str(e.status)),
    "error": ("str", lambda e, _: e.error),
    "finish_reason": ("str", lambda e, _: e.finish_reason),
    "is_completed": ("bool", lambda e, _: e.is_completed),
    "user_success": ("bool", lambda e, _: e.user_success),
    "is_useful": ("bool", lambda e, _: e.is_useful),
    "is_warm_up": ("bool", lambda e, _: e.is_warm_up),
    "is_fallback": ("bool", lambda e, _: e.is_fallback),
    "ttft_s": ("float", lambda e, _: _seconds(e.ttft_s)),
    "e2e_s": ("float", lambda e, _: _seconds(e.e2e_s)),
    "input_tokens": ("int", lambda e, _: e.prompt_tokens),
    "cached_input_tokens": ("int", lambda e, _: e.cached_prompt_tokens),
    "output_tokens": ("int", lambda e, _: e.output_tokens),
    "reasoning_tokens": ("int", lambda e, _: e.reasoning_tokens),
    "is_lower_bound": ("bool", lambda e, _: e.is_lower_bound),
    "num_attempts": ("int", lambda e, _: len(e.attempts)),
    "in_flight_s": ("float", lambda e, _: _seconds(sum(each.in_flight_s for each in e.attempts))),
    "computed_input_tokens": ("int", lambda _, shares: sum(share.input_tokens for share in shares)),
    "computed_output_tokens": ("int", lambda _, shares: sum(share.output_tokens for share in shares)),
    "wasted_output_tokens": ("int", lambda _, shares: sum(share.output_tokens for share in shares if share.waste)),
    "manifest_sha256": ("str", lambda e, _: e.manifest_sha256),
}
# the same of one attempt; in DuckDB behind the source and the sequence of its request
_ATTEMPT: Final[dict[str, tuple[str, Callable[[Share], Any]]]] = {
    "endpoint": ("str", lambda s: s.attempt.endpoint),
    "model": ("str", lambda s: s.attempt.model),
    "end": ("str", lambda s: str(s.attempt.end)),
    "http_status": ("int", lambda s: s.attempt.http_status),
    "started_s": ("float", lambda s: _seconds(s.attempt.started_s)),
    "ended_s": ("float", lambda s: _seconds(s.attempt.ended_s)),
    "is_hedge": ("bool", lambda s: s.attempt.is_hedge),
    "is_answer": ("bool", lambda s: s.is_answer),
    "computed_input_tokens": ("int", lambda s: s.input_tokens),
    "computed_output_tokens": ("int", lambda s: s.output_tokens),
    "waste": ("str", lambda s: None if s.waste is None else str(s.waste)),
    "manifest_sha256": ("str", lambda s: s.attempt.manifest_sha256),
}
REQUEST_COLUMNS: Final = tuple(_REQUEST)
ATTEMPT_COLUMNS: Final = tuple(_ATTEMPT)


class _Writer(Protocol):
    def write(self, rows: list[tuple[Entry, list[Share]]]) -> None: ...

    def close(self) -> None: ...


class LedgerExport:
    """One file that is written while a ledger is read; `finish` puts it where it was asked for, `abandon` leaves nothing.

    Raises:   RequestError for a name of no known kind or one that cannot be written, MissingExtraError
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in EXPORT_SUFFIXES:
            raise RequestError(
                f"{shown_name(path)!r} is of no known kind of export; end it in one of {', '.join(EXPORT_SUFFIXES)}"
            )
        require_writable_place(str(path), "file to export to")
        if path.exists() and not path.is_file():
            raise RequestError(f"{shown_name(path)} is not a regular file; give the path of one")
        self.path = path
        self.num_rows = 0
        self._place = Path(os.path.realpath(path))
        self._temporary = self._place.with_name(f".{path.name[:_NAME_CHARS]}.{os.getpid()}.{secrets.token_hex(4)}")
        self._rows: list[tuple[Entry, list[Share]]] = []
        self._writer: _Writer | None = None
        try:
            self._guarded(self._open)
        except BaseException:
            self.abandon()
            raise

    def _open(self) -> None:
        self._writer = _MAKERS[self.path.suffix](self._temporary)

    def __call__(self, entry: Entry, shares: list[Share]) -> None:
        """One request.

        Raises:   StorageError
        """
        self._rows.append((entry, shares))
        if len(self._rows) >= _BATCH_ROWS:
            self._flush()

    def finish(self) -> None:
        """Write the rest, and put the file in its place.

        Raises:   StorageError
        """
        self._flush()
        writer, self._writer = self._writer, None
        if writer is not None:
            self._guarded(writer.close)
            self._guarded(lambda: self._temporary.replace(self._place))

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        for name in (self._temporary, self._temporary.with_name(f"{self._temporary.name}.wal")):
            with suppress(OSError):
                name.unlink()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self.num_rows += len(rows)
        writer = self._writer
        if rows and writer is not None:
            self._guarded(lambda: writer.write(rows))

    def _guarded(self, step: Callable[[], object]) -> None:
        """Do one step; what fails in it is a file that could not be written.

        Raises:   StorageError
        """
        try:
            step()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise self._failed(reason.lower()) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0].lstrip("_") not in ("duckdb", "pyarrow"):
                raise
            raise self._failed(type(error).__name__) from None

    def _failed(self, reason: str) -> StorageError:
        return StorageError(f"could not write {shown_name(self.path)}: {reason}")


class _CsvWriter:
    """A row a request, without the attempts one by one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("x", encoding="utf-8", newline="", errors="backslashreplace")
        self._csv = csv.writer(self._file, lineterminator="\n")
        self._csv.writerow(_REQUEST)

    def write(self, rows: list[tuple[Entry, list[Share]]]) -> None:
        self._csv.writerows([[_cell(value(*row)) for _, value in _REQUEST.values()] for row in rows])

    def close(self) -> None:
        self._file.close()


class _ParquetWriter:
    """The same, with the attempts as a list in each row."""

    def __init__(self, path: Path) -> None:
        pa = _arrow("Parquet", "parquet")
        import pyarrow.parquet as pq

        attempt = pa.struct(_arrow_fields(pa, _ATTEMPT))
        self._arrow = pa
        self._schema = pa.schema([*_arrow_fields(pa, _REQUEST), ("attempts", pa.list_(attempt))])
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, rows: list[tuple[Entry, list[Share]]]) -> None:
        columns = _request_columns(rows)
        columns["attempts"] = [
            [{name: value(share) for name, (_, value) in _ATTEMPT.items()} for share in shares] for _, shares in rows
        ]
        self._file.write_table(self._arrow.table(columns, schema=self._schema))

    def close(self) -> None:
        self._file.close()


class _DuckdbWriter:
    """Two tables: requests, and attempts with the source and the sequence of their request."""

    def __init__(self, path: Path) -> None:
        pa = _arrow("DuckDB", "duckdb")
        try:
            import duckdb
        except ImportError:
            raise _missing("DuckDB", "duckdb", "duckdb") from None
        key = (("source", "str"), ("sequence", "int"), ("number", "int"))
        self._arrow = pa
        self._requests = pa.schema(_arrow_fields(pa, _REQUEST))
        self._attempts = pa.schema([(name, _arrow_type(pa, kind)) for name, kind in key] + _arrow_fields(pa, _ATTEMPT))
        self._duckdb = duckdb.connect(str(path))
        self._run("CREATE TABLE requests AS SELECT * FROM batch", self._requests.empty_table())
        self._run("CREATE TABLE attempts AS SELECT * FROM batch", self._attempts.empty_table())

    def write(self, rows: list[tuple[Entry, list[Share]]]) -> None:
        self._run(
            "INSERT INTO requests SELECT * FROM batch", self._arrow.table(_request_columns(rows), schema=self._requests)
        )
        sent = [(entry, number, share) for entry, shares in rows for number, share in enumerate(shares, start=1)]
        columns: dict[str, list[Any]] = {
            "source": [entry.source for entry, _, _ in sent],
            "sequence": [entry.sequence for entry, _, _ in sent],
            "number": [number for _, number, _ in sent],
        }
        columns |= {name: [value(share) for _, _, share in sent] for name, (_, value) in _ATTEMPT.items()}
        self._run("INSERT INTO attempts SELECT * FROM batch", self._arrow.table(columns, schema=self._attempts))

    def _run(self, statement: str, batch: Any) -> None:
        self._duckdb.register("batch", batch)
        self._duckdb.execute(statement)
        self._duckdb.unregister("batch")

    def close(self) -> None:
        self._duckdb.close()


_MAKERS: Final[dict[str, Callable[[Path], _Writer]]] = {
    ".csv": _CsvWriter,
    ".parquet": _ParquetWriter,
    ".duckdb": _DuckdbWriter,
}


def _request_columns(rows: list[tuple[Entry, list[Share]]]) -> dict[str, list[Any]]:
    return {name: [value(*row) for row in rows] for name, (_, value) in _REQUEST.items()}


def _arrow(what: str, extra: str) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise _missing(what, "pyarrow", extra) from None
    return pa


def _missing(what: str, package: str, extra: str) -> MissingExtraError:
    return MissingExtraError(
        f"{what} needs the package {package}; install it with: pip install 'inference-bench[{extra}]'"
    )


def _arrow_fields(pa: Any, columns: Mapping[str, tuple[str, object]]) -> list[tuple[str, Any]]:
    return [(name, _arrow_type(pa, kind)) for name, (kind, _) in columns.items()]


def _arrow_type(pa: Any, kind: str) -> Any:
    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    return pa.timestamp("us", tz="UTC") if kind == "time" else types[kind]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, str):
        words = value.replace("\r", " ")  # which ends a row for some readers, quoted or not
        return f"'{words}" if value.startswith(_COMPUTED) else words
    return str(value).lower() if isinstance(value, bool) else repr(value)
