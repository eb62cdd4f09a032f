from __future__ import annotations

import pytest

from inference_bench.errors import RequestError
from inference_bench.measure.ceilings import (
    Movement,
    bandwidth_row,
    count_product_bytes,
    count_product_flops,
    explain_rows,
    fastest_product,
    fastest_read,
    power_of_two_batches,
    product_row,
)
from inference_bench.measure.timing import RawTiming


def steady(seconds: float) -> RawTiming:
    return RawTiming((seconds,) * 5, (seconds,), 1)


def read(method: str, counted_bytes: int, seconds: float, cache_bytes: int | None = None, round_index: int = 1):
    return bandwidth_row(Movement(method, method, counted_bytes), steady(seconds), cache_bytes, round_index)


def test_counts_of_a_matrix_vector_product() -> None:
    # 8192 squared in float32: 268,435,456 bytes of matrix and 32,768 each of input and output
    assert count_product_flops(8192, 1) == 134_217_728
    assert count_product_bytes(8192, 1, 4) == 268_435_456 + 2 * 32_768


def test_counts_of_a_product_with_many_columns() -> None:
    assert count_product_flops(8192, 512) == 68_719_476_736
    assert count_product_bytes(8192, 512, 4) == 268_435_456 + 2 * 16_777_216


def test_a_product_row_holds_rates_by_hand() -> None:
    row = product_row(4, 2, 4, steady(0.5))
    assert (row.counted_flops, row.counted_bytes) == (2 * 4 * 4 * 2, 4 * (16 + 8 + 8))
    assert row.flops_per_s == 128.0
    assert row.bytes_per_s == 256.0
    assert row.intensity_flops_per_byte == 0.5
    assert row.spread_fraction == 0.0


def test_the_bandwidth_ceiling_is_the_fastest_read_and_never_a_copy() -> None:
    copy = bandwidth_row(Movement("copy", "copy", 1000, is_read_dominated=False), steady(1.0), None)
    assert fastest_read([read("slow", 100, 1.0), copy, read("fast", 300, 1.0)]).method == "fast"


def test_a_read_that_the_cache_may_have_held_sets_the_ceiling_only_if_there_is_no_other() -> None:
    cached, beyond = read("cached", 1000, 0.1, cache_bytes=300), read("beyond", 1200, 1.0, cache_bytes=300)
    assert cached.array_over_cache == pytest.approx(1000 / 300)
    assert fastest_read([cached, beyond]).method == "beyond"
    assert fastest_read([cached]).method == "cached"


def test_the_peak_is_the_fastest_product_whatever_its_batch() -> None:
    rows = [product_row(4, 1, 4, steady(1.0)), product_row(4, 2, 4, steady(0.5)), product_row(4, 4, 4, steady(9.0))]
    assert fastest_product(rows).batch == 2


@pytest.mark.parametrize(("max_batch", "expected"), [(1, (1,)), (2, (1, 2)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))])
def test_batches_double_up_to_the_largest(max_batch: int, expected: tuple[int, ...]) -> None:
    assert power_of_two_batches(max_batch) == expected


def test_a_batch_below_one_is_refused() -> None:
    with pytest.raises(RequestError, match="largest batch 0 is below 1"):
        power_of_two_batches(0)


def test_steady_rows_beyond_the_cache_need_no_notes() -> None:
    rows = [product_row(4, 1, 4, steady(1.0)), product_row(4, 2, 4, steady(2.0))]
    assert explain_rows(rows, [read("dot", 100, 1.0, cache_bytes=10)]) == []


def test_unsteady_values_are_named() -> None:
    unsteady = RawTiming((1.0, 1.0, 2.0, 3.0, 3.0), (), 1)  # quartiles 1 and 3, median 2: 50 %
    (note,) = explain_rows([product_row(4, 1, 4, unsteady)], [read("dot", 100, 1.0)])
    assert "more than 10.0 %" in note
    assert "product with B = 1" in note
    assert "dot" not in note


def test_two_rounds_that_disagree_are_named() -> None:
    (note,) = explain_rows([], [read("dot", 100, 1.0), read("dot", 100, 2.0, round_index=2)])
    assert note.startswith("dot gave 50 B/s in one round and 100 B/s in another")
    assert explain_rows([], [read("dot", 100, 1.0), read("dot", 100, 1.05, round_index=2)]) == []


def test_data_that_the_cache_may_have_held_is_named() -> None:
    (note,) = explain_rows([], [read("dot", 150, 1.0, cache_bytes=100)])
    assert "dot moved only 1.50 times the last-level cache" in note


def test_a_rate_still_rising_at_the_last_batch_is_named() -> None:
    rows = [product_row(4, 1, 4, steady(1.0)), product_row(4, 2, 4, steady(1.0))]
    (note,) = explain_rows(rows, [])
    assert "still rising at B = 2" in note
