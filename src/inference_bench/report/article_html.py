"""The article as HTML for a page with a strict policy: no style and no script of its own.

In:   Article, and how a chart is drawn where it is
Out:  HTML text without a document around it
Leaves out: what is said; sorting, which whoever shows it does by asking again (data-sort says for what)
Read next by: bridge, page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from inference_bench.charts.grammar import NARROW_PX, WIDE_PX
from inference_bench.report import html_pieces as pieces
from inference_bench.report.article_blocks import (
    Article,
    Block,
    Bullets,
    Code,
    Commands,
    Emphasis,
    Formula,
    Heading,
    Inline,
    Line,
    Link,
    Paragraph,
    Picture,
    Rows,
    Strong,
    Subject,
)

if TYPE_CHECKING:
    from inference_bench.report.html_pieces import Draw
    from inference_bench.report.table import Column

_OPENS: Final = "A name opens the calculator with that model, at that length."
_WIDTHS: Final = {"wide": WIDE_PX, "narrow": NARROW_PX}


def article_html(article: Article, draw: Draw | None = None, *, has_title: bool = True) -> str:
    """The whole article; without a `draw` each chart is an empty place, found by its data-chart NAME-wide or NAME-narrow."""
    lead, sections = _sections(article.blocks)
    title = f"<h1>{pieces.say(article.title)}</h1>\n" if has_title else ""
    parts = [
        pieces.section(heading.anchor, heading.title, *(_block(block, draw) for block in blocks))
        for heading, blocks in sections
    ]
    return "\n".join(
        [f'<article class="article">\n{title}{"".join(_block(block, draw) for block in lead)}', *parts, "</article>"]
    )


def calculator_address(subject: Subject) -> str:
    """Where the calculator is opened with a model and a length."""
    return f"#fit?model={quote(subject.model, safe='')}&context={subject.context_tokens}"


def _sections(blocks: Iterable[Block]) -> tuple[list[Block], list[tuple[Heading, list[Block]]]]:
    """What stands before the first heading, and each heading with what stands below it."""
    lead: list[Block] = []
    sections: list[tuple[Heading, list[Block]]] = []
    for block in blocks:
        if isinstance(block, Heading):
            sections.append((block, []))
        else:
            (sections[-1][1] if sections else lead).append(block)
    return lead, sections


def _block(block: Block, draw: Draw | None) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{_line(block.parts)}</p>\n"
    if isinstance(block, Bullets):
        items = "\n".join(f"<li>{_line(item)}</li>" for item in block.items)
        return f"<ul>\n{items}\n</ul>\n"
    if isinstance(block, Formula):
        return f'<p class="formula"><code>{pieces.say(block.text)}</code></p>\n'
    if isinstance(block, Commands):
        lines = "\n".join(map(pieces.say, block.lines))
        return f'<pre class="command"><code>{lines}</code></pre>\n'
    if isinstance(block, Rows):
        return _rows(block)
    return _picture(block, draw) if isinstance(block, Picture) else ""


def _line(parts: Line) -> str:
    return "".join(map(_inline, parts))


def _inline(part: Inline) -> str:
    if isinstance(part, str):
        return pieces.say(part)
    if isinstance(part, Link):
        return f'<a href="{html.escape(part.address)}">{pieces.say(part.text)}</a>'
    names = {Code: "code", Strong: "strong", Emphasis: "em"}
    return f"<{names[type(part)]}>{pieces.say(part.text)}</{names[type(part)]}>"


def _rows(block: Rows) -> str:
    """A table as html_pieces writes one, with names that open the calculator and heads that say what sorts."""
    of = block.table
    keys = block.sort_keys or (None,) * len(of.columns)
    head = "".join(_head(column, key, block.sorted_by) for column, key in zip(of.columns, keys, strict=True))
    body = "\n".join(_row(cells, of.columns, subject) for cells, subject in zip(of.rows, block.subjects, strict=True))
    opens = _OPENS if block.sort_keys else ""
    notes = " ".join(filter(None, [*(column.note for column in of.columns), of.note, opens]))
    note = f'<p class="quiet">{pieces.say(notes)}</p>\n' if notes else ""
    return (
        f'<h3>{pieces.say(of.title)}</h3>\n<div class="scroll" role="region" tabindex="0" aria-label="{pieces.say(of.title)}">'
        f'<table data-table="{pieces.say(block.name)}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
        f"</table></div>\n{note}"
    )


def _head(column: Column, key: str | None, sorted_by: str | None) -> str:
    sort = ""
    if key is not None:
        order = "ascending" if column.align == "l" and key == "model" else "descending"
        sort = f' data-sort="{pieces.say(key)}"' + (f' aria-sort="{order}"' if key == sorted_by else "")
    return f'<th scope="col" class="{column.align}"{sort}>{pieces.say(column.title)}{pieces.tag(column.origin)}</th>'


def _row(cells: tuple[str, ...], columns: tuple[Column, ...], subject: Subject | None) -> str:
    name = pieces.say(cells[0])
    if subject is not None:
        name = f'<a href="{html.escape(calculator_address(subject))}">{name}</a>'
    rest = "".join(
        f'<td class="{column.align}">{pieces.say(text)}</td>'
        for text, column in zip(cells[1:], columns[1:], strict=True)
    )
    return f'<tr><th scope="row" class="{columns[0].align}">{name}</th>{rest}</tr>'


def _picture(block: Picture, draw: Draw | None) -> str:
    """A figure at both widths; nothing where there is nothing to draw."""
    places = [
        _drawing(block, name, width_px, draw) for name, width_px in _WIDTHS.items()
    ]  # the specification is made even for an empty place: without data there is none
    return pieces.figure(block.drawing.title, block.drawing.caption, *places) if all(places) else ""


def _drawing(block: Picture, width: str, width_px: int, draw: Draw | None) -> str:
    spec = block.drawing.make(width_px)
    if spec is None:
        return ""
    return (
        draw(spec) if draw is not None else f'<div class="drawing" data-chart="{pieces.say(block.name)}-{width}"></div>'
    )
