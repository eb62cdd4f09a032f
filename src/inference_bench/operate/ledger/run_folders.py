"""What does a run folder of `load` or `verify` say of tokens? Each of its requests as an Entry of one attempt.

In:   a run folder, also one that was cut short
Out:  Entries; where and when the run was
Leaves out: applications and teams, which a run has none of; the journal's bytes (measure.journal_read)
Read next by: flow.

A run is read as a whole, its chunks too, as by every command here; only recorders' files are read a line at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from inference_bench.manifest.run import META_KEY
from inference_bench.measure.store import META_FILE, RunFolder, read_json_object, read_records
from inference_bench.operate.answers import AttemptEnd, end_of_status
from inference_bench.operate.ledger.entry import Entry, EntryAttempt
from inference_bench.records import Channel, RequestRecord, RequestStatus, Stage

_RESULT_FILE: Final = "result.json"
_MOST_CHARS: Final = 128


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run: which it is, what was asked, and when its clock began, None where its folder does not say.

    Where:    fingerprint is the same for a copy of the folder, and for nothing else; tells_reasoning says that a piece came as reasoning,
              so that the server keeps it apart: of another server nobody knows whether there was any
    """

    name: str
    fingerprint: str
    endpoint: str | None
    model: str | None
    manifest_sha256: str | None
    begun_s: float | None
    num_dropped_bytes: int
    num_unfinished: int
    tells_reasoning: bool


def is_run_folder(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / META_FILE).exists()


def read_run(path: Path) -> tuple[RunFacts, Iterator[Entry]]:
    """A run and its requests.

    Raises:   RunFolderError
    """
    meta, stored = RunFolder.open(path).read_meta(), read_records(path)
    facts = RunFacts(
        name=_whole_chars(path.resolve().name),
        fingerprint=_fingerprint(meta.get("created"), stored.records),
        endpoint=_endpoint(meta.get("target")),
        model=_text(meta.get("served_model") or meta.get("model")),
        manifest_sha256=_text(meta.get(META_KEY)),
        begun_s=_wall(meta.get("created")),
        num_dropped_bytes=stored.num_dropped_bytes,
        num_unfinished=stored.num_unfinished,
        tells_reasoning=any(Channel.REASONING.letter in record.channels for record in stored.records),
    )
    return facts, (_entry(record, number, facts) for number, record in enumerate(stored.records, start=1))


def _fingerprint(created: object, records: Sequence[RequestRecord]) -> str:
    """A digest of when a run was and of every time in its records, which no two runs share to the tick."""
    digest = sha256(repr(created).encode())
    for record in records:
        digest.update(f"{record.request_id} {record.sent_s!r} {record.end_s!r};".encode("utf-8", "replace"))
    return digest.hexdigest()


def output_tokens_per_s(path: Path) -> float | None:
    """What a finished load reached; None where its result does not say.

    Raises:   RunFolderError
    """
    RunFolder.open(path)
    result = path / _RESULT_FILE
    value = read_json_object(result).get("output_tokens_per_s") if result.exists() else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    return float(value)


def _entry(record: RequestRecord, number: int, facts: RunFacts) -> Entry:
    tokens, is_lower_bound = _tokens(record)
    took_s = max(0.0, record.end_s - record.sent_s)
    attempt = EntryAttempt(
        endpoint=facts.endpoint,
        model=facts.model,
        end=_end(record),
        started_s=0.0,
        ended_s=took_s,
        prompt_tokens=record.prompt_tokens if tokens is not None else None,
        output_tokens=tokens,
        http_status=record.http_status,
        is_lower_bound=is_lower_bound,
        manifest_sha256=facts.manifest_sha256,
    )
    return Entry(
        source=facts.name,
        sequence=number,
        request_id=_whole_chars(record.request_id),
        status=record.status,
        began_s=record.sent_s,
        e2e_s=took_s,
        attempts=(attempt,),
        at_s=None if facts.begun_s is None else facts.begun_s + record.sent_s,
        ttft_s=record.chunk_times_s[0] - record.sent_s if record.chunk_times_s else None,
        finish_reason=record.finish_reason,
        prompt_tokens=record.prompt_tokens,
        cached_prompt_tokens=record.cached_prompt_tokens,
        output_tokens=tokens,
        reasoning_tokens=_reasoning(record, facts),
        endpoint=facts.endpoint if tokens is not None else None,
        model=facts.model if tokens is not None else None,
        user_success=record.document_valid,
        is_warm_up=record.stage is not Stage.MEASURE,
        is_lower_bound=is_lower_bound,
        error=None if record.error is None else str(attempt.end),
        manifest_sha256=facts.manifest_sha256 if tokens is not None else None,
    )


def _tokens(record: RequestRecord) -> tuple[int | None, bool]:
    """Output tokens, and whether that is the number of chunks that came, each of which holds one or more."""
    if record.output_tokens is not None:
        return record.output_tokens, False
    if record.chunk_tokens:
        return sum(record.chunk_tokens), False
    return (len(record.chunk_times_s), True) if record.chunk_times_s else (None, False)


def _reasoning(record: RequestRecord, facts: RunFacts) -> int | None:
    """Tokens that came as reasoning; None where chunks were not counted, or the server is not known to keep it apart."""
    letter = Channel.REASONING.letter
    if letter not in record.channels:
        return 0 if record.chunk_times_s and facts.tells_reasoning else None
    if len(record.chunk_tokens) != len(record.channels):
        return None
    pairs = zip(record.channels, record.chunk_tokens, strict=True)
    return sum(tokens for channel, tokens in pairs if channel == letter)


def _end(record: RequestRecord) -> AttemptEnd:
    if record.status is RequestStatus.COMPLETED:
        return AttemptEnd.COMPLETED
    if record.status is RequestStatus.CANCELLED:
        return AttemptEnd.CANCELLED
    if record.chunk_times_s:
        return AttemptEnd.INTERRUPTED
    if record.status is RequestStatus.TIMED_OUT:
        return AttemptEnd.TIMED_OUT
    return AttemptEnd.NOT_REACHED if record.http_status is None else end_of_status(record.http_status)


def _endpoint(target: object) -> str | None:
    """Host and port of an address, without who asks or what for."""
    if not isinstance(target, str):
        return None
    try:
        parts = urlsplit(target)
        host = parts.hostname or ""
        return _text(host if parts.port is None else f"{host}:{parts.port}") or None
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return _whole_chars(value[:_MOST_CHARS]) if isinstance(value, str) and value else None


def _whole_chars(text: str) -> str:
    """Without half a surrogate pair, which is no text and which no export can hold."""
    return text.encode("utf-8", "replace").decode()


def _wall(value: object) -> float | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found.timestamp()
