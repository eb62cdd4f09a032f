"""Recorded requests as a workload: when real users asked, and how long their requests were.

In:   a file in one of the public forms, or a table whose columns a person names
Out:  Workload that replays it, its first request at 0; notes say what was left out, and how many
Leaves out: text: only times, lengths and anonymous block ids are kept
Read next by: cli; through Workload: measure.load, simulate.

Nothing is repaired in silence. A time that goes back, a request without tokens or a value that is no number is refused
with its line; sorting and dropping are asked for, and rows that a source itself marks as failed are counted in the notes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_bench.errors import RequestError, TraceError
from inference_bench.files import shown_name
from inference_bench.workload.arrivals import OpenLoop
from inference_bench.workload.chat_trace import TOO_SHORT, read_chat
from inference_bench.workload.checks import require_count, require_positive
from inference_bench.workload.generate import Workload
from inference_bench.workload.requests import Requests, Segment
from inference_bench.workload.servegen import is_client_file, read_servegen
from inference_bench.workload.trace_formats import (
    LAYOUTS,
    SERVEGEN,
    SHAREGPT,
    Layout,
    detect_format,
    layout_of_columns,
    refuse_unknown,
    require_columns,
    require_format,
)
from inference_bench.workload.trace_source import Record, TraceSource, open_source
from inference_bench.workload.trace_values import BlockReader, read_length, read_ticks, read_whole, shown

REPLAY: Final = "replay"
NO_TIMES: Final = "the file holds no times: all requests arrive at 0 until they are given a rate"

_EMPTY: Final = "requests without prompt or output tokens"


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What may be done to a trace while it is read; nothing by default.

    Where:    limit keeps the first so many requests; sort puts rows that go back in time in order; drop_empty leaves
              out requests without prompt or output tokens; tokens_per_word estimates lengths of text that has no
              token counts; seed draws the requests of a trace that holds distributions (ServeGen)
    Raises:   RequestError for a limit below one or a tokens_per_word that is not above zero
    """

    limit: int | None = None
    sort: bool = False
    drop_empty: bool = False
    tokens_per_word: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None:
            require_count(self.limit, "number of requests to read")
        if self.tokens_per_word is not None:
            require_positive(self.tokens_per_word, "number of tokens a word")


def read_trace(
    path: Path | str,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    *,
    sort: bool = False,
    drop_empty: bool = False,
    tokens_per_word: float | None = None,
    seed: int = 0,
) -> Workload:
    """A trace as an open loop that replays it.

    Where:    format None looks at the content; columns maps time (or time_ms, time_us, time_ns), prompt and output, and
              maybe priority, tenant, adapter, to the file's own names; the rest is in TraceOptions
    Raises:   TraceError for a file that cannot be read as one, naming the line; RequestError for a question that is
              wrong in itself
    """
    options = TraceOptions(limit, sort, drop_empty, tokens_per_word, seed)
    where = Path(path)
    name = None if format is None else require_format(format)
    if name is not None and columns is not None:
        raise RequestError(f"the trace is called {name} and its columns are named too; give one of them")
    if name == SERVEGEN or (name is None and columns is None and (where.is_dir() or is_client_file(where))):
        return read_servegen(where, limit, seed)
    source = open_source(where)
    records = source.records()
    first = next(records, None)
    if first is None:
        raise TraceError(f"{shown_name(where)} holds a header or brackets and no request")
    layout = _choose_layout(source, first, name, columns)
    rows = _Rows(source, options)
    _fill(rows, layout, chain([first], records))
    return rows.workload(where.name, has_times=layout is not None)


def _choose_layout(
    source: TraceSource, first: Record, name: str | None, columns: Mapping[str, str] | None
) -> Layout | None:
    """The layout of a table; None for conversations."""
    place = source.place(first.number)
    if columns is not None:
        layout = layout_of_columns(columns, first.values)
        require_columns(layout, first.values, place)
        return layout
    found = name or detect_format(first.values)
    if found is None:
        raise refuse_unknown(first.values, place)
    if found == SHAREGPT:
        return None
    require_columns(LAYOUTS[found], first.values, place)
    return LAYOUTS[found]


def _fill(rows: _Rows, layout: Layout | None, records: Iterable[Record]) -> None:
    read = rows.read_chat if layout is None else _TableReader(rows, layout).read
    for record in records:
        if rows.is_full:
            rows.notes.append(f"only the first {len(rows)} requests of the file were read")
            return
        try:
            read(record)
        except TraceError as error:
            raise TraceError(f"{rows.source.place(record.number)}: {error}") from None


class _Row(NamedTuple):
    ticks: float
    prompt_tokens: int
    output_tokens: int


