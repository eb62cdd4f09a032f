"""What happened while the load ran? Requests in flight, tokens, sends beside their plan, failures, and the server's own word.

In:   RequestRecords of a run, ServerSamples on the same clock
Out:  the panels as a Spec, None for a run without time; `description` says in words what they show
Leaves out: single requests
Read next by: report.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, layer, nominal, place_legends, spoken
from inference_bench.charts.panels import (
    DASHED,
    Panel,
    Scale,
    Shown,
    empty_frame,
    fraction_tick,
    number_tick,
    panels_chart,
    rule,
    seconds_tick,
    stacked,
)
from inference_bench.measure.server_metrics import ServerSample
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.units import format_count, format_number, format_seconds

_MOST_BINS: Final = 60
_SECOND_S: Final = 10.0  # from which length on a stretch is a second at least
_BIN_STEPS: Final = (1, 2, 5)
_MOST_STEPS: Final = 600
_MOST_FAILURES: Final = 400
_NUM_MOMENTS: Final = 40
_UNBROKEN: Final = [1, 0]
_STRIP: Final[Spec] = {"type": "rect", "color": LIGHT["paper"], "opacity": 0}
_FLIGHT, _RUNNING, _WAITING = "in flight", "server: running", "server: waiting"
_PLANNED, _SENT, _TOKENS, _CACHE = "planned sends", "sends", "output tokens", "server: cache"
_COLOURS: Final = {
    _FLIGHT: LIGHT["decode"],
    _RUNNING: LIGHT["c1"],
    _WAITING: LIGHT["c2"],
    _TOKENS: LIGHT["prefill"],
    _SENT: LIGHT["muted"],
    _PLANNED: LIGHT["ink"],
    _CACHE: LIGHT["c3"],
}
_FAILED: Final = frozenset(RequestStatus) - {RequestStatus.COMPLETED, RequestStatus.CANCELLED}
Line = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every line of the picture, on a clock that begins with the first planned send.

    Unit:  seconds; requests, requests/s, tokens/s, a fraction
    """

    length_s: float
    bin_s: float
    lines: dict[str, Line]
    failures_s: tuple[float, ...]
    num_uncounted: int
    num_requests: int


def load_timeline_chart(seen: Timeline | None, width_px: int = WIDE_PX) -> Spec | None:
    """Requests in flight with what the server says of its own, output tokens a second, sends beside their plan, and failures.

    Where:  rates are over equal stretches of time; tokens of a request that were counted only as a whole lie evenly on its
            chunks; a cross at the top of the first panel is a request that failed, where it ended
    Unit:   seconds; requests, tokens/s, requests/s
    """
    if seen is None:
        return None
    shown = [name for name in _COLOURS if seen.lines.get(name)]
    frame, (colour,) = place_legends(
        empty_frame(width_px),
        nominal("series", shown, [_COLOURS[name] for name in shown], symbolType="stroke", symbolSize=300),
    )
    dash = nominal("series", shown, [DASHED if name == _PLANNED else _UNBROKEN for name in shown])
    panels = stacked(frame, _panels(seen), Scale(0.0, seen.length_s), "time since the first planned send", seconds_tick)
    place_of = dict(zip(_groups(seen), panels, strict=True))
    rows = [
        {**panel.place(at_s, value), "series": name, "order": order}
        for names, panel in place_of.items()
        for name in names
        for order, (at_s, value) in enumerate(seen.lines[name])
    ]
    order: Spec = {"field": "order", "type": "quantitative"}
    cross: Spec = {"type": "point", "shape": "cross", "filled": True, "size": 50, "color": LIGHT["finding"]}
    first = panels[0]
    crosses = [{"x": first.at_x(at_s), "y": first.top + 6} for at_s in seen.failures_s[:_MOST_FAILURES]]
    return panels_chart(
        frame,
        _words(seen),
        panels,
        [
            layer(
                {"type": "line", "strokeWidth": 1.4, "interpolate": "step-after"},
                rows,
                color=colour,
                strokeDash={**dash, "legend": colour["legend"]},
                order=order,
            ),
            layer(cross, crosses),
            spoken(_STRIP, list(_moments(seen, panels)), x2={"field": "x2"}, y2={"field": "y2"}),
        ],
    )


