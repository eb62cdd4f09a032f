"""The closed loop on the page of a verification: the verdict, and a section for each of its steps.

In:   VerifyResult, and what draws a chart specification as SVG
Out:  HTML text; a Part without content where that step was not run
Leaves out: numbers and words (closed_loop_answers, closed_loop_tables), drawing (render)
Read next by: verify_html.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from inference_bench.charts import Spec
from inference_bench.charts.load_check import load_check_cdf_chart, load_check_rate_chart
from inference_bench.charts.step_fit import step_fit_chart
from inference_bench.charts.waterfall import waterfall_chart
from inference_bench.report import closed_loop_tables as tables
from inference_bench.report import html_pieces as pieces
from inference_bench.report.closed_loop_answers import Answer
from inference_bench.report.closed_loop_words import full_sentence, requests_per_s
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.load_page_pieces import folded, titled
from inference_bench.report.report_html import Part, quiet
from inference_bench.report.table import Table
from inference_bench.verify.closed_loop import LoadRow
from inference_bench.verify.result import VerifyResult

Chart = Callable[[VerifyResult, int], Spec | None]

_FIT: Final = (
    "Measured steps and the formula",
    "First decode steps over the batch, with the formula as curves: a kink is a change of kernel. Then how far the formula is off, "
    "predicted over measured less one, at every step; an upright line is the interval of the measured time. Hollow marks were kept "
    "from the fit: their distance from 0 is the error of a prediction.",
)
_WATERFALL: Final = (
    "Where the time of a step goes",
    "From the left, what the ceilings alone allow; then what is lost on the way to the measured time. The parts add up to it: what the "
    "formula does not explain is a part of its own.",
)
_RATES: Final = (
    "Loads over the rate",
    "Each load was simulated with the fitted formula and the engine's own rules, and then sent: the same requests at the same "
    "times. The upright line is the predicted capacity, the dashed level its objective.",
)
_SHARES: Final = (
    "Every first token",
    "The share of requests that had their first token within so long, predicted and measured, at each rate. A request that did "
    "not complete never had one: its line ends below the top.",
)
_PERCENT: Final = "\N{NO-BREAK SPACE}%"


def drawn(result: VerifyResult, draw: Draw | None, *charts: tuple[Chart, str, str]) -> str:
    """Charts of one section; nothing where nothing draws, which the page says once."""
    drawings = [Drawing(title, caption, partial(make, result)) for make, title, caption in charts]
    return "" if draw is None else pieces.charts(drawings, draw)


def answers_html(found: Sequence[Answer]) -> str:
    """The verdict: each question with its mark in words, and what was found."""
    items = "\n".join(
        f'<div class="{item.state}"><dt>{pieces.say(item.question)}</dt>'
        f'<dd class="mark">{pieces.say(item.mark)}</dd><dd>{pieces.say(item.said).replace(" %", _PERCENT)}</dd></div>'
        for item in found
    )
    return f'<section aria-label="Verdict">\n<dl class="answers">\n{items}\n</dl>\n</section>'


def _steps_chart(result: VerifyResult, width_px: int) -> Spec | None:
    return None if result.calibration is None else step_fit_chart(result.calibration, width_px)


def fit_part(result: VerifyResult, draw: Draw | None) -> Part:
    """Measured steps beside the formula."""
    found = result.calibration
    if found is None:
        return Part("fit", "Fit", "", "")
    said = pieces.bullets(map(full_sentence, found.reading), "reading") if found.reading else ""
    kinds = pieces.table(tables.kinds_table(found))
    return Part(
        "fit",
        "Fit",
        "Does one formula explain every step?",
        said + drawn(result, draw, (_steps_chart, *_FIT)) + kinds,
    )


def _parts_chart(result: VerifyResult, width_px: int) -> Spec | None:
    return None if result.gap is None else waterfall_chart(result.gap.steps, width_px)


def gap_part(result: VerifyResult, draw: Draw | None) -> Part:
    """Where the time of a step goes."""
    found = result.gap
    if found is None or not found.steps:
        return Part("gap", "Gap", "", "")
    said = folded("The same in words", pieces.bullets(found.sentences)) if found.sentences else ""
    parts = folded("Every part of every step", _prose(tables.parts_table(found.steps), has_heading=False))
    content = drawn(result, draw, (_parts_chart, *_WATERFALL)) + said + parts
    return Part("gap", "Gap", "Where does the time go?", content)


def _rate_chart(result: VerifyResult, width_px: int) -> Spec | None:
    return None if result.load is None else load_check_rate_chart(result.load, result.capacity, width_px)


def _share_chart(result: VerifyResult, width_px: int) -> Spec | None:
    return None if result.load is None else load_check_cdf_chart(result.load, width_px)


def load_part(result: VerifyResult, draw: Draw | None) -> Part:
    """Loads beside what was predicted of them."""
    found = result.load
    if found is None:
        return Part("load", "Load", "", "")
    saturation = f"The simulated server can just sustain {requests_per_s(found.saturation_rate)}. {full_sentence(found.workload)}"
    content = [
        quiet(saturation),
        drawn(result, draw, (_rate_chart, *_RATES), (_share_chart, *_SHARES)),
        _rows_html(found.rows, "Predicted and measured"),
        titled("Rules of the engine that were simulated", pieces.bullets(found.rules)) if found.rules else "",
        titled("Notes", pieces.bullets(found.notes)) if found.notes else "",
    ]
    return Part("load", "Load", "Was the load predicted before it ran?", "".join(content))


def _rows_html(rows: tuple[LoadRow, ...], title: str) -> str:
    """The figures that have a target, how requests ended, and every other figure to be looked up."""
    judged = tables.judged_rows(rows)
    every = pieces.table(tables.load_table(rows, "Every figure"), has_heading=False)
    if judged == rows:
        return pieces.table(tables.load_table(rows, title)) + _prose(tables.load_requests_table(rows))
    return (
        pieces.table(tables.load_table(judged, title))
        + _prose(tables.load_requests_table(rows))
        + folded("Every figure of these loads", every)
    )


def _prose(shown: Table, *, has_heading: bool = True) -> str:
    """A table whose last column is sentences, which may take several lines."""
    drawn_table = pieces.table(shown, has_heading=has_heading)
    return f'<div class="broad prose">{drawn_table}</div>\n' if drawn_table else ""


def capacity_part(result: VerifyResult) -> Part:
    """The highest rate within the objectives, and the runs that confirm it or do not."""
    found = result.capacity
    if found is None:
        return Part("capacity", "Capacity", "", "")
    runs = tables.capacity_rows(found)
    content = [
        f"<p>{pieces.say(full_sentence(found.reading.replace('<=', '≤')))}</p>" if found.reading else "",
        pieces.facts(tables.capacity_facts(found)),
        _rows_html(runs, "The runs at the predicted rate and above it"),
    ]
    return Part("capacity", "Capacity", "Is the capacity what was predicted?", "".join(content))


def memory_html(result: VerifyResult) -> str:
    """Every figure of memory that an engine states, beside ours."""
    if not result.memory:
        return ""
    said = f"<p>{pieces.say(full_sentence(tables.memory_summary(result.memory)))}</p>"
    return said + _prose(tables.memory_table(result.memory), has_heading=False)


def changes_part(result: VerifyResult) -> Part:
    """What would help, best first."""
    found = result.gap
    if found is None or not found.changes:
        return Part("changes", "What would help", "", "")
    content = [
        quiet(
            "Each change is computed with the fitted formula on the measured ceilings; none of them was run. Gains are over the step as "
            "the formula says it, which differs from the measured one by what is not explained of it."
        ),
        _prose(tables.changes_table(tables.helpful(found.changes, is_choice=True), "What can be chosen")),
        _prose(
            tables.changes_table(
                tables.helpful(found.changes, is_choice=False), "What a better engine could reach at most"
            )
        ),
        folded("Every change, also those that cost", _prose(tables.changes_table(found.changes), has_heading=False)),
    ]
    return Part("changes", "What would help", "What would help?", "".join(content))


def calibration_part(result: VerifyResult) -> Part:
    """The formula, its numbers, what else was tried, and every step that was observed."""
    found = result.calibration
    if found is None:
        return Part("calibration", "Calibration", "", "")
    steps = pieces.table(tables.observations_table(found), has_heading=False)
    content = [
        pieces.facts(tables.calibration_facts(found)),
        _prose(tables.parameters_table(found)),
        folded(
            f"All {len(found.candidates)} formulas that were tried",
            pieces.table(tables.candidates_table(found), has_heading=False),
        ),
        folded(f"All {len(found.observations)} observed steps", steps),
        titled("Notes", pieces.bullets(found.notes)) if found.notes else "",
    ]
    return Part("calibration", "Calibration", "How was the formula found?", "".join(content))
