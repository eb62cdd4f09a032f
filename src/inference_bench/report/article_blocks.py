"""What is an article before it is written down? A sequence of typed blocks, the same for a page and for the docs.

In:   texts that `units` wrote, Tables, Drawings
Out:  Article
Leaves out: what is said (article and the modules it gathers), HTML (article_html) and Markdown (article_markdown)
Read next by: every article module.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.report.html_pieces import Drawing
from inference_bench.report.table import Table


@dataclass(frozen=True, slots=True)
class Code:
    """What a machine reads or prints."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """What must not be missed."""

    text: str


@dataclass(frozen=True, slots=True)
class Emphasis:
    """A word that is leant on."""

    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """Words that lead to a page elsewhere."""

    text: str
    address: str


Inline = str | Code | Strong | Emphasis | Link
Line = tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a section, and the name by which an address finds it."""

    title: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    parts: Line


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula on a line of its own."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines for a terminal."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """The model of a row, and the length it was counted at: what the calculator is opened with."""

    model: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A table whose rows are about one model each, whose name stands first.

    Where:  sort_keys are what a reader may ask to sort by, one a column, None where not; sorted_by is one of them
    """

    name: str
    table: Table
    subjects: tuple[Subject | None, ...]
    sort_keys: tuple[str | None, ...] = ()
    sorted_by: str | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart, and the name by which whoever draws finds its place."""

    name: str
    drawing: Drawing


Block = Heading | Paragraph | Formula | Bullets | Commands | Rows | Picture


@dataclass(frozen=True, slots=True)
class Article:
    """A title and what stands below it, in order."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The charts, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Picture))

    @property
    def tables(self) -> tuple[Rows, ...]:
        """The tables, in order."""
        return tuple(block for block in self.blocks if isinstance(block, Rows))
