"""The logs in llama_cpp_logs/ are real: the buffer and context lines of xllamacpp 2026.10.11549, without paths.

SmolLM2-135M has 30 layers and 3 KV heads of 64, so 2 · 30 · 3 · 64 = 11,520 cache elements a token: 23,040 bytes
at f16, 12,240 at q8_0 (34 bytes for 32).
The sliding model is a small random Gemma 3: 6 layers, every sixth full, window 512, 2 KV heads of 64.
The recurrent one is a small Jamba: 4 layers, the third attends with 2 KV heads of 64, the others keep 3 columns of 512
channels and 512 · 64 values. The one with an indexer is a small DeepSeek V3.2: 4 layers, latents of 96 + 32, index keys
of 64.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_bench.engines.base import EngineFigures, KVCacheKind
from inference_bench.engines.llama_cpp_log import find_failure, find_last_line, parse_llama_cpp_log

LOGS = Path(__file__).parent / "llama_cpp_logs"


def read(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "context", "per_slot", "slots", "unified"),
    [
        ("f16_4096_tokens_4_slots", 4096, 1024, 4, False),
        ("q8_0_4096_tokens_4_slots", 4096, 1024, 4, False),
        ("f16_4100_tokens_4_slots", 5120, 1280, 4, False),  # 1025 a slot, rounded up to a multiple of 256
        ("kv_unified_4096_tokens_4_slots", 4096, 4096, 4, True),
        ("trained_length_1_slot", 8192, 8192, 1, False),
        ("sliding_8192_tokens_4_slots", 8192, 2048, 4, False),
    ],
)
def test_the_context_is_read_as_the_engine_rounded_it(
    name: str, context: int, per_slot: int, slots: int, unified: bool
) -> None:
    figures = parse_llama_cpp_log(read(name))
    assert (figures.context_tokens_total, figures.context_tokens_per_slot) == (context, per_slot)
    assert (figures.num_slots, figures.kv_unified, figures.n_ctx_train) == (slots, unified, 8192)
    assert (figures.token_budget, figures.micro_batch) == (2048, 512)


@pytest.mark.parametrize(
    ("name", "cells", "streams", "types", "printed", "exact_bytes"),
    [
        ("f16_4096_tokens_4_slots", 1024, 4, ("f16", "f16"), "90.00", 4096 * 23_040),
        ("q8_0_4096_tokens_4_slots", 1024, 4, ("q8_0", "q8_0"), "47.81", 4096 * 12_240),
        ("f16_4100_tokens_4_slots", 1280, 4, ("f16", "f16"), "112.50", 5120 * 23_040),
        ("kv_unified_4096_tokens_4_slots", 4096, 1, ("f16", "f16"), "90.00", 4096 * 23_040),
        ("keys_q8_0_values_f16_no_flash_attention", 1024, 4, ("q8_0", "f16"), "68.91", 4096 * (6_120 + 11_520)),
        ("trained_length_1_slot", 8192, 1, ("f16", "f16"), "180.00", 8192 * 23_040),
    ],
)
def test_the_kv_cache_is_read_and_agrees_with_the_count(
    name: str, cells: int, streams: int, types: tuple[str, str], printed: str, exact_bytes: int
) -> None:
    (buffer,) = parse_llama_cpp_log(read(name)).kv_buffers
    assert (buffer.kind, buffer.cells, buffer.num_streams, buffer.layers) == (KVCacheKind.FULL, cells, streams, 30)
    assert (buffer.k_type, buffer.v_type) == types
    assert buffer.num_sequences == (1 if name == "trained_length_1_slot" else 4)
    assert buffer.size.text == printed
    assert buffer.size.agrees_with(exact_bytes)
    assert not buffer.size.agrees_with(exact_bytes + 23_040)


@pytest.mark.parametrize(
    ("name", "full_cells", "sliding_cells", "streams"),
    [
        # the window 512 plus the micro-batch 512, unless the full size is asked for
        ("sliding_8192_tokens_4_slots", 2048, 1024, 4),
        ("sliding_full_8192_tokens_2_slots", 4096, 4096, 2),
    ],
)
def test_the_cache_of_sliding_layers_is_read_apart(
    name: str, full_cells: int, sliding_cells: int, streams: int
) -> None:
    figures = parse_llama_cpp_log(read(name))
    full, sliding = figures.kv_buffers
    assert (full.kind, full.cells, full.layers, full.num_streams) == (KVCacheKind.FULL, full_cells, 1, streams)
    assert (sliding.kind, sliding.cells, sliding.layers) == (KVCacheKind.SLIDING, sliding_cells, 5)
    per_layer_and_token = 2 * 2 * 64 * 2
    assert full.size.agrees_with(full_cells * streams * per_layer_and_token)
    assert sliding.size.agrees_with(sliding_cells * streams * 5 * per_layer_and_token)
    assert (figures.kv_cells, figures.sliding_kv_cells) == (full_cells * streams, sliding_cells * streams)


def test_recurrent_states_are_read_apart_from_keys_and_values() -> None:
    figures = parse_llama_cpp_log(read("recurrent_8192_tokens_2_slots"))
    (attention,) = figures.kv_buffers
    assert (attention.kind, attention.layers, attention.cells) == (KVCacheKind.FULL, 1, 4096)
    assert attention.size.agrees_with(2 * 4096 * 2 * 2 * 64 * 2)
    (states,) = figures.state_buffers
    assert (states.cells, states.layers, states.num_sequences) == (2, 4, 2)
    assert (states.convolution_type, states.recurrent_type) == ("f32", "f32")
    assert states.convolution.agrees_with(2 * 3 * 3 * 512 * 4)
    assert states.recurrent.agrees_with(2 * 3 * 512 * 64 * 4)
    assert states.size.agrees_with(2 * 3 * (3 * 512 + 512 * 64) * 4)
    assert figures.state_bytes == states.size.nearest_bytes
    assert figures.read_from["state_buffers"].startswith("log: llama_memory_recurrent: size = 0.79 MiB")


def test_index_keys_are_read_apart_from_latents() -> None:
    main, index = parse_llama_cpp_log(read("indexer_8192_tokens_2_slots")).kv_buffers
    assert (main.kind, index.kind) == (KVCacheKind.FULL, KVCacheKind.INDEX)
    assert main.size.agrees_with(2 * 4096 * 4 * 128 * 2)
    assert index.size.agrees_with(2 * 4096 * 4 * 64 * 2)


def test_a_model_without_recurrent_layers_has_no_states() -> None:
    figures = parse_llama_cpp_log(read("f16_4096_tokens_4_slots"))
    assert (figures.state_buffers, figures.state_bytes) == ((), None)


def test_the_model_and_working_buffers_are_read() -> None:
    figures = parse_llama_cpp_log(read("f16_4096_tokens_4_slots"))
    assert [(buffer.device, buffer.size.text) for buffer in figures.model_buffers] == [("CPU_Mapped", "92.10")]
    assert figures.model_buffers[0].size.agrees_with(96_576_768)
    assert [(buffer.device, buffer.size.text) for buffer in figures.compute_buffers] == [("CPU", "15.64")]


@pytest.mark.parametrize(
    ("name", "flash_attention"),
    [
        ("f16_4096_tokens_4_slots", True),  # left to the engine, which turned it on
        ("q8_0_4096_tokens_4_slots", True),  # turned on because the values are quantised
        ("keys_q8_0_values_f16_no_flash_attention", False),
    ],
)
def test_whether_flash_attention_is_used_is_read_after_the_engines_own_choice(name: str, flash_attention: bool) -> None:
    assert parse_llama_cpp_log(read(name)).flash_attention is flash_attention


def test_every_figure_names_the_line_it_was_read_from() -> None:
    figures = parse_llama_cpp_log(read("sliding_8192_tokens_4_slots"))
    assert figures.read_from["context_tokens_total"] == "log: llama_context: n_ctx = 8192"
    assert figures.read_from["kv_buffers"].count("llama_kv_cache: size =") == 2
    read_fields = {name for name in EngineFigures.__dataclass_fields__ if getattr(figures, name) not in (None, ())}
    assert set(figures.read_from) == read_fields - {"read_from"}


def test_a_log_without_times_is_read_as_well() -> None:
    line = (
        "llama_kv_cache: size = 40.00 MiB ( 1024 cells, 10 layers, 2/1 seqs), K (f16): 20.00 MiB, V (bf16): 20.00 MiB"
    )
    (buffer,) = parse_llama_cpp_log(line).kv_buffers
    assert (buffer.cells, buffer.layers, buffer.num_sequences, buffer.num_streams) == (1024, 10, 2, 1)
    assert (buffer.k_type, buffer.v_type) == ("f16", "bf16")


def test_the_first_context_counts_where_a_draft_model_adds_another() -> None:
    figures = parse_llama_cpp_log(read("f16_4096_tokens_4_slots") + read("trained_length_1_slot"))
    assert (figures.context_tokens_total, figures.num_slots) == (4096, 4)


@pytest.mark.parametrize("text", ["", "\n", "hello", "llama_context: n_ctx = many", "\x00\xff\ufffd" * 50])
def test_a_text_that_is_no_such_log_gives_no_figure(text: str) -> None:
    assert parse_llama_cpp_log(text) == EngineFigures()


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("fails_quantised_values_without_flash_attention", "quantized V cache requires flash_attn to be enabled"),
        ("fails_not_gguf", "invalid magic characters: 'not ', expected 'GGUF'"),
        ("fails_truncated", "tensor 'token_embd.weight' data is not within the file bounds"),
        ("fails_too_little_memory", "insufficient memory (attempted to allocate 43965.00 MB)"),
        ("fails_port_in_use", "couldn't bind HTTP server socket"),
    ],
)
def test_the_first_error_explains_a_failed_start(name: str, cause: str) -> None:
    found = find_failure(read(name))
    assert found is not None
    assert cause in found


def test_a_failure_outside_the_engine_is_explained_by_the_last_line() -> None:
    assert find_failure("Traceback (most recent call last):\n  ...\nModuleNotFoundError: no xllamacpp\n\n") == (
        "ModuleNotFoundError: no xllamacpp"
    )
    assert find_failure("") is None


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "0.00.145.298 I warm-up\n/build/common/common.cpp:2245: get_sub_batch: failed to add token 0\n\n",
            "common.cpp:2245: get_sub_batch: failed to add token 0",
        ),
        (
            "/build/ggml/src/ggml.c:99: GGML_ASSERT(n > 0) failed\n[New LWP 7]\n#0 0x00 in wait4 ()\n",
            "ggml.c:99: GGML_ASSERT(n > 0) failed",
        ),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
            "terminate called after throwing an instance of 'std::bad_alloc'",
        ),
    ],
)
def test_a_failed_check_inside_the_engine_explains_its_end(log: str, cause: str) -> None:
    assert find_failure(log) == cause


def test_the_last_line_is_found_without_its_time() -> None:
    assert find_last_line("0.00.017.078 I srv   init: listening\n\n") == "srv init: listening"
