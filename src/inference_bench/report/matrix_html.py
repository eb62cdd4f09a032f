"""A matrix as one page that needs nothing else: the verdict, one roofline for all, promised beside gained.

In:   MatrixResult, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: each combination's own page, which its run folder holds and this one links to
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from urllib.parse import quote

from inference_bench.charts.matrix import matrix_gain_chart, matrix_roofline_chart, short_name
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report import matrix_words as words
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.load_page_pieces import folded
from inference_bench.report.matrix_tables import batching_table, matrix_tables, rounds_table, times
from inference_bench.report.report_html import Part, assumptions_part
from inference_bench.report.text import clean
from inference_bench.report.wording import ESTIMATE, tokens_per_s
from inference_bench.units import format_seconds, format_si
from inference_bench.verify.matrix_result import MatrixResult, Pick, gain

_ROOF_WORDS = (
    "Roofline of all combinations",
    "Each mark is a measured step; the line above it ends at the ceiling for the same work. Of marks of the same step, what "
    "is higher is faster, and what is further to the right moves fewer bytes. B is the batch, named at its lowest mark.",
)
_GAIN_WORDS = (
    "Promised and gained",
    "Tokens a second as a multiple of the combination with most bytes. Hollow: what the ceilings promise for the bytes and work of the "
    "step. Filled: what was measured. The dashed line is no gain.",
)
_SHOWN = (Origin.MEASURED, Origin.BOUND, Origin.COUNTED, ESTIMATE)


def matrix_html(result: MatrixResult, report_file: str, draw: Draw | None) -> str:
    """The whole page.

    Where:  report_file is the name of the page in the folder of each round
    """
    parts = [part for part in _parts(result, report_file, draw) if part.content]
    count = f"{len(result.measured)} of {len(result.rows)} combinations"
    began = clean(result.started_at).replace("T", " ").replace("+00:00", " UTC")
    kicker = f"inference-bench verify matrix · {began} · took {format_seconds(result.elapsed_s)}"
    body = [
        pieces.header(
            kicker, clean(result.model), f"on {result.machine.name}, {count}", [(p.anchor, p.link) for p in parts]
        ),
        f'<div class="verdict"><p class="first">{pieces.say(words.verdict(result))}</p></div>',
        pieces.key_figures(_figures(result)),
        pieces.findings(words.odd(result)),
        *(pieces.section(part.anchor, part.title, part.content) for part in parts),
    ]
    return pieces.document(f"{clean(result.model)}: {count}", "\n".join(body))


def _parts(result: MatrixResult, report_file: str, draw: Draw | None) -> Iterable[Part]:
    drawings = [
        Drawing(*_ROOF_WORDS, partial(matrix_roofline_chart, result)),
        Drawing(*_GAIN_WORDS, partial(matrix_gain_chart, result)),
    ]
    said = pieces.bullets(words.reading(result), "reading") if words.reading(result) else ""
    yield Part("roof", "Roofline", "All under one roof", pieces.charts(drawings, draw))
    yield Part("gains", "Gains", "What the bytes promised and what was gained", said + _tables(result))
    rounds = folded("Every round", pieces.table(rounds_table(result), has_heading=False))
    yield Part("rounds", "Rounds", "How far rounds lie apart", rounds if rounds_table(result) else "")
    refused = words.not_composed_lines(result)
    yield Part("refused", "Not composed", "What does not go together", pieces.bullets(refused) if refused else "")
    yield Part("runs", "Runs", "The run of each combination", _runs(result, report_file))
    yield assumptions_part(_assumptions(result), result.notes)


def _tables(result: MatrixResult) -> str:
    tables = "".join(pieces.table(table) for table in (*matrix_tables(result), batching_table(result)))
    return pieces.origins(_SHOWN) + tables


def _figures(result: MatrixResult) -> list[KeyFigure]:
    """The fastest for one sequence and in the largest batch, and what it gained."""
    base, figures = result.base, []
    kinds: tuple[tuple[str, Pick], ...] = (
        ("fastest for one sequence", lambda row: row.alone),
        ("fastest in the largest batch", result.largest),
        ("fastest prefill", lambda row: row.prefill),
    )
    for name, pick in kinds:
        rated = result.alike(pick)
        if not rated:
            continue
        row, point = max(rated, key=lambda item: item[1].tokens_per_s)
        found = gain(point, base.at(point)) if base is not None else None
        beside = "" if found is None else f"gained {times(found.measured)}, promised {times(found.promised)}"
        share = None if point.bound_tokens_per_s is None else point.tokens_per_s / point.bound_tokens_per_s
        figures.append(
            KeyFigure(
                name, tokens_per_s(point.tokens_per_s), "tok/s", Origin.MEASURED, short_name(row, result), beside, share
            )
        )
    return figures


def _runs(result: MatrixResult, report_file: str) -> str:
    """Links from this page to the page of every round."""
    items = []
    for row in result.measured:
        links = ", ".join(
            f'<a href="{quote(_inside(path, result.folder) + "/" + report_file)}">round {number}</a>'
            for number, path in enumerate(row.runs, start=1)
        )
        items.append(f"<li>{pieces.say(row.combination.name)}: {links}</li>")
    return f"<ul>{''.join(items)}</ul>"


def _inside(path: Path, folder: Path) -> str:
    """A run's folder as seen from the matrix's page."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()


def _assumptions(result: MatrixResult) -> list[str]:
    machine = result.machine
    peaks = ", ".join(f"{name} {format_si(peak, 'FLOP/s')}" for name, peak in machine.peak_flops_per_s.items())
    return [
        f"one probe for all: memory {format_si(machine.bandwidth_bytes_per_s, 'B/s')}, compute {peaks or 'not known'}",
        f"all weights are re-encoded from one file (SHA-256 {result.model_sha256[:16]}...), norms in 32 bits, the input table "
        "and head in q8_0 where the format is coarser; a gain says nothing of what rounding costs in quality",
        "bytes are counted from the model's shape: each weight once a step, the cache a step attends, the cache it adds; no hardware "
        "counter was read",
        "every combination and round is asked for the same steps, whatever its pace; times are compared where batch and length asked for "
        "are the same, and a step's time is the median over rounds of each round's median",
    ]
