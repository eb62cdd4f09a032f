"""The machine lab on this machine, as its page runs it: what has to hold whatever the rates are."""

from __future__ import annotations

import pytest

from inference_bench.labs.machine.result import MachineResult, Orientation
from real.lab_pages import PAGE_TIMEOUT_S, run_page

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S)]


@pytest.fixture(scope="module")
def result() -> MachineResult:
    found = run_page("machine")
    assert isinstance(found, MachineResult)
    return found


def test_every_product_was_proved_and_counted(result: MachineResult) -> None:
    assert [check.is_met for check in result.checks] == [True, True]


def test_the_matrix_is_well_beyond_the_cache(result: MachineResult) -> None:
    if result.last_level_cache_bytes is not None and result.matrix_size < 8192:
        assert result.matrix_bytes >= 4 * result.last_level_cache_bytes


def test_both_libraries_and_both_orientations_have_a_row_at_each_batch(result: MachineResult) -> None:
    assert len(result.products) == 2 * len(Orientation) * len(result.pairs)
    assert all(row.row.flops_per_s > 0 for row in (*result.products, *result.bfloat16_products))


def test_a_difference_is_explained_and_agreement_is_not(result: MachineResult) -> None:
    assert [each.name for each in result.agreements] == ["bandwidth", "peak"]
    assert all(bool(each.reasons) is not each.is_within for each in result.agreements)


def test_the_ceilings_are_the_highest_of_all(result: MachineResult) -> None:
    others = (result.torch_ceilings, result.numpy_ceilings, result.probe_ceilings)
    assert result.ceilings.bandwidth_bytes_per_s == max(each.bandwidth_bytes_per_s for each in others)
    assert result.ceilings.peak_flops_per_s == max(each.peak_flops_per_s for each in others)
