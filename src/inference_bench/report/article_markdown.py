"""The article as Markdown for the docs.

In:   Article, and the file name of each picture
Out:  Markdown text
Leaves out: what is said; pictures (scripts/write_article.py draws them)
Read next by: scripts/write_article.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from inference_bench.report.article_blocks import (
    Article,
    Block,
    Bullets,
    Code,
    Commands,
    Formula,
    Heading,
    Inline,
    Line,
    Link,
    Paragraph,
    Picture,
    Rows,
    Strong,
)
from inference_bench.report.text import clean

_SPECIAL: Final = re.compile(r"([\\`*<\[\]|])")


def article_markdown(article: Article, pictures: Mapping[str, str], note: str = "") -> str:
    """The whole article; `pictures` gives the file of each chart, and one without a file is left out."""
    parts = [f"# {escape(article.title)}", note, *(_block(block, pictures) for block in article.blocks)]
    return "\n\n".join(filter(None, parts)) + "\n"


def escape(text: object) -> str:
    """Any text, so that Markdown shows it as it stands."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def _block(block: Block, pictures: Mapping[str, str]) -> str:
    if isinstance(block, Heading):
        return f"## {escape(block.title)}"
    if isinstance(block, Paragraph):
        return _line(block.parts)
    if isinstance(block, Bullets):
        return "\n".join(f"- {_line(item)}" for item in block.items)
    if isinstance(block, Formula | Commands):
        lines = (block.text,) if isinstance(block, Formula) else block.lines
        return "\n".join(["```", *map(clean, lines), "```"])
    return _rows(block) if isinstance(block, Rows) else _picture(block, pictures)


def _line(parts: Line) -> str:
    return "".join(map(_inline, parts))


def _inline(part: Inline) -> str:
    if isinstance(part, str):
        return escape(part)
    if isinstance(part, Link):
        return f"[{escape(part.text)}]({part.address})"
    mark = "`" if isinstance(part, Code) else "**" if isinstance(part, Strong) else "*"
    return f"{mark}{clean(part.text) if isinstance(part, Code) else escape(part.text)}{mark}"


def _rows(block: Rows) -> str:
    of = block.table
    notes = " ".join(filter(None, [*(column.note for column in of.columns), of.note]))
    lines = [
        _cells([column.title for column in of.columns]),
        "|" + "|".join("---" if column.align == "l" else "---:" for column in of.columns) + "|",
        *map(_cells, of.rows),
    ]
    return "\n\n".join(filter(None, [f"**{escape(of.title)}**", "\n".join(lines), escape(notes)]))


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escape, cells))} |"


def _picture(block: Picture, pictures: Mapping[str, str]) -> str:
    file = pictures.get(block.name)
    if file is None:
        return ""
    return f"![{escape(block.drawing.title)}]({file})\n\n{escape(block.drawing.caption)}"
