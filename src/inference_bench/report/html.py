"""A verification as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   VerifyResult, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic and words (key_figures, result_tables, identity_rows) and drawing (render)
Read next by: cli.

Every text that is not written in this package goes through `_say`, which makes it printable and escapes it. The page
forbids its own scripts and all connections, so that a name that got through could still do nothing.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Final

from inference_bench.charts import (
    NARROW_PX,
    WIDE_PX,
    Spec,
    batch_curve_chart,
    gap_chart,
    latency_chart,
    probe_chart,
    roofline_chart,
)
from inference_bench.report.identity_rows import Rows, client_rows, engine_rows, machine_rows, model_rows, run_rows
from inference_bench.report.key_figures import KeyFigure, findings, key_figures
from inference_bench.report.result_tables import (
    Column,
    Table,
    bandwidth_table,
    batch_table,
    cache_table,
    engine_cache_rows,
    latency_table,
    points_table,
    product_table,
    requests_table,
)
from inference_bench.report.style import STYLE
from inference_bench.report.text import shorten
from inference_bench.report.wording import ORIGIN_WORDS, clean, engine_name, model_name, started
from inference_bench.units import NOT_AVAILABLE, format_seconds
from inference_bench.verify.result import VerifyResult

Draw = Callable[[Spec], str]
Chart = Callable[[VerifyResult, int], Spec | None]

_NAME_CHARS: Final = 120
_VALUE_CHARS: Final = 16
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_NO_CHARTS: Final = (
    "The charts are not drawn: that needs the package vl-convert-python. "
    "Install it with: pip install 'inference-bench[bench]'. Every figure is in the tables below."
)
_SECTIONS: Final = (
    ("reading", "Reading"),
    ("charts", "Charts"),
    ("points", "Points"),
    ("requests", "Requests"),
    ("cache", "Cache"),
    ("machine", "Machine"),
    ("client", "Client"),
    ("assumptions", "Assumptions"),
    ("identity", "Identity"),
)
_CHARTS: Final[tuple[tuple[Chart, str, str], ...]] = (
    (
        roofline_chart,
        "Roofline",
        "Filled marks are measured; the hollow mark straight above each is the ceiling for the same work, and the line "
        "between them is the gap. Left of the ridge memory is the limit, right of it compute. B is the batch. "
        "A ring marks a point above its ceiling. Work and traffic are counted; only the times are measured.",
    ),
    (
        gap_chart,
        "How close to the ceiling",
        "The rate reached as a share of the ceiling, with the resource that sets the ceiling. What passes 100 % is a "
        "finding and is drawn as one: there the counted traffic or the measured ceiling is too strict.",
    ),
    (
        batch_curve_chart,
        "Decode over the batch",
        "Tokens a second over all sequences together. Solid: measured, with the 95 % interval of the median where the "
        "samples are enough for one. Dashed in the same colour: the ceiling at that context.",
    ),
    (
        latency_chart,
        "Latency of each request",
        "Every completed request is two dots: its first token and its last. The tick is the median. Clocks start when "
        "the request was due, so a delay of the client would show. Labels: requests at a time, prompt → output tokens.",
    ),
    (
        probe_chart,
        "This machine's own ceilings",
        "The rate of matrix products as the batch grows, under the roof that the same probe found: dashed is what "
        "bandwidth and peak allow. Bars span all values; the line is the median.",
    ),
)


def verify_html(result: VerifyResult, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    title = f"{model_name(result)} on {clean(result.machine.name)}"
    body = "\n".join(
        [
            _header(result),
            _figures(result),
            _findings(result),
            _reading(result),
            _charts(result, draw),
            _points(result),
            _requests(result),
            _cache(result),
            _machine(result),
            _section("client", "Was the client the bottleneck?", _facts(client_rows(result))),
            _assumptions(result),
            _identity(result),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{_say(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


# ── pieces ─────────────────────────────────────────────────────────────────────────────────────────


def _say(text: object) -> str:
    """Any text, made printable and escaped."""
    return html.escape(clean(text))


def _section(anchor: str, title: str, *content: str) -> str:
    return f'<section id="{anchor}">\n<h2>{_say(title)}</h2>\n{"".join(content)}\n</section>'


def _tag(origin: str | None) -> str:
    return f'<span class="tag {_say(origin)}">{_say(origin)}</span>' if origin else ""


def _list(lines: Iterable[str], name: str = "") -> str:
    items = "\n".join(f"<li>{_say(line)}</li>" for line in lines)
    return f'<ul class="{name}">\n{items}\n</ul>' if items else "<p>None.</p>"


def _facts(rows: Rows) -> str:
    pairs = "\n".join(f"<dt>{_say(name)}</dt><dd>{_say(value)}</dd>" for name, value in rows)
    return f'<dl class="facts">\n{pairs}\n</dl>'


def _table(table: Table | None, *, has_heading: bool = True) -> str:
    """A table in a box of its own that scrolls when the screen is narrow; nothing when it has no rows."""
    if table is None or not table.rows:
        return ""
    head = "".join(_head_cell(column) for column in table.columns)
    body = "\n".join(_row(table, index) for index in range(len(table.rows)))
    notes = " ".join(filter(None, [*(column.note for column in table.columns), table.note]))
    note = f'<p class="quiet">{_say(notes)}</p>' if notes else ""
    heading = f"<h3>{_say(table.title)}</h3>\n" if has_heading else ""
    return (
        f'{heading}<div class="scroll" role="region" tabindex="0" aria-label="{_say(table.title)}">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n{note}"
    )


def _head_cell(column: Column) -> str:
    return f'<th scope="col" class="{column.align}">{_say(column.title)}{_tag(column.origin)}</th>'


def _row(table: Table, index: int) -> str:
    first, *others = zip(table.rows[index], table.columns, strict=True)
    cells = [f'<th scope="row" class="{first[1].align}">{_say(first[0])}</th>']
    cells += [f'<td class="{column.align}">{_say(text)}</td>' for text, column in others]
    kind = ' class="finding"' if index in table.marked else ""
    return f"<tr{kind}>{''.join(cells)}</tr>"


# ── sections ───────────────────────────────────────────────────────────────────────────────────────


def _header(result: VerifyResult) -> str:
    links = "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in _SECTIONS)
    name = _say(shorten(model_name(result), _NAME_CHARS))
    place = f"on {_say(result.machine.name)} by {_say(engine_name(result.engine))}"
    return (
        f'<header>\n<p class="quiet kicker">inference-bench verify · {_say(started(result))} · took '
        f"{format_seconds(result.elapsed_s)}</p>\n"
        f"<h1>{name} <small>{place}</small></h1>\n<nav>{links}</nav>\n</header>"
    )


def _figures(result: VerifyResult) -> str:
    figures = key_figures(result)
    shown = "\n".join(map(_figure, figures))
    return f'<dl class="figures">\n{shown}\n</dl>'


def _figure(item: KeyFigure) -> str:
    """A figure under a line that is filled as far as the ceiling was reached."""
    value = f"{_say(shorten(item.value, _VALUE_CHARS))} <span>{_say(item.unit)}</span>"
    reached = (0.0 if item.value == NOT_AVAILABLE else 1.0) if item.fraction is None else item.fraction
    return (
        f'<div class="{"finding" if item.is_finding else "plain"}" style="--filled:{min(reached, 1.0):.4f}">'
        f'<dt>{_say(item.name)}</dt><dd class="value">{value}</dd>'
        f'<dd class="beside">{_say(item.beside)}</dd><dd>{_say(item.detail)} {_tag(item.origin)}</dd></div>'
    )


def _origins() -> str:
    """What each tag means."""
    words = "".join(f"<li>{_tag(origin)} {_say(words)}</li>" for origin, words in ORIGIN_WORDS.items())
    return f'<ul class="origins" aria-label="Where figures come from">{words}</ul>'


def _findings(result: VerifyResult) -> str:
    found = findings(result)
    return f'<section class="findings">\n<h2>Findings</h2>\n{_list(found)}\n</section>' if found else ""


def _reading(result: VerifyResult) -> str:
    return _section("reading", "What the numbers say", _list(result.reading, "reading"))


def _charts(result: VerifyResult, draw: Draw | None) -> str:
    if draw is None:
        return _section("charts", "Charts", f"<p>{_say(_NO_CHARTS)}</p>")
    return _section("charts", "Charts", *(_chart(result, draw, *chart) for chart in _CHARTS))


def _chart(result: VerifyResult, draw: Draw, chart: Chart, title: str, caption: str) -> str:
    """A chart at both widths, of which the style sheet shows the one that suits; nothing when there is no data."""
    wide, narrow = chart(result, WIDE_PX), chart(result, NARROW_PX)
    if wide is None or narrow is None:
        return ""
    return (
        f"<figure>\n<figcaption><h3>{_say(title)}</h3><p>{_say(caption)}</p></figcaption>\n"
        f'<div><div class="wide">{draw(wide)}</div>\n<div class="narrow">{draw(narrow)}</div></div>\n</figure>\n'
    )


def _points(result: VerifyResult) -> str:
    points = _table(points_table(result), has_heading=False)
    return _section("points", "Measured points and their bounds", _origins(), points, _table(batch_table(result)))


def _requests(result: VerifyResult) -> str:
    return _section("requests", "Requests", _table(requests_table(result)), _table(latency_table(result)))


def _cache(result: VerifyResult) -> str:
    rows = engine_cache_rows(result)
    pairs = "\n".join(f"<dt>{_say(name)}</dt><dd>{_say(value)} {_tag(origin)}</dd>" for name, value, origin in rows)
    engine = f'<h3>What the engine says</h3>\n<dl class="facts">\n{pairs}\n</dl>' if rows else ""
    silent = "" if rows else "<p>The server does not say what it allocated.</p>"
    return _section("cache", "What the cache takes", _table(cache_table(result), has_heading=False), engine, silent)


def _machine(result: VerifyResult) -> str:
    tables = (_table(bandwidth_table(result)), _table(product_table(result)))
    silent = "" if result.probe else "<p>This machine was not probed; its ceilings are the ones named above.</p>"
    return _section("machine", "The machine's ceilings", _facts(machine_rows(result)), *tables, silent)


def _assumptions(result: VerifyResult) -> str:
    notes = f"<h3>Notes</h3>\n{_list(result.notes)}" if result.notes else ""
    return _section("assumptions", "Assumptions", _list(result.assumptions), notes)


def _identity(result: VerifyResult) -> str:
    blocks = (("Model", model_rows(result)), ("Engine", engine_rows(result)), ("Run", run_rows(result)))
    shown = "\n".join(f"<div><h3>{title}</h3>\n{_facts(rows)}</div>" for title, rows in blocks)
    return _section("identity", "Identity of everything", f'<div class="columns">\n{shown}\n</div>')
