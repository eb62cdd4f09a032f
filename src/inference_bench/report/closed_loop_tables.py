"""Which figures stand behind the closed loop? Every table of it, as texts with the origin of each column.

In:   VerifyResult
Out:  Tables; None where that part was not run
Leaves out: how a table looks on a page or in a terminal
Read next by: closed_loop_html, closed_loop_text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from inference_bench.calibrate.steps.forms import FittedObservation, StepCalibration, StepCandidate
from inference_bench.gap.parts import Change, StepGap
from inference_bench.origin import Origin
from inference_bench.report.closed_loop_words import (
    capacity_state,
    figure_name,
    figure_value,
    fitted_value,
    form_words,
    held_out_words,
    honest_words,
    load_name,
    minus,
    parameter_interval,
    parameter_words,
    requests_per_s,
    signed,
    too_few_words,
)
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import clean
from inference_bench.report.wording import FITTED, REPORTED, interval_text, yes_or_no
from inference_bench.units import (
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck, LoadRow, MemoryRow

_BYTES: Final = "bytes"
LEAST_GAIN: Final = 0.02  # of a change that is worth a line of its own


# ── load and capacity ──────────────────────────────────────────────────────────────────────────────


def load_table(rows: tuple[LoadRow, ...], title: str = "Predicted and measured") -> Table:
    """Every figure of every load: predicted, measured, the error and whether it is within its target."""
    columns = (
        Column("load", "l", note="Load: where it stands to the rate that the simulated server can just sustain."),
        Column("figure", "l"),
        Column("predicted", origin=Origin.SIMULATED),
        Column("measured", origin=Origin.MEASURED),
        Column("error", note="Error: predicted over measured, less one."),
        Column("target", note="Target: the largest error that counts as reached."),
        Column("reached", "l"),
        Column("samples", note="Samples: how many stand behind the measured figure."),
    )
    pairs = [(row, figure) for row in rows for figure in row.figures]
    marked = frozenset(index for index, (_, figure) in enumerate(pairs) if figure.is_reached is False)
    return Table(title, columns, tuple(_figure_cells(*pair) for pair in pairs), "", marked)


def judged_rows(rows: tuple[LoadRow, ...]) -> tuple[LoadRow, ...]:
    """The loads with the figures alone that have a target in one of them; with every figure where none has one."""
    judged = {figure.name for row in rows for figure in row.figures if figure.target is not None}
    if not judged:
        return rows
    return tuple(replace(row, figures=tuple(item for item in row.figures if item.name in judged)) for row in rows)


def _figure_cells(row: LoadRow, figure: Figure) -> Cells:
    return (
        load_name(row),
        clean(figure_name(figure.name)),
        figure_value(figure.name, figure.predicted),
        figure_value(figure.name, figure.measured),
        signed(figure.error),
        "" if figure.target is None else f"±{format_fraction(figure.target, 2)}",
        "" if figure.target is None else yes_or_no(figure.is_reached),
        format_count(figure.count),
    )


def load_requests_table(rows: tuple[LoadRow, ...]) -> Table:
    """How the requests of each load arrived and ended."""
    columns = (
        Column("load", "l"),
        Column("asked for, requests/s", origin=Origin.GIVEN),
        Column("realised, requests/s", origin=Origin.MEASURED),
        Column("sent"),
        Column("completed", origin=Origin.MEASURED),
        Column("remarks", "l"),
    )
    cells = tuple(
        (
            load_name(row),
            format_number(row.rate),
            format_number(row.realised_rate),
            format_count(row.num_requests),
            format_count(row.num_completed),
            clean("; ".join(row.notes)),
        )
        for row in rows
    )
    marked = frozenset(index for index, row in enumerate(rows) if row.num_completed < row.num_requests)
    return Table("How requests arrived and ended", columns, cells, "", marked)


def load_rows(check: LoadCheck | None) -> tuple[LoadRow, ...]:
    """The loads that were run."""
    return () if check is None else check.rows


def capacity_rows(check: CapacityCheck) -> tuple[LoadRow, ...]:
    """The runs at the predicted rate and above it."""
    return tuple(row for row in (check.at_rate, check.above_rate) if row is not None)


def capacity_facts(check: CapacityCheck) -> tuple[tuple[str, str], ...]:
    """The objective, the prediction and what the two runs say of it."""
    return (
        ("objective", clean(check.objective).replace("<=", "≤")),
        ("predicted capacity", requests_per_s(check.predicted_rate)),
        ("over other draws", interval_text(check.interval, requests_per_s)),
        ("every run kept it up to", requests_per_s(check.measured_rate)),
        ("runs cross it at", requests_per_s(check.crossing_rate)),
        ("the prediction is off by", signed(check.error)),
        ("state", capacity_state(check)),
    )


# ── memory ─────────────────────────────────────────────────────────────────────────────────────────


def memory_table(rows: tuple[MemoryRow, ...]) -> Table:
    """What was counted beside what the engine says it allocated."""
    columns = (
        Column("engine", "l"),
        Column("setting", "l"),
        Column("what", "l"),
        Column("counted", origin=Origin.COUNTED),
        Column("engine says", origin=REPORTED),
        Column(
            "difference",
            note="Difference: counted less reported, 0 where the engine would print our figure as its own.",
        ),
        Column("rule", "l", note="Rule: what the engine rounds and allocates, or what explains a difference."),
    )
    marked = frozenset(index for index, row in enumerate(rows) if row.difference is not None and not row.agrees)
    return Table("Memory, counted and reported", columns, tuple(map(_memory_cells, rows)), "", marked)


def _memory_cells(row: MemoryRow) -> Cells:
    counted = format_bytes_binary(row.predicted) if row.unit == _BYTES else format_count(row.predicted)
    exact = f"{format_count(row.predicted)} {clean(row.unit)}" + (f" ({counted})" if row.unit == _BYTES else "")
    return (
        clean(row.engine),
        clean(row.setting),
        clean(row.what),
        exact,
        clean(row.reported),
        minus(format_count(row.difference)),
        clean(row.rule),
    )


def memory_summary(rows: tuple[MemoryRow, ...]) -> str:
    """How many figures agree, of those that an engine states."""
    stated = [row for row in rows if row.difference is not None]
    if not stated:
        return f"the engine states none of {format_count(len(rows))} figures"
    agreeing = sum(row.agrees for row in stated)
    silent = f"; {len(rows) - len(stated)} more it does not state" if len(stated) < len(rows) else ""
    return f"{agreeing} of {len(stated)} figures that the engine states are what was counted, exactly{silent}"


# ── gap ────────────────────────────────────────────────────────────────────────────────────────────


def parts_table(steps: tuple[StepGap, ...]) -> Table:
    """Each step that was taken apart: its parts add up to the measured time."""
    columns = (
        Column("step", "l"),
        Column("part", "l"),
        Column("time", origin=FITTED),
        Column("of the step"),
        Column("in words", "l"),
    )
    rows = tuple(
        (
            clean(step.title),
            str(part.cause),
            minus(format_seconds(part.seconds)),
            minus(format_fraction(part.share)),
            clean(part.words),
        )
        for step in steps
        for part in step.parts
    )
    note = "The parts of a step add up to its measured time; what the formula does not explain is a part of its own."
    return Table("Parts of a step", columns, rows, note)


def helpful(changes: tuple[Change, ...], *, is_choice: bool) -> tuple[Change, ...]:
    """The changes of one sort that gain what can be seen, best first over all steps."""
    chosen = (change for change in changes if change.is_choice is is_choice and change.gain >= LEAST_GAIN)
    return tuple(sorted(chosen, key=lambda change: -change.gain))


def changes_table(changes: tuple[Change, ...], title: str = "What would help") -> Table:
    """What is predicted beside what bytes and FLOPs promise."""
    columns = (
        Column("change", "l"),
        Column("at", "l"),
        Column("now", origin=FITTED),
        Column("then", origin=Origin.PREDICTED),
        Column("gain, tokens/s", origin=Origin.PREDICTED),
        Column("bytes and FLOPs promise", origin=Origin.BOUND),
        Column("assumed", "l", note="Assumed: a number behind it was not measured here."),
        Column("in words", "l"),
    )
    return Table(title, columns, tuple(map(_change_cells, changes)))


def _change_cells(change: Change) -> Cells:
    return (
        clean(change.name),
        clean(change.at),
        format_seconds(change.before_s),
        format_seconds(change.after_s),
        signed(change.gain),
        signed(change.ceiling_gain),
        "assumed" if change.is_assumed else "",
        clean(change.words),
    )


# ── calibration ────────────────────────────────────────────────────────────────────────────────────


def parameters_table(calibration: StepCalibration) -> Table:
    """The fitted numbers with their intervals."""
    columns = (
        Column("number", "l"),
        Column("value", origin=FITTED),
        Column(
            "95 % interval",
            note="Assumed: the steps do not tell this number, which stays near what is usual. Interval: n/a where the sweep does "
            "not tell the number from others, not known where it is wider than a factor of 10.",
        ),
        Column("what it is", "l"),
        Column("remark", "l"),
    )
    rows = tuple(
        (
            clean(item.name),
            fitted_value(item),
            parameter_interval(item.name, item.interval),
            parameter_words(item.name),
            clean(item.note),
        )
        for item in calibration.parameters
    )
    return Table("Fitted numbers", columns, rows)


def candidates_table(calibration: StepCalibration) -> Table:
    """Every formula that was tried, with its error on what it was fitted to and on what it was not."""
    columns = (
        Column("formula", "l"),
        Column("free numbers"),
        Column("median error, fitted"),
        Column("mean error, held out"),
        Column("median, held out"),
        Column("p90, held out"),
        Column("worst, held out"),
        Column("", "l"),
    )
    note = (
        "Errors are the sizes of predicted over measured, less one; in the mean each counts as 50 % at most. The choice: the least mean "
        "over held-out steps leads, and of the formulas within it that are no worse than chance allows, the one with fewest numbers "
        "is chosen. Its honest error, found without each of these steps in turn, stands above."
    )
    rows = tuple(_candidate_cells(item, item is calibration.chosen) for item in calibration.candidates)
    return Table("Formulas that were tried", columns, rows, note)


def _candidate_cells(item: StepCandidate, is_chosen: bool) -> Cells:
    return (
        f"{item.form}: {', '.join(map(clean, item.free))}",
        format_count(item.num_parameters),
        format_fraction(item.fit_error),
        format_fraction(item.held_out_mean),
        format_fraction(item.held_out_error),
        format_fraction(item.held_out_p90),
        format_fraction(item.worst_held_out),
        "chosen" if is_chosen else "",
    )


def kinds_table(calibration: StepCalibration) -> Table:
    """The error by what a step does."""
    columns = (Column("kind", "l"), Column("observed"), Column("held out"), Column("median error, held out"))
    held_out = calibration.held_out_error_by_kind
    note = (
        "Medians of the chosen formula, which held-out steps helped to choose. Over all kinds, held out: "
        f"{held_out_words(calibration)}."
    )
    kinds = [item.observation for item in calibration.observations]
    rows = tuple(
        (
            str(kind),
            format_count(sum(item.kind is kind for item in kinds)),
            format_count(sum(item.kind is kind and item.is_held_out for item in kinds)),
            format_fraction(held_out.get(kind)),
        )
        for kind in calibration.error_by_kind
    )
    return Table("Error by kind of step", columns, rows, note)


def observations_table(calibration: StepCalibration) -> Table:
    """Every observed step beside what the formula says of it."""
    columns = (
        Column("kind", "l"),
        Column("setting", "l"),
        Column("sequences", origin=Origin.COUNTED),
        Column("new positions", origin=Origin.COUNTED),
        Column("cached before", origin=Origin.COUNTED, note="Cached before: the mean over the sequences of the step."),
        Column("time", origin=Origin.MEASURED),
        Column("95 % interval"),
        Column("formula", origin=FITTED),
        Column("error"),
        Column("held out", "l", note="Held out: kept from the fit."),
        Column("waves"),
        Column("engine's CPU time", origin=Origin.MEASURED),
        Column("engine's own", origin=REPORTED),
    )
    return Table("Observed steps", columns, tuple(map(_observation_cells, calibration.observations)))


def _observation_cells(item: FittedObservation) -> Cells:
    seen = item.observation
    return (
        str(seen.kind),
        clean(seen.setting),
        format_count(seen.num_sequences),
        format_count(seen.num_positions),
        format_count(round(seen.mean_context_tokens)),
        format_seconds(seen.seconds),
        interval_text(seen.interval, format_seconds),
        format_seconds(item.predicted_s),
        signed(item.error),
        "held out" if seen.is_held_out else "",
        format_count(seen.num_waves),
        format_seconds(seen.cpu_s),
        format_seconds(seen.engine_s),
    )


def calibration_facts(calibration: StepCalibration) -> tuple[tuple[str, str], ...]:
    """The formula in words, and how right it is on what it was not fitted to."""
    count, held_out = len(calibration.observations), calibration.num_held_out
    return (
        ("formula", form_words(calibration.form)),
        (
            "shares are of",
            f"{format_si(calibration.bandwidth_bytes_per_s, 'B/s')} and {format_si(calibration.compute_flops_per_s, 'FLOP/s')}",
        ),
        ("observed steps", f"{format_count(count)}, of which {format_count(held_out)} were kept from the fit"),
        *_held_out_facts(calibration),
    )


def _held_out_facts(calibration: StepCalibration) -> tuple[tuple[str, str], ...]:
    """The honest error, its spread and its largest, all by the same procedure."""
    if calibration.held_out_error is None:
        return (("error, held out", too_few_words(calibration)),)
    return (
        ("median error, held out", f"{format_fraction(calibration.held_out_error)}{honest_words(calibration)}"),
        ("p90 error, held out", format_fraction(calibration.held_out_p90)),
        ("worst error, held out", format_fraction(calibration.worst_held_out)),
    )
