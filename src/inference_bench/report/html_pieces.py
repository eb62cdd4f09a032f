"""How is anything put on a page? The pieces that every report and the calculator page are made of.

In:   texts that `units` wrote, Tables, KeyFigures, drawings
Out:  HTML text
Leaves out: what is said (the report of each command); how it looks (style)
Read next by: html and every other module here whose name ends in _html.

Every text that is not written in this package goes through `say`, which makes it printable and escapes it. A document
forbids its own scripts and all connections, so that a name that got through could still do nothing.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inference_bench.charts import NARROW_PX, WIDE_PX
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.style import STYLE
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, shorten
from inference_bench.report.wording import ORIGIN_WORDS
from inference_bench.units import NOT_AVAILABLE

if TYPE_CHECKING:
    from inference_bench.charts.grammar import Spec

Draw = Callable[["Spec"], str]
Rows = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart with its heading and what to read in it; make gives its specification at a width, None without data."""

    title: str
    caption: str
    make: Callable[[int], Spec | None]


POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_VALUE_CHARS: Final = 16
_SHORT_CHARS: Final = 8  # up to which a key figure stands in large letters
_FEW_COLUMNS, _MANY_COLUMNS = 6, 12  # up to which, and beyond which, a sheet of paper takes other letters
NO_CHARTS: Final = (
    "The charts are not drawn: that needs the package vl-convert-python. "
    "Install it with: pip install 'inference-bench[bench]'. Every figure is in the tables below."
)


