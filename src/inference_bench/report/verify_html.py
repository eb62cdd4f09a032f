"""A verification as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   VerifyResult, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic and words (key_figures, result_tables, identity_rows, closed_loop_*) and drawing (render)
Read next by: cli, notebook.

The first screen is the answer: a verdict of four questions, a few figures, what is odd. Then a section for each step of the
closed loop, in the order in which an engineer checks it, and last what it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from inference_bench.charts import Spec, batch_curve_chart, gap_chart, latency_chart, probe_chart, roofline_chart
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.closed_loop_answers import answers
from inference_bench.report.closed_loop_html import (
    answers_html,
    calibration_part,
    capacity_part,
    changes_part,
    drawn,
    fit_part,
    gap_part,
    load_part,
    memory_html,
)
from inference_bench.report.findings import findings
from inference_bench.report.html_pieces import Draw
from inference_bench.report.identity_rows import (
    client_rows,
    engine_rows,
    file_rows,
    machine_rows,
    model_rows,
    run_rows,
)
from inference_bench.report.key_figures import key_figures
from inference_bench.report.load_page_pieces import folded
from inference_bench.report.report_html import Part, assumptions_part, quiet
from inference_bench.report.result_tables import (
    MANY_POINTS,
    bandwidth_table,
    batch_table,
    cache_table,
    engine_cache_rows,
    few_points,
    latency_table,
    points_table,
    product_table,
    requests_table,
)
from inference_bench.report.text import clean, shorten
from inference_bench.report.wording import ESTIMATE, FITTED, REPORTED, engine_name, model_name, started
from inference_bench.units import format_seconds
from inference_bench.verify.result import VerifyResult

_SHOWN: Final = (
    *(Origin.MEASURED, Origin.BOUND, Origin.COUNTED, Origin.GIVEN, Origin.PUBLISHED),
    *(Origin.PREDICTED, Origin.SIMULATED, ESTIMATE, FITTED, REPORTED),
)
_NAME_CHARS: Final = 120


def _roofline(result: VerifyResult, width_px: int) -> Spec | None:
    """The roofline of points that can be told apart."""
    return roofline_chart(replace(result, points=few_points(result.points)), width_px)


_ROOFLINE: Final = (
    _roofline,
    "Roofline",
    "Filled marks are measured; the hollow mark straight above each is the ceiling for the same work, and the line "
    "between them is the gap. Left of the ridge memory is the limit, right of it compute. B is the batch. "
    "A ring marks a point above its ceiling. Work and traffic are counted; only the times are measured. Of many points the "
    "smallest and the largest batch of each context are drawn, and the shortest and longest prompt.",
)
_SHARES: Final = (
    gap_chart,
    "How close to the ceiling",
    "The rate reached as a share of the ceiling, with the resource that sets the ceiling. What passes 100 % is a "
    "finding and is drawn as one: there the counted traffic or the measured ceiling is too strict.",
)
_BATCH: Final = (
    batch_curve_chart,
    "Decode over the batch",
    "Tokens a second over all sequences together. Solid: measured, with the 95 % interval of the median where the "
    "samples are enough for one. Dashed in the same colour: the ceiling at that context. Dotted: what the fitted formula says.",
)
_LATENCY: Final = (
    latency_chart,
    "Latency of each request",
    "Every completed request is two dots: its first token and its last. The tick is the median. Clocks start when "
    "the request was due, so a delay of the client would show. Labels: requests at a time, prompt → output tokens.",
)
_PROBE: Final = (
    probe_chart,
    "This machine's own ceilings",
    "The rate of matrix products as the batch grows, under the roof that the same probe found: dashed is what "
    "bandwidth and peak allow. Bars span all values; the line is the median.",
)


def verify_html(result: VerifyResult, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    title = f"{model_name(result)} on {clean(result.machine.name)}"
    parts = [part for part in _parts(result, draw) if part.content]
    first = [answers_html(answers(result)), pieces.key_figures(key_figures(result))]
    odd = pieces.findings(findings(result))
    body = "\n".join(
        [
            _header(result),
            *([odd, *first] if result.disturbances else [*first, odd]),
            _contents(parts),
            *(pieces.section(part.anchor, part.title, part.content) for part in parts),
        ]
    )
    return pieces.document(title, body)


def _parts(result: VerifyResult, draw: Draw | None) -> tuple[Part, ...]:
    """From the ceiling to what it all rests on; a part without content is left out."""
    return (
        _ceiling(result, draw),
        _batch(result, draw),
        fit_part(result, draw),
        gap_part(result, draw),
        load_part(result, draw),
        capacity_part(result),
        _memory(result),
        changes_part(result),
        calibration_part(result),
        _requests(result, draw),
        _machine(result, draw),
        Part("client", "Client", "Was the client the bottleneck?", pieces.facts(client_rows(result))),
        assumptions_part(result.assumptions, result.notes),
        _provenance(result),
        Part("files", "Raw files", "Raw files", _files(result)),
    )


# ── sections ───────────────────────────────────────────────────────────────────────────────────────


def _header(result: VerifyResult) -> str:
    name = shorten(model_name(result), _NAME_CHARS)
    place = f"on {result.machine.name} by {engine_name(result.engine)}"
    kicker = f"inference-bench verify · {started(result)} · took {format_seconds(result.elapsed_s)}"
    return pieces.header(kicker, name, place, ())


def _contents(parts: Iterable[Part]) -> str:
    """Links to the sections, below what is seen first."""
    links = "".join(f'<a href="#{part.anchor}">{pieces.say(part.link)}</a>' for part in parts)
    return f'<nav class="contents" aria-label="Contents">{links}</nav>'


def _ceiling(result: VerifyResult, draw: Draw | None) -> Part:
    content = (
        quiet(pieces.NO_CHARTS) if draw is None else "",
        drawn(result, draw, _ROOFLINE, _SHARES),
        pieces.bullets(result.reading, "reading") if result.reading else "",
        "<h3>Where figures come from</h3>\n",
        pieces.origins(_SHOWN),
        _points(result),
    )
    return Part("ceiling", "Ceiling", "How close to the ceiling?", "".join(content))


def _points(result: VerifyResult) -> str:
    """Every point; many are folded, since the chart of shares has them all."""
    shown = pieces.table(points_table(result), has_heading=False)
    title = "Measured points and their bounds"
    if len(result.points) > MANY_POINTS:
        return folded(f"{title}: all {len(result.points)}", shown)
    return f"<h3>{title}</h3>\n{shown}"


def _batch(result: VerifyResult, draw: Draw | None) -> Part:
    content = drawn(result, draw, _BATCH) + pieces.table(batch_table(result))
    return Part("batch", "Batch", "What does a larger batch buy?", content)


def _requests(result: VerifyResult, draw: Draw | None) -> Part:
    latencies = latency_table(result)
    shown = pieces.table(latencies, has_heading=False)
    every = folded(f"Latency: all {len(latencies.rows)} rows", shown) if shown else ""
    tables = pieces.table(requests_table(result)) + every
    return Part("requests", "Requests", "What did requests take?", drawn(result, draw, _LATENCY) + tables)


def _memory(result: VerifyResult) -> Part:
    rows = () if result.memory else engine_cache_rows(result)
    pairs = "\n".join(
        f"<dt>{pieces.say(name)}</dt><dd>{pieces.say(value)} {pieces.tag(origin)}</dd>" for name, value, origin in rows
    )
    engine = f'<h3>What the engine says of its cache</h3>\n<dl class="facts">\n{pairs}\n</dl>' if rows else ""
    silent = "" if rows or result.memory else "<p>The server does not say what it allocated.</p>"
    cache = pieces.table(cache_table(result))
    return Part("memory", "Memory", "Is the memory what was counted?", memory_html(result) + cache + engine + silent)


def _machine(result: VerifyResult, draw: Draw | None) -> Part:
    tables = pieces.table(bandwidth_table(result)) + pieces.table(product_table(result))
    silent = "" if result.probe else "<p>This machine was not probed; its ceilings are the ones named above.</p>"
    content = (
        drawn(result, draw, _PROBE) + pieces.facts(machine_rows(result)) + folded("Every reading", tables) + silent
    )
    return Part("machine", "Machine", "What can the machine do?", content)


def _provenance(result: VerifyResult) -> Part:
    blocks = (("Model", model_rows(result)), ("Engine", engine_rows(result)), ("Run", run_rows(result)))
    shown = "\n".join(f"<div><h3>{title}</h3>\n{pieces.facts(rows)}</div>" for title, rows in blocks)
    return Part("provenance", "Provenance", "Identity of everything", f'<div class="columns">\n{shown}\n</div>')


def _files(result: VerifyResult) -> str:
    said = f"In the run folder {clean(result.run_dir.name)}. Prompts, generated text and keys are in none of them."
    return f"<p>{pieces.say(said)}</p>" + pieces.facts(file_rows(result))
