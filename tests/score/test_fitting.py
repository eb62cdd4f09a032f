"""The model that is fitted, in NumPy, is the one that answers, in plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_bench.predict.efficiency.expectation import answer
from inference_bench.predict.efficiency.parameters import fitted
from inference_bench.predict.efficiency.question import Phase
from inference_bench.score.query import case
from inference_bench.score.rows import read_rows
from inference_bench.score.scoring import ask_each

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

EXAMPLE = Path(__file__).parents[2] / "examples" / "measured.csv"


@pytest.mark.parametrize("is_serving", [False, True])
def test_what_is_fitted_is_what_answers(*, is_serving: bool) -> None:
    from inference_bench.score.fitting import predict_log, problem

    asked, _ = ask_each(case(row) for row in read_rows(EXAMPLE))
    shapes = [form for _, form in asked if form.question.is_serving == is_serving]
    phases = {form.question.phase for form in shapes}
    assert phases == {phase for phase in Phase if phase.value.startswith("serving") == is_serving}
    known = fitted().serving if is_serving else fitted().alone

    rows = problem(shapes, [1.0] * len(shapes))
    at = np.array([known.values.get(name, 0.0) for name in rows.columns])
    found = np.exp(predict_log(rows, at)).tolist()

    assert found == pytest.approx([answer(form, known).seconds for form in shapes], rel=1e-6)
