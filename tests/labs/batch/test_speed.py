"""Bounds against numbers worked out by hand, and what a step is broken into."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import Source
from inference_bench.labs.batch.bounds import attention_alone, decode_work, prefill_work, products_alone, whole_step
from inference_bench.labs.batch.breakdown import Kind, Linears, break_down, kind_of
from inference_bench.labs.batch.speed import Repeats, Timing, mean_contexts, measure_point, speed_point
from inference_bench.labs.machine.result import LabCeilings
from labs.batch.tiny import PAD, PROMPTS, tiny_llama

CEILINGS = LabCeilings(1e6, 1e7, "fp32", "by hand")
# by hand, of the tiny model: attention 32*32 + 2*32*16 + 32*32, feed-forward 3*32*64, two layers; head 61*32
LAYER = 3_072 + 6_144
MATRICES = 2 * LAYER + 61 * 32


def model() -> Any:
    network = tiny_llama()
    fields = {**network.config.to_dict(), "architectures": ["LlamaForCausalLM"]}
    spec = model_from_config(fields, "tiny", Source("by hand", "2026-11-30"))
    return SimpleNamespace(network=network, spec=spec, dtype="float32")


def test_a_decode_step_reads_each_weight_once_and_each_cached_position() -> None:
    spec = model().spec
    work = decode_work(spec, "float32", [5, 5, 9])
    norms = 5 * 32
    head = 61 * 32
    rows = 3 * 32  # of an input table that is not the head's
    cache = 2 * 2 * 2 * 8 * (5 + 5 + 9)  # layers, keys and values, heads, width, positions
    written = 2 * 2 * 2 * 8 * 3
    assert work.num_bytes == 4 * (2 * LAYER + head + norms + rows + cache + written)
    attention = 2 * 4 * 4 * 8 * (5 + 5 + 9)  # layers, 4 FLOPs, heads, width, positions
    assert work.flops == 3 * 2 * (MATRICES + norms) + attention


def test_the_bound_is_the_larger_of_memory_and_compute_by_hand() -> None:
    work = decode_work(model().spec, "float32", [5])
    bound = whole_step(work, CEILINGS)
    assert bound.seconds == pytest.approx(max(work.num_bytes / 1e6, work.flops / 1e7))
    assert bound.limited_by == "memory"
    assert products_alone(work, CEILINGS).seconds == pytest.approx(4 * MATRICES / 1e6)
    assert attention_alone(work, CEILINGS).num_bytes == 4 * 2 * 2 * 2 * 8 * 6


def test_half_the_bytes_in_bfloat16() -> None:
    spec = model().spec
    assert decode_work(spec, "float32", [5]).num_bytes == 2 * decode_work(spec, "bfloat16", [5]).num_bytes


def test_a_prefill_computes_every_real_token_and_the_head_once_a_sequence() -> None:
    work = prefill_work(model().spec, "float32", [3, 2])
    pairs = 3 * 4 // 2 + 2 * 3 // 2
    assert work.flops == 5 * 2 * (2 * LAYER + 5 * 32) + 2 * 2 * 61 * 32 + 2 * 4 * 4 * 8 * pairs


def test_a_point_of_known_times_has_the_rates_and_fractions_of_them() -> None:
    point = speed_point(model(), [3, 8], CEILINGS, Timing([2.0], [0.5, 0.4, 0.6, 0.5]), 4)
    assert (point.batch, point.padded_length_tokens, point.num_prompt_tokens) == (2, 8, 11)
    assert point.padded_fraction == pytest.approx(1 - 11 / 16)
    assert mean_contexts([3, 8], 4) == [7, 12]
    assert point.context_tokens == pytest.approx(9.5)
    assert (point.step_s, point.tokens_per_s, point.tokens_per_s_per_sequence) == (0.5, 4.0, 2.0)
    assert point.step_fraction_of_bound == pytest.approx(point.step_bound_s / 0.5)
    assert point.bound_tokens_per_s == pytest.approx(2 / point.step_bound_s)


def test_a_batch_is_timed_as_often_as_asked_after_a_prefill_that_warms_up() -> None:
    timed, widths = model(), list[int]()
    timed.network.register_forward_pre_hook(
        lambda _network, _args, named: widths.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    point = measure_point(timed, PROMPTS, PAD, CEILINGS, Repeats(2, 3), lambda _: None)
    assert (len(point.ttft_values_s), len(point.step_values_s)) == (2, 6)
    assert [width for width in widths if width > 1] == [8, 8, 8]
    assert widths[0] == widths[1] == 8


def test_a_concatenation_along_the_length_of_a_cache_is_told_from_rotary_halves() -> None:
    keys = torch.zeros(1, 2, 5, 8)
    assert kind_of("cat", ([keys, keys[:, :, :1]], -2)) is Kind.CACHE
    assert kind_of("cat", ([keys[..., :4], keys[..., 4:]], -1)) is Kind.OTHER
    assert kind_of("linear", ()) is Kind.PRODUCTS


def test_a_step_is_the_sum_of_its_parts_and_the_cache_copies_are_counted() -> None:
    found = break_down(model(), PROMPTS, PAD, CEILINGS, 3, lambda _: None)
    assert sum(part.taken_s for part in found.parts) == pytest.approx(found.step_s)
    parts = {part.name: part for part in found.parts}
    assert parts["matrix products"].num_calls == 2 * 7 + 1
    assert parts["attention"].num_calls == 2
    assert parts["cache made longer by copying"].num_calls == 2 * 2
    # 8 of the longest prompt, then 2 * (2 + 2) steps up to the middle one of three; read and
    # written: layers, K and V, sequences, heads, width, bytes
    assert found.copied_cache_bytes == 2 * 2 * 2 * 4 * 2 * 8 * 4 * (8 + 8)
    assert found.num_calls == sum(part.num_calls for part in found.parts[:-1])


def test_the_linear_layers_alone_are_all_of_them() -> None:
    linears = Linears.of(tiny_llama())
    assert len(linears.layers) == 15
    assert sum(layer.weight.numel() for layer in linears.layers) == MATRICES
    assert linears.alone_s(4, 2) > 0
