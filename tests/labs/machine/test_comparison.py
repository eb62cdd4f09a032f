"""Ceilings, agreement and its reasons, from rows whose times were made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.labs.machine.comparison import (
    ceilings_of,
    compare_ceilings,
    highest,
    mark_above,
    pair_rows,
    probe_ceilings,
)
from inference_bench.labs.machine.result import LabCeilings, Library, Orientation
from inference_bench.measure.ceilings import product_row
from inference_bench.measure.timing import RawTiming
from labs.machine.sample import BANDWIDTH, LIBRARIES, PEAK, SIZE, probe_of, product, products, rows_of


def test_bandwidth_is_that_of_one_column_and_peak_that_of_the_fastest_row_each_by_its_fastest_value() -> None:
    found = ceilings_of(products())
    # the fastest value of a sample takes 0.99 of its median
    assert found.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH / 0.99)
    assert found.peak_flops_per_s == pytest.approx(PEAK / 0.99)
    assert found.roof.ridge_flops_per_byte == pytest.approx(10)


def test_the_highest_ceiling_takes_each_from_whoever_was_faster() -> None:
    best = highest((LabCeilings(3.0, 50.0, "fp32", "a"), LabCeilings(2.0, 70.0, "fp32", "b")))
    assert (best.bandwidth_bytes_per_s, best.peak_flops_per_s) == (3.0, 70.0)
    assert "bandwidth by a" in best.source
    assert "peak by b" in best.source


def test_equal_times_agree_without_any_reason() -> None:
    for each in compare_ceilings(rows_of()):
        assert each.is_within
        assert each.torch_over_numpy == pytest.approx(1)
        assert each.reasons == ()


def test_a_library_at_half_the_rate_differs_and_the_matrix_libraries_are_named() -> None:
    bandwidth, peak = compare_ceilings(rows_of(torch_slower=2.0))
    assert not bandwidth.is_within
    assert not peak.is_within
    assert bandwidth.torch_over_numpy == pytest.approx(0.5)
    assert all("MKL" in each.reasons[0] and "Haswell" in each.reasons[0] for each in (bandwidth, peak))


def test_kernels_and_threads_are_told_apart_by_the_ratio_with_one_thread() -> None:
    threads, _ = compare_ceilings(rows_of(torch_slower=2.0, one_thread_slower=1.0))
    assert threads.one_thread_ratio == pytest.approx(1)
    assert "factor of 0.500" in threads.reasons[1]
    kernels, _ = compare_ceilings(rows_of(torch_slower=2.0, one_thread_slower=2.0))
    assert kernels.one_thread_ratio == pytest.approx(0.5)
    assert "factor of 1.00" in kernels.reasons[1]


def test_a_probe_that_was_slowed_is_a_difference_with_that_reason() -> None:
    bandwidth, _ = compare_ceilings(rows_of(probe_slower=3.0))
    assert bandwidth.torch_over_numpy == pytest.approx(1)
    assert not bandwidth.is_within
    assert any("between its turns beside PyTorch and the probe" in reason for reason in bandwidth.reasons)


def test_bandwidth_may_differ_by_15_percent_and_a_peak_by_25() -> None:
    bandwidth, peak = compare_ceilings(rows_of(torch_slower=1.2))
    assert (bandwidth.is_within, peak.is_within) == (False, True)


def test_a_pair_takes_the_faster_orientation_of_each_library() -> None:
    rows = rows_of()
    slow = product(Library.PYTORCH, 64, 1.0, Orientation.COLUMNS)
    pairs = pair_rows(type(rows)([*rows.products, slow], rows.one_thread, rows.probe, LIBRARIES, 2))
    assert [pair.batch for pair in pairs] == [1, 64, 512]
    assert all(pair.torch_over_numpy == pytest.approx(1) for pair in pairs)
    assert pairs[1].probe_s == pytest.approx(pairs[1].numpy_s)


def test_a_row_above_the_roof_is_marked_and_not_clamped() -> None:
    fast = product(Library.PYTORCH, 512, 2_000_000 * 512 / PEAK / 1.5)
    (marked,) = mark_above([fast], probe_ceilings(probe_of()))
    assert marked.row.flops_per_s == pytest.approx(1.5 * PEAK)
    assert marked.above_roof_fraction == pytest.approx(1.5 * 0.99 - 1)
    assert marked.is_above_by_more_than_spread


def test_a_row_above_by_less_than_its_spread_is_not_a_finding() -> None:
    near = product(Library.PYTORCH, 512, 2_000_000 * 512 / PEAK / 1.012)
    (marked,) = mark_above([near], probe_ceilings(probe_of()))
    assert marked.above_roof_fraction == pytest.approx(1.012 * 0.99 - 1)
    assert not marked.is_above_by_more_than_spread


def test_a_difference_smaller_than_the_spread_is_said_to_be_noise() -> None:
    rows = rows_of(torch_slower=1.2)
    noisy = replace(
        rows, products=[replace(each, row=replace(each.row, spread_fraction=0.2)) for each in rows.products]
    )
    steady, _ = compare_ceilings(rows)
    shaky, _ = compare_ceilings(noisy)
    assert not any("noise" in reason for reason in steady.reasons)
    assert any("noise can be all of it" in reason for reason in shaky.reasons)


def test_the_probes_ceilings_follow_the_same_rule_as_those_they_are_held_against() -> None:
    probe = probe_of()
    found = probe_ceilings(probe)
    assert found.bandwidth_bytes_per_s == pytest.approx(probe.bandwidth_bytes_per_s / 0.99)
    assert found.peak_flops_per_s == pytest.approx(probe.peak_flops_per_s / 0.99)


def test_a_median_that_other_work_halved_lowers_no_ceiling() -> None:
    (row,) = (each for each in products(batches=(1,)) if each.library is Library.NUMPY)
    values = (row.row.seconds, *[2 * row.row.seconds] * 3)
    slowed = replace(row, row=product_row(SIZE, 1, 4, RawTiming(values, (), 1)))
    assert slowed.row.bytes_per_s == pytest.approx(BANDWIDTH / 2)
    assert ceilings_of([slowed]).bandwidth_bytes_per_s == pytest.approx(BANDWIDTH)


@pytest.mark.parametrize(("torch_slower", "probe_slower"), [(1.06, 1.2), (0.9, 1.06), (1.3, 1.0), (0.94, 1.08)])
def test_whatever_differs_has_a_reason(torch_slower: float, probe_slower: float) -> None:
    for each in compare_ceilings(rows_of(torch_slower, torch_slower, probe_slower)):
        assert bool(each.reasons) is not each.is_within
