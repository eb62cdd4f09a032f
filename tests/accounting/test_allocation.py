from __future__ import annotations

import pytest

from inference_bench.accounting.allocation import llama_cpp_allocation, vllm_allocation
from inference_bench.accounting.cache import CacheFormat
from inference_bench.errors import RequestError
from inference_bench.facts.formats import number_format
from inference_bench.facts.load import known_model
from shapes import cache_in, reference_model

MIB = 2**20

# (n_ctx, slots, unified, keys, values, MiB the server's log printed), SmolLM2-135M, llama.cpp of October 2026
LOGGED = [
    (4096, 4, False, "fp16", "fp16", "90.00"),
    (4096, 4, False, "q8_0", "q8_0", "47.81"),
    (4096, 4, False, "q4_0", "q4_0", "25.31"),
    (4096, 4, False, "q8_0", "fp16", "68.91"),
    (1024, 1, False, "fp32", "fp32", "45.00"),
    (4096, 4, True, "fp16", "fp16", "90.00"),
    (8192, 1, False, "fp16", "fp16", "180.00"),
    (4100, 4, False, "fp16", "fp16", "112.50"),
]


@pytest.mark.parametrize(("context", "slots", "unified", "keys", "values", "printed"), LOGGED)
def test_llama_cpp_buffers_equal_what_its_log_printed(
    context: int, slots: int, unified: bool, keys: str, values: str, printed: str
) -> None:
    fmt = CacheFormat(number_format(keys), number_format(values))
    allocation = llama_cpp_allocation(known_model("SmolLM2-135M"), fmt, context, slots, unified=unified)
    assert f"{allocation.num_bytes / MIB:.2f}" == printed


def test_llama_cpp_gives_sliding_layers_their_window_and_a_micro_batch() -> None:
    # worked figure of the published rule: 10 · 32768 · 8192 + 52 · 1536 · 8192
    allocation = llama_cpp_allocation(known_model("gemma-3-27b-it"), cache_in("fp16"), 32768, 1)
    assert allocation.num_bytes == 3_338_665_984
    whole = llama_cpp_allocation(known_model("gemma-3-27b-it"), cache_in("fp16"), 32768, 1, full_size_window=True)
    assert whole.num_bytes == 62 * 32768 * 8192


def test_vllm_takes_whole_blocks() -> None:
    # 182 blocks of 128 tokens in 1 GiB at 46080 bytes a token, as its log printed for SmolLM2-135M in float32
    allocation = vllm_allocation(known_model("SmolLM2-135M"), cache_in("fp32"), 23_296 - 5, 1, block_size=128)
    assert allocation.num_bytes == 23_296 * 46_080
    assert 2**30 // (128 * 46_080) == 182


def test_vllm_pages_of_mixed_layers_are_refused_and_not_guessed() -> None:
    with pytest.raises(RequestError, match="sliding"):
        vllm_allocation(known_model("gemma-3-27b-it"), cache_in("bf16"), 32768, 1)


def test_nothing_to_allocate_is_refused() -> None:
    with pytest.raises(RequestError, match="at least 1"):
        llama_cpp_allocation(reference_model(), cache_in("fp16"), 0, 1)
