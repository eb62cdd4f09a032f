"""The parameters that ship are what the script makes of the tables."""

from __future__ import annotations

import math

import pytest

from corpus.model_configs import SHARED
from inference_bench.facts.source import Source
from inference_bench.predict.efficiency.expectation import answer, parameters_for
from inference_bench.predict.efficiency.parameters import fitted
from inference_bench.score.cross_validation import fit_all
from inference_bench.score.query import case
from inference_bench.score.rows import read_rows
from inference_bench.score.scoring import ask_each
from inference_bench.stats import quantile

MEASUREMENTS = SHARED / "data" / "measurements"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MEASUREMENTS.is_dir(), reason="the shared measurements are not beside this checkout"),
]


def test_fitting_the_tables_again_gives_the_predictions_that_ship() -> None:
    tables = sorted(MEASUREMENTS.glob("*.csv"))
    asked, _ = ask_each([case(row) for table in tables for row in read_rows(table)])
    again, shipped = fit_all(asked, Source("again", "")), fitted()
    assert again.num_rows == shipped.num_rows
    assert again.seen == shipped.seen
    gaps = [
        abs(
            math.log(answer(form, parameters_for(form.question, again)).seconds)
            - math.log(answer(form, parameters_for(form.question, shipped)).seconds)
        )
        for _, form in asked
    ]
    assert quantile(gaps, 0.5) < 0.005
    assert quantile(gaps, 0.99) < 0.05  # another linear algebra library rounds otherwise