class _Rows:
    """The columns of the requests that were kept, and what was left out."""

    def __init__(self, source: TraceSource, options: TraceOptions) -> None:
        self.source, self.options = source, options
        self.notes: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.extra: dict[str, array[int]] = {}
        self.prompts: list[tuple[Segment, ...]] = []
        self._ticks: list[int | float] = []
        self._prompt_tokens, self._output_tokens = array("q"), array("q")
        self._ticks_per_s = 1
        self._num_backward = 0
        self._num_estimates = 0

    def __len__(self) -> int:
        return len(self._ticks)

    def lengths_before_last(self) -> Iterator[int]:
        """Prompt lengths of all rows but the one added last."""
        return islice(self._prompt_tokens, len(self) - 1)

    @property
    def is_full(self) -> bool:
        return self.options.limit is not None and len(self) >= self.options.limit

    def add(self, row: _Row, ticks_per_s: int) -> None:
        """Keep a row that has tokens.

        Raises:   TraceError for a time before the last one, unless rows are to be sorted
        """
        self._ticks_per_s = ticks_per_s
        if self._ticks and row.ticks < self._ticks[-1]:
            if not self.options.sort:
                raise TraceError(
                    f"its time, {shown(row.ticks)}, is before the one of the request in front of it, "
                    f"{shown(self._ticks[-1])}; sort the file by time, or ask for it to be sorted"
                )
            self._num_backward += 1
        self._ticks.append(row.ticks)
        self._prompt_tokens.append(row.prompt_tokens)
        self._output_tokens.append(row.output_tokens)

    def drop_if_empty(self, prompt_tokens: int, output_tokens: int, failed: str | None) -> bool:
        """Whether the row has no tokens and is left out, under a name.

        Raises:   TraceError where such rows are a mistake
        """
        if prompt_tokens and output_tokens:
            return False
        if failed is not None and not output_tokens:
            self.dropped[failed] += 1
        elif self.options.drop_empty:
            self.dropped[_EMPTY] += 1
        else:
            what = "output" if prompt_tokens else "prompt"
            raise TraceError(
                f"the {what} length is 0; a request has at least one token; leave such rows out, or ask for them to be "
                "dropped"
            )
        return True

    def read_chat(self, record: Record) -> None:
        """Add a conversation."""
        chat = read_chat(record.values, self.options.tokens_per_word)
        if chat is None:
            self.dropped[TOO_SHORT] += 1
            return
        if not self.drop_if_empty(chat.prompt_tokens, chat.output_tokens, None):
            self._num_estimates += chat.is_estimate
            self.add(_Row(0, chat.prompt_tokens, chat.output_tokens), 1)

    def workload(self, name: str, has_times: bool) -> Workload:
        """What was kept, the first request at 0.

        Raises:   TraceError when nothing was
        """
        dropped = [f"dropped {number} {what}" for what, number in sorted(self.dropped.items())]
        if not self._ticks:
            raise TraceError(f"{shown_name(self.source.path)} holds no request that can be sent: {', '.join(dropped)}")
        if self._num_backward:
            self._sort()
            self.notes.append(f"sorted by time: {self._num_backward} rows stood before the time of the one in front")
        if self._num_estimates:
            self.notes.append(
                f"lengths of {self._num_estimates} requests are estimates: {self.options.tokens_per_word:g} tokens a word"
            )
        first = self._ticks[0]
        times_s = array("d", [(ticks - first) / self._ticks_per_s for ticks in self._ticks])
        notes = (*self.notes, *dropped, *(() if has_times else (NO_TIMES,)))
        requests = Requests(
            self._prompt_tokens, self._output_tokens, tuple(self.prompts) if self.prompts else None, **self.extra
        )
        return Workload(name, requests, OpenLoop(times_s, REPLAY), self.options.seed, notes=notes)

    def _sort(self) -> None:
        order = sorted(range(len(self)), key=self._ticks.__getitem__)
        self._ticks = [self._ticks[index] for index in order]
        self._prompt_tokens = _picked(self._prompt_tokens, order)
        self._output_tokens = _picked(self._output_tokens, order)
        self.prompts = [self.prompts[index] for index in order] if self.prompts else []
        self.extra = {name: _picked(column, order) for name, column in self.extra.items()}


def _picked(column: array[int], order: list[int]) -> array[int]:
    return array("q", [column[index] for index in order])


class _TableReader:
    """Rows of one layout."""

    def __init__(self, rows: _Rows, layout: Layout) -> None:
        self._rows, self._layout = rows, layout
        self._blocks = BlockReader(layout.block_tokens)
        self._has_blocks = False
        self._tenants: dict[object, int] = {}
        self._whole = {
            name: column for name, column in (("priority", layout.priority), ("adapter", layout.adapter)) if column
        }

    def read(self, record: Record) -> None:
        values, layout, rows = record.values, self._layout, self._rows
        try:
            ticks = read_ticks(values[layout.time], layout.clock)
            prompt_tokens = read_length(values[layout.prompt], "prompt length")
            output_tokens = read_length(values[layout.output], "output length")
        except KeyError as missing:
            raise TraceError(f"there is no value {missing}; every request needs {', '.join(layout.needed)}") from None
        if rows.drop_if_empty(prompt_tokens, output_tokens, layout.failed):
            return
        rows.add(_Row(ticks, prompt_tokens, output_tokens), layout.clock.ticks_per_s)
        if layout.blocks is not None:
            self._add_prompt(values.get(layout.blocks), prompt_tokens)
        self._add_extra(values)

    def _add_prompt(self, ids: Any, prompt_tokens: int) -> None:
        prompts = self._rows.prompts
        if ids is not None:
            if not self._has_blocks:
                self._has_blocks = True
                prompts += ((self._blocks.own(length),) for length in self._rows.lengths_before_last())
            prompts.append(self._blocks.segments(ids, prompt_tokens))
        elif self._has_blocks:
            prompts.append((self._blocks.own(prompt_tokens),))

    def _add_extra(self, values: Mapping[str, Any]) -> None:
        extra = self._rows.extra
        for name, column in self._whole.items():
            extra.setdefault(name, array("q")).append(read_whole(values.get(column), name))
        if self._layout.tenant is not None:
            tenant = values.get(self._layout.tenant)
            if not isinstance(tenant, str | int):
                raise TraceError(f"the tenant is {shown(tenant)}; a name or a whole number is needed")
            extra.setdefault("tenant", array("q")).append(self._tenants.setdefault(tenant, len(self._tenants)))
