"""Where do raw results go: a folder per run, in which samples are written while they are measured.

In:   RequestRecords as they come, and what is known about the run
Out:  `meta.json` (written whole or not at all) and `requests.journal` (appended); the records again, also those of
      folders of earlier versions, `requests.jsonl` with one record a line
Leaves out: prompt and generated text, which no record holds; the journal's bytes (journal, journal_read)
Read next by: loadtest, verify, report.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from inference_bench.errors import MeasurementError, RunFolderError, StorageError
from inference_bench.files import write_whole
from inference_bench.measure.journal import Journal, storage_error
from inference_bench.measure.journal_fields import record_from_json as record_from_json
from inference_bench.measure.journal_fields import record_to_json as record_to_json
from inference_bench.measure.journal_read import NEVER_ENDED, JournalContent, read_journal
from inference_bench.measure.payload_fields import strict_json
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.units import MEBI

SCHEMA_VERSION: Final = 1
META_FILE: Final = "meta.json"
JOURNAL_FILE: Final = "requests.journal"
LINES_FILE: Final = "requests.jsonl"  # of earlier versions
RecordWriter: TypeAlias = Journal

_MAX_SAME_NAMES: Final = 100
_MAX_OBJECT_BYTES: Final = 64 * MEBI
_MAX_LINE_BYTES: Final = 64 * MEBI  # a record of millions of tokens stays below
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """What a run folder holds.

    Where:    num_dropped_lines counts the files whose end a kill cut short, which is left out, num_dropped_bytes how long
              that was; num_unfinished of the records never ended, and are CANCELLED; num_voided were measured again
              when the run was resumed, and are not in `records`; num_resumed is how often it was
    """

    records: tuple[RequestRecord, ...]
    num_dropped_lines: int
    num_dropped_bytes: int = 0
    num_unfinished: int = 0
    num_voided: int = 0
    num_resumed: int = 0

    @property
    def parts(self) -> dict[str, list[RequestRecord]]:
        """The measured requests by the part of the run that they belong to."""
        found: dict[str, list[RequestRecord]] = {}
        for record in self.records:
            if record.stage is Stage.MEASURE:
                found.setdefault(record.group, []).append(record)
        return found


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far one part of a run has come.

    Where:    indices are the workload's requests that ended; num_unfinished were in flight when the run was cut short
    """

    num_ended: int
    num_unfinished: int
    indices: frozenset[int]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a run that was cut short has done, so that it can be resumed.

    Where:    groups are the parts of the measured stage; last_s is the last moment known, on the run's own clock; the
              clock of what is resumed should begin behind it
    """

    groups: Mapping[str, GroupProgress]
    last_s: float
    num_resumed: int


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

    def open_writer(self, shard: int | None = None) -> RecordWriter:
        """The one writer of this run's records, or of one of the processes that measure it together.

        Raises:   RunFolderError when there are records already, StorageError
        """
        if (self.path / LINES_FILE).exists():
            raise RunFolderError(f"{self.path} already holds records; every run has a folder of its own")
        return Journal(self.path / (JOURNAL_FILE if shard is None else f"requests-{shard:03d}.journal"))

    def resume_writer(self, void_groups: Sequence[str] = ()) -> RecordWriter:
        """A writer that goes on behind what a run that was cut short has written.

        Where:    records of void_groups, which are to be measured again, are read no more
        Raises:   RunFolderError when there is no journal that can be gone on with, StorageError
        """
        path = self.path / JOURNAL_FILE
        content = _read(path)
        if content is None:
            raise RunFolderError(f"{self.path} holds no {JOURNAL_FILE}; only a run that has one can be resumed")
        try:
            file = path.open("r+b", buffering=0)
            file.truncate(content.num_bytes)
        except OSError as error:
            raise storage_error(path, error) from None
        writer = Journal(path, file)
        try:
            writer.note_run({"resumed": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "void_groups": list(void_groups)})
        except StorageError:
            file.close()
            raise
        return writer

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
        value = strict_json(content)
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

    Raises:   RunFolderError for a folder that is not a run, and for a file that is broken before its end
    """
    folder = RunFolder.open(path)
    contents = [content for file in _journals(folder.path) if (content := _read(file)) is not None]
    if not contents:
        return _read_lines(folder.path / LINES_FILE)
    records = [record for content in contents for record in content.records]
    if len(contents) > 1:
        records.sort(key=lambda record: record.end_s)
    dropped = [content.num_dropped_bytes for content in contents if content.num_dropped_bytes]
    return StoredRecords(
        tuple(records),
        len(dropped),
        sum(dropped),
        sum(content.num_unfinished for content in contents),
        sum(content.num_voided for content in contents),
        max(len(content.runs) for content in contents),
    )


def read_progress(path: Path) -> RunProgress:
    """How far the run in this folder has come.

    Raises:   RunFolderError; see `read_records`
    """
    stored = read_records(path)
    last_s = max((record.end_s for record in stored.records), default=0.0)
    return RunProgress({name: _progress(group) for name, group in stored.parts.items()}, last_s, stored.num_resumed)


def _progress(records: Iterable[RequestRecord]) -> GroupProgress:
    records = list(records)
    ended = [
        record for record in records if not (record.status is RequestStatus.CANCELLED and record.error == NEVER_ENDED)
    ]
    indices = frozenset(record.index for record in ended if record.index is not None)
    return GroupProgress(len(ended), len(records) - len(ended), indices)


def _journals(path: Path) -> list[Path]:
    return [path / JOURNAL_FILE, *sorted(path.glob("requests-*.journal"))]


def _read(path: Path) -> JournalContent | None:
    """What a journal holds; None where there is none.

    Raises:   RunFolderError
    """
    try:
        return read_journal(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from None


def _read_lines(file: Path) -> StoredRecords:
    """The same of a folder that an earlier version wrote."""
    records: list[RequestRecord] = []
    try:
        _require_regular(file)
        with file.open("rb") as lines:
            for number, line in enumerate(iter(partial(lines.readline, _MAX_LINE_BYTES), b""), start=1):
                if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
                    return StoredRecords(tuple(records), 1, len(line))
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
        raise storage_error(parent, error) from None
    raise StorageError(f"{parent} already holds {_MAX_SAME_NAMES} runs named {stem}; give another name")
