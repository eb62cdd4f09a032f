"""The latency of a request: against the reference case, a loop over every step, and what must always hold."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import HeadPositions, SequenceStep, decode_batch
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.latency import (
    RequestLengths,
    bound_batch_limits,
    predict_batch_curve,
    predict_hybrid_step_seconds,
    predict_request_latency,
    predict_ttft_seconds,
    sum_decode_steps,
)
from inference_bench.predict.step_cost import PeakShares, ServedModel
from inference_bench.predict.step_sum import CLOSE_TOLERANCE, sum_steps
from inference_bench.roofline import Roof
from shapes import HERE, cache_in, golden, hybrid_model, reference_model

LLAMA4 = {
    "model_type": "llama4_text",
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 1024,
    "intermediate_size_mlp": 2048,
    "vocab_size": 4096,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "attention_chunk_size": 64,
    "interleave_moe_layer_step": 1,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class ReferenceCost:
    """The reference case's own rule: max(bytes / BW, FLOPs / C) from five numbers, sharing no code with the product."""

    bandwidth: float = 1e12
    peak: float = 165e12
    mfu: float = 0.5

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        read = sum(s.count * (s.num_cached + s.num_new) for s in sequences)
        pairs = sum(s.count * (s.num_new * s.num_cached + s.num_new * (s.num_new + 1) // 2) for s in sequences)
        positions = sum(s.count * s.num_new for s in sequences)
        flops = 2 * 8_927_875_072 * positions + 4 * 36 * 4096 * pairs
        return max((5.5e9 + 147_456 * read) / self.bandwidth, flops / (self.mfu * self.peak))


def check(name: str, value: float) -> None:
    expected, _unit, tolerance = golden("figures")[name]
    assert value == pytest.approx(expected, rel=tolerance, abs=0)


def served(
    model: ModelSpec | None = None, weights: str = "bf16", head: HeadPositions = HeadPositions.LAST
) -> ServedModel:
    model = model or reference_model()
    return ServedModel(model, count_weights(model, weight_plan(weights)), cache_in("bf16"), head)


def peak_shares(compute_share: float = 1.0, head: HeadPositions = HeadPositions.LAST) -> PeakShares:
    weights = "int4-g128,embedding=int8,head=int8"
    return PeakShares(served(weights=weights, head=head), Roof(1e12, 165e12, "bf16"), compute_share=compute_share)


MODELS = {
    "full": reference_model(),
    "windows": hybrid_model(),
    "chunks": model_from_config(LLAMA4, "chunks", HERE),
}
models = st.sampled_from(sorted(MODELS))
roofs = st.builds(Roof, st.floats(1e10, 1e13), st.floats(1e12, 1e15), st.just("bf16"))


def bound_of(name: str, ceiling: Roof) -> PeakShares:
    return PeakShares(served(MODELS[name]), ceiling)


# ── the reference case ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "cost", [ReferenceCost(), peak_shares(0.5, HeadPositions.ALL)], ids=["the case's own rule", "our count"]
)
def test_prefill_and_hybrid_steps_of_the_reference_case(cost: ReferenceCost | PeakShares) -> None:
    check("prefill_4000_s", predict_ttft_seconds(cost, RequestLengths(4000, 1)))
    check("warm_prefix_1000_of_4000_s", predict_ttft_seconds(cost, RequestLengths(4000, 1, cached_tokens=3000)))
    for chunk, name in ((512, "chunk512"), (128, "chunk128")):
        opening = f"{name}_17_decodes_opening_s" if chunk == 512 else f"{name}_opening_s"
        check(opening, predict_hybrid_step_seconds(cost, 5000, 17, chunk))
        check(f"{name}_after_2000_s", predict_hybrid_step_seconds(cost, 5000, 17, chunk, 2000))


def test_decode_of_the_reference_case() -> None:
    one, eighteen = predict_batch_curve(ReferenceCost(), 5000, (1, 18))
    check("solo_step_s", one.step_s)
    check("batch18_step_s", eighteen.step_s)
    check("batch18_tokens_per_s", eighteen.tokens_per_s)
    assert eighteen.sequence_tokens_per_s == pytest.approx(1 / 0.01877104)


def test_the_low_load_latency_of_the_reference_case_and_how_close_its_shortcut_is() -> None:
    found = predict_request_latency(ReferenceCost(), RequestLengths(4000, 2000))
    check("prefill_4000_s", found.ttft_s)
    check("low_load_e2e_s", found.e2e_s)
    check("low_load_e2e_s", found.mean_context_e2e_s)
    assert found.mean_context_error == pytest.approx(0, abs=1e-12)  # every step is memory-limited and affine
    assert found.tpot_s == pytest.approx(0.00623728)


PROFILES = [name for name in golden("profiles") if name != "columns"]


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_gives_its_printed_ttft_and_rates(name: str) -> None:
    row = dict(zip(golden("profiles")["columns"], golden("profiles")[name], strict=True))
    cost = ReferenceCost(row["bandwidth_TB_s"] * 1e12, row["dense_TFLOP_s"] * 1e12)
    one, full = predict_batch_curve(cost, 5000, (1, row["sequences"]))
    assert predict_ttft_seconds(cost, RequestLengths(4000, 1)) == pytest.approx(row["ttft_s"], abs=0.0005)
    assert one.tokens_per_s == pytest.approx(row["solo_tokens_s"], abs=0.05)
    assert full.tokens_per_s == pytest.approx(row["batch_tokens_s"], abs=0.05)


@pytest.mark.parametrize(("name", "plan"), [("bf16", "bf16"), ("int8", "int8,embedding=int8,head=int8")])
def test_other_weights_on_the_24_gb_profile(name: str, plan: str) -> None:
    row, bandwidth = golden("profiles_other_weights")[name], 1e12
    weights = count_weights(reference_model(), weight_plan(plan))
    read = weights.total + 147_456 * 5000
    assert bandwidth / read == pytest.approx(row["solo_tokens_s"], rel=0.001)
    assert (24_000_000_000 - weights.total - 2_500_000_000) // (147_456 * 6000) == row["sequences"]


def test_the_desktop_processor_of_the_reference_case() -> None:
    figures = golden("cpu_example")
    cost = ReferenceCost(figures["bandwidth_bytes_per_s"], 0.5e12, mfu=1.0)
    (solo,) = predict_batch_curve(ReferenceCost(figures["bandwidth_bytes_per_s"], math.inf), 5000, (1,))
    expected, _, tolerance = figures["solo_tokens_per_s"]
    assert solo.tokens_per_s == pytest.approx(expected, rel=tolerance)
    expected, _, tolerance = figures["prefill_4000_s"]
    assert predict_ttft_seconds(cost, RequestLengths(4000, 1)) == pytest.approx(expected, rel=tolerance)


# ── sums over steps ────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=40, deadline=None)
@given(models, roofs, st.integers(1, 3000), st.integers(1, 1500), st.sampled_from([1, 7, 300]))
def test_the_sum_over_a_generation_equals_the_loop_over_every_step(
    name: str, ceiling: Roof, prompt: int, output: int, batch: int
) -> None:
    cost = bound_of(name, ceiling)
    loop = math.fsum(cost.step_s(decode_batch(prompt + j, batch)) for j in range(1, output))
    found = sum_decode_steps(cost, prompt, output, batch)
    assert found.seconds == pytest.approx(loop, rel=1e-6 if name == "chunks" else 1e-12)
    assert found.tolerance == CLOSE_TOLERANCE or name == "chunks"  # which has a corner every 64 tokens


@settings(max_examples=40, deadline=None)
@given(models, roofs, st.integers(1, 4000), st.integers(0, 3000), st.integers(1, 400))
def test_the_sum_over_chunks_equals_the_loop_over_every_chunk(
    name: str, ceiling: Roof, new: int, cached: int, chunk: int
) -> None:
    cost = bound_of(name, ceiling)
    starts = range(cached, cached + new, chunk)
    loop = math.fsum(cost.step_s((SequenceStep(start, min(chunk, cached + new - start)),)) for start in starts)
    lengths = RequestLengths(cached + new, 1, cached, chunk)
    assert predict_ttft_seconds(cost, lengths) == pytest.approx(loop, rel=1e-6 if name == "chunks" else 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 400), st.integers(1, 400), st.floats(0, 1), st.floats(0, 1))
