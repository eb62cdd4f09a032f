"""The efficiencies that ship: small, complete, with their provenance."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import inference_bench.predict.efficiency
from inference_bench.predict.efficiency.parameters import (
    Calibration,
    Familiarity,
    fitted,
    from_mapping,
    to_mapping,
)
from inference_bench.predict.efficiency.question import Phase

FILE = Path(inference_bench.predict.efficiency.__file__).with_name("fitted.json")


def test_the_file_is_at_most_50_kilobytes() -> None:
    assert 1_000 < FILE.stat().st_size <= 50_000


def test_it_names_its_rows_its_script_and_its_date() -> None:
    known = fitted()
    assert known.num_rows > 1000
    assert "scripts/fit_efficiency.py" in known.source.title
    assert re.match(r"20\d\d", known.source.as_of)


@pytest.mark.parametrize("mode", Calibration)
@pytest.mark.parametrize("level", Familiarity)
@pytest.mark.parametrize("phase", Phase)
def test_every_interval_has_a_width(phase: Phase, level: Familiarity, mode: Calibration) -> None:
    assert 0 < fitted().width(phase.value, level, mode) < math.log(50)


def test_every_number_is_finite_and_the_file_is_what_is_read() -> None:
    known = fitted()
    for part in (known.alone, known.serving):
        assert part.norm >= 1
        assert part.values
        assert all(math.isfinite(value) for value in part.values.values())
    data = json.loads(FILE.read_text(encoding="utf-8"))
    assert to_mapping(known) == data
    assert from_mapping(to_mapping(known)) == known
