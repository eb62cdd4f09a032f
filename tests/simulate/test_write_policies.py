"""docs/policies.md cannot go stale: its numbers for one policy are simulated again, and its words are those of the script."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from inference_bench.simulate.settings import Policy
from inference_bench.simulate.sweep import sweep

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "write_policies.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("write_policies", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")


def test_the_rows_of_the_page_are_what_a_simulation_gives_today(script: ModuleType, page: str) -> None:
    results = sweep(script.cases_of(Policy.CHUNKED), workers=1)
    lines = [script.rate_line(result.row) for result in results if result.row is not None]
    assert len(lines) == 6
    table = page.partition("## At each rate")[2]
    assert "\n".join(lines) in table


def test_the_capacity_on_the_page_is_what_a_search_gives_today(script: ModuleType, page: str) -> None:
    found = script.capacity_of(Policy.CHUNKED)
    assert found.nominal_rate == 0.2437890625  # golden/published/slo_capacity.json
    assert script.capacity_line(Policy.CHUNKED, found) in page.splitlines()


def test_the_page_has_every_policy_at_every_rate_and_the_words_written_by_hand(script: ModuleType, page: str) -> None:
    starts = {tuple(line.split(" | ")[:2]) for line in page.splitlines() if line.startswith("| ")}
    assert {(f"| {policy}", f"{rate:.2f}") for policy in Policy for rate in script.RATES} <= starts
    for name in ("rules", "reading"):
        assert script.written(name) in page
    picture = (ROOT / "docs" / "policies.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert all(policy.value in picture for policy in Policy)
