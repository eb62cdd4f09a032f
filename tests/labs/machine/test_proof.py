"""A wrong product, a wrong count: each is caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.labs.machine.ceilings import matrix_size_for
from inference_bench.labs.machine.request import MachineRequest
from inference_bench.labs.machine.result import Library
from labs.machine.sample import IDENTITY, SIZE, product

np = pytest.importorskip("numpy")


def test_a_product_in_float32_is_within_what_rounding_allows_and_a_transposed_one_is_not() -> None:
    from inference_bench.labs.machine.proof import error_over_allowed

    generator = np.random.default_rng(0)
    matrix = generator.uniform(-1, 1, (512, 512)).astype(np.float32)
    columns = generator.uniform(-1, 1, (512, 3)).astype(np.float32)
    assert error_over_allowed(matrix, columns, matrix @ columns, "float32") < 1
    assert error_over_allowed(matrix, columns, matrix.T @ columns, "float32") > 100


def test_a_product_of_another_column_is_caught_in_bfloat16_too() -> None:
    from inference_bench.labs.machine.proof import error_over_allowed

    generator = np.random.default_rng(0)
    matrix = generator.uniform(-1, 1, (512, 512)).astype(np.float32)
    columns = generator.uniform(-1, 1, (512, 4)).astype(np.float32)
    assert error_over_allowed(matrix, columns, matrix @ columns[:, ::-1], "bfloat16") > 1


def test_the_check_of_products_names_the_worst() -> None:
    from inference_bench.labs.machine.proof import check_products

    assert check_products([("a", 0.2), ("b", 0.4)]).is_met
    missed = check_products([("a", 0.2), ("b", 1.4)])
    assert not missed.is_met
    assert "b" in missed.found


def test_a_row_that_counts_other_operations_is_missed() -> None:
    from inference_bench.labs.machine.proof import check_counts

    right = product(Library.NUMPY, 8, 0.1)
    # by hand: 2 * 1000 * 1000 * 8 operations, 4 * (1000 * 1000 + 2 * 1000 * 8) bytes
    assert (right.row.counted_flops, right.row.counted_bytes) == (16_000_000, 4_064_000)
    assert check_counts(SIZE, [right]).is_met
    wrong = replace(right, row=replace(right.row, counted_flops=8_000_000))
    assert not check_counts(SIZE, [right, wrong]).is_met


def test_the_matrix_is_beyond_the_cache_in_quick_mode_and_within_memory_always() -> None:
    roomy = replace(IDENTITY, last_level_cache_bytes=32 << 20, available_memory_bytes=8 << 30)
    assert matrix_size_for(roomy, is_quick=True) == 6144  # 151 MB: over four times 33.6 MB, which 4096 (67 MB) is not
    assert matrix_size_for(roomy, is_quick=False) == 8192
    assert matrix_size_for(replace(roomy, available_memory_bytes=700 << 20), is_quick=False) == 4096
    with pytest.raises(MeasurementError, match="half of the free memory"):
        matrix_size_for(replace(roomy, available_memory_bytes=1 << 20), is_quick=False)


@pytest.mark.parametrize("fields", [{"max_batch": 0}, {"matrix_size": 8}, {"matrix_size": 1 << 20}])
def test_what_cannot_be_measured_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(RequestError):
        MachineRequest(**fields)  # type: ignore[arg-type]


def test_every_power_of_two_is_asked_for_in_full_and_fewer_in_quick() -> None:
    from inference_bench.labs.settings import LabSettings

    assert MachineRequest().batches == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert MachineRequest(LabSettings(is_quick=True)).batches == (1, 4, 16, 64, 256)
