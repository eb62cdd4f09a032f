"""A verification as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   VerifyResult, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic and words (key_figures, result_tables, identity_rows) and drawing (render)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from inference_bench.charts import (
    Spec,
    batch_curve_chart,
    gap_chart,
    latency_chart,
    probe_chart,
    roofline_chart,
)
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.identity_rows import client_rows, engine_rows, machine_rows, model_rows, run_rows
from inference_bench.report.key_figures import findings, key_figures
from inference_bench.report.result_tables import (
    bandwidth_table,
    batch_table,
    cache_table,
    engine_cache_rows,
    latency_table,
    points_table,
    product_table,
    requests_table,
)
from inference_bench.report.text import clean, shorten
from inference_bench.report.wording import ESTIMATE, FITTED, REPORTED, engine_name, model_name, started
from inference_bench.units import format_seconds
from inference_bench.verify.result import VerifyResult

Chart = Callable[[VerifyResult, int], Spec | None]
_SHOWN: Final = (
    *(Origin.MEASURED, Origin.BOUND, Origin.COUNTED, Origin.GIVEN, Origin.PUBLISHED),
    *(ESTIMATE, FITTED, REPORTED),
)

_NAME_CHARS: Final = 120
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
            pieces.key_figures(key_figures(result)),
            pieces.findings(findings(result)),
            _reading(result),
            _charts(result, draw),
            _points(result),
            _requests(result),
            _cache(result),
            _machine(result),
            pieces.section("client", "Was the client the bottleneck?", pieces.facts(client_rows(result))),
            _assumptions(result),
            _identity(result),
        ]
    )
    return pieces.document(title, body)


# ── sections ───────────────────────────────────────────────────────────────────────────────────────


def _header(result: VerifyResult) -> str:
    name = shorten(model_name(result), _NAME_CHARS)
    place = f"on {result.machine.name} by {engine_name(result.engine)}"
    kicker = f"inference-bench verify · {started(result)} · took {format_seconds(result.elapsed_s)}"
    return pieces.header(kicker, name, place, _SECTIONS)


def _reading(result: VerifyResult) -> str:
    return pieces.section("reading", "What the numbers say", pieces.bullets(result.reading, "reading"))


def _charts(result: VerifyResult, draw: Draw | None) -> str:
    drawings = [Drawing(title, caption, partial(make, result)) for make, title, caption in _CHARTS]
    return pieces.section("charts", "Charts", pieces.charts(drawings, draw))


def _points(result: VerifyResult) -> str:
    points = pieces.table(points_table(result), has_heading=False)
    return pieces.section(
        "points", "Measured points and their bounds", pieces.origins(_SHOWN), points, pieces.table(batch_table(result))
    )


def _requests(result: VerifyResult) -> str:
    return pieces.section(
        "requests", "Requests", pieces.table(requests_table(result)), pieces.table(latency_table(result))
    )


def _cache(result: VerifyResult) -> str:
    rows = engine_cache_rows(result)
    pairs = "\n".join(
        f"<dt>{pieces.say(name)}</dt><dd>{pieces.say(value)} {pieces.tag(origin)}</dd>" for name, value, origin in rows
    )
    engine = f'<h3>What the engine says</h3>\n<dl class="facts">\n{pairs}\n</dl>' if rows else ""
    silent = "" if rows else "<p>The server does not say what it allocated.</p>"
    return pieces.section(
        "cache", "What the cache takes", pieces.table(cache_table(result), has_heading=False), engine, silent
    )


def _machine(result: VerifyResult) -> str:
    tables = (pieces.table(bandwidth_table(result)), pieces.table(product_table(result)))
    silent = "" if result.probe else "<p>This machine was not probed; its ceilings are the ones named above.</p>"
    return pieces.section("machine", "The machine's ceilings", pieces.facts(machine_rows(result)), *tables, silent)


def _assumptions(result: VerifyResult) -> str:
    notes = f"<h3>Notes</h3>\n{pieces.bullets(result.notes)}" if result.notes else ""
    return pieces.section("assumptions", "Assumptions", pieces.bullets(result.assumptions), notes)


def _identity(result: VerifyResult) -> str:
    blocks = (("Model", model_rows(result)), ("Engine", engine_rows(result)), ("Run", run_rows(result)))
    shown = "\n".join(f"<div><h3>{title}</h3>\n{pieces.facts(rows)}</div>" for title, rows in blocks)
    return pieces.section("identity", "Identity of everything", f'<div class="columns">\n{shown}\n</div>')
