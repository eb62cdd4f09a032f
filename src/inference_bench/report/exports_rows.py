"""A run's requests as rows: for a spreadsheet, or as columns for Parquet.

In:   RequestRecords
Out:  CSV texts; columns by `name:kind`
Read next by: exports.

Times are seconds on the run's own clock; a value that is not known is an empty cell, or null. Words that came from a
server may begin with a sign that a spreadsheet would compute; in CSV an apostrophe before them keeps them words.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from inference_bench import metrics
from inference_bench.records import RequestRecord

_COMPUTED: Final = ("=", "+", "-", "@", "\t", "\r", "\n")

# name → kind, value: one row a request
_SCALARS: Final[dict[str, tuple[str, Callable[[RequestRecord], Any]]]] = {
    "request_id": ("str", lambda r: r.request_id),
    "group": ("str", lambda r: r.group),
    "stage": ("str", lambda r: r.stage.value),
    "status": ("str", lambda r: r.status.value),
    "index": ("int", lambda r: r.index),
    "session": ("int", lambda r: r.session),
    "turn": ("int", lambda r: r.turn),
    "planned_s": ("float", lambda r: r.planned_s),
    "sent_s": ("float", lambda r: r.sent_s),
    "first_byte_s": ("float", lambda r: r.first_byte_s),
    "first_chunk_s": ("float", lambda r: r.chunk_times_s[0] if r.chunk_times_s else None),
    "last_chunk_s": ("float", lambda r: r.chunk_times_s[-1] if r.chunk_times_s else None),
    "end_s": ("float", lambda r: r.end_s),
    "num_chunks": ("int", lambda r: len(r.chunk_times_s)),
    "prompt_tokens": ("int", lambda r: r.prompt_tokens),
    "cached_prompt_tokens": ("int", lambda r: r.cached_prompt_tokens),
    "output_tokens": ("int", lambda r: r.output_tokens),
    "requested_output_tokens": ("int", lambda r: r.requested_output_tokens),
    "token_count_source": ("str", lambda r: r.token_count_source.value),
    "send_delay_s": ("float", metrics.send_delay_s),
    "ttft_s": ("float", metrics.ttft_s),
    "tpot_s": ("float", metrics.tpot_s),
    "e2e_s": ("float", metrics.e2e_s),
    "longest_gap_s": ("float", lambda r: metrics.longest_gap_s(r) if len(r.chunk_times_s) > 1 else None),
    "finish_reason": ("str", lambda r: r.finish_reason),
    "http_status": ("int", lambda r: r.http_status),
    "document_valid": ("bool", lambda r: r.document_valid),
    "error": ("str", lambda r: r.error),
}
_LISTS: Final[dict[str, tuple[str, Callable[[RequestRecord], Any]]]] = {
    "chunk_times_s": ("floats", lambda r: r.chunk_times_s),
    "chunk_tokens": ("ints", lambda r: r.chunk_tokens or None),
    "channels": ("str", lambda r: r.channels),
}


def requests_csv(records: Iterable[RequestRecord]) -> str:
    """A row a request."""
    rows = ([_cell(value(record)) for _, value in _SCALARS.values()] for record in records)
    return _csv(tuple(_SCALARS), rows)


def chunks_csv(records: Iterable[RequestRecord]) -> str:
    """A row a chunk: when it came, and where it is known how many tokens it holds."""
    return _csv(("request_id", "chunk", "time_s", "tokens", "channel"), _chunk_rows(records))


def requests_columns(records: Sequence[RequestRecord]) -> dict[str, list[Any]]:
    """A column a field, by `name:kind`, chunks as lists."""
    columns = (_SCALARS | _LISTS).items()
    return {f"{name}:{kind}": [value(record) for record in records] for name, (kind, value) in columns}


def _chunk_rows(records: Iterable[RequestRecord]) -> Iterable[list[str]]:
    for record in records:
        name = _cell(record.request_id)
        tokens = record.chunk_tokens or (None,) * len(record.chunk_times_s)
        letters = record.channels or "c" * len(record.chunk_times_s)
        for number, (time_s, count, letter) in enumerate(zip(record.chunk_times_s, tokens, letters, strict=True)):
            yield [name, str(number), repr(time_s), _cell(count), letter]


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        words = value.replace("\r", " ")  # which ends a row for some readers, quoted or not
        return f"'{words}" if value.startswith(_COMPUTED) else words
    return str(value).lower() if isinstance(value, bool) else repr(value)
