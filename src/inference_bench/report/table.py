"""What is a table before it is drawn? Columns and rows of texts, with where the figures of each column come from.

In:   texts that `units` wrote
Out:  Table
Leaves out: how a table looks (html_pieces, text)
Read next by: every module here that fills one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A header, `l` for text or `r` for numbers, where the figures come from, and what there is to know of them.

    Where:  the cells of a column that is_tag are origins themselves; those of one that is_wrapped are sentences, which take several
            lines on a page rather than make it wide
    """

    title: str
    align: str = "r"
    origin: str | None = None
    note: str = ""
    is_tag: bool = False
    is_wrapped: bool = False


_ORIGIN: Final = Column("origin", "l", is_tag=True)
FIGURE_COLUMNS: Final = (Column("value"), _ORIGIN, Column("how", "l"))  # after the name of a figure


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows. `marked` are the rows that are findings."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Cells, ...]
    note: str = ""
    marked: frozenset[int] = frozenset()