def document(title: str, body: str) -> str:
    """A whole page that needs nothing else: no script, no font, no picture from anywhere."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{say(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def say(text: object) -> str:
    """Any text, made printable and escaped."""
    return html.escape(clean(text))


def header(kicker: str, title: str, place: str, sections: Iterable[tuple[str, str]]) -> str:
    """What was run, on what, and links to the sections: (anchor, name) each."""
    links = "".join(f'<a href="#{anchor}">{say(name)}</a>' for anchor, name in sections)
    return (
        f'<header>\n<p class="quiet kicker">{say(kicker)}</p>\n'
        f"<h1>{say(title)} <small>{say(place)}</small></h1>\n<nav>{links}</nav>\n</header>"
    )


def section(anchor: str, title: str, *content: str) -> str:
    """A part of the page under its heading."""
    return f'<section id="{anchor}">\n<h2>{say(title)}</h2>\n{"".join(content)}\n</section>'


def tag(origin: str | None) -> str:
    """Where a figure comes from, as a small mark beside it."""
    return f'<span class="tag {say(origin)}">{say(origin)}</span>' if origin else ""


def origins(named: Iterable[str] = tuple(ORIGIN_WORDS)) -> str:
    """What each of these tags means; all of them unless some are named."""
    words = "".join(f"<li>{tag(origin)} {say(ORIGIN_WORDS[origin])}</li>" for origin in named)
    return f'<ul class="origins" aria-label="Where figures come from">{words}</ul>'


def bullets(lines: Iterable[str], name: str = "") -> str:
    """Sentences as a list."""
    items = "\n".join(f"<li>{say(line)}</li>" for line in lines)
    return f'<ul class="{name}">\n{items}\n</ul>' if items else "<p>None.</p>"


def facts(rows: Rows) -> str:
    """Names and values side by side."""
    pairs = "\n".join(f"<dt>{say(name)}</dt><dd>{say(value)}</dd>" for name, value in rows)
    return f'<dl class="facts">\n{pairs}\n</dl>'


def findings(lines: Sequence[str], title: str = "Findings") -> str:
    """What is odd about the result, where it cannot be missed; nothing when nothing is."""
    return f'<section class="findings">\n<h2>{say(title)}</h2>\n{bullets(lines)}\n</section>' if lines else ""


def table(of: Table | None, *, has_heading: bool = True) -> str:
    """A table in a box of its own that scrolls when the screen is narrow; nothing when it has no rows."""
    if of is None or not of.rows:
        return ""
    head = "".join(_head_cell(column) for column in of.columns)
    body = "\n".join(_row(of, index) for index in range(len(of.rows)))
    notes = " ".join(filter(None, [*(column.note for column in of.columns), of.note]))
    note = f'<p class="quiet">{say(notes)}</p>' if notes else ""
    heading = f"<h3>{say(of.title)}</h3>\n" if has_heading else ""
    width = "few" if len(of.columns) <= _FEW_COLUMNS else "many" if len(of.columns) > _MANY_COLUMNS else "usual"
    wraps = " wraps" if any(column.is_wrapped for column in of.columns) else ""
    return (
        f'{heading}<div class="scroll" role="region" tabindex="0" aria-label="{say(of.title)}">'
        f'<table class="{width}{wraps}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n{note}'
    )


def _head_cell(column: Column) -> str:
    return f'<th scope="col" class="{_kind(column)}">{say(column.title)}{tag(column.origin)}</th>'


def _row(of: Table, index: int) -> str:
    first, *others = zip(of.rows[index], of.columns, strict=True)
    cells = [f'<th scope="row" class="{_kind(first[1])}">{say(first[0])}</th>']
    cells += [f'<td class="{_kind(column)}">{_cell(text, column)}</td>' for text, column in others]
    kind = ' class="finding"' if index in of.marked else ""
    return f"<tr{kind}>{''.join(cells)}</tr>"


def _kind(column: Column) -> str:
    return f"{column.align} wrapped" if column.is_wrapped else column.align


def _cell(text: str, column: Column) -> str:
    return tag(text) if column.is_tag else say(text)


def key_figures(items: Iterable[KeyFigure]) -> str:
    """What should be seen in five seconds, side by side."""
    shown = "\n".join(map(_key_figure, items))
    return f'<dl class="figures">\n{shown}\n</dl>'


def _key_figure(item: KeyFigure) -> str:
    """A figure under a line that is filled as far as the ceiling was reached."""
    value = f"{say(shorten(item.value, _VALUE_CHARS))} <span>{say(item.unit)}</span>"
    kind = f"{'finding' if item.is_finding else 'plain'}{' long' if len(item.value) > _SHORT_CHARS else ''}"
    reached = (0.0 if item.value == NOT_AVAILABLE else 1.0) if item.fraction is None else item.fraction
    return (
        f'<div class="{kind}">{_filled_line(reached)}'
        f'<dt>{say(item.name)}</dt><dd class="value">{value}</dd>'
        f'<dd class="beside">{say(item.beside)}</dd><dd>{say(item.detail)} {tag(item.origin)}</dd></div>'
    )


def _filled_line(fraction: float) -> str:
    """A line drawn as far as a fraction; a drawing, since a page with a strict policy allows no style of an element."""
    return (
        '<svg class="filled" aria-hidden="true"><rect width="100%" height="3" />'
        f'<rect class="line" width="{100 * min(fraction, 1.0):.2f}%" height="3" /></svg>'
    )


def figure(title: str, caption: str, wide: str, narrow: str) -> str:
    """A drawing at both widths, of which the style sheet shows the one that suits."""
    return (
        f"<figure>\n<figcaption><h3>{say(title)}</h3><p>{say(caption)}</p></figcaption>\n"
        f'<div><div class="wide">{wide}</div>\n<div class="narrow">{narrow}</div></div>\n</figure>\n'
    )


def charts(drawings: Iterable[Drawing], draw: Draw | None) -> str:
    """Each chart that has data, at both widths; without `draw`, why there are none."""
    if draw is None:
        return f"<p>{say(NO_CHARTS)}</p>"
    shown = []
    for each in drawings:
        wide, narrow = each.make(WIDE_PX), each.make(NARROW_PX)
        if wide is not None and narrow is not None:
            shown.append(figure(each.title, each.caption, draw(wide), draw(narrow)))
    return "".join(shown)


def command(line: str) -> str:
    """A command line as it is typed; on a narrow page it is broken between words only."""
    words = " ".join(f"<span>{say(word)}</span>" for word in line.split(" "))
    return f'<pre class="command"><code>{words}</code></pre>\n'
