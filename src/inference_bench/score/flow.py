"""Scoring tables from their files to a report: read, ask, predict, summarise.

In:   paths of CSV tables or folders of them
Out:  ScoreReport
Leaves out: each step itself (rows, query, scoring, calibrated, cross_validation, summary)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from inference_bench.errors import MeasurementTableError, MissingExtraError, RequestError
from inference_bench.predict.efficiency.parameters import INTERVAL_SHARE, Calibration, Fitted, fitted
from inference_bench.score.calibrated import LEFT_OUT, Asked, name_left_out, score_calibrated
from inference_bench.score.query import Case, case
from inference_bench.score.rows import MeasuredRow, each_row
from inference_bench.score.scoring import FIXED_BANDWIDTH_SHARE, FIXED_COMPUTE_SHARE, ScoredRow, ask_each
from inference_bench.score.summary import ScoreReport, report
from inference_bench.score.watched import Progress, silent, watched
from inference_bench.units import format_count, format_fraction

_SPENT_FROM: Final = {
    Calibration.ONE: "phase of each engine on each machine",
    Calibration.SEVERAL: "phase of each model and format of each engine on each machine",
}


def score_tables(
    paths: Sequence[str | Path],
    *,
    calibrate: Calibration | str = Calibration.NONE,
    cross_validate: str | None = None,
    progress: Progress = silent,
) -> ScoreReport:
    """How right the predictions are against tables of measurements.

    Where:   a folder stands for every *.csv in it, a file named twice is read once; cross_validate is device or model:
             each row is then predicted by a fit to the other machines' or models' rows of these tables
    Raises:  MeasurementTableError for a table that cannot be read, RequestError for a mode that is not known,
             MissingExtraError for cross-validation without NumPy
    """
    mode = _calibration(calibrate)
    cases = [case(row) for row in watched(_read(paths, progress), "asked", progress)]
    asked, left = ask_each(watched(cases, "counted", progress))
    known = fitted()
    if cross_validate is None:
        scored, _ = score_calibrated(asked, known, mode, progress)
    else:
        asked, alone = _with_others(asked, cross_validate)
        left += alone
        scored = _cross_validated(asked, cross_validate, mode, progress)
    assumptions = _assumptions(known, scored, asked, mode, cross_validate)
    return report(cases, asked, left, scored, known, mode, cross_validate, assumptions)


def _calibration(name: Calibration | str) -> Calibration:
    try:
        return Calibration(name)
    except ValueError:
        known = ", ".join(mode.value for mode in Calibration)
        raise RequestError(f"calibration {str(name)[:40]!r} is not known; known: {known}") from None


def table_files(paths: Sequence[str | Path]) -> tuple[Path, ...]:
    """The tables that paths stand for, each once.

    Raises:  MeasurementTableError for a folder without tables, or nothing at all
    """
    found: dict[Path, Path] = {}
    for file in (file for path in paths for file in _files(Path(path))):
        found.setdefault(_target(file), file)
    if not found:
        raise MeasurementTableError("no table was named; give CSV files of measurements, or a folder of them")
    return tuple(found.values())


def _target(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError):  # a link that leads back to itself
        return file.absolute()


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    tables = sorted(path.glob("*.csv"))
    if not tables:
        raise MeasurementTableError(f"{path}: no *.csv in this folder; give CSV files of measurements")
    yield from tables


def _read(paths: Sequence[str | Path], progress: Progress) -> list[MeasuredRow]:
    files = table_files(paths)
    rows = list(watched((row for file in files for row in each_row(file)), "read", progress))
    if not rows:
        raise MeasurementTableError(f"{files[0].name} row 1: a header and no rows; each row is one measurement")
    return rows


def _with_others(asked: Sequence[Asked], key: str) -> tuple[list[Asked], list[Case]]:
    """The rows that others can be fitted without, and those that are the only ones of their kind.

    Where:   serving has efficiencies of its own, so serving rows of one machine alone leave nothing to fit them on
    Raises:  RequestError for a key that is not known, or where no row has others
    """
    name_of = name_left_out(key)
    names: dict[bool, set[str]] = {False: set(), True: set()}
    for pair in asked:
        names[pair[1].question.is_serving].add(name_of(pair))
    kept = [pair for pair in asked if len(names[pair[1].question.is_serving]) > 1]
    if not kept:
        raise RequestError(
            f"cross-validation by {key} refits without each {LEFT_OUT[key]} in turn, and these tables have "
            f"{len(names[False] | names[True])} that could be predicted; at least 2 are needed"
        )
    reason = f"no other {LEFT_OUT[key]} of these tables has rows of its kind to fit on"
    left = [replace(pair[0], reason=reason) for pair in asked if len(names[pair[1].question.is_serving]) < 2]
    return kept, left


def _cross_validated(asked: Sequence[Asked], key: str, mode: Calibration, progress: Progress) -> list[ScoredRow]:
    try:
        from inference_bench.score.cross_validation import cross_validate
    except ImportError:
        raise MissingExtraError(
            "cross-validation refits with numpy and scipy; install them with: pip install 'inference-bench[fit]'"
        ) from None
    scored, _ = cross_validate(asked, key, (mode,), progress)[mode]
    return scored


def _assumptions(
    known: Fitted, scored: Sequence[ScoredRow], asked: Sequence[Asked], mode: Calibration, cross_validation: str | None
) -> list[str]:
    suspect = sum(row.case.row.is_suspect for row in scored)
    return [
        _who_was_fitted(known, cross_validation),
        "error (APE) is |predicted - measured| / measured time of one step, prompt or batch; p90 is exceeded by one row in ten",
        f"bound: stated traffic at the full peaks; fixed factors: {format_fraction(FIXED_BANDWIDTH_SHARE, 2)} of the bandwidth "
        f"and {format_fraction(FIXED_COMPUTE_SHARE, 2)} of the compute; neither counts waiting or other requests' prompts",
        f"intervals are stated to hold {format_fraction(INTERVAL_SHARE, 2)} of measurements; inside is the share they hold",
        "typical machine: the median over machines of each machine's median error, so that long sweeps do not decide",
        f"{format_count(suspect)} rows that their table doubts (suspect, or formats not stated) are predicted and left out of every error",
        *_spent(mode, len(asked) - len(scored)),
    ]


def _who_was_fitted(known: Fitted, cross_validation: str | None) -> str:
    """Whether these scores say anything about rows that were not seen."""
    if cross_validation:
        return (
            f"each row is predicted by efficiencies fitted without its {LEFT_OUT[cross_validation]}, on the other rows of "
            "these tables; intervals too come from the others. Names, rates and kinds of effects are what ships"
        )
    return (
        f"IN-SAMPLE if these rows are among the {format_count(known.num_rows)} the shipped efficiencies were fitted on "
        f"({known.source.title}, {known.source.as_of}): then the errors say how well the fit describes what it saw, not how "
        "well it predicts; cross-validation by device or model does"
    )


def _spent(mode: Calibration, spent: int) -> list[str]:
    if mode is Calibration.NONE:
        return []
    return [
        f"calibrated: {format_count(spent)} rows were spent, one of each {_SPENT_FROM[mode]}, the middle one by predicted "
        "time and never by error; they count as predicted and are not scored; a group of one row is predicted as it is"
    ]