def _groups(seen: Timeline) -> list[tuple[str, ...]]:
    """Which lines share a panel, of those that are there."""
    groups = ((_FLIGHT, _RUNNING, _WAITING), (_TOKENS,), (_SENT, _PLANNED), (_CACHE,))
    kept = (tuple(name for name in names if seen.lines.get(name)) for names in groups)
    return [names for names in kept if names]


def _panels(seen: Timeline) -> list[Shown]:
    titles = {
        _FLIGHT: ("requests in flight", number_tick),
        _TOKENS: ("output tokens/s", number_tick),
        _SENT: ("sends, requests/s", number_tick),
        _CACHE: ("cache in use", fraction_tick),
    }
    shown = []
    for names in _groups(seen):
        title, write = titles[names[0]]
        values = [value for name in names for _, value in seen.lines[name]]
        scale = Scale(0.0, 1.0) if names[0] == _CACHE else Scale.from_zero(values)
        shown.append(Shown(title, scale, write))
    return shown


# ── what is seen ───────────────────────────────────────────────────────────────────────────────────


def look(records: Sequence[RequestRecord], samples: Sequence[ServerSample] = ()) -> Timeline | None:
    """What is drawn of a run: made once, for drawings of any width; None for a run without time."""
    if not records:
        return None
    begin_s = min(record.planned_s for record in records)
    length_s = max(record.end_s for record in records) - begin_s
    if length_s <= 0:
        return None
    bin_s = _bin(length_s)
    tokens, num_uncounted = _token_rates(records, begin_s, bin_s, length_s)
    lines = {
        _FLIGHT: _flight(records, begin_s, length_s),
        _TOKENS: tokens,
        _PLANNED: _send_rates((record.planned_s for record in records), begin_s, bin_s, length_s),
        _SENT: _send_rates((record.sent_s for record in records), begin_s, bin_s, length_s),
        _RUNNING: _said(samples, lambda sample: sample.running, begin_s, length_s),
        _WAITING: _said(samples, lambda sample: sample.waiting, begin_s, length_s),
        _CACHE: _said(samples, lambda sample: sample.cache_used_fraction, begin_s, length_s),
    }
    failures = sorted(record.end_s - begin_s for record in records if record.status in _FAILED)
    return Timeline(length_s, bin_s, lines, tuple(failures), num_uncounted, len(records))


def _bin(length_s: float) -> float:
    """A round stretch of time of which so many fit: a second in a run of some length, less in a shorter one."""
    least = max(length_s / _MOST_BINS, 1.0 if length_s >= _SECOND_S else 0.0)
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (*_BIN_STEPS, 10) if step * power >= least)


def _token_rates(records: Sequence[RequestRecord], begin_s: float, bin_s: float, length_s: float) -> tuple[Line, int]:
    """Tokens a second, of every chunk whose tokens are known, and of how many requests they are not."""
    bins = _Bins(begin_s, bin_s, length_s)
    num_uncounted = 0
    for record in records:
        times_s = record.chunk_times_s
        if times_s and len(record.chunk_tokens) == len(times_s):
            bins.add(times_s, record.chunk_tokens)
        elif times_s and record.output_tokens is not None:
            bins.add(times_s, None, record.output_tokens / len(times_s))
        else:
            num_uncounted += bool(times_s)
    return bins.rates(), num_uncounted


def _send_rates(times_s: Iterable[float], begin_s: float, bin_s: float, length_s: float) -> Line:
    bins = _Bins(begin_s, bin_s, length_s)
    bins.add(sorted(times_s))
    return bins.rates()


