"""Where do labels go that name points on a line, so that none lies over another, over a point or over the line?

In:   points and their labels in pixels, the line above which nothing may be written, what else is in the way
Out:  for each label where its text begins, below its point and joined to it by a rule
Leaves out: what is drawn
Read next by: ceilings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from inference_bench.charts.grammar import text_px

LINE_PX: Final = 15
_DROP_PX: Final = 14  # from a point to the first line below it
_ASIDE_PX: Final = 5
_STEP_PX: Final = 5
_MARGIN_PX: Final = 3


class Named(NamedTuple):
    """A point that needs a label of so many lines."""

    series: str
    x: float
    y: float
    lines: tuple[str, ...]


class Box(NamedTuple):
    """A rectangle on the screen; a vertical rule is one without a width."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two come closer than a margin."""
        return (
            self.left < other.right + _MARGIN_PX
            and other.left < self.right + _MARGIN_PX
            and self.top < other.bottom + _MARGIN_PX
            and other.top < self.bottom + _MARGIN_PX
        )


@dataclass(frozen=True, slots=True)
class Callout:
    """A point, the lines of its label, and where they begin; the series is the caller's own word for its kind."""

    series: str
    x: float
    y: float
    lines: tuple[str, ...]
    text_top: float
    is_right: bool
    is_free: bool = True  # whether nothing is in the way

    @property
    def box(self) -> Box:
        """What the text covers."""
        width = max(map(text_px, self.lines))
        left = self.x + _ASIDE_PX if self.is_right else self.x - _ASIDE_PX - width
        return Box(left, self.text_top, left + width, self.text_top + LINE_PX * len(self.lines))

    @property
    def leader(self) -> Box:
        """The rule from the point to the end of the text."""
        return Box(self.x, self.y, self.x, self.text_top + LINE_PX * len(self.lines))


def place_callouts(
    points: Sequence[Named],
    line_at: Callable[[float], float],
    area: Box,
    obstacles: Sequence[Box] = (),
) -> list[Callout]:
    """A place for each label, the rightmost first: as near below its point as nothing is in the way.

    Where:  line_at gives the height of the line over each x, rising to the right; a label never lies below a point that
            is still to be named, whose rule has to come down; one without a free place is put at the lowest
    """
    placed: list[Callout] = []
    marks = [Box(x - _ASIDE_PX, y - _ASIDE_PX, x + _ASIDE_PX, y + _ASIDE_PX) for _, x, y, _ in points]
    waiting = sorted(range(len(points)), key=lambda i: (-points[i].x, points[i].y))
    while waiting:
        index = waiting.pop(0)
        unnamed = [Box(points[i].x, points[i].y, points[i].x, area.bottom) for i in waiting]
        others = [mark for i, mark in enumerate(marks) if i != index]
        blocked = [*obstacles, *others, *unnamed, *(part for one in placed for part in (one.box, one.leader))]
        candidates = list(_candidates(points[index], area))
        free = (one for one in candidates if _is_free(one, line_at, area, blocked, placed))
        placed.append(next(free, None) or replace(candidates[-1], is_free=False))
    return placed


def _is_free(
    one: Callout, line_at: Callable[[float], float], area: Box, blocked: Sequence[Box], placed: Sequence[Callout]
) -> bool:
    box = one.box
    return (
        area.left <= box.left
        and box.right <= area.right
        and box.bottom <= area.bottom
        and box.top > line_at(box.left) + _MARGIN_PX
        and not any(box.meets(other) for other in blocked)
        and not any(one.leader.meets(other.box) for other in placed)
    )


def _candidates(point: Named, area: Box) -> Iterator[Callout]:
    top = point.y + _DROP_PX
    while True:
        for is_right in (True, False):
            yield Callout(*point, top, is_right)
        top += _STEP_PX
        if top + LINE_PX * len(point.lines) > area.bottom:
            return
