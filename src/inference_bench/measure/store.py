"""Where do raw results go: a folder per run, in which every record is written as soon as its request has ended.

In:   RequestRecords as they come, and what is known about the run
Out:  `meta.json` (written whole or not at all) and `requests.jsonl` (one record a line, appended)
Leaves out: prompt and generated text, which no record holds; and fsync for every record: a killed process loses at
      most the requests in flight, a power cut also what the system had not written yet
Read next by: verify, report.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Final, NoReturn, Self, get_args, get_origin, get_type_hints

from inference_bench.errors import MeasurementError, RunFolderError, StorageError
from inference_bench.files import shown_name, write_whole
from inference_bench.records import RequestRecord
from inference_bench.units import MEBI

SCHEMA_VERSION: Final = 1
META_FILE: Final = "meta.json"
REQUESTS_FILE: Final = "requests.jsonl"

_MAX_SAME_NAMES: Final = 100
_MAX_OBJECT_BYTES: Final = 64 * MEBI
_MAX_LINE_BYTES: Final = 64 * MEBI  # a record of millions of tokens stays below
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def record_to_json(record: RequestRecord) -> str:
    """One record as one line of JSON, from which `record_from_json` gives back the same record.

    Raises:   MeasurementError for a time that is not a finite number
    """
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    try:
        return json.dumps(values, allow_nan=False, separators=(",", ":"), default=asdict)
    except ValueError:
        raise MeasurementError(f"request {record.request_id} has a time that is not a number; not written") from None


def record_from_json(line: str | bytes) -> RequestRecord:
    """The record that `record_to_json` wrote.

    Raises:   ValueError for a line that is not one, in the words of the field that is wrong
    """
    record = _decode(RequestRecord, json.loads(line, parse_constant=_refuse), "the record")
    return record if isinstance(record, RequestRecord) else _refuse("the record")


def _decode(hint: Any, value: object, what: str) -> object:
    """A JSON value as the type that a dataclass field declares; nothing is converted that does not fit."""
    options = get_args(hint)
    if NoneType in options:
        rest = next(option for option in options if option is not NoneType)
        return None if value is None else _decode(rest, value, what)
    if is_dataclass(hint) and isinstance(hint, type):
        return _decode_object(hint, value, what)
    if get_origin(hint) is tuple:
        return tuple(_decode(options[0], item, what) for item in _expect(value, list, what))
    if issubclass(hint, StrEnum):
        return hint(value)
    if hint is float:
        return _expect_finite(value, what)
    return _expect(value, hint, what)


def _decode_object(kind: type, value: object, what: str) -> object:
    values, hints = _expect(value, dict, what), get_type_hints(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not needed <= values.keys() <= hints.keys():  # a record of an earlier version lacks what was added since
        _refuse(f"{what}: its fields")
    return kind(**{name: _decode(hints[name], item, name) for name, item in values.items()})


def _expect(value: object, kind: type, what: str) -> Any:
    return value if isinstance(value, kind) and not isinstance(value, bool) else _refuse(what)


def _expect_finite(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return _refuse(what)


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what} is not what this version writes")


class RecordWriter:
    """Appends records to a run's file, each with one write; the file is new and belongs to this writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num_bytes = 0
        try:
            self._file = path.open("xb", buffering=0)
        except FileExistsError:
            raise RunFolderError(f"{path} already holds records; every run has a folder of its own") from None
        except OSError as error:
            raise _storage_error(path, error) from None

    def append(self, record: RequestRecord) -> None:
        """Write one record; when that fails, the file is left as it was before.

        Raises:   StorageError, MeasurementError for a record that holds NaN
        """
        line = record_to_json(record).encode() + b"\n"
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._num_bytes)
                self._file.seek(self._num_bytes)
            raise _storage_error(self._path, error) from None
        self._num_bytes += len(line)

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """What a run folder holds; a last line that a kill cut short is left out and counted."""

    records: tuple[RequestRecord, ...]
    num_dropped_lines: int


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def create(cls, parent: Path, name: str, now: datetime | None = None) -> RunFolder:
        """A new folder below `parent`, named by the time in UTC and `name`; an existing one is never reused.

        Raises:   StorageError
        """
        created = (now or datetime.now(UTC)).astimezone(UTC)
        stem = f"{created:%Y%m%dT%H%M%SZ}-{_UNSAFE.sub('-', name).strip('-.')[:60] or 'run'}"
        folder = cls(_make_new_folder(parent, stem))
        folder._write(
            {"schema_version": SCHEMA_VERSION, "name": name, "created": created.isoformat(timespec="seconds")}
        )
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run.

        Raises:   RunFolderError when it is not one, or was written by a newer version
        """
        folder = cls(path)
        version = folder.read_meta().get("schema_version")
        if version != SCHEMA_VERSION:
            raise RunFolderError(f"{path} has schema version {version!r}; this version reads {SCHEMA_VERSION}")
        return folder

    def read_meta(self) -> dict[str, object]:
        """What is known about the run.

        Raises:   RunFolderError
        """
        return read_json_object(self.path / META_FILE)

    def update_meta(self, values: Mapping[str, object]) -> None:
        """Add to what is known about the run; the file is replaced as a whole.

        Raises:   StorageError, RunFolderError, MeasurementError for values that JSON cannot hold, such as NaN
        """
        self._write(self.read_meta() | dict(values))

    def open_writer(self) -> RecordWriter:
        """The one writer of this run's records.

        Raises:   RunFolderError when there are records already, StorageError
        """
        return RecordWriter(self.path / REQUESTS_FILE)

    def _write(self, meta: Mapping[str, object]) -> None:
        try:
            text = json.dumps(meta, allow_nan=False, indent=2) + "\n"
        except (TypeError, ValueError) as error:
            raise MeasurementError(f"what is known about the run cannot be written as JSON: {error}") from None
        write_whole(self.path / META_FILE, text)


def read_json_object(path: Path) -> dict[str, object]:
    """The JSON object in a run's file.

    Raises:   RunFolderError, also for what reading could block on (a pipe, a device), or that is too large
    """
    try:
        _require_regular(path)
        with path.open("rb") as file:
            content = file.read(_MAX_OBJECT_BYTES + 1)
        if len(content) > _MAX_OBJECT_BYTES:
            raise RunFolderError(f"{path} is larger than {_MAX_OBJECT_BYTES // MEBI} MiB; no run writes that much")
        value = json.loads(content)
    except OSError as error:
        raise RunFolderError(f"{path.parent} is not a run folder: {path.name}: {error.strerror}") from None
    except RunFolderError:
        raise
    except (ValueError, RecursionError):
        raise RunFolderError(f"{path.parent} is not a run folder: {path.name} is not JSON") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{path.parent} is not a run folder: {path.name} is not a JSON object")
    return value


def _require_regular(path: Path) -> None:
    """Refuse what a read could block on or never end: a pipe, a device, a socket.

    Raises:   RunFolderError, OSError where there is nothing
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise RunFolderError(f"{path} is not a regular file; a run's own file is needed")


