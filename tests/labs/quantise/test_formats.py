"""Number formats: their ranges as the standards print them, and rounding against every value there is."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from inference_bench.labs.quantise.formats import FLOATS, format_rows  # noqa: E402
from inference_bench.labs.quantise.small_floats import (  # noqa: E402
    E2M1_VALUES,
    FP8_CHANNEL,
    MXFP4,
    NVFP4,
    nearest_e2m1,
    nearest_e4m3,
)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("fp32", torch.float32),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
        ("fp8 E5M2", torch.float8_e5m2),
        ("fp8 E4M3", torch.float8_e4m3fn),
    ],
)
def test_largest_and_step_of_a_float_are_those_that_pytorch_knows(name: str, dtype: torch.dtype) -> None:
    known = torch.finfo(dtype)
    assert (FLOATS[name].largest, FLOATS[name].step_at_one) == (known.max, known.eps)


def test_fp4_and_subnormals_as_the_ocp_specifications_list_them() -> None:
    assert (FLOATS["fp4 E2M1"].largest, FLOATS["fp4 E2M1"].smallest) == (6.0, 0.5)
    assert FLOATS["fp8 E4M3"].smallest == 2.0**-9
    assert FLOATS["fp8 E5M2"].smallest == 2.0**-16
    assert FLOATS["fp16"].smallest == 2.0**-24


def test_the_bits_of_each_format_with_its_scales() -> None:
    bits = {row.name: row.bits_per_value for row in format_rows()}
    assert bits["MXFP4"] == 4.25
    assert bits["NVFP4"] == 4.5
    assert bits["int4, group 128"] == 4.125
    assert bits["int4, group 128, zero"] == 4.25
    assert bits["GGUF q4_0"] == 4.5
    assert bits["GGUF q8_0"] == 8.5


def test_fp4_rounds_every_value_to_the_nearest_of_its_fifteen() -> None:
    values = torch.linspace(-8, 8, 3201)
    points = torch.tensor(sorted({sign * point for point in E2M1_VALUES for sign in (-1, 1)}))
    off = (nearest_e2m1(values) - values).abs()
    torch.testing.assert_close(off, (values[:, None] - points).abs().min(dim=1).values)


def test_fp4_rounds_halves_to_the_even_fraction() -> None:
    halves = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert nearest_e2m1(halves).tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]


def test_what_lies_beyond_fp8_becomes_its_greatest_value() -> None:
    assert nearest_e4m3(torch.tensor([1e6, -500.0, 448.0])).tolist() == [448.0, -448.0, 448.0]


def test_mxfp4_scales_are_powers_of_two_of_the_exponent_of_the_greatest_value() -> None:
    weight = torch.zeros(1, 32)
    weight[0, 0], weight[0, 1] = 5.0, 1.3  # floor(log2 5) - 2 = 0: scale 1, and 1.3 becomes 1.5
    rounded = MXFP4.rounded(weight)
    assert (float(rounded[0, 0]), float(rounded[0, 1])) == (4.0, 1.5)
    assert torch.equal(MXFP4.rounded(weight * 8), rounded * 8)


def test_nvfp4_keeps_the_greatest_value_of_the_matrix() -> None:
    weight = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    rounded = NVFP4.rounded(weight)
    row, column = divmod(int(weight.abs().argmax()), 64)
    torch.testing.assert_close(rounded[row, column], weight[row, column])


@pytest.mark.parametrize(
    ("grid", "bits"), [(MXFP4, 64 * 128 * 4.25), (NVFP4, 64 * 128 * 4.5 + 32), (FP8_CHANNEL, 64 * 128 * 8 + 64 * 32)]
)
def test_exact_bits_of_small_floats(grid: object, bits: float) -> None:
    assert grid.storage_bits(64, 128) == bits  # type: ignore[attr-defined]


@pytest.mark.parametrize("grid", [MXFP4, NVFP4, FP8_CHANNEL])
def test_a_matrix_of_zeros_stays_one(grid: object) -> None:
    assert not grid.rounded(torch.zeros(2, 32)).any()  # type: ignore[attr-defined]