def test_sums_follow_any_corner_and_any_saw_tooth(
    steps: int, corner: int, period: int, rise: float, fall: float
) -> None:
    def price(index: int) -> float:
        return 1 + rise * max(0, index - 7 * corner) + fall * (index % period)

    assert sum_steps(price, steps).seconds == pytest.approx(math.fsum(map(price, range(steps))), rel=1e-3)


def test_sums_of_a_smooth_curve_are_close_and_say_how_close() -> None:
    def price(index: int) -> float:
        return 1e-3 * math.hypot(1, (index + 1) / 9000) + 1e-6 * math.sqrt(index + 1)

    found = sum_steps(price, 100_000)
    assert found.seconds == pytest.approx(math.fsum(map(price, range(100_000))), rel=1e-7)
    assert found.num_priced < 2000


@pytest.mark.parametrize("name", ["full", "windows"])
def test_a_long_generation_is_summed_from_few_steps(name: str) -> None:
    cost = bound_of(name, Roof(1e12, 165e12, "bf16"))
    started = time.perf_counter()
    found = sum_decode_steps(cost, 4000, 100_000, 16)
    assert time.perf_counter() - started < 1  # seconds, on a busy machine; one step takes about 15 µs
    assert found.num_priced < 2000
    assert found.tolerance <= 1e-4


