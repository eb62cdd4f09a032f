"""Who made this output, from what, and how did it go: one record an answer, without a word of what was said.

In:   an Answer of the resilient client or a line that a recorder wrote of one (plain fields), a RequestRecord, or a run folder
Out:  OutputProvenance; OutputRecords, those of one place
Leaves out: prompt and answer; reading what recorders wrote (operate.ledger)
Read next by: operate, report, cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from inference_bench.manifest.run import manifest_of_run
from inference_bench.measure.store import RunFolder, StoredRecords, read_records
from inference_bench.metrics import time_to_close_s, ttft_s
from inference_bench.records import RequestRecord
from inference_bench.units import format_bytes, format_count


@dataclass(frozen=True, slots=True)
class OutputProvenance:
    """One answer, and what it came from.

    Unit:     seconds since the request was sent, or in a schedule should have been
    Where:    answered_by is the caller's name for whoever did, or its address; is_fallback says that this was not the first choice
    """

    request_id: str
    manifest_sha256: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    ttft_s: float | None
    e2e_s: float | None
    answered_by: str | None
    is_fallback: bool


class Kind(StrEnum):
    """Who wrote the records: a load or a verification in its folder, or recorders of the resilient client in theirs."""

    RUN = "run"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class OutputRecords:
    """All records of one place.

    Where:    manifest_sha256 is that of all that were answered, None where they have no one digest; notes say what is missing
    """

    kind: Kind
    outputs: tuple[OutputProvenance, ...]
    manifest_sha256: str | None = None
    notes: tuple[str, ...] = ()


class _Endpoint(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def manifest_sha256(self) -> str | None: ...


class _Told(Protocol):
    """What a client tells of an answer, while it has it and in what it writes down."""

    @property
    def request_id(self) -> str:
        """The caller's."""

    @property
    def is_fallback(self) -> bool:
        """Whether that was not the first choice."""

    @property
    def prompt_tokens(self) -> int | None:
        """As counted."""

    @property
    def output_tokens(self) -> int | None:
        """As counted."""

    @property
    def finish_reason(self) -> str | None:
        """As the server said."""

    @property
    def ttft_s(self) -> float | None:
        """Until the first token."""

    @property
    def e2e_s(self) -> float:
        """Until the end."""


class AnswerLike(_Told, Protocol):
    """What of an answer is read here; operate.answers.Answer has it."""

    @property
    def answered_by(self) -> _Endpoint | None:
        """Whoever did."""


class EntryLike(_Told, Protocol):
    """What of a recorder's line is read here; operate.ledger.entry.Entry has it."""

    @property
    def endpoint(self) -> str | None:
        """The caller's name for whoever answered."""

    @property
    def manifest_sha256(self) -> str | None:
        """The digest of what that serves, where the client knew it."""


def output_of_answer(answer: AnswerLike) -> OutputProvenance:
    """The record of an answer that may have taken several attempts: whoever answered is named, fallback or not."""
    by = answer.answered_by
    return _output(answer, None if by is None else by.manifest_sha256, None if by is None else by.name)


def output_of_entry(entry: EntryLike) -> OutputProvenance:
    """The same of a line that a recorder wrote."""
    return _output(entry, entry.manifest_sha256, entry.endpoint)


def _output(told: _Told, manifest_sha256: str | None, answered_by: str | None) -> OutputProvenance:
    return OutputProvenance(
        request_id=told.request_id,
        manifest_sha256=manifest_sha256,
        prompt_tokens=told.prompt_tokens,
        output_tokens=told.output_tokens,
        finish_reason=told.finish_reason,
        ttft_s=told.ttft_s,
        e2e_s=told.e2e_s,
        answered_by=answered_by,
        is_fallback=told.is_fallback,
    )


def output_of_record(
    record: RequestRecord, manifest_sha256: str | None = None, answered_by: str | None = None
) -> OutputProvenance:
    """The record of one request of a load, which has one server and no fallback."""
    first_s = ttft_s(record)
    return OutputProvenance(
        request_id=record.request_id,
        manifest_sha256=manifest_sha256,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        finish_reason=record.finish_reason,
        ttft_s=first_s,
        e2e_s=time_to_close_s(record),
        answered_by=None if first_s is None else answered_by,
        is_fallback=False,
    )


def outputs_of(run_dir: Path) -> tuple[OutputProvenance, ...]:
    """The records of every request of a run, in the order in which they ended.

    Raises:   RunFolderError for what is no run; ManifestError for one whose manifest is broken or was changed
    """
    return records_of_run(run_dir).outputs


def records_of_run(run_dir: Path) -> OutputRecords:
    """The same with the run's digest, and what its folder lost.

    Raises:   see outputs_of
    """
    target = RunFolder.open(run_dir).read_meta().get("target")
    manifest = manifest_of_run(run_dir)
    digest = None if manifest is None else manifest.sha256
    server = target if isinstance(target, str) else None
    stored = read_records(run_dir)
    outputs = tuple(output_of_record(record, digest, server) for record in stored.records)
    return OutputRecords(Kind.RUN, outputs, digest, tuple(_lost_words(stored)))


def _lost_words(stored: StoredRecords) -> Iterator[str]:
    if stored.num_unfinished:
        yield f"{format_count(stored.num_unfinished)} of them were in flight when the run was cut short, and never ended."
    if stored.num_dropped_bytes:
        yield f"The last {format_bytes(stored.num_dropped_bytes)} were cut off when they were written, and are left out."
