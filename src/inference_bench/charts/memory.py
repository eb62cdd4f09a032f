"""What fills the memory: weights, the cache of each layer type and the rest, beside what the usual formula says.

In:   FitAnswer
Out:  one Spec
Leaves out: numbers in tables (report)
Read next by: report, the page.

Parts are told apart by texture as well as by colour, and the key has them in the order of the bar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from inference_bench.charts.grammar import (
    LIGHT,
    WIDE_PX,
    Frame,
    Row,
    Spec,
    axis,
    chart,
    is_narrow,
    layer,
    linear_ticks,
    shortened,
    spoken,
    text,
    text_px,
)
from inference_bench.charts.panels import bytes_tick, on_paper, pixels
from inference_bench.predict.fit import FitAnswer
from inference_bench.predict.memory_parts import MemoryPart, MemoryParts, PartKind, memory_parts
from inference_bench.units import format_bytes

_FREE: Final = "free"
_LEFT_PX, _RIGHT_PX = 14, 20  # room for half of the first and the last tick's label
_ROW_PX: Final = 18  # of the key
_SWATCH_PX: Final = 12
_ENTRY_GAP_PX: Final = 16
_BAR_PX: Final = 20
_TITLE_PX: Final = 20  # above a bar: what it is
_NAME_PX: Final = 18  # above the first title: the machine's memory
_GAP_PX: Final = 6
_HATCH_PX: Final = 6
_LEAST_PX: Final = 4  # cache of a layer type narrower than this is put together with the others
_ROOM: Final = 1.02


class _Look(NamedTuple):
    """How a part is drawn: the role of its colour, whether it is filled, and which way lines run over it, if any do."""

    role: str
    is_filled: bool = True
    hatch: str = ""


_LOOKS: Final = {
    PartKind.WEIGHTS: _Look("c4"),
    PartKind.STATE: _Look("c2"),
    PartKind.CROSS: _Look("c3", hatch="\\"),
    PartKind.ROUNDING: _Look("c1", is_filled=False, hatch="/"),
    PartKind.OVERHEAD: _Look("muted", hatch="|"),
    PartKind.USUAL_CACHE: _Look("prefill", is_filled=False, hatch="x"),
}
_CACHE_HATCHES: Final = ("", "/", "\\", "|", "x")
_FREE_LOOK: Final = _Look("muted", is_filled=False)


class _Segment(NamedTuple):
    """A part in its place on the axis of bytes."""

    name: str
    num_bytes: int
    start: int
    look: _Look

    @property
    def said(self) -> str:
        """What it is, in words."""
        return f"{self.name} {format_bytes(self.num_bytes)}"


class _Line(NamedTuple):
    """A line over a segment, in bytes across and pixels down."""

    role: str
    start: int
    end: int
    top: float
    bottom: float


class _Bar(NamedTuple):
    """A row of segments with its title; `too_much` is what goes beyond the memory."""

    title: str
    segments: tuple[_Segment, ...]
    top: float
    needed: int
    too_much: int


@dataclass(frozen=True, slots=True)
class _Ruler:
    """The axis of bytes in a plot so many pixels wide."""

    most_bytes: float
    width: float

    def bytes_at(self, px: float) -> float:
        """What lies so many pixels from the left."""
        return px * self.most_bytes / self.width

    def px(self, num_bytes: float) -> float:
        """How far from the left so many bytes end."""
        return num_bytes * self.width / self.most_bytes


def memory_chart(answer: FitAnswer, width_px: int = WIDE_PX) -> Spec | None:
    """What the fullest device needs, part by part, over what the usual formula says; the machine's memory is a line.

    Where:  what goes beyond the memory is outlined; without a machine there is no line, and nothing is free
    Unit:   bytes
    """
    found = memory_parts(answer)
    memory = answer.machine.memory_bytes if answer.machine else None
    if not found.parts:
        return None
    frame = Frame(width_px, 0, left=_LEFT_PX, right=_RIGHT_PX, top=0, bottom=24)
    most = max(found.needed_bytes, found.usual_bytes or 0, memory or 0)
    ruler = _Ruler(most * _ROOM, frame.plot_width)
    bars = _bars(found, memory, ruler, answer.placement.devices)
    key = _placed_key(bars, frame.plot_width)
    frame = replace(
        frame, top=_ROW_PX * (key[-1].row + 1) + _GAP_PX + 4, height=round(bars[-1].top + _BAR_PX + _GAP_PX)
    )
    return chart(
        frame,
        _words(answer, found, memory),
        {"x": _bytes_axis(frame, ruler), "y": pixels("top", frame.height, is_down=True)},
        [
            *_bar_layers(bars, ruler),
            *_memory_layers(answer, bars, ruler),
            *_too_much_layers(bars, memory),
            *on_paper(_titles(bars), align="left", baseline="bottom"),
            *_key_layers(key, frame, ruler),
        ],
    )


# ── bars ───────────────────────────────────────────────────────────────────────────────────────────


def _bars(found: MemoryParts, memory: int | None, ruler: _Ruler, devices: int) -> list[_Bar]:
    top = _TITLE_PX + (0 if memory is None else _NAME_PX)
    where = "" if devices == 1 or memory is not None else f", fullest of {devices}"
    rows = [(f"by layer type{where}", _merged(found.parts, ruler))]
    if found.usual:
        rows.append(("by the usual formula", found.usual))
    bars = []
    for title, parts in rows:
        needed = sum(part.num_bytes for part in parts)
        too_much = max(0, needed - memory) if memory is not None else 0
        bars.append(_Bar(_title(title, needed, memory), tuple(_segments(parts, memory)), top, needed, too_much))
        top += _BAR_PX + _GAP_PX + _TITLE_PX
    return bars


def _title(title: str, needed: int, memory: int | None) -> str:
    verdict = "" if memory is None else ", fits" if needed <= memory else f", {format_bytes(needed - memory)} too much"
    return f"{title}: {format_bytes(needed)}{verdict}"


def _merged(parts: Sequence[MemoryPart], ruler: _Ruler) -> tuple[MemoryPart, ...]:
    """The same parts with layer types too small to be seen put together, where there are several of them."""
    small = [part for part in parts if part.kind is PartKind.CACHE and ruler.px(part.num_bytes) < _LEAST_PX]
    if len(small) < 2:
        return tuple(parts)
    others = MemoryPart(PartKind.CACHE, "other layers", sum(part.num_bytes for part in small))
    merged: list[MemoryPart] = []
    for part in parts:
        if part not in small:
            merged.append(part)
        elif others not in merged:
            merged.append(others)
    return tuple(merged)


def _segments(parts: Sequence[MemoryPart], memory: int | None) -> Iterator[_Segment]:
    start, hatches = 0, iter(_CACHE_HATCHES)
    for part in parts:
        look = _Look("c1", hatch=next(hatches, "x")) if part.kind is PartKind.CACHE else _LOOKS[part.kind]
        yield _Segment(part.name, part.num_bytes, start, look)
        start += part.num_bytes
    if memory is not None and memory > start:
        yield _Segment(_FREE, memory - start, start, _FREE_LOOK)


def _bar_layers(bars: Sequence[_Bar], ruler: _Ruler) -> Iterator[Spec]:
    rows = [
        {
            "part": segment.name,
            "num_bytes": segment.num_bytes,
            "start": segment.start,
            "end": segment.start + segment.num_bytes,
            "top": bar.top,
            "bottom": bar.top + _BAR_PX,
            "ink": LIGHT[segment.look.role],
            "fill": 1 if segment.look.is_filled else 0,
            "said": segment.said,
        }
        for bar in bars
        for segment in bar.segments
    ]
    ends: dict[str, Spec] = {"x2": {"field": "end"}, "y2": {"field": "bottom"}}
    ink: Spec = {"field": "ink", "type": "nominal", "scale": None}
    fill: Spec = {"field": "fill", "type": "quantitative", "scale": None}
    yield spoken({"type": "rect", "strokeWidth": 1}, rows, fill=ink, stroke=ink, fillOpacity=fill, **ends)
    yield from _hatch_layers(
        line
        for bar in bars
        for segment in bar.segments
        for line in _hatch(ruler, segment.look, ruler.px(segment.start), ruler.px(segment.num_bytes), bar.top, _BAR_PX)
    )


def _hatch_layers(lines: Iterable[_Line]) -> Iterator[Spec]:
    """All lines of one colour as one path, which breaks off between them."""
    by_ink: dict[str, list[Row]] = {}
    for line in lines:
        rows = by_ink.setdefault(line.role, [])
        for start, top in ((line.start, line.top), (line.end, line.bottom), (None, None)):
            rows.append({"start": start, "top": top, "order": len(rows)})
    order: Spec = {"field": "order", "type": "quantitative"}
    for role, rows in by_ink.items():
        yield layer({"type": "line", "stroke": LIGHT[role], "strokeWidth": 1.25}, rows, order=order)


def _hatch(ruler: _Ruler, look: _Look, left: float, width: float, top: float, height: float) -> Iterator[_Line]:
    """Lines over a rectangle, cut off at its edges: of paper on a filled one, else in its own colour."""
    for way in "/\\" if look.hatch == "x" else look.hatch:
        lean, at = (0.0 if way == "|" else height), _HATCH_PX / 2
        while at < width + lean:
            low, high = max(at - lean, 0.0), min(at, width)
            ys = (height, 0.0) if not lean else (height * (at - low) / lean, height * (at - high) / lean)
            if way == "/":  # which rises to the right
                ys = (height - ys[0], height - ys[1])
            start, end = (ruler.bytes_at(left + x) for x in (low, high))
            role = "paper" if look.is_filled else look.role
            yield _Line(role, round(start), round(end), round(top + ys[0], 1), round(top + ys[1], 1))
            at += _HATCH_PX


def _titles(bars: Sequence[_Bar]) -> list[Row]:
    return [{"label": bar.title, "start": 0, "top": bar.top - 4} for bar in bars]


# ── the memory there is ────────────────────────────────────────────────────────────────────────────


def _memory_layers(answer: FitAnswer, bars: Sequence[_Bar], ruler: _Ruler) -> Iterator[Spec]:
    machine = answer.machine
    if machine is None or machine.memory_bytes is None:
        return
    memory, bottom = machine.memory_bytes, bars[-1].top + _BAR_PX + _GAP_PX / 2
    yield layer(
        {"type": "rule", "stroke": LIGHT["ink"], "strokeWidth": 2},
        [{"start": memory, "top": _NAME_PX - 4, "bottom": bottom}],
        y2={"field": "bottom"},
    )
    each = "" if answer.placement.devices == 1 else " each"
    size = f": {format_bytes(memory)}{each}"
    said = f"{shortened(machine.name, ruler.width - text_px(size))}{size}"
    half, px = text_px(said) / 2, ruler.px(memory)
    place = ruler.bytes_at(min(max(px, half), ruler.width - half))
    yield text([{"label": said, "start": place, "top": _NAME_PX - 6}], align="center", baseline="bottom")


def _too_much_layers(bars: Sequence[_Bar], memory: int | None) -> Iterator[Spec]:
    """An outline around what goes beyond the memory."""
    rows = [
        {"start": memory, "end": bar.needed, "top": bar.top - 1, "bottom": bar.top + _BAR_PX + 1}
        for bar in bars
        if bar.too_much
    ]
    mark: Spec = {"type": "rect", "filled": False, "stroke": LIGHT["finding"], "strokeWidth": 2.5}
    yield layer(mark, rows, x2={"field": "end"}, y2={"field": "bottom"})


def _bytes_axis(frame: Frame, ruler: _Ruler) -> Spec:
    ticks = linear_ticks(ruler.most_bytes, 4 if is_narrow(frame.width) else 8)
    labels = [bytes_tick(tick) for tick in ticks]
    found = axis("start", "", ticks, labels, {"domain": [0, ruler.most_bytes]})
    return {**found, "axis": {**found["axis"], "title": None}}


# ── the key ────────────────────────────────────────────────────────────────────────────────────────


class _Entry(NamedTuple):
    """A line of the key."""

    segment: _Segment
    left: float
    row: int


def _placed_key(bars: Sequence[_Bar], width: float) -> list[_Entry]:
    """Every kind of segment once, side by side, in a new row where there is no more room."""
    seen: dict[tuple[str, _Look], _Segment] = {}
    for bar in bars:
        for segment in bar.segments:
            seen.setdefault((segment.name, segment.look), segment)
    first = [each for each in seen.values() if each.name != _FREE or each in bars[0].segments]
    entries, left, row = [], 0.0, 0
    for segment in first:
        size = _SWATCH_PX + 5 + text_px(segment.said)
        if left and left + size > width:
            left, row = 0.0, row + 1
        entries.append(_Entry(segment, left, row))
        left += size + _ENTRY_GAP_PX
    return entries


def _key_layers(key: Sequence[_Entry], frame: Frame, ruler: _Ruler) -> Iterator[Spec]:
    swatches: list[Row] = []
    lines: list[_Line] = []
    labels: list[Row] = []
    for entry in key:
        top, look = entry.row * _ROW_PX - frame.top + _GAP_PX, entry.segment.look
        swatches.append(
            {
                "start": ruler.bytes_at(entry.left),
                "end": ruler.bytes_at(entry.left + _SWATCH_PX),
                "top": top,
                "bottom": top + _SWATCH_PX,
                "ink": LIGHT[look.role],
                "fill": 1 if look.is_filled else 0,
            }
        )
        lines += _hatch(ruler, look, entry.left, _SWATCH_PX, top, _SWATCH_PX)
        middle = {"start": ruler.bytes_at(entry.left + _SWATCH_PX + 5), "top": top + _SWATCH_PX / 2}
        labels.append({**middle, "label": entry.segment.said})
    ink: Spec = {"field": "ink", "type": "nominal", "scale": None}
    fill: Spec = {"field": "fill", "type": "quantitative", "scale": None}
    ends: dict[str, Spec] = {"x2": {"field": "end"}, "y2": {"field": "bottom"}}
    yield layer({"type": "rect", "strokeWidth": 1}, swatches, fill=ink, stroke=ink, fillOpacity=fill, **ends)
    yield from _hatch_layers(lines)
    yield text(labels, align="left", baseline="middle")


def _words(answer: FitAnswer, found: MemoryParts, memory: int | None) -> str:
    parts = ", ".join(f"{part.name} {format_bytes(part.num_bytes)}" for part in found.parts)
    usual = f"; by the usual formula {format_bytes(found.usual_bytes)}" if found.usual else ""
    devices = answer.placement.devices
    machine = (
        "" if memory is None or answer.machine is None else f" of the {format_bytes(memory)} of {answer.machine.name}"
    )
    machine += "" if devices == 1 else f" on the fullest of {devices} devices"
    return f"Memory of {answer.model.name}: {format_bytes(found.needed_bytes)}{machine}: {parts}{usual}."
