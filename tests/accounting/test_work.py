from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.accounting.params import count_params, kept_by_identity
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import (
    HeadPositions,
    SequenceStep,
    count_attended_pairs,
    count_read_positions,
    count_step_work,
    decode_attention_intensity,
    decode_batch,
    matrix_intensity,
    prompt,
)
from inference_bench.errors import RequestError
from inference_bench.facts.load import known_model
from inference_bench.facts.models import Attention, ModelSpec
from shapes import cache_in, golden, hybrid_model, reference_model


def test_a_large_matrix_vector_product_in_16_bits_does_one_flop_a_byte() -> None:
    expected, _, tolerance = golden("intensity")["matvec_bf16_large"]
    assert matrix_intensity(8192, 8192, 1, 2) == pytest.approx(expected, rel=tolerance)


def test_that_product_reaches_a_third_of_a_percent_of_an_h100() -> None:
    expected, _, tolerance = golden("intensity")["h100_matvec_fraction_of_989"]
    reached = matrix_intensity(8192, 8192, 1, 2) * 3.35e12
    assert reached / 989e12 == pytest.approx(expected, rel=tolerance)


def test_decode_attention_with_four_queries_a_key_does_four_flops_a_byte_in_16_bits() -> None:
    assert (
        decode_attention_intensity(Attention(32, 8, 128), 2)
        == golden("intensity")["decode_attention_4q_per_kv_bf16"][0]
    )


def test_flops_of_a_token_are_two_a_matmul_parameter_plus_attention() -> None:
    # 2 · N_matmul + 4 · L · d · t, for a model whose query heads span the hidden size
    model = reference_model()
    weights = count_weights(model, weight_plan("bf16"))
    work = count_step_work(model, weights, cache_in("bf16"), decode_batch(5000, 1))
    assert work.flops == 2 * 8_927_875_072 + 4 * 36 * 4096 * 5000


@given(st.integers(0, 300), st.integers(1, 300), st.one_of(st.none(), st.integers(1, 400)))
def test_pairs_and_reads_equal_a_count_token_by_token(cached: int, new: int, window: int | None) -> None:
    attended = [set(range(max(0, end - window) if window else 0, end)) for end in range(cached + 1, cached + new + 1)]
    assert count_attended_pairs(cached, new, window) == sum(map(len, attended))
    assert count_read_positions(cached, new, window) == len(set().union(*attended))


@given(st.integers(1, 200))
def test_prefill_of_a_prompt_does_the_flops_of_decoding_it_token_by_token(tokens: int) -> None:
    model = hybrid_model()
    weights, fmt = count_weights(model, weight_plan("bf16")), cache_in("bf16")
    whole = count_step_work(model, weights, fmt, prompt(tokens), HeadPositions.ALL).flops
    steps = [count_step_work(model, weights, fmt, decode_batch(length, 1)).flops for length in range(1, tokens + 1)]
    assert whole == sum(steps)


@given(st.integers(1, 50), st.integers(1, 5000))
def test_a_batch_shares_one_read_of_the_weights(batch: int, context: int) -> None:
    model = reference_model()
    weights, fmt = count_weights(model, weight_plan("int4-g128")), cache_in("bf16")
    many = count_step_work(model, weights, fmt, decode_batch(context, batch))
    apart = count_step_work(model, weights, fmt, [SequenceStep(context - 1, 1)] * batch)
    one = count_step_work(model, weights, fmt, decode_batch(context, 1))
    assert (many.flops, many.num_bytes) == (apart.flops, apart.num_bytes)
    assert many.flops == batch * one.flops
    assert many.num_bytes == one.num_bytes + (batch - 1) * (147456 * (context + 1) + weights.embedding_row)


def test_a_tied_table_is_read_once_a_step_as_the_head() -> None:
    model = known_model("SmolLM2-135M")
    weights = count_weights(model, weight_plan("bf16"))
    work = count_step_work(model, weights, cache_in("fp16"), decode_batch(1, 1))
    assert sum(operation.weight_bytes for operation in work.operations) == 2 * 134_515_008
    assert count_params(model).matmul == 134_515_008


@pytest.mark.parametrize("steps", [(), (SequenceStep(0, 0),), (SequenceStep(-1, 1),), (SequenceStep(0, 1, 0),)])
def test_an_empty_step_is_refused(steps: tuple[SequenceStep, ...]) -> None:
    model = reference_model()
    with pytest.raises(RequestError, match="at least one"):
        count_step_work(model, count_weights(model, weight_plan("bf16")), cache_in("bf16"), steps)


def test_what_is_counted_once_for_a_model_is_its_own_and_not_that_of_another() -> None:
    calls: list[str] = []

    def count(model: ModelSpec) -> int:
        calls.append(model.name)
        return count_params(model).total

    kept, first = kept_by_identity(count), reference_model()
    models = [replace(first, name=f"model {number}", vocab_size=1000 + number) for number in range(20)]
    for model in (*models, *models, *reversed(models)):
        assert kept(model) == count_params(model).total
    before = len(calls)
    assert kept(models[0]) == count_params(models[0]).total
    assert len(calls) == before
