"""Where do drawings go on the page, and what is drawn there?

In:   Drawings by name
Out:  HTML with a place for each, and the specifications to draw
Leaves out: drawing: a page does that, or render when the page is built
Read next by: the views, page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inference_bench.bridge.fields import Json, Width
from inference_bench.charts.grammar import NARROW_PX, WIDE_PX
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.table import Table

WIDTHS: Final = {"wide": WIDE_PX, "narrow": NARROW_PX}


def chart_slots(drawings: Mapping[str, Drawing]) -> str:
    """A figure for each, empty at both widths."""
    return "".join(
        pieces.figure(item.title, item.caption, *(slot(name, width) for width in WIDTHS))
        for name, item in drawings.items()
    )


def slot(name: str, width: str) -> str:
    """The place of one drawing; whoever draws looks for it by its data-chart."""
    return f'<div class="drawing" data-chart="{name}-{width}"></div>'


def chart_specs(drawings: Mapping[str, Drawing], width: Width) -> Json:
    """What to draw in each place, at one width or at both."""
    widths = WIDTHS if width is None else {width: WIDTHS[width]}
    made = {f"{name}-{of}": item.make(width_px) for name, item in drawings.items() for of, width_px in widths.items()}
    return {place: spec for place, spec in made.items() if spec is not None}


def csv_rows(table: Table) -> list[list[str]]:
    """A table as rows of texts, the names of its columns first."""
    return [[column.title for column in table.columns], *map(list, table.rows)]
