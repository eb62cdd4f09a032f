"""How does anything fit a terminal? Tables and paragraphs of at most 100 columns.

In:   texts that `units` wrote
Out:  lines: words may be cut short, numbers never are
Leaves out: what the texts say
Read next by: every report here that prints.

Texts from outside (names in a file, answers of a server) cannot move the cursor or turn the writing direction around.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inference_bench.report.table import Table

MAX_COLUMNS: Final = 100
_GAP: Final = "  "
_MIN_TEXT_COLUMNS: Final = 12
_HOME: Final = re.compile(r"(?:/home|/Users)/[^/\s]+|/root(?=/|\s|$)|[A-Za-z]:\\Users\\[^\\\s]+")
_WORD: Final = re.compile(r"\S+(?: %\S*)?")


def printable(text: str) -> str:
    """The text with every control and invisible character replaced by a mark."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def clean(value: object) -> str:
    """Any text as it may be shown: printable, and without the name of whoever ran this."""
    return _HOME.sub("~", printable(str(value)))


def display_columns(text: str) -> int:
    """How many columns a terminal needs: two for a wide character, none for a combining mark."""
    return sum(_char_columns(char) for char in text)


def _char_columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def shorten(text: str, columns: int) -> str:
    """The text, or its beginning and an ellipsis, in so many columns.

    >>> shorten("attention projections", 12)
    'attention p…'
    """
    if display_columns(text) <= columns:
        return text
    return f"{_head(text, columns - 1)}…"


def _head(text: str, columns: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _char_columns(char)
        if used > columns:
            return text[:index]
    return text


def wrap(text: str, indent: str = "", max_columns: int = MAX_COLUMNS) -> str:
    """A paragraph in lines; `indent` stands before the first line and as much space before the others.

    >>> wrap("one two three", indent="- ", max_columns=9).splitlines()
    ['- one two', '  three']
    """
    hanging = " " * display_columns(indent)
    lines = list(_fill(printable(text), max_columns - len(hanging)))
    return "\n".join(f"{indent if index == 0 else hanging}{line}" for index, line in enumerate(lines or [""]))


def _fill(text: str, columns: int) -> Iterator[str]:
    """Lines of whole words, a number and its percent sign being one; only a word wider than a line is cut."""
    line = ""
    for word in _WORD.findall(text):
        joined = f"{line} {word}" if line else word
        if display_columns(joined) <= columns:
            line = joined
            continue
        if line:
            yield line
        while display_columns(word) > columns:
            head = _head(word, columns)
            yield head
            word = word[len(head) :]
        line = word
    if line:
        yield line


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str, max_columns: int = MAX_COLUMNS) -> str:
    """Columns side by side under their headers, numbers to the right.

    Where:  align has a letter for each column: l for text, r for numbers. Too wide a table first shortens its texts;
            then it is folded into several below each other, each with the first column
    Raises: ValueError when a row or `align` has another number of columns than the headers

    >>> print(table(("what", "bytes"), [("weights", "96,576,768")], "lr"))
    what          bytes
    -------  ----------
    weights  96,576,768
    """
    lines = [[printable(cell) for cell in row] for row in (headers, *rows)]
    if any(len(line) != len(align) for line in lines):
        raise ValueError(f"a table of {len(align)} columns has rows of {sorted({len(line) for line in lines})}")
    widths = _shrink([max(map(display_columns, column)) for column in zip(*lines, strict=True)], align, max_columns)
    blocks = []
    for chosen in _fold(widths, max_columns):
        picked = [[line[index] for index in chosen] for line in lines]
        blocks.append(_block(picked, [widths[index] for index in chosen], "".join(align[index] for index in chosen)))
    return "\n\n".join(blocks)


def table_text(shown: Table | None, chosen: Iterable[int] | None = None) -> str:
    """A Table of the chosen columns, and below it what there is to know of them; nothing when it has no rows."""
    if shown is None or not shown.rows:
        return ""
    indexes = list(range(len(shown.columns)) if chosen is None else chosen)
    columns = [shown.columns[index] for index in indexes]
    titles = [column.title for column in columns]
    headers = [
        f"{column.title}, {column.origin}" if titles.count(column.title) > 1 else column.title for column in columns
    ]
    cells = [tuple(row[index] for index in indexes) for row in shown.rows]
    text = table(headers, cells, "".join(column.align for column in columns))
    notes = " ".join(filter(None, [*(column.note for column in columns), shown.note]))
    return f"{text}\n{wrap(notes)}" if notes else text


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _shrink(widths: Sequence[int], align: str, max_columns: int) -> list[int]:
    """Widths with the widest texts narrowed until the table fits, or no text can give more."""
    shrunk = list(widths)
    while _total(shrunk) > max_columns:
        texts = [index for index, kind in enumerate(align) if kind == "l" and shrunk[index] > _MIN_TEXT_COLUMNS]
        if not texts:
            break
        shrunk[max(texts, key=lambda index: shrunk[index])] -= 1
    return shrunk


def _fold(widths: Sequence[int], max_columns: int) -> list[list[int]]:
    """The columns of each block: the first one, and as many of the others as fit beside it."""
    blocks = [[0]]
    for index in range(1, len(widths)):
        if len(blocks[-1]) > 1 and _total([widths[i] for i in (*blocks[-1], index)]) > max_columns:
            blocks.append([0])
        blocks[-1].append(index)
    return blocks


def _block(lines: Sequence[Sequence[str]], widths: Sequence[int], align: str) -> str:
    head, *body = lines
    return "\n".join(_line(cells, widths, align) for cells in (head, ["-" * width for width in widths], *body))


def pad(text: str, columns: int, kind: str = "l") -> str:
    """The text with spaces behind it (l) or before it (r), to so many columns."""
    space = " " * (columns - display_columns(text))
    return f"{space}{text}" if kind == "r" else f"{text}{space}"


def _line(cells: Sequence[str], widths: Sequence[int], align: str) -> str:
    return _GAP.join(_cell(*item) for item in zip(cells, widths, align, strict=True)).rstrip()


def _cell(text: str, columns: int, kind: str) -> str:
    return pad(shorten(text, columns) if kind == "l" else text, columns, kind)
