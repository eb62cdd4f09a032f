"""The shared measurements are predicted, and the efficiencies that ship describe the rows they were fitted on.

These are in-sample figures, held here so that a change which breaks the fit is seen; docs/accuracy.md has the honest ones.
"""

from __future__ import annotations

import pytest

from corpus.model_configs import SHARED
from inference_bench.predict.efficiency.parameters import fitted
from inference_bench.score.flow import score_tables
from inference_bench.score.summary import ScoreReport

MEASUREMENTS = SHARED / "data" / "measurements"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MEASUREMENTS.is_dir(), reason="the shared measurements are not beside this checkout"),
]

# phase → median and 90th percentile that the fit has to stay within on what it saw
IN_SAMPLE = {
    "decode": (0.08, 0.30),
    "prefill": (0.12, 0.45),
    "e2e": (0.10, 0.30),
    "serving_tpot": (0.10, 0.35),
    "serving_ttft": (0.25, 0.80),
}


@pytest.fixture(scope="module")
def found() -> ScoreReport:
    return score_tables([MEASUREMENTS])


def test_at_least_95_percent_of_the_rows_are_predicted(found: ScoreReport) -> None:
    assert found.overall.rows == 4727
    assert found.overall.coverage is not None
    assert found.overall.coverage >= 0.95


def test_the_only_rows_left_out_are_those_that_give_no_concurrency(found: ScoreReport) -> None:
    assert [(item.reason, item.rows) for item in found.not_predicted] == [
        ("the batch or concurrency is not a number", 185)
    ]


def test_the_efficiencies_that_ship_were_fitted_on_the_rows_that_are_scored(found: ScoreReport) -> None:
    assert fitted().num_rows == found.overall.scored


@pytest.mark.parametrize(("phase", "median", "p90"), [(name, *limits) for name, limits in IN_SAMPLE.items()])
def test_the_fit_describes_what_it_saw(found: ScoreReport, phase: str, median: float, p90: float) -> None:
    score = found.by_phase[phase]
    assert score.scored >= 600
    assert score.median_ape is not None
    assert score.p90_ape is not None
    assert score.median_ape <= median
    assert score.p90_ape <= p90


@pytest.mark.parametrize("phase", IN_SAMPLE)
def test_the_model_is_nearer_than_fixed_factors_and_those_nearer_than_the_bound(found: ScoreReport, phase: str) -> None:
    score = found.by_phase[phase]
    assert score.median_ape is not None
    assert score.fixed_factor_median_ape is not None
    assert score.bound_median_ape is not None
    assert score.median_ape < score.fixed_factor_median_ape < score.bound_median_ape


def test_hardly_any_step_is_faster_than_the_bound(found: ScoreReport) -> None:
    """A bound that many measurements beat would count too much; these few contradict their own source's other rows."""
    steps = [row for row in found.scored if not row.case.row.is_suspect and not row.form.question.is_serving]
    beaten = [row for row in steps if row.measured_s < 0.95 * row.bound_s]
    assert len(beaten) <= 0.02 * len(steps)
