"""Errors, coverage and groups, on rows whose predictions are set by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.predict.efficiency import expect
from inference_bench.predict.efficiency.parameters import Familiarity, fitted
from inference_bench.score.calibrated import Asked
from inference_bench.score.query import Case
from inference_bench.score.reasons import likely_reason
from inference_bench.score.scoring import ScoredRow, ask_each, score_row, with_interval
from inference_bench.score.summary import ScoreReport, report
from score.tables import PROMPTS, SERVING, WHOLE, cases_of, the_case


def scored_at(pairs: list[Asked], ratios: list[float], width: float = 0.1) -> list[ScoredRow]:
    """Each row predicted at so many times what was measured."""
    return [
        with_interval(item, form, (item.seconds or 0) * ratio, Familiarity.KNOWN, width)
        for (item, form), ratio in zip(pairs, ratios, strict=True)
    ]


def report_of(cases: list[Case], ratios: list[float], spent: int = 0) -> ScoreReport:
    asked, left = ask_each(cases)
    return report(cases, asked, left, scored_at(asked[spent:], ratios), fitted())


def test_an_error_is_the_distance_over_what_was_measured(tmp_path: Path) -> None:
    found = report_of(
        cases_of(tmp_path, *[{"value": str(value)} for value in (5, 10, 20, 40, 80)]), [1.1, 0.8, 1.3, 0.5, 2.0]
    )
    assert found.overall.median_ape == pytest.approx(0.3)
    assert found.overall.p90_ape == pytest.approx(0.5 + 0.6 * 0.5)
    assert found.overall.rows == found.overall.predicted == found.overall.scored == 5
    assert found.overall.coverage == 1.0


def test_an_interval_is_a_factor_up_and_down_and_coverage_counts_the_rows_it_holds(tmp_path: Path) -> None:
    asked, _ = ask_each(cases_of(tmp_path, {}, {}, {}, {}))
    rows = scored_at(asked, [1.0, 1.24, 0.81, 1.26], width=math.log(1.25))
    assert (rows[0].low_s, rows[0].high_s) == (pytest.approx(0.0056), pytest.approx(0.00875))
    assert [row.is_inside for row in rows] == [True, True, True, False]
    assert report([item for item, _ in asked], asked, [], rows, fitted()).overall.interval_coverage == 0.75


def test_a_suspect_row_is_predicted_and_left_out_of_the_errors(tmp_path: Path) -> None:
    found = report_of(cases_of(tmp_path, {}, {"notes": "suspect: twice the bandwidth"}), [1.1, 9.0])
    assert (found.overall.rows, found.overall.predicted, found.overall.scored) == (2, 2, 1)
    assert found.overall.median_ape == found.overall.p90_ape == pytest.approx(0.1)
    assert [item.scored.case.row.row for item in found.worst] == [2]


def test_rows_that_cannot_be_asked_count_against_the_coverage_of_their_groups(tmp_path: Path) -> None:
    unknown = {"hardware": "Abacus", "engine": "SGLang", "source": "elsewhere"}
    words = {"batch_or_concurrency": "Offline"}
    found = report_of(cases_of(tmp_path, {}, unknown, {**words, "hardware": "RTX 4090"}, words), [1.5])
    assert found.overall.coverage == 0.25
    assert {name: (score.rows, score.predicted) for name, score in found.by_hardware.items()} == {
        "nvidia-hbm": (2, 1),
        "nvidia-gddr": (1, 0),
        "unknown": (1, 0),
    }
    assert found.by_engine["sglang"].median_ape is None
    assert found.by_source["elsewhere"].coverage == 0.0
    assert [(item.reason, item.rows, item.examples) for item in found.not_predicted] == [
        ("the batch or concurrency is not a number", 2, ("Offline",)),
        ("the machine is not known", 1, ("Abacus",)),
    ]


def test_phases_are_told_apart_and_those_without_rows_say_so(tmp_path: Path) -> None:
    rows = [{}, PROMPTS, {**SERVING}, {**PROMPTS, **SERVING}, {**SERVING, "batch_or_concurrency": "Server"}]
    found = report_of(cases_of(tmp_path, *rows), [1.1, 1.2, 1.3, 1.4])
    assert list(found.by_phase) == ["decode", "prefill", "e2e", "serving_tpot", "serving_ttft"]
    assert [score.rows for score in found.by_phase.values()] == [1, 1, 0, 2, 1]
    assert [score.coverage for score in found.by_phase.values()] == [1.0, 1.0, None, 0.5, 1.0]
    assert found.by_phase["e2e"].median_ape is None


def test_each_machine_has_one_vote_in_the_median_of_machine_medians(tmp_path: Path) -> None:
    machines = ["H100 SXM"] * 5 + ["RTX 4090", "B200"]
    found = report_of(
        cases_of(tmp_path, *[{"hardware": name, "value": "70"} for name in machines]), [1.01] * 5 + [1.2, 1.4]
    )
    assert found.overall.median_ape == pytest.approx(0.01)
    assert found.overall.median_of_machine_medians == pytest.approx(0.2)
    assert found.by_machine["H100 SXM"].median_of_machine_medians == pytest.approx(0.01)


def test_rows_spent_on_calibration_count_as_predicted_in_their_own_groups(tmp_path: Path) -> None:
    found = report_of(cases_of(tmp_path, {}, {}, {"hardware": "RTX 4090"}), [1.1, 1.2], spent=1)
    spent = {name: (score.rows, score.predicted, score.spent, score.scored) for name, score in found.by_machine.items()}
    assert spent == {"H100 SXM": (2, 2, 1, 1), "RTX 4090": (1, 1, 0, 1)}
    assert (found.overall.coverage, found.overall.spent) == (1.0, 1)


def test_the_fixed_factors_are_70_percent_of_the_bandwidth_and_50_of_the_compute(tmp_path: Path) -> None:
    decode, prompts, whole = cases_of(tmp_path, {}, {**PROMPTS, "input_len": "8192"}, {**WHOLE, "output_len": "101"})
    asked, _ = ask_each([decode, prompts, whole])
    one_step, one_prompt, both = (score_row(item, form) for item, form in asked)
    assert one_step.fixed_s == pytest.approx(one_step.bound_s / 0.7)
    assert one_prompt.fixed_s == pytest.approx(one_prompt.bound_s / 0.5)
    prompt = score_row(*ask_each([the_case(tmp_path, **PROMPTS)])[0][0])
    assert both.bound_s == pytest.approx(prompt.bound_s + 100 * one_step.bound_s, rel=0.01)


def test_the_worst_rows_are_the_furthest_by_factor_either_way(tmp_path: Path) -> None:
    rows = [{"value": str(value)} for value in range(100, 120)]
    found = report_of(cases_of(tmp_path, *rows), [0.1, 5.0] + [1.1] * 18)
    assert [item.scored.case.row.row for item in found.worst[:2]] == [2, 3]
    assert len(found.worst) == 12


@pytest.mark.parametrize("row", [{}, PROMPTS, WHOLE, SERVING, {**PROMPTS, **SERVING}], ids=str)
@pytest.mark.parametrize("hardware", ["H100 SXM", "RTX 4090"])
def test_a_scored_interval_is_what_is_expected_and_ends_at_the_bound(
    tmp_path: Path, row: dict[str, str], hardware: str
) -> None:
    ((item, form),), _ = ask_each([the_case(tmp_path, **{**row, "hardware": hardware})])
    scored, expected = score_row(item, form), expect(form.question)
    assert (scored.predicted_s, scored.low_s, scored.high_s) == (expected.seconds, expected.low_s, expected.high_s)
    assert scored.low_s >= scored.bound_s
    wide = with_interval(item, form, 2 * scored.bound_s, Familiarity.KNOWN, 3.0)
    assert (wide.low_s, wide.high_s) == (scored.bound_s, pytest.approx(2 * scored.bound_s * math.exp(3.0)))
    below = with_interval(item, form, 0.5 * scored.bound_s, Familiarity.KNOWN, 0.0)
    assert below.predicted_s == scored.bound_s


def reason_of(folder: Path, seconds: float, **row: str) -> str:
    (pair,) = ask_each([the_case(folder, **row)])[0]
    item, form = pair
    rated = score_row(replace(item, seconds=seconds), form)
    return likely_reason(rated)


def test_a_likely_reason_goes_by_what_the_row_itself_says(tmp_path: Path) -> None:
    assert "faster than the bound" in reason_of(tmp_path, 1e-4)
    assert "admitted fewer" in reason_of(tmp_path, 500.0, **{**PROMPTS, **SERVING})
    assert "cache holds" in reason_of(
        tmp_path, 500.0, **{**SERVING, "batch_or_concurrency": "4096", "input_len": "8000"}
    )
    assert "several nodes" in reason_of(tmp_path, 1.0, n_devices="16", parallelism="TP16")
    assert "never measured" in reason_of(tmp_path, 1.0, engine="surely a new engine")
    assert "in turn" in reason_of(tmp_path, 1.0, engine="llama.cpp", n_devices="2", parallelism="layer-split")
    assert "experts" in reason_of(tmp_path, 1.0, model="gpt-oss-20b", weight_format="MXFP4")
    assert "version" in reason_of(tmp_path, 1.0)


@given(ratio=st.floats(1e-3, 1e3), width=st.floats(0.0, 3.0))
def test_a_row_is_inside_when_its_factor_is_within_the_width(
    tmp_path_factory: pytest.TempPathFactory, ratio: float, width: float
) -> None:
    asked, _ = ask_each([the_case(tmp_path_factory.getbasetemp(), value="100000")])
    (row,) = scored_at(asked, [ratio], width)
    assert row.error == pytest.approx(abs(ratio - 1))
    assert row.is_inside == (row.low_s <= row.measured_s <= row.high_s)
    assert row.low_s <= row.predicted_s <= row.high_s