def test_a_sum_of_more_corners_than_can_be_followed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_bench.predict.step_sum._MOST_PRICES", 1000)
    with pytest.raises(RequestError, match="ask for fewer tokens"):
        sum_decode_steps(bound_of("chunks", Roof(1e12, 165e12, "bf16")), 4000, 1 << 30)


def test_the_shortcut_is_wrong_where_a_window_fills_and_says_by_how_much() -> None:
    cost = PeakShares(served(hybrid_model()), Roof(1e12, 165e12, "bf16"))
    found = predict_request_latency(cost, RequestLengths(1000, 4000), batch=64)
    loop = math.fsum(cost.step_s(decode_batch(1000 + j, 64)) for j in range(1, 4000))
    assert found.decode_s == pytest.approx(loop, rel=1e-12)
    assert found.mean_context_decode_s == pytest.approx(3999 * cost.step_s(decode_batch(3000, 64)), rel=1e-12)
    assert found.mean_context_error == pytest.approx(found.mean_context_decode_s / loop - 1)
    assert found.mean_context_error > 0.01


# ── what must always hold ──────────────────────────────────────────────────────────────────────────


@settings(deadline=None)
@given(models, roofs, st.integers(1, 5000), st.integers(1, 300))
def test_a_step_takes_at_least_the_time_of_each_arm(name: str, ceiling: Roof, context: int, batch: int) -> None:
    cost = bound_of(name, ceiling)
    work, seconds = cost.served.work(decode_batch(context, batch)), cost.step_s(decode_batch(context, batch))
    assert seconds >= work.num_bytes / (ceiling.bandwidth_bytes_per_s or 1)
    assert seconds >= work.flops / (ceiling.peak_flops_per_s or 1)


@settings(deadline=None)
@given(models, roofs, st.integers(1, 5000), st.integers(1, 300), st.integers(1, 300))
def test_a_larger_batch_never_shortens_a_step(name: str, ceiling: Roof, context: int, batch: int, more: int) -> None:
    small, large = predict_batch_curve(bound_of(name, ceiling), context, (batch, batch + more))
    assert large.step_s >= small.step_s
    assert large.sequence_tokens_per_s <= small.sequence_tokens_per_s


@settings(deadline=None)
@given(models, roofs, st.integers(1, 5000), st.lists(st.integers(1, 10_000), min_size=1, max_size=5))
def test_the_batch_curve_stays_below_its_limits(name: str, ceiling: Roof, context: int, batches: list[int]) -> None:
    cost = bound_of(name, ceiling)
    limit = bound_batch_limits(cost.served, ceiling, context).tokens_per_s
    assert limit is not None
    assert all(row.tokens_per_s < limit * (1 + 1e-9) for row in predict_batch_curve(cost, context, batches))