class _Bins:
    """Sums over equal stretches of time; the last takes what is left where that is less than half of one."""

    def __init__(self, begin_s: float, bin_s: float, length_s: float) -> None:
        self._begin_s, self._bin_s, self._length_s = begin_s, bin_s, length_s
        self._sums = [0.0] * max(1, round(length_s / bin_s))
        self._last = len(self._sums) - 1
        self._is_empty = True

    def add(self, times_s: Sequence[float], amounts: Sequence[int] | None = None, each: float = 1.0) -> None:
        """So much came at each of these times, which are in order: stretch by stretch, not time by time."""
        at = 0
        while at < len(times_s):
            place = min(self._last, max(0, int((times_s[at] - self._begin_s) / self._bin_s)))
            edge_s = self._begin_s + (place + 1) * self._bin_s
            upto = len(times_s) if place == self._last else max(at + 1, bisect_left(times_s, edge_s, at))
            self._sums[place] += (upto - at) * each if amounts is None else sum(amounts[at:upto])
            at, self._is_empty = upto, False

    def rates(self) -> Line:
        """How much came a second, over each stretch; nothing where nothing came at all."""
        if self._is_empty:
            return []
        begins_s = [index * self._bin_s for index in range(len(self._sums))]
        ends_s = [*begins_s[1:], self._length_s]
        line = [(b, total / (e - b)) for b, e, total in zip(begins_s, ends_s, self._sums, strict=True)]
        return [*line, (self._length_s, line[-1][1])]


def _flight(records: Sequence[RequestRecord], begin_s: float, length_s: float) -> Line:
    """Requests in flight at every change, or the most of each of many stretches of time."""
    changes = sorted([(r.sent_s - begin_s, 1) for r in records] + [(r.end_s - begin_s, -1) for r in records])
    level, line = 0, [(0.0, 0.0)]
    for at_s, change in changes:
        level += change
        line.append((max(0.0, at_s), float(level)))
    if len(line) > _MOST_STEPS:
        line = _peaks(line, length_s / _MOST_STEPS)
    return [*line, (length_s, line[-1][1])]


def _peaks(line: Line, step_s: float) -> Line:
    peaks: dict[int, float] = {}
    level = 0.0
    for at_s, value in line:
        place = int(at_s / step_s)
        peaks[place] = max(peaks.get(place, level), value)
        level = value
    return [(place * step_s, value) for place, value in sorted(peaks.items())]


def _said(
    samples: Sequence[ServerSample], of: Callable[[ServerSample], float | None], begin_s: float, length_s: float
) -> Line:
    line = [
        (min(max(sample.at_s - begin_s, 0.0), length_s), value)
        for sample in samples
        if (value := of(sample)) is not None and -1.0 <= sample.at_s - begin_s <= length_s + 1.0
    ]
    return line if len(line) > 1 else []


# ── in words ───────────────────────────────────────────────────────────────────────────────────────


def _moments(seen: Timeline, panels: Sequence[Panel]) -> Iterator[Row]:
    """Upright strips over all panels that cannot be seen, each of which says what was in its middle."""
    width, top, bottom = seen.length_s / _NUM_MOMENTS, panels[0].top, panels[-1].bottom
    for index in range(_NUM_MOMENTS):
        middle = (index + 0.5) * width
        start, end = panels[0].at_x(index * width), panels[0].at_x((index + 1) * width)
        values = [f"{name} {format_number(_at(line, middle))}" for name, line in seen.lines.items() if line]
        yield {**rule(start, top, end, bottom), "said": f"at {format_seconds(middle)}: {', '.join(values)}"}


def _at(line: Line, at_s: float) -> float:
    place = bisect_right(line, (at_s, math.inf)) - 1
    return line[max(place, 0)][1]


def _words(seen: Timeline) -> str:
    peak = max(value for _, value in seen.lines[_FLIGHT])
    tokens = max((value for _, value in seen.lines[_TOKENS]), default=None)
    failed = (
        f"; {format_count(len(seen.failures_s))} of {format_count(seen.num_requests)} failed" if seen.failures_s else ""
    )
    uncounted = f"; the tokens of {format_count(seen.num_uncounted)} are not known" if seen.num_uncounted else ""
    return (
        f"{format_seconds(seen.length_s)} of load: up to {format_count(round(peak))} requests in flight, up to "
        f"{format_number(tokens)} output tokens/s over {format_seconds(seen.bin_s)}{failed}{uncounted}."
    )
