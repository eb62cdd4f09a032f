"""Which trace is it, and which of its columns mean what.

In:   the names in a file's first record, or what a person says they mean
Out:  Layout: where times, lengths and blocks stand; RequestError names what is known and nearest
Leaves out: reading (trace_source, traces); conversations (chat_trace) and clients (servegen) are no tables of requests
Read next by: traces.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import RequestError, TraceError
from inference_bench.workload.trace_values import Clock, looks_like_date


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a table of requests keeps what.

    Where:    `failed` is the name under which rows without output are dropped, because the source says that they
              failed; None: such a row is a mistake. `blocks` is an optional column
    """

    name: str
    time: str
    prompt: str
    output: str
    clock: Clock = Clock.SECONDS
    blocks: str | None = None
    block_tokens: int = 1
    failed: str | None = None
    priority: str | None = None
    tenant: str | None = None
    adapter: str | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns without which it cannot be read."""
        optional = (self.priority, self.tenant, self.adapter)
        return (self.time, self.prompt, self.output, *(name for name in optional if name is not None))


SHAREGPT: Final = "sharegpt"
SERVEGEN: Final = "servegen"

# the first whose needed and marking columns are all there is it, so the more particular ones come first
LAYOUTS: Final = {
    layout.name: layout
    for layout in (
        Layout("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", Clock.DATE),
        Layout(
            "burstgpt", "Timestamp", "Request tokens", "Response tokens", failed="failed requests (no response token)"
        ),
        Layout("bailian", "timestamp", "input_length", "output_length", blocks="hash_ids", block_tokens=16),
        Layout(
            "mooncake", "timestamp", "input_length", "output_length", Clock.MILLISECONDS, "hash_ids", block_tokens=512
        ),
        Layout("vllm-run", "arrival_time", "input_toks", "output_toks"),
        Layout("plain", "arrival_s", "prompt_tokens", "output_tokens"),
    )
}
_MARKS: Final[dict[str, tuple[str, ...]]] = {"bailian": ("chat_id",), "mooncake": ("hash_ids",)}
_CHAT_MARKS: Final = frozenset({"conversations", "conversation", "messages", "items"})
TRACE_FORMATS: Final = (*LAYOUTS, SHAREGPT, SERVEGEN)

# what a person may map → the field of Layout, and the clock where it is a time
_TIMES: Final = {
    "time": Clock.SECONDS,
    "time_ms": Clock.MILLISECONDS,
    "time_us": Clock.MICROSECONDS,
    "time_ns": Clock.NANOSECONDS,
}
MEANINGS: Final = (*_TIMES, "prompt", "output", "priority", "tenant", "adapter")


def require_format(name: str) -> str:
    """The name of a known format.

    Raises:   RequestError, with the nearest
    """
    folded = name.strip().lower()
    if folded in TRACE_FORMATS:
        return folded
    raise RequestError(f"no trace format is called {name[:40]!r}; {_nearest(folded, TRACE_FORMATS)}")


def detect_format(names: Iterable[str]) -> str | None:
    """The format whose columns these are; None where it is none that is known."""
    found = frozenset(names)
    for layout in LAYOUTS.values():
        if found.issuperset(layout.needed) and found.issuperset(_MARKS.get(layout.name, ())):
            return layout.name
    return SHAREGPT if found & _CHAT_MARKS else None


def layout_of_columns(columns: Mapping[str, str], first: Mapping[str, object]) -> Layout:
    """The layout that a person describes: {"time": "arrived", "prompt": "in", "output": "out", ...}.

    Where:    time is in seconds or a date, time_ms, time_us and time_ns in their units; priority, tenant and adapter
              may be there. `first` is the first record, which shows whether the time is a date
    Raises:   RequestError for a meaning that is unknown, missing, or given twice
    """
    for meaning in columns:
        if meaning not in MEANINGS:
            raise RequestError(f"a column of a trace cannot mean {meaning[:40]!r}; {_nearest(meaning, MEANINGS)}")
    times = [meaning for meaning in columns if meaning in _TIMES]
    if len(times) != 1 or "prompt" not in columns or "output" not in columns:
        raise RequestError(
            f"the columns of a trace are given for {', '.join(columns) or 'nothing'}; give one time "
            f"({', '.join(_TIMES)}), prompt and output"
        )
    clock = _TIMES[times[0]]
    if clock is Clock.SECONDS and looks_like_date(first.get(columns["time"])):
        clock = Clock.DATE
    return Layout(
        "columns",
        columns[times[0]],
        columns["prompt"],
        columns["output"],
        clock,
        priority=columns.get("priority"),
        tenant=columns.get("tenant"),
        adapter=columns.get("adapter"),
    )


def require_columns(layout: Layout, names: Iterable[str], place: str) -> None:
    """Refuse a record without a column that the layout needs.

    Raises:   TraceError, with the nearest column that is there
    """
    found = tuple(names)
    for needed in layout.needed:
        if needed not in found:
            raise TraceError(f"{place}: there is no column {needed!r} ({layout.name}); {_nearest(needed, found)}")


def refuse_unknown(names: Iterable[str], place: str) -> TraceError:
    """The error for a file that is none of the known traces."""
    layouts = "; ".join(f"{layout.name} ({', '.join(layout.needed)})" for layout in LAYOUTS.values())
    found = ", ".join(name[:40] for name in list(names)[:12])
    return TraceError(
        f"{place}: the columns {found} are those of no known trace: {layouts}; say which column is the time, the prompt "
        "and the output"
    )


def _nearest(wanted: str, known: Iterable[str]) -> str:
    names = list(known)
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), folded, n=1, cutoff=0.5)
    listed = ", ".join(name[:40] for name in names[:12])
    return f"nearest: {folded[close[0]]!r} (of {listed})" if close else f"there are: {listed}"
