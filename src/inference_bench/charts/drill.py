"""What became of each request while a server failed? A bar for each, in the lane of who answered, over the time of the fault.

In:   DrillResult, or SoakResult, and the width of the drawing in CSS pixels
Out:  one Spec, a panel for each scenario that was played, or one for the soak; None where no request is listed
Leaves out: counts and verdicts (report.drill_report)
Read next by: report, cli.

How a request ended is a colour and a mark at its end, so that it can be read without colours. All panels have the same time scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, NamedTuple

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    chart,
    is_narrow,
    nominal,
    place_legends,
    shortened,
    spoken,
    text,
    text_px,
)
from inference_bench.charts.panels import Scale, label, pixels, rule, rules, seconds_tick
from inference_bench.operate.drill.results import (
    ENDS,
    FALLBACK,
    PRIMARY,
    DrillResult,
    Requests,
    RequestSpan,
    ScenarioResult,
    SoakResult,
    Span,
    Tally,
)
from inference_bench.units import format_count, format_seconds

_NOBODY: Final = "nobody"
_LANES: Final = (PRIMARY, FALLBACK, _NOBODY)
_BAR_SHAPE: Final = "M-1,-0.3L1,-0.3L1,0.3L-1,0.3Z"
_COLOURS: Final = dict(zip(ENDS, ("c1", "c3", "c2", "finding"), strict=True))
_SHAPES: Final = dict(zip(ENDS, (_BAR_SHAPE, "cross", "triangle-up", "diamond"), strict=True))
_COMPLETED: Final = ENDS[0]
_FAULT, _DOWN = "the fault lasts", "the server is down"
_LEFT_PX, _BOTTOM_PX, _EDGE_PX = 66, 46, 8
_TITLE_PX: Final = 22
_LABEL_PX: Final = 15  # of a row of names above the lanes
_ASIDE_PX: Final = 4  # from a rule to its name
_TICKS_PX, _GAP_PX = 18, 10  # below a panel, and to the next
_LEAST_LANE_PX, _MOST_LANE_PX, _BETWEEN_PX = 16, 110, 5
_USUAL_PX, _TALL_PX = 6.0, 8.0  # a row of bars where there is room: of a scenario, of a soak
_LEAST_BAR_PX, _MOST_BAR_PX = 0.8, 4.5
_LEAST_MARK_PX, _MOST_MARK_PX = 4.5, 9.0
_ROOM: Final = 1.01


class _Strip(NamedTuple):
    """What a panel shows, before it has a place. Unit: seconds since it began."""

    name: str
    said: str
    requests: Requests
    spans: tuple[Span, ...]
    moments_s: Mapping[str, float]

    @property
    def length_s(self) -> float:
        """When the last of it is over."""
        known = [each.start_s if each.end_s is None else each.end_s for each in self.requests.listed]
        return max((*known, *(span.end_s for span in self.spans), *self.moments_s.values()))


class _Bar(NamedTuple):
    """A request and the row of its lane in which nothing else is under way."""

    request: RequestSpan
    row: int


@dataclass(frozen=True, slots=True)
class _Lane:
    """The requests that one server answered, or nobody. Unit: pixels."""

    name: str
    bars: tuple[_Bar, ...]
    num_rows: int
    top: float
    row_px: float

    @property
    def height(self) -> float:
        """All rows, or room for the name."""
        return max(_LEAST_LANE_PX, self.row_px * self.num_rows)

    def y(self, row: int) -> float:
        """Where a row begins; all of them in the middle where they are few."""
        return self.top + (self.height - self.row_px * self.num_rows) / 2 + row * self.row_px

    @property
    def bar_px(self) -> float:
        """How thick a bar is."""
        return min(max(1.0, self.row_px - 1.5), _MOST_BAR_PX)


@dataclass(frozen=True, slots=True)
class _Panel:
    """A strip with its place. Unit: pixels from the upper left of the plot area."""

    strip: _Strip
    title: tuple[str, ...]
    x: Scale
    width: float
    top: float
    lanes_top: float
    lanes: tuple[_Lane, ...]
    names: tuple[tuple[str, int, bool], ...]  # of a moment, the row of its name, whether that stands on the right

    @property
    def bottom(self) -> float:
        """Where the last lane ends."""
        return self.lanes[-1].top + self.lanes[-1].height + _BETWEEN_PX

    def at_x(self, at_s: float) -> float:
        """Where a time lies."""
        return round(self.width * self.x.along(at_s), 2)


def drill_chart(found: DrillResult, width_px: int = WIDE_PX) -> Spec | None:
    """Every request of every scenario that was played, and when its fault lasted, was detected and was over.

    Unit:   seconds since the scenario began
    """
    strips = [_strip_of(each) for each in found.scenarios if each.requests.listed]
    if not strips:
        return None
    words = "; ".join(f"{strip.name}: {strip.said}{_moments_said(strip)}" for strip in strips)
    said = f"Requests over time in the lane of who answered, for each scenario. {words}."
    return _chart(strips, width_px, "time since the scenario began", _FAULT, said)


def soak_chart(soak: SoakResult, width_px: int = WIDE_PX) -> Spec | None:
    """Every request of a soak, and when the killed server was down.

    Unit:   seconds since the soak began
    """
    if not soak.requests.listed:
        return None
    said = _ends_said(soak.tally, soak.requests)
    strip = _Strip("soak", said, soak.requests, soak.down, {})
    words = (
        f"Requests over time in the lane of who answered, while a server was killed {format_count(soak.kills)} times in "
        f"{format_seconds(soak.duration_s)} and was down for {format_seconds(soak.down_s)} of them: {said}."
    )
    return _chart([strip], width_px, "time since the soak began", _DOWN, words, _TALL_PX)


def _strip_of(each: ScenarioResult) -> _Strip:
    said = _ends_said(each.tally, each.requests)
    return _Strip(each.name, said, each.requests, () if each.fault is None else (each.fault,), each.moments_s)


def _ends_said(tally: Tally, requests: Requests) -> str:
    said = ", ".join(f"{format_count(count)} {end}" for end in ENDS if (count := getattr(tally, end)))
    left_out = sum(requests.left_out.values())
    return f"{said} ({format_count(left_out)} not drawn)" if left_out else said


def _moments_said(strip: _Strip) -> str:
    fault = [f"fault from {format_seconds(span.begin_s)} to {format_seconds(span.end_s)}" for span in strip.spans]
    times = [f"{name} at {format_seconds(at_s)}" for name, at_s in strip.moments_s.items()]
    return "".join(f", {each}" for each in (*fault, *times))


def _chart(
    strips: Sequence[_Strip],
    width_px: int,
    x_title: str,
    span_name: str,
    said: str,
    row_px: float = _USUAL_PX,
) -> Spec:
    ends = [end for end in ENDS if any(each.outcome == end for strip in strips for each in strip.requests.listed)]
    shapes = nominal("outcome", ends, [_SHAPES[end] for end in ends])
    colour = nominal("outcome", ends, [LIGHT[_COLOURS[end]] for end in ends])
    if ends == [_COMPLETED]:
        colour["legend"]["symbolType"] = _BAR_SHAPE
    shade = nominal("span", [span_name], [LIGHT["grid"]], symbolType="square", symbolSize=100)
    frame, (colour, shade) = place_legends(Frame(width_px, 0, left=_LEFT_PX, top=6, bottom=_BOTTOM_PX), colour, shade)
    panels = _placed(strips, frame, row_px)
    height = round(panels[-1].bottom + 0.5)
    frame = Frame(frame.width, height, frame.left, frame.right, frame.top, frame.bottom)
    encoding = {"x": pixels("x", frame.plot_width), "y": pixels("y", height, is_down=True)}
    marks = [row for panel in panels for lane in panel.lanes for row in _marks(panel, lane)]
    layers = [
        *_behind(panels, frame, shade, span_name),
        *(_bars(panels, colour)),
        *_rules(panels),
        *(
            spoken({"type": "point", "filled": True}, rows, color=colour, shape={**shapes, "legend": colour["legend"]},
                   size={"value": size})
            for size, rows in _by_size(marks)
        ),
        *_texts(panels, frame, x_title),
    ]  # fmt: skip
    return chart(frame, said, encoding, layers)


# ── places ─────────────────────────────────────────────────────────────────────────────────────────


def _placed(strips: Sequence[_Strip], frame: Frame, row_px: float) -> list[_Panel]:
    """Panels above one another at one time scale."""
    width = frame.plot_width
    x = Scale(0.0, (max(strip.length_s for strip in strips) or 1.0) * _ROOM)
    panels: list[_Panel] = []
    top = 0.0
    for strip in strips:
        moments = {name: width * x.along(at_s) for name, at_s in strip.moments_s.items()}
        names = _name_places(moments, width)
        rows = 1 + max((row for _, row, _ in names), default=-1)
        title = _title(strip, frame)
        lanes_top = top + _TITLE_PX + (len(title) - 1 + rows) * _LABEL_PX
        panels.append(_Panel(strip, title, x, width, top, lanes_top, _lanes(strip, lanes_top, row_px), names))
        top = panels[-1].bottom + _TICKS_PX + _GAP_PX
    return panels


def _title_room(frame: Frame) -> tuple[float, float]:
    """Where a title begins and how long it may be: in a narrow drawing from edge to edge."""
    return (_EDGE_PX - frame.left, frame.width - 2 * _EDGE_PX) if is_narrow(frame.width) else (0.0, frame.plot_width)


def _title(strip: _Strip, frame: Frame) -> tuple[str, ...]:
    """What it is and what came of it, in one line or two."""
    _, room = _title_room(frame)
    whole = f"{strip.name}: {strip.said}"
    lines = (whole,) if text_px(whole) <= room else (strip.name, strip.said)
    return tuple(shortened(line, room) for line in lines)


def _lanes(strip: _Strip, top: float, row_px: float) -> tuple[_Lane, ...]:
    lanes: list[_Lane] = []
    at = top + _BETWEEN_PX
    for name in _LANES:
        bars = _packed([each for each in strip.requests.listed if _lane_of(each) == name], strip.length_s)
        if bars:
            num_rows = 1 + max(bar.row for bar in bars)
            lanes.append(_Lane(name, bars, num_rows, at, min(row_px, _MOST_LANE_PX / num_rows)))
            at += lanes[-1].height + _BETWEEN_PX
    return tuple(lanes)


def _lane_of(request: RequestSpan) -> str:
    return request.answered_by if request.answered_by in _LANES else _NOBODY


def _packed(requests: Sequence[RequestSpan], length_s: float) -> tuple[_Bar, ...]:
    """Each in the first row that is free when it begins."""
    free_s: list[float] = []
    bars = []
    for each in sorted(requests, key=lambda one: one.start_s):
        row = next((row for row, at_s in enumerate(free_s) if at_s <= each.start_s), len(free_s))
        free_s[row : row + 1] = [length_s if each.end_s is None else each.end_s]
        bars.append(_Bar(each, row))
    return tuple(bars)


def _name_places(moments: Mapping[str, float], width: float) -> tuple[tuple[str, int, bool], ...]:
    """For each moment the row of its name, 0 the nearest to the lanes, and whether it stands on the right of its rule.

    Where:  no name lies on another or on a rule that comes down from a row above, and rows are as few as can be
    """
    number = len(moments)
    for rows in range(1, number + 1):
        for chosen in product(product(range(rows), (True, False)), repeat=number):
            places = [_name_place(name, x, *place) for (name, x), place in zip(moments.items(), chosen, strict=True)]
            if all(left >= 0 and right <= width for left, right, _, _ in places) and not any(
                _is_in_the_way(one, other) or _is_in_the_way(other, one) for one, other in combinations(places, 2)
            ):
                return tuple((name, *place) for name, place in zip(moments, chosen, strict=True))
    return tuple((name, number - index - 1, True) for index, name in enumerate(moments))


def _name_place(name: str, x: float, row: int, is_right: bool) -> tuple[float, float, int, float]:
    size = text_px(name) + 2 * _ASIDE_PX
    return (x, x + size, row, x) if is_right else (x - size, x, row, x)


def _is_in_the_way(one: tuple[float, float, int, float], other: tuple[float, float, int, float]) -> bool:
    """Whether the one's name, or its rule, meets the other's name."""
    left, right, row, x = one
    is_on = row == other[2] and left < other[1] and other[0] < right
    return is_on or (row > other[2] and other[0] <= x <= other[1])


# ── layers ─────────────────────────────────────────────────────────────────────────────────────────


def _ticks(panel: _Panel, frame: Frame) -> list[float]:
    return panel.x.ticks(4 if is_narrow(frame.width) else 9)


def _behind(panels: Sequence[_Panel], frame: Frame, shade: Spec, span_name: str) -> Iterator[Spec]:
    """When the fault lasted, and the grid."""
    rows = []
    grid = []
    for panel in panels:
        for span in panel.strip.spans:
            begin, end = panel.at_x(span.begin_s), panel.at_x(span.end_s)
            rows.append({
                **rule(begin, panel.lanes_top, max(end, begin + _LEAST_BAR_PX), panel.bottom),
                "span": span_name,
                "begin_s": span.begin_s,
                "end_s": span.end_s,
                "said": f"{panel.strip.name}: {span_name} from {format_seconds(span.begin_s)} to {format_seconds(span.end_s)}",
            })  # fmt: skip
        grid += [rule(panel.at_x(at), panel.lanes_top, panel.at_x(at), panel.bottom) for at in _ticks(panel, frame)]
        grid.append(rule(0, panel.bottom, panel.width, panel.bottom))
    yield rules(grid, stroke=LIGHT["grid"])
    yield spoken({"type": "rect"}, rows, fill=shade, x2={"field": "x2"}, y2={"field": "y2"})


def _bars(panels: Sequence[_Panel], colour: Spec) -> Iterator[Spec]:
    rows = [_request_row(panel, lane, bar) for panel in panels for lane in panel.lanes for bar in lane.bars]
    yield spoken({"type": "rect"}, rows, color=colour, x2={"field": "x2"}, y2={"field": "y2"})


def _request_row(panel: _Panel, lane: _Lane, bar: _Bar) -> Row:
    each, top = bar.request, lane.y(bar.row)
    start, end = panel.at_x(each.start_s), panel.at_x(panel.strip.length_s if each.end_s is None else each.end_s)
    when = f"sent at {format_seconds(each.start_s)}, " + (
        "never returned" if each.end_s is None else f"ended at {format_seconds(each.end_s)}"
    )
    who = "answered by nobody" if each.answered_by is None else f"answered by the {each.answered_by}"
    return {
        **rule(start, top, max(end, start + _LEAST_BAR_PX), top + lane.bar_px),
        "scenario": panel.strip.name,
        "outcome": each.outcome,
        "lane": lane.name,
        "said": f"{panel.strip.name}: {when}, {each.outcome}, {who}",
    }


def _marks(panel: _Panel, lane: _Lane) -> Iterator[Row]:
    """How those ended that are not whole, where they did."""
    side = min(max(lane.row_px * 1.4, _LEAST_MARK_PX), _MOST_MARK_PX)
    for bar in lane.bars:
        if bar.request.outcome != _COMPLETED:
            row = _request_row(panel, lane, bar)
            yield {**row, "x": row["x2"], "y": round((row["y"] + row["y2"]) / 2, 1), "size": round(side * side)}


def _by_size(marks: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    for size in sorted({row["size"] for row in marks}):
        yield size, [row for row in marks if row["size"] == size]


def _rules(panels: Sequence[_Panel]) -> Iterator[Spec]:
    """An upright line at each moment, from its name down."""
    rows = []
    for panel in panels:
        for name, row, _ in panel.names:
            at_s = panel.strip.moments_s[name]
            x, top = panel.at_x(at_s), panel.lanes_top - (row + 1) * _LABEL_PX + 2
            said = f"{panel.strip.name}: {name} at {format_seconds(at_s)}"
            rows.append({**rule(x, top, x, panel.bottom), "moment": name, "at_s": at_s, "said": said})
    yield spoken({"type": "rule", "stroke": LIGHT["ink"]}, rows, x2={"field": "x2"}, y2={"field": "y2"})


def _texts(panels: Sequence[_Panel], frame: Frame, x_title: str) -> Iterator[Spec]:
    last, (title_x, _) = panels[-1], _title_room(frame)
    titles, aside, below = [], [], []
    named: dict[bool, list[Row]] = {True: [], False: []}
    for panel in panels:
        first_y = panel.top + _TITLE_PX - 6
        titles += [label(line, title_x, first_y + row * _LABEL_PX) for row, line in enumerate(panel.title)]
        aside += [label(lane.name, -6, lane.top + lane.height / 2) for lane in panel.lanes]
        below += [label(seconds_tick(at), panel.at_x(at), panel.bottom + 5) for at in _ticks(panel, frame)]
        for name, row, is_right in panel.names:
            x = panel.at_x(panel.strip.moments_s[name]) + (_ASIDE_PX if is_right else -_ASIDE_PX)
            named[is_right].append(label(name, x, panel.lanes_top - (row + 0.5) * _LABEL_PX + 1))
    muted = LIGHT["muted"]
    yield text(titles, align="left", baseline="bottom", fontWeight="bold")
    yield text(named[True], align="left", baseline="middle")
    yield text(named[False], align="right", baseline="middle")
    yield text(aside, align="right", baseline="middle", color=muted)
    yield text(below, align="center", baseline="top", color=muted)
    yield text(
        [label(x_title, frame.plot_width / 2, last.bottom + _TICKS_PX + 4)], align="center", baseline="top", color=muted
    )
