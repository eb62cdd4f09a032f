"""What stands in the files that recorders wrote? Read line by line, whatever became of the process that wrote them.

In:   a folder of recorders, or one of their files
Out:  Entries as they are read, in the order of each process's own count; what was wrong with the files
Leaves out: runs of `load` and `verify` (run_folders)
Read next by: flow.

Times come from the process's monotonic clock and the wall clock at its begin: a wall clock that is set back in between changes neither
order nor hours. A last line without an end was torn by a kill and is left out; any other line that is not a record is counted and left
out; a record of a newer version is refused, since leaving it out would change sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RunFolderError
from inference_bench.files import open_regular, shown_name
from inference_bench.measure.payload_fields import strict_json
from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.ledger.entry import Entry, EntryAttempt
from inference_bench.operate.ledger.record_file import MOST_COUNT, MOST_S, SCHEMA_NAME, VERSION
from inference_bench.operate.ledger.repeats import SeenRecords
from inference_bench.records import RequestStatus
from inference_bench.units import MEBI

FILES: Final = "ledger-*.jsonl"
_MAX_LINE_BYTES: Final = MEBI
_STEP_S: Final = 2.0  # by which the wall clock may be away from the monotonic one without having been set
_MOST_CHARS: Final = 128


@dataclass(slots=True)
class FileTrouble:
    """What was odd about the files of one source.

    Where:    first_broken says where the first line stands that is no record
    """

    num_files: int = 0
    num_empty_files: int = 0
    num_torn: int = 0
    num_broken: int = 0
    num_again: int = 0
    num_lost: int = 0
    num_clock_steps: int = 0
    first_broken: str | None = None


@dataclass(slots=True)
class _Process:
    """Whose lines are being read."""

    name: str = ""
    begun_s: float | None = None


def record_files(path: Path) -> tuple[Path, ...]:
    """The files of recorders in a folder, or the one that was named, in the order in which they were begun."""
    return tuple(sorted(path.glob(FILES))) if path.is_dir() else (path,)


def read_lines(path: Path, seen: SeenRecords, trouble: FileTrouble) -> Iterator[Entry]:
    """Each request of a folder of recorders, or of one file, that was not read before.

    Raises:   RunFolderError for a file that cannot be read, is not of a recorder, or is of a newer version
    """
    for file in record_files(path):
        trouble.num_files += 1
        try:
            yield from _read_file(file, seen, trouble)
        except OSError as error:
            raise RunFolderError(f"{shown_name(file)} cannot be read: {(error.strerror or '').lower()}") from None


def _read_file(path: Path, seen: SeenRecords, trouble: FileTrouble) -> Iterator[Entry]:
    process, number = _Process(), 0
    with open_regular(path) as file:
        for number, line in enumerate(iter(partial(file.readline, _MAX_LINE_BYTES), b""), start=1):
            if not line.endswith(b"\n"):
                is_long = len(line) == _MAX_LINE_BYTES
                trouble.num_torn += is_long or number > 1
                if is_long or number == 1:  # a file without one whole line may be anybody's
                    _broken(trouble, path, number)
                if is_long:
                    continue
                return
            try:
                values = strict_json(line)
                entry = _entry_of(values, process, trouble) if isinstance(values, dict) else None
            except (ValueError, RecursionError, TypeError, OverflowError):
                _broken(trouble, path, number)
                continue
            except _NewerError as error:
                raise RunFolderError(_newer(path, number, str(error))) from None
            if entry is None:
                if not isinstance(values, dict):
                    _broken(trouble, path, number)
            elif seen.add(entry.source, entry.sequence):
                yield entry
            else:
                trouble.num_again += 1
    trouble.num_empty_files += not number


class _NewerError(Exception):
    """A line that a later version of this program wrote."""


def _newer(path: Path, number: int, version: str) -> str:
    return (
        f"{shown_name(path)} line {number} is of version {version} of a ledger's records; this program reads {VERSION}: use "
        "the one that wrote it, or a later one"
    )


def _broken(trouble: FileTrouble, path: Path, number: int) -> None:
    trouble.num_broken += 1
    trouble.first_broken = trouble.first_broken or f"{path.name} line {number}"


def _entry_of(values: Mapping[str, Any], process: _Process, trouble: FileTrouble) -> Entry | None:
    """The request of a line; None for a line that says something of the file.

    Raises:   ValueError for a line that is neither, _NewerError
    """
    if "schema" in values:
        _begin_process(values, process)
        return None
    if (version := values.get("v")) != VERSION:
        if type(version) is int and version > VERSION:
            raise _NewerError(str(version))
        raise ValueError("its version")
    name = _word(values, "process") or ""
    if name != process.name:  # lines of several files put together without their first lines
        process.name, process.begun_s = name, None
    if "dropped" in values:
        trouble.num_lost += _count(values, "dropped") or 0
        return None
    return _request(values, process, trouble)


def _begin_process(values: Mapping[str, Any], process: _Process) -> None:
    schema = values["schema"]
    if not isinstance(schema, str) or not schema.startswith(SCHEMA_NAME):
        raise ValueError("its schema")
    if schema != f"{SCHEMA_NAME}{VERSION}":
        raise _NewerError(schema.removeprefix(SCHEMA_NAME)[:20])
    process.name, process.begun_s = _word(values, "process") or "", _wall(values, "begun")


def _request(values: Mapping[str, Any], process: _Process, trouble: FileTrouble) -> Entry:
    began_s, said_s = _number(values, "began_s", may_be_negative=True), _wall(values, "at")
    sequence, request_id, e2e_s = _count(values, "seq"), _word(values, "request_id"), _number(values, "e2e_s")
    if began_s is None or sequence is None or not request_id or e2e_s is None:
        raise ValueError("its fields")
    at_s = said_s if process.begun_s is None else process.begun_s + began_s
    is_stepped = at_s is not None and said_s is not None and abs(at_s - said_s) > _STEP_S
    trouble.num_clock_steps += is_stepped
    attempts = values.get("attempts", [])
    return Entry(
        source=process.name,
        sequence=sequence,
        request_id=request_id,
        status=RequestStatus(_word(values, "status") or ""),
        began_s=began_s,
        e2e_s=e2e_s,
        attempts=tuple(_attempt(each) for each in _list(attempts)),
        at_s=at_s,
        ttft_s=_number(values, "ttft_s"),
        finish_reason=_word(values, "finish_reason"),
        prompt_tokens=_count(values, "prompt_tokens"),
        cached_prompt_tokens=_count(values, "cached_prompt_tokens"),
        output_tokens=_count(values, "output_tokens"),
        reasoning_tokens=_count(values, "reasoning_tokens"),
        application=_word(values, "application"),
        team=_word(values, "team"),
        endpoint=_word(values, "endpoint"),
        model=_word(values, "model"),
        is_fallback=_flag(values, "is_fallback") or False,
        user_success=_flag(values, "user_success"),
        is_lower_bound=_flag(values, "is_lower_bound") or False,
        error=_word(values, "error"),
        manifest_sha256=_word(values, "manifest_sha256"),
    )


def _attempt(values: object) -> EntryAttempt:
    if not isinstance(values, dict):
        raise ValueError("an attempt")
    started_s, ended_s = _number(values, "started_s"), _number(values, "ended_s")
    if started_s is None or ended_s is None:
        raise ValueError("an attempt's times")
    return EntryAttempt(
        endpoint=_word(values, "endpoint"),
        model=_word(values, "model"),
        end=AttemptEnd(_word(values, "end") or ""),
        started_s=started_s,
        ended_s=ended_s,
        prompt_tokens=_count(values, "prompt_tokens"),
        output_tokens=_count(values, "output_tokens"),
        http_status=_count(values, "http_status"),
        is_hedge=_flag(values, "is_hedge") or False,
        is_lower_bound=_flag(values, "is_lower_bound") or False,
        manifest_sha256=_word(values, "manifest_sha256"),
    )


# ── values that someone else may have written ──────────────────────────────────────────────────────


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("its attempts")
    return value


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if value is None or (type(value) is int and 0 <= value < MOST_COUNT):
        return value
    raise ValueError(name)


def _number(values: Mapping[str, Any], name: str, *, may_be_negative: bool = False) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    least = -MOST_S if may_be_negative else 0
    if type(value) not in (int, float) or not least <= value <= MOST_S:  # NaN is not either
        raise ValueError(name)
    return float(value)


def _word(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _MOST_CHARS:
        raise ValueError(name)
    value.encode()  # half of a surrogate pair is no text, and is a ValueError too
    return value


def _flag(values: Mapping[str, Any], name: str) -> bool | None:
    value = values.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(name)


def _wall(values: Mapping[str, Any], name: str) -> float | None:
    text = _word(values, name)
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(name)
    return found.timestamp()
