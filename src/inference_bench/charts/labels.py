"""Where does a short label go beside what it names, so that it lies over no other label and on no curve?

In:   the area of a panel in pixels, the curves in it, and for each label where it might stand, the best place first
Out:  layers of texts
Leaves out: labels of several lines with a rule to their point (callouts)
Read next by: batch_panels, context, break_even, other_roofs, matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import LIGHT, Row, Spec, text_px
from inference_bench.charts.panels import Panel, label, on_paper, rule, rules

_HALF_PX: Final = 7  # of a line of text
_ASIDE_PX: Final = 7  # from an upright line, or a point, to its name
_RING_PX: Final = 11  # from the middle of a ringed point
_APART_PX: Final = 16  # from a point to a name that needs no rule
_NUM_NEAR: Final = 8  # places around a point that are better than any further away
_CURVE_PX: Final = 8  # how far apart a curve is looked at
_STEP_PX: Final = 5


class Place(NamedTuple):
    """Where a label stands: its middle line, and the end that is fixed."""

    x: float
    y: float
    align: str

    def box(self, said: str) -> Box:
        """About what the text covers."""
        width = text_px(said)
        left = self.x - {"left": 0.0, "center": width / 2, "right": width}[self.align]
        return Box(left, self.y - _HALF_PX, left + width, self.y + _HALF_PX)


@dataclass(slots=True)
class Labels:
    """The labels of a panel as they find their places, each after those before it.

    Where:  written is where labels stand, taken what else may not be written over, crossed what had better not be: thin
            lines; a label that finds no place apart from others takes its last one
    """

    area: Box
    written: list[Box] = field(default_factory=list)
    taken: list[Box] = field(default_factory=list)
    crossed: list[Box] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    leaders: list[Row] = field(default_factory=list)

    @classmethod
    def of_panel(cls, panel: Panel) -> Labels:
        """No labels yet, in the whole of a panel."""
        return cls(Box(panel.left, panel.top, panel.left + panel.width, panel.bottom))

    def keep_off(self, curve: Sequence[Row]) -> None:
        """Nothing is to be written on the line through these points."""
        for one, other in pairwise(curve):
            self.taken += _along(one["x"], one["y"], other["x"], other["y"])

    def keep_off_curve(self, curve: Iterable[Row]) -> None:
        """No label is to lie across the line through these points where there is another place for it."""
        for one, other in pairwise(curve):
            self.crossed += _along(one["x"], one["y"], other["x"], other["y"])

    def keep_off_lines(self, xs: Iterable[float] = (), ys: Iterable[float] = ()) -> None:
        """No label is to lie across these upright and level lines where there is another place for it."""
        self.crossed += [Box(x, self.area.top, x, self.area.bottom) for x in xs]
        self.crossed += [Box(self.area.left, y, self.area.right, y) for y in ys]

    def put(self, said: str, places: Iterable[Place]) -> Box:
        """A label at the first place where it lies on nothing, or else on thin lines alone, or on curves; what it covers."""
        tried = list(places)
        inside = [place for place in tried if _is_inside(place.box(said), self.area)] or tried[-1:]
        apart = [place for place in inside if not _meets_any(place.box(said), self.written)] or inside[-1:]
        free = [place for place in apart if not _meets_any(place.box(said), self.taken)] or apart[:1]
        clear = next((place for place in free if not _meets_any(place.box(said), self.crossed)), None)
        chosen = clear or free[0]
        self.written.append(chosen.box(said))
        self.rows.setdefault(chosen.align, []).append(label(said, chosen.x, chosen.y))
        return self.written[-1]

    def _is_free(self, box: Box) -> bool:
        """Whether a label lies on nothing there but thin lines."""
        return _is_inside(box, self.area) and not _meets_any(box, (*self.written, *self.taken))

    def put_joined(self, said: str, x: float, y: float) -> None:
        """A label around a ringed point, joined to it by a rule where it stands apart."""
        places = list(around(x, y))
        near = [place for place in places[:_NUM_NEAR] if self._is_free(place.box(said))]
        box = self.put(said, near or places)
        end_x, end_y = min(max(x, box.left), box.right), box.top if box.top > y else box.bottom
        far = math.hypot(end_x - x, end_y - y)
        if far > _APART_PX:
            start = _RING_PX / 1.5 / far
            self.leaders.append(rule(x + (end_x - x) * start, y + (end_y - y) * start, end_x, end_y))

    def layers(self, **mark: Any) -> list[Spec]:
        """The rules to what is named, and the texts."""
        texts = [on_paper(rows, align=align, baseline="middle", **mark) for align, rows in self.rows.items()]
        return [rules(self.leaders, stroke=LIGHT["muted"]), *(spec for both in texts for spec in both)]


def _meets_any(box: Box, others: Iterable[Box]) -> bool:
    return any(box.meets(other) for other in others)


def _is_inside(box: Box, area: Box) -> bool:
    return box.left >= area.left and box.right <= area.right and box.top >= area.top and box.bottom <= area.bottom


def _along(x: float, y: float, x2: float, y2: float) -> Iterator[Box]:
    """Points on a straight line, near enough that no letter fits between two."""
    parts = max(1, math.ceil(math.hypot(x2 - x, y2 - y) / _CURVE_PX))
    for part in range(parts + 1):
        here_x, here_y = x + (x2 - x) * part / parts, y + (y2 - y) * part / parts
        yield Box(here_x, here_y, here_x, here_y)


def around(x: float, y: float) -> Iterator[Place]:
    """Places around a ringed point: beside it, above and below, then further away."""
    for far in range(12):
        up = _RING_PX + far * _STEP_PX * 2
        for down in (up, -up):
            yield Place(x + _ASIDE_PX, y + down, "left")
            yield Place(x - _ASIDE_PX, y + down, "right")
    for down in (0, 14, -14):
        yield Place(x + _RING_PX, y + down, "left")
        yield Place(x - _RING_PX, y + down, "right")


def along_upright(panel: Panel, x: float) -> Iterator[Place]:
    """Places along an upright line, from the foot up, first on the side where there is more room."""
    sides = [(_ASIDE_PX, "left"), (-_ASIDE_PX, "right")]
    if x - panel.left > panel.width / 2:
        sides.reverse()
    y = panel.bottom - _HALF_PX - 4
    while y > panel.top + _HALF_PX:
        for aside, align in sides:
            yield Place(x + aside, y, align)
        y -= _STEP_PX
    yield Place(x + sides[0][0], panel.bottom - _HALF_PX - 4, sides[0][1])


def along_level(panel: Panel, y: float) -> Iterator[Place]:
    """Places along a level line, just above it and just below, from the left end on."""
    for part in range(12):
        x = panel.left + 5 + panel.width * part / 12
        yield Place(x, y - _HALF_PX - 4, "left")
        yield Place(x, y + _HALF_PX + 5, "left")
    yield Place(panel.left + 5, y + _HALF_PX + 5, "left")
