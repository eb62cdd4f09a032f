"""The answers to `score` as text for a terminal; score_json holds the same for programs.

In:   ScoreReport
Out:  text of at most 100 columns
Leaves out: arithmetic; every number was computed before
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from inference_bench.predict.efficiency.parameters import INTERVAL_SHARE, Calibration
from inference_bench.report.text import table, wrap
from inference_bench.score.summary import NotPredicted, Score, ScoreReport, WorstRow
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

PHASE_NAMES: Final = {
    "decode": "decode step",
    "prefill": "prefill",
    "e2e": "static batch, end to end",
    "serving_tpot": "serving TPOT",
    "serving_ttft": "serving TTFT",
}
_ALIGN: Final = "lrrrrrrrrr"


def score_text(found: ScoreReport) -> str:
    """Overall and by phase, class, engine and source; what was not predicted; the worst rows; the definitions."""
    phases = {PHASE_NAMES[name]: score for name, score in found.by_phase.items() if score.rows}
    warning, *definitions = found.assumptions
    sections = [
        _head(found),
        wrap(f"{warning}."),
        _scores("phase", {**phases, "all": found.overall}),
        _scores("hardware class", found.by_hardware),
        _scores("engine", found.by_engine),
        _scores("source", found.by_source),
        _left(found.not_predicted),
        _worst(found.worst),
        "\n".join(["what the numbers are", *(wrap(line, indent="  - ") for line in definitions)]),
    ]
    return "\n\n".join(section for section in sections if section)


def how_scored(found: ScoreReport) -> str:
    """Whose efficiencies, and how much of the tables calibrated them.

    Returns:  such as "refitted without each device, calibrated by one row"
    """
    fit = f"refitted without each {found.cross_validation}" if found.cross_validation else "efficiencies as shipped"
    calibrated = {
        Calibration.NONE: "not calibrated",
        Calibration.ONE: "calibrated by one row",
        Calibration.SEVERAL: "calibrated by several rows",
    }
    return f"{fit}, {calibrated[found.calibration]}"


def _head(found: ScoreReport) -> str:
    overall = found.overall
    tables = "1 table" if len(found.files) == 1 else f"{format_count(len(found.files))} tables"
    return wrap(
        f"{format_count(overall.rows)} rows of {tables}, {how_scored(found)}: "
        f"{format_count(overall.predicted)} predicted ({format_fraction(overall.coverage)}), "
        f"{format_count(overall.scored)} scored; median error {format_fraction(overall.median_ape)} "
        f"(typical machine {format_fraction(overall.median_of_machine_medians)}), "
        f"p90 {format_fraction(overall.p90_ape)}; {format_fraction(overall.interval_coverage)} within their "
        f"{format_fraction(INTERVAL_SHARE, 2)} interval."
    )


def _scores(title: str, scores: Mapping[str, Score]) -> str:
    headers = (title, "rows", "covered", "model", "p90", "inside", "fixed", "p90", "bound", "p90")
    return table(headers, [(name, *_cells(score)) for name, score in scores.items()], _ALIGN)


def _cells(score: Score) -> tuple[str, ...]:
    return (
        format_count(score.rows),
        format_fraction(score.coverage),
        format_fraction(score.median_ape),
        format_fraction(score.p90_ape),
        format_fraction(score.interval_coverage),
        format_fraction(score.fixed_factor_median_ape),
        format_fraction(score.fixed_factor_p90_ape),
        format_fraction(score.bound_median_ape),
        format_fraction(score.bound_p90_ape),
    )


def _left(found: tuple[NotPredicted, ...]) -> str:
    if not found:
        return ""
    lines = [f"{format_count(item.rows)}: {item.reason}{_examples(item)}" for item in found]
    return "\n".join(["rows that could not be predicted", *(wrap(line, indent="  - ") for line in lines)])


def _examples(item: NotPredicted) -> str:
    return f" ({', '.join(example[:40] for example in item.examples)})" if item.examples else ""


def _worst(found: tuple[WorstRow, ...]) -> str:
    if not found:
        return ""
    lines = [line for item in found for line in _worst_lines(item)]
    return "\n".join(["rows furthest off, and what likely explains each", *lines])


def _worst_lines(item: WorstRow) -> tuple[str, str]:
    scored, row = item.scored, item.scored.case.row
    devices = f"{format_count(row.devices)} x " if row.devices > 1 else ""
    what = f"{row.model[:40]} on {devices}{row.hardware[:40]}, {scored.form.question.setting.engine}"
    return (
        wrap(
            f"{row.place}, {PHASE_NAMES[scored.form.question.phase.value]}: measured "
            f"{format_seconds(scored.measured_s)}, predicted {format_seconds(scored.predicted_s)} "
            f"({format_number(scored.predicted_s / scored.measured_s, 2)} times)",
            indent="  - ",
        ),
        wrap(f"{what}, batch {format_count(row.batch)}: {item.reason}", indent="    "),
    )
