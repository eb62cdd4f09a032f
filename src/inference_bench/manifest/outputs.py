"""Who made this output, from what, and how did it go: one record an answer, without a word of what was said.

In:   an Answer of the resilient client (plain fields), a RequestRecord, or a run folder
Out:  OutputProvenance
Leaves out: prompt and answer
Read next by: operate, report, cli.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inference_bench.manifest.run import manifest_of_run
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.metrics import time_to_close_s, ttft_s
from inference_bench.records import RequestRecord


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


class _Endpoint(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def manifest_sha256(self) -> str | None: ...


class AnswerLike(Protocol):
    """What of an answer is read here; operate.answers.Answer has it."""

    @property
    def request_id(self) -> str:
        """The caller's."""

    @property
    def answered_by(self) -> _Endpoint | None:
        """Whoever did."""

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


def output_of_answer(answer: AnswerLike) -> OutputProvenance:
    """The record of an answer that may have taken several attempts: whoever answered is named, fallback or not."""
    by = answer.answered_by
    return OutputProvenance(
        request_id=answer.request_id,
        manifest_sha256=None if by is None else by.manifest_sha256,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        finish_reason=answer.finish_reason,
        ttft_s=answer.ttft_s,
        e2e_s=answer.e2e_s,
        answered_by=None if by is None else by.name,
        is_fallback=answer.is_fallback,
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
    target = RunFolder.open(run_dir).read_meta().get("target")
    manifest = manifest_of_run(run_dir)
    digest = None if manifest is None else manifest.sha256
    server = target if isinstance(target, str) else None
    return tuple(output_of_record(record, digest, server) for record in read_records(run_dir).records)