@settings(deadline=None)
@given(models, roofs, st.integers(1, 6000), st.integers(0, 5999), st.integers(1, 6000))
def test_prefill_in_chunks_is_never_faster_than_in_one_step_under_a_bound(
    name: str, ceiling: Roof, prompt: int, cached: int, chunk: int
) -> None:
    cost, cached = bound_of(name, ceiling), min(cached, prompt - 1)
    whole = predict_ttft_seconds(cost, RequestLengths(prompt, 1, cached))
    assert predict_ttft_seconds(cost, RequestLengths(prompt, 1, cached, chunk)) >= whole * (1 - 1e-12)


@settings(deadline=None)
@given(models, roofs, st.integers(1, 6000), st.integers(1, 64))
def test_one_output_token_has_no_tpot_and_ends_with_its_first(
    name: str, ceiling: Roof, prompt: int, batch: int
) -> None:
    found = predict_request_latency(bound_of(name, ceiling), RequestLengths(prompt, 1), batch)
    assert found.e2e_s == found.mean_context_e2e_s == found.ttft_s
    assert (found.tpot_s, found.mean_context_error) == (None, None)


@settings(deadline=None)
@given(models, roofs, st.integers(1, 4000), st.integers(1, 64), st.integers(1, 2000), st.integers(0, 4000))
def test_a_hybrid_step_is_no_shorter_than_its_parts_and_no_longer_than_their_sum(
    name: str, ceiling: Roof, context: int, batch: int, chunk: int, cached: int
) -> None:
    cost = bound_of(name, ceiling)
    together = predict_hybrid_step_seconds(cost, context, batch, chunk, cached)
    decode, prefill = cost.step_s(decode_batch(context, batch)), cost.step_s((SequenceStep(cached, chunk),))
    assert max(decode, prefill) * (1 - 1e-12) <= together <= (decode + prefill) * (1 + 1e-12)


def test_the_limit_of_the_batch_is_bandwidth_over_the_cache_of_one_sequence() -> None:
    ceiling = Roof(1e12, 165e12, "bf16")
    limits = bound_batch_limits(served(), ceiling, 5000)
    assert limits.memory_tokens_per_s == pytest.approx(1e12 / (147_456 * 5000))
    assert limits.compute_tokens_per_s == pytest.approx(165e12 / (2 * 8_927_875_072 + 4 * 36 * 4096 * 5000))
    full, window = (13 * 2 * 2 * 128 * 2, 39 * 2 * 2 * 128 * 2)
    hybrid = bound_batch_limits(served(hybrid_model()), ceiling, 32_768)
    assert hybrid.memory_tokens_per_s == pytest.approx(1e12 / (full * 32_768 + window * 2048))
    assert bound_batch_limits(served(), Roof(None, None, None), 5000).tokens_per_s is None


# ── what cannot be asked ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((0, 1), "prompt is 0"),
        ((-5, 1), "prompt is -5"),
        ((10, 0), "output is 0"),
        ((10, 1 << 50), "output is"),
        ((1 << 50, 1), "prompt is"),
        ((10.5, 1), "prompt is 10.5"),
        ((math.nan, 1), "prompt is nan"),
        ((True, 1), "prompt is True"),
        ((10, 1, 10), "cached prefix of 10 tokens"),
        ((10, 1, -1), "cached prefix of -1 tokens"),
        ((10, 1, 0, 0), "chunk is 0"),
    ],
)
def test_impossible_lengths_are_refused_with_what_is_allowed(lengths: tuple[int, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        RequestLengths(*lengths)


@dataclass(frozen=True)
class Broken:
    seconds: float

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        return self.seconds


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_step_time_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(RequestError, match="is no time"):
        predict_request_latency(Broken(seconds), RequestLengths(10, 100))
    with pytest.raises(RequestError, match="is no time"):
        predict_batch_curve(Broken(seconds), 10, (1,))


def test_impossible_batches_and_contexts_are_refused() -> None:
    cost = peak_shares()
    for context, batch in ((0, 1), (10, 0), (10, -1), (-1, 1)):
        with pytest.raises(RequestError, match="whole number"):
            predict_batch_curve(cost, context, (batch,))
    with pytest.raises(RequestError, match="takes no time"):
        predict_batch_curve(Broken(0.0), 10, (1,))
    with pytest.raises(RequestError, match="batch is 0"):
        predict_request_latency(cost, RequestLengths(10, 5), 0)
    with pytest.raises(RequestError, match="chunk is 0"):
        predict_hybrid_step_seconds(cost, 10, 1, 0)
