"""A real matrix on the embedded engine: what it takes is measured, what it refuses is named in its own words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.verify.matrix import MATRIX_PLAN, MatrixRequest, run_matrix
from inference_bench.verify.matrix_axes import parse_axes
from verify.matrix_runs import MACHINE

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")


def test_weights_are_re_encoded_and_measured_under_one_roof(tmp_path: Path) -> None:
    model = ensure_embedded_model()
    plan = replace(
        MATRIX_PLAN, batches=(1, 2), contexts=(16,), prompts=(24,), output_tokens=8, max_rounds=1, budget_s=60.0
    )
    request = MatrixRequest(parse_axes(["weights=q8_0"]), model.path, MACHINE, plan=plan, num_rounds=1, runs=tmp_path)
    found = run_matrix(request)
    assert [row.outcome for row in found.rows] == ["measured"]
    (row,) = found.rows
    assert row.weight_bytes == 143_025_408  # the sum of the file's tensors, each read once a step
    assert row.alone is not None
    assert row.alone.seconds > 0
    assert row.cache == "f16"
    assert row.runs[0].is_relative_to(found.folder / row.combination.slug)
    assert found.base is row