def read_records(path: Path) -> StoredRecords:
    """The records of the run in this folder, in the order in which their requests ended.

    Raises:   RunFolderError for a folder that is not a run, and for a broken line other than a last one cut short
    """
    folder = RunFolder.open(path)
    file = folder.path / REQUESTS_FILE
    records: list[RequestRecord] = []
    try:
        _require_regular(file)
        with file.open("rb") as lines:
            for number, line in enumerate(iter(partial(lines.readline, _MAX_LINE_BYTES), b""), start=1):
                if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
                    return StoredRecords(tuple(records), 1)
                records.append(_record(line, f"{file} line {number}"))
    except FileNotFoundError:
        return StoredRecords((), 0)
    except OSError as error:
        raise RunFolderError(f"{file} cannot be read: {error.strerror}") from None
    return StoredRecords(tuple(records), 0)


def _record(line: bytes, what: str) -> RequestRecord:
    try:
        return record_from_json(line)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{what} is not a request record: {error}") from None


def _make_new_folder(parent: Path, stem: str) -> Path:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MAX_SAME_NAMES + 1):
            path = parent / (stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise _storage_error(parent, error) from None
    raise StorageError(f"{parent} already holds {_MAX_SAME_NAMES} runs named {stem}; give another name")


def _storage_error(path: Path, error: OSError) -> StorageError:
    return StorageError(f"could not write {shown_name(path)}: {(error.strerror or type(error).__name__).lower()}")
