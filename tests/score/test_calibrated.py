"""Calibration without leakage: what is spent is not scored, and what is scored moves nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from inference_bench.predict.efficiency.parameters import Calibration, fitted
from inference_bench.score.calibrated import Asked, middle, score_calibrated
from inference_bench.score.scoring import ask_each, score_row
from score.tables import PROMPTS, cases_of

BATCHES = (1, 2, 4, 8, 16, 32, 64)


def sweep(folder: Path, *values: float) -> list[Asked]:
    """Steps of growing batches and what they took, 7 ms unless given.

    Unit:  ms
    """
    rows = [
        {"batch_or_concurrency": str(batch), "value": repr(value)}
        for batch, value in zip(BATCHES, values or [7.0] * len(BATCHES), strict=True)
    ]
    return ask_each(cases_of(folder, *rows))[0]


def spent_rows(asked: list[Asked], mode: Calibration) -> list[int]:
    """The rows that were not scored."""
    scored, spent = score_calibrated(asked, fitted(), mode)
    left = {row.case.row.row for row in scored}
    rows = [item.row.row for item, _ in asked if item.row.row not in left]
    assert len(rows) == spent
    return rows


def test_one_row_is_spent_of_each_phase_of_each_engine_on_each_machine(tmp_path: Path) -> None:
    kinds = [{}, {"engine": "SGLang"}, {"hardware": "B200"}, PROMPTS]
    rows = [{**kind, "batch_or_concurrency": str(batch)} for kind in kinds for batch in (1, 8, 64)]
    asked, _ = ask_each(cases_of(tmp_path, *rows))
    assert spent_rows(asked, Calibration.ONE) == [3, 6, 9, 12]


def test_several_spends_one_row_of_each_model_and_format(tmp_path: Path) -> None:
    kinds = [{}, {"model": "Qwen3-8B"}, {"weight_format": "FP8"}]
    rows = [{**kind, "batch_or_concurrency": str(batch)} for kind in kinds for batch in (1, 8, 64)]
    asked, _ = ask_each(cases_of(tmp_path, *rows))
    assert len(spent_rows(asked, Calibration.ONE)) == 1
    assert spent_rows(asked, Calibration.SEVERAL) == [3, 6, 9]


def test_the_row_spent_is_the_middle_by_predicted_time(tmp_path: Path) -> None:
    asked = sweep(tmp_path)
    assert middle(asked, fitted()) == 3
    assert middle(asked[::-1], fitted()) == 3
    assert middle(asked[:1], fitted()) is None


@pytest.mark.parametrize("mode", [Calibration.ONE, Calibration.SEVERAL])
def test_what_the_scored_rows_measured_changes_neither_the_choice_nor_a_prediction(
    tmp_path: Path, mode: Calibration
) -> None:
    plain = sweep(tmp_path)
    spent = middle(plain, fitted())
    wild = sweep(tmp_path, *(7.0 if index == spent else 900.0 + index for index in range(len(BATCHES))))
    before, after = (score_calibrated(asked, fitted(), mode)[0] for asked in (plain, wild))
    assert [row.predicted_s for row in before] == [row.predicted_s for row in after]
    assert [row.case.row.row for row in before] == [row.case.row.row for row in after]
    assert [row.measured_s for row in before] != [row.measured_s for row in after]


def test_a_spent_row_moves_the_others_towards_what_it_measured(tmp_path: Path) -> None:
    expected = [score_row(item, form).predicted_s for item, form in sweep(tmp_path)]
    slower = sweep(tmp_path, *(1500 * seconds for seconds in expected))
    cold, _ = score_calibrated(slower, fitted(), Calibration.NONE)
    assert all(row.error == pytest.approx(1 / 3) for row in cold)
    for mode in (Calibration.ONE, Calibration.SEVERAL):
        warm, _ = score_calibrated(slower, fitted(), mode)
        assert all(row.error < 1 / 3 for row in warm)


def test_a_suspect_row_is_never_spent(tmp_path: Path) -> None:
    rows = [{"batch_or_concurrency": str(batch), "notes": "suspect" if batch == 8 else ""} for batch in BATCHES]
    asked, _ = ask_each(cases_of(tmp_path, *rows))
    for mode in (Calibration.ONE, Calibration.SEVERAL):
        scored, _ = score_calibrated(asked, fitted(), mode)
        assert 8 in {row.case.row.batch for row in scored}


def test_a_group_too_small_to_leave_rows_over_is_predicted_as_it_is(tmp_path: Path) -> None:
    asked = sweep(tmp_path)[:1]
    scored, spent = score_calibrated(asked, fitted(), Calibration.SEVERAL)
    assert spent == 0
    assert [row.predicted_s for row in scored] == [score_row(item, form).predicted_s for item, form in asked]


@pytest.mark.parametrize("mode", [Calibration.ONE, Calibration.SEVERAL])
def test_the_order_of_the_rows_says_nothing(tmp_path: Path, mode: Calibration) -> None:
    """Rows that are predicted alike differ in what was measured: which of them is spent must not hang on where it stands."""
    kinds = [{}, {"model": "Qwen3-8B"}, {"engine": "SGLang"}]
    rows = [
        {**kind, "source": f"source {source}", "value": str(5 + source), "batch_or_concurrency": batch}
        for kind in kinds
        for source in range(4)
        for batch in ("1", "8")
    ]

    def scores(ordered: list[dict[str, str]]) -> list[tuple[object, ...]]:
        scored, _ = score_calibrated(ask_each(cases_of(tmp_path, *ordered))[0], fitted(), mode)
        shown = [(row.case.row, row.predicted_s, row.low_s) for row in scored]
        return sorted((row.engine, row.model, row.source, row.batch, *times) for row, *times in shown)

    mixed = random.Random(5).sample(rows, len(rows))
    assert scores(rows) == scores(rows[::-1]) == scores(mixed)
