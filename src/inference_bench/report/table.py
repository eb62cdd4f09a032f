"""What is a table before it is drawn? Columns and rows of texts, with where the figures of each column come from.

In:   texts that `units` wrote
Out:  Table
Leaves out: how a table looks (html_pieces, text)
Read next by: every module here that fills one.
"""

from __future__ import annotations

from dataclasses import dataclass

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A header, `l` for text or `r` for numbers, where the figures come from, and what there is to know of them."""

    title: str
    align: str = "r"
    origin: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows. `marked` are the rows that are findings."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Cells, ...]
    note: str = ""
    marked: frozenset[int] = frozenset()
