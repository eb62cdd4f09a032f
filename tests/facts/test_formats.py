from __future__ import annotations

import gguf
import pytest

from inference_bench.accounting.weights import weight_plan
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.formats import ggml_format, known_formats, number_format
from shapes import golden


@pytest.mark.parametrize(("name", "bits"), golden("bits_per_weight").items())
def test_bits_a_weight_count_scales_and_zero_points(name: str, bits: float) -> None:
    assert number_format(name).bits_per_value == bits


@pytest.mark.parametrize("kind", list(gguf.GGML_QUANT_SIZES), ids=lambda kind: kind.name)
def test_ggml_block_sizes_equal_those_of_the_gguf_package(kind: gguf.GGMLQuantizationType) -> None:
    values, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    assert ggml_format(int(kind)).count_bytes(values * 7, values) == num_bytes * 7


def test_a_row_that_ends_inside_a_block_pays_for_the_whole_block() -> None:
    assert number_format("q8_0").count_bytes(100, 50) == 2 * 2 * 34


def test_values_that_do_not_fill_their_rows_are_refused() -> None:
    with pytest.raises(RequestError, match="do not fill"):
        number_format("bf16").count_bytes(100, 30)


def test_names_are_found_whatever_their_case_and_spelling() -> None:
    assert number_format("Float16") is number_format("fp16") is number_format("F16")
    assert number_format("Q4_K").name == "q4_k"


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"q4_0|q4_1|q4_k"):
        number_format("q4_9")
    with pytest.raises(UnknownNameError, match="9999"):
        ggml_format(9999)


def test_every_format_has_a_source_and_at_least_one_compute_format() -> None:
    assert len(known_formats()) > 30
    for fmt in known_formats():
        assert fmt.source.title
        assert fmt.compute_formats


def test_a_plan_keeps_embeddings_in_16_bits_unless_told_otherwise() -> None:
    assert weight_plan("int4-g128").embedding.name == "bf16"
    plan = weight_plan("int4-g128,embedding=int8,head=int8")
    assert (plan.embedding.name, plan.head.name, plan.norm.name) == ("int8", "int8", "bf16")
    assert weight_plan(plan.name) == plan


@pytest.mark.parametrize("text", ["int4-g128,tail=int8", "int4-g128,head", "bf16,=int8"])
def test_a_plan_with_an_unknown_part_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="PART=FORMAT"):
        weight_plan(text)
