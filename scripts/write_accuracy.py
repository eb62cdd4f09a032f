"""Write docs/accuracy.md and docs/accuracy.svg: how right the predictions are about machines and models they never saw.

    python scripts/write_accuracy.py FOLDER [--out DOCS]

FOLDER holds the CSV tables docs/measurements.md describes. Every score is cross-validated: by device without
calibration, with one row and with several, and by model. The words that no table holds (what limits the scores, what
others reach, definitions) are taken from scripts/accuracy_*.md. The same tables give the same pages. Needs the extras
[bench]; takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.charts.accuracy import accuracy_chart
from inference_bench.cli.output import ProgressLine
from inference_bench.predict.efficiency.parameters import Calibration, fitted
from inference_bench.render import svg
from inference_bench.report.picture import picture_svg
from inference_bench.report.score_report import PHASE_NAMES
from inference_bench.score.cross_validation import cross_validate
from inference_bench.score.flow import table_files
from inference_bench.score.query import case
from inference_bench.score.rows import read_rows
from inference_bench.score.scoring import ask_each
from inference_bench.score.summary import Score, ScoreReport, WorstRow, report
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

HERE: Final = Path(__file__).parent
DOCS: Final = HERE.parent / "docs"
NONE, ONE, SEVERAL = Calibration.NONE, Calibration.ONE, Calibration.SEVERAL
MODE_NAMES: Final = {NONE: "no row", ONE: "one row", SEVERAL: "one row of each model and format"}
LEAST_ROWS: Final = 5  # of a machine, an engine or a source that has a line of its own


@dataclass(frozen=True, slots=True)
class Target:
    """A median that is to be reached, and the 90th percentile where one is given."""

    phase: str
    mode: Calibration
    median: float
    p90: float | None = None


TARGETS: Final = (
    Target("decode", NONE, 0.12, 0.35),
    Target("decode", ONE, 0.07),
    Target("prefill", NONE, 0.22),
    Target("prefill", ONE, 0.12),
    Target("e2e", NONE, 0.15),
    Target("serving_tpot", NONE, 0.15, 0.40),
    Target("serving_ttft", NONE, 0.30),
)
COVERAGE_TARGET: Final = 0.95
INSIDE_TARGET: Final = (0.75, 0.85)


@dataclass(frozen=True, slots=True)
class Scores:
    """Every report the pages are made from."""

    by_device: Mapping[Calibration, ScoreReport]
    by_model: ScoreReport

    @property
    def headline(self) -> ScoreReport:
        """An unseen machine, nothing measured on it."""
        return self.by_device[NONE]


def scores_of(folder: Path, progress: ProgressLine) -> Scores:
    """Cross-validate the tables of a folder, by device in every mode and by model."""
    cases = [case(row) for table in table_files([folder]) for row in read_rows(table)]
    asked, left = ask_each(cases)

    def reports(key: str, modes: Sequence[Calibration]) -> dict[Calibration, ScoreReport]:
        found = cross_validate(asked, key, modes, progress)
        return {mode: report(cases, asked, left, rows, fitted(), mode, key) for mode, (rows, _) in found.items()}

    return Scores(reports("device", tuple(Calibration)), reports("model", (NONE,))[NONE])


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────


def grid(headers: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """A Markdown table; align has a letter a column, l or r."""
    lines = [headers, ["---:" if kind == "r" else "---" for kind in align], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def pair(score: Score | None) -> str:
    """Median and p90 of the model."""
    return "" if score is None else f"{percent(score.median_ape)} / {percent(score.p90_ape)}"


def percent(value: float | None) -> str:
    """A fraction as percent to one decimal, so that the figures of a column can be compared."""
    return "" if value is None else f"{value:.1%}".replace("%", " %")


def targets_table(found: Scores) -> str:
    """What was to be reached and what is, both from machines that were left out."""
    rows = [_target_row(target, found.by_device[target.mode].by_phase[target.phase]) for target in TARGETS]
    overall = found.headline.overall
    low, high = INSIDE_TARGET
    inside = overall.interval_coverage
    rows += [
        ("rows that are predicted", "", f"≥ {format_fraction(COVERAGE_TARGET, 2)}", percent(overall.coverage), "", "",
         met((overall.coverage or 0) >= COVERAGE_TARGET)),
        ("80 % intervals that hold", "none", f"{format_fraction(low, 2)} to {format_fraction(high, 2)}", percent(inside), "", "",
         met(inside is not None and low <= inside <= high)),
    ]  # fmt: skip
    headers = ("phase", "rows of the machine used", "median, to reach", "median", "p90, to reach", "p90", "reached")
    return grid(headers, rows, "llrrrrl")


def _target_row(target: Target, score: Score) -> Sequence[str]:
    is_met = (
        score.median_ape is not None
        and score.median_ape <= target.median
        and (target.p90 is None or (score.p90_ape is not None and score.p90_ape <= target.p90))
    )
    return (
        PHASE_NAMES[target.phase],
        "none" if target.mode is NONE else MODE_NAMES[target.mode],
        f"≤ {format_fraction(target.median, 2)}",
        percent(score.median_ape),
        "" if target.p90 is None else f"≤ {format_fraction(target.p90, 2)}",
        percent(score.p90_ape),
        met(is_met),
    )


def met(is_met: bool) -> str:
    """Whether a target is reached, in a word."""
    return "yes" if is_met else "**no**"


def phase_table(found: Scores) -> str:
    """Every phase in every mode beside the fixed factors and the bound."""
    modes = [(MODE_NAMES[mode], scores) for mode, scores in found.by_device.items()]
    modes.append(("model unseen, machine known", found.by_model))
    rows = [
        _phase_row(name, mode, scores.by_phase[phase])
        for phase, name in PHASE_NAMES.items()
        for mode, scores in modes
        if scores.by_phase[phase].rows
    ]
    headers = ("phase", "rows of the unseen machine used", "scored", "median", "p90", "typical machine")
    return grid((*headers, "inside 80 %", "fixed factors", "bound"), rows, "llrrrrrrr")


def _phase_row(name: str, mode: str, score: Score) -> Sequence[str]:
    return (
        name,
        mode,
        format_count(score.scored),
        percent(score.median_ape),
        percent(score.p90_ape),
        percent(score.median_of_machine_medians),
        percent(score.interval_coverage),
        f"{percent(score.fixed_factor_median_ape)} / {percent(score.fixed_factor_p90_ape)}",
        f"{percent(score.bound_median_ape)} / {percent(score.bound_p90_ape)}",
    )


def group_table(found: Scores, title: str, groups: Callable[[ScoreReport], Mapping[str, Score]]) -> str:
    """Every group with enough rows in every mode, the largest first."""
    shown = [name for name, score in groups(found.headline).items() if score.scored >= LEAST_ROWS]
    left_out = len(groups(found.headline)) - len(shown)
    rows = []
    for name in shown:
        first = groups(found.headline)[name]
        others = [groups(found.by_device[mode])[name] for mode in (ONE, SEVERAL)]
        cells = [pair(score) for score in (first, *others)]
        rows.append((
            name, format_count(first.rows), percent(first.coverage), *cells, percent(first.interval_coverage),
            percent(first.fixed_factor_median_ape), percent(first.bound_median_ape),
        ))  # fmt: skip
    headers = (title, "rows", "covered", "no row", "one row", "one a setting", "inside 80 %", "fixed factors", "bound")
    note = f"\n\nNot shown: {left_out} with fewer than {LEAST_ROWS} scored rows." if left_out else ""
    return grid(headers, rows, "lrrrrrrrr") + note


def worst_table(found: ScoreReport) -> str:
    """The rows furthest off."""
    headers = ("row", "phase", "what", "measured", "predicted", "factor", "likely reason")
    return grid(headers, map(_worst_row, found.worst), "lllrrrl")


def _worst_row(item: WorstRow) -> Sequence[str]:
    scored, row = item.scored, item.scored.case.row
    devices = f"{row.devices} × " if row.devices > 1 else ""
    return (
        row.place,
        PHASE_NAMES[scored.form.question.phase.value],
        f"{row.model} on {devices}{row.hardware}, {row.engine}, batch {row.batch}",
        format_seconds(scored.measured_s),
        format_seconds(scored.predicted_s),
        format_number(scored.predicted_s / scored.measured_s, 2),
        item.reason,
    )


def left_list(found: ScoreReport) -> str:
    """Why rows could not be predicted."""
    lines = [f"- {format_count(item.rows)}: {item.reason} ({', '.join(item.examples)})" for item in found.not_predicted]
    return "\n".join(lines or ["- none"])


# ── the page ───────────────────────────────────────────────────────────────────────────────────────


def written(name: str) -> str:
    """What is written by hand: scripts/accuracy_NAME.md."""
    return (HERE / f"accuracy_{name}.md").read_text(encoding="utf-8").strip()


def page(found: Scores) -> str:
    """docs/accuracy.md."""
    sections = (
        "# How right the predictions are",
        _what_this_is(found.headline),
        "## What was to be reached",
        targets_table(found),
        "![Predicted over measured time by class of machines](accuracy.svg)",
        "Each picture is a class of machines that share efficiencies; each point a row, or several that lie together. On the "
        "diagonal a prediction is right; between the dashed lines lie four of five rows of the picture. Nothing of the row's own "
        "machine was known to the fit.",
        "## By phase",
        phase_table(found),
        "## What limits it",
        written("limits"),
        "## By class of machines",
        group_table(found, "class", lambda scores: scores.by_hardware),
        "## By machine",
        group_table(found, "machine", lambda scores: scores.by_machine),
        "## By engine",
        group_table(found, "engine", lambda scores: scores.by_engine),
        "## By source",
        group_table(found, "source", lambda scores: scores.by_source),
        "## Beside others",
        written("others"),
        "## Rows furthest off",
        worst_table(found.headline),
        "## Rows that are not predicted",
        left_list(found.headline),
        written("definitions"),
    )
    return "\n\n".join(sections) + "\n"


def _what_this_is(found: ScoreReport) -> str:
    latest = max(row.case.row.date[:7] for row in found.scored)
    return (
        f"Written by `scripts/write_accuracy.py`; do not edit. {format_count(found.overall.rows)} published values from "
        f"{len(found.files)} tables on {len(found.by_machine)} machines, published up to {latest}. Every score below is of rows "
        "whose machine (or, where it says so, whose model) was left out of the fit, one after the other. Errors are "
        "|predicted − measured| / measured time; pairs are median / 90th percentile."
    )


def main() -> None:
    """Score, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    started = time.monotonic()
    progress = ProgressLine()
    found = scores_of(options.folder, progress)
    progress.done()
    spec = accuracy_chart(found.headline)
    if spec is None:
        sys.exit(f"{options.folder}: no row could be scored")
    (options.out / "accuracy.md").write_text(page(found), encoding="utf-8")
    (options.out / "accuracy.svg").write_text(picture_svg(spec, svg(spec)), encoding="utf-8")
    print(f"{options.out / 'accuracy.md'}, accuracy.svg: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
