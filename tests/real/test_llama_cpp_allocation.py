"""The cache that a real llama.cpp server allocates for tiny models of each design, against our count of its rules.

Each model is described twice: to the engine by a GGUF file, to us by the config.json a model of that design has.
The engine prints MiB with two decimals; the sizes are chosen so that one layer, one padding step or one column of a
convolution more or less would print another number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference_bench.accounting.allocation import INDEX_KEYS, STATE, EngineAllocation, LayerAllocation
from inference_bench.accounting.allocation.llama_cpp import llama_cpp_allocation
from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, count_state
from inference_bench.engines.base import EngineFigures, KVBuffer, KVCacheKind
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.errors import RequestError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import LayerType, ModelSpec
from inference_bench.facts.source import Source
from real.tiny_models import TINY_MODELS, write_tiny_model

pytestmark = pytest.mark.real_engine
pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

MICRO_BATCH = 128
LARGER = {
    "llama4": {"context_tokens_total": 32768},  # more than the chunk of 8192 that the engine has built in
    "lfm2": {"context_tokens_total": 8192, "num_slots": 32},  # the histories of two slots are too small to be printed
    "lfm2moe": {"context_tokens_total": 8192, "num_slots": 32},
}
LISTED_EMPTY = {"deci": 1}  # layers without attention that the engine lists among those with a cache
WINDOWED = (LayerType.SLIDING_ATTENTION, LayerType.CHUNKED_ATTENTION)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def spec(name: str) -> ModelSpec:
    return model_from_config(TINY_MODELS[name]["config"], name, Source("a tiny model", "2026-11-29"))


def serve(folder: Path, name: str, **settings: Any) -> EngineFigures:
    """What the engine printed while it started; it has answered with a token by then."""
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_tiny_model(name, path)
    config = HostConfig(str(path), name, num_threads=1, max_micro_batch_tokens=MICRO_BATCH, **settings)
    with LlamaCppServer.start(config, log_path=folder / f"{name}.log", model_sha256="tiny") as server:
        return server.figures


def ours(name: str, settings: dict[str, Any]) -> EngineAllocation:
    fmt = CacheFormat(
        number_format(settings.get("cache_type_k", "f16")), number_format(settings.get("cache_type_v", "f16"))
    )
    return llama_cpp_allocation(
        spec(name),
        fmt,
        settings["context_tokens_total"],
        settings["num_slots"],
        unified=settings.get("kv_unified", False),
        micro_batch=MICRO_BATCH,
        full_size_window=settings.get("swa_full", False),
        flash_attention=settings.get("flash_attention") is not False,
    )


def check(figures: EngineFigures, name: str, settings: dict[str, Any]) -> None:
    allocation = ours(name, settings)
    printed = {buffer.kind: buffer for buffer in figures.kv_buffers}
    rows: dict[KVCacheKind, list[LayerAllocation]] = {}
    for row in allocation.layers:
        if row.holds != STATE:
            rows.setdefault(kind_of(row, printed), []).append(row)
    counts_empty = settings.get("flash_attention") is False  # they get values then, and a row of ours
    assert set(rows) == {kind for kind, buffer in printed.items() if buffer.layers}
    for kind, buffer in printed.items():
        check_buffer(buffer, rows.get(kind, []), 0 if counts_empty else LISTED_EMPTY.get(name, 0))
    assert allocation.context_tokens_per_sequence == figures.context_tokens_per_slot
    check_states(figures, name, allocation, settings["num_slots"])


def kind_of(row: LayerAllocation, printed: dict[KVCacheKind, KVBuffer]) -> KVCacheKind:
    if row.holds == INDEX_KEYS:
        return KVCacheKind.INDEX
    own = row.layer_type in WINDOWED and KVCacheKind.SLIDING in printed
    return KVCacheKind.SLIDING if own else KVCacheKind.FULL


def check_buffer(buffer: KVBuffer, rows: list[LayerAllocation], empty: int) -> None:
    assert sum(row.count for row in rows) + empty == buffer.layers
    assert {(row.cells, row.streams) for row in rows} == {(buffer.cells, buffer.num_streams)}
    total = sum(row.num_bytes for row in rows)
    assert buffer.size.agrees_with(total)
    for row in rows:  # a layer more or less would be seen
        assert not buffer.size.agrees_with(total + row.num_bytes // row.count)


def check_states(figures: EngineFigures, name: str, allocation: EngineAllocation, slots: int) -> None:
    states = [(count_state(mixer), count) for mixer, count in spec(name).mixer_groups()]
    wanted = [(state, count) for state, count in states if state is not None]
    assert len(figures.state_buffers) == (1 if wanted else 0)
    if not wanted:
        assert allocation.state_bytes == 0
        return
    (buffer,) = figures.state_buffers
    assert (buffer.cells, buffer.num_sequences) == (slots, slots)
    assert (buffer.convolution_type, buffer.recurrent_type) == ("f32", "f32")
    assert buffer.size.agrees_with(allocation.state_bytes)
    recurrent = sum(count * state.recurrent_elements * 4 * slots for state, count in wanted)
    assert buffer.recurrent.agrees_with(recurrent)
    assert buffer.convolution.agrees_with(allocation.state_bytes - recurrent)
    column = sum(count * state.conv_channels * 4 * slots for state, count in wanted)
    assert not buffer.convolution.agrees_with(allocation.state_bytes - recurrent + column)


@pytest.mark.parametrize("name", TINY_MODELS)
def test_the_engine_allocates_what_its_rules_say_for_each_design(folder: Path, name: str) -> None:
    settings = {"context_tokens_total": 8192, "num_slots": 2, **LARGER.get(name, {})}
    check(serve(folder, name, **settings), name, settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gemma3", {"kv_unified": True, "num_slots": 3}),
        ("gemma3", {"swa_full": True}),
        ("gemma3", {"cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
        ("gemma3", {"context_tokens_total": 700}),  # the window and the micro batch do not fit into the context
        ("llama4", {"kv_unified": True, "context_tokens_total": 32768}),
        ("mimo2", {"flash_attention": False}),  # keys and values of unlike widths, which differ by layer
        ("gemma4", {"flash_attention": False}),
        ("deci", {"flash_attention": False}),
        ("gemma4", {"context_tokens_total": 5000, "num_slots": 3}),
        ("deepseek2", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        ("deepseek2", {"flash_attention": False}),
        ("jamba", {"num_slots": 5, "kv_unified": True}),
        ("qwen35", {"num_slots": 7, "context_tokens_total": 9000}),
        ("kimi-linear", {"num_slots": 4}),
        ("qwen3", {"cache_type_k": "q5_1", "cache_type_v": "iq4_nl"}),
    ],
)
def test_the_rules_hold_under_other_settings(folder: Path, name: str, settings: dict[str, Any]) -> None:
    chosen = {"context_tokens_total": 8192, "num_slots": 2, **settings}
    check(serve(folder, name, **chosen), name, chosen)


def test_a_state_is_counted_as_the_engine_stores_it() -> None:
    state, count = next(
        (found, count) for mixer, count in spec("mamba2").mixer_groups() if (found := count_state(mixer)) is not None
    )
    # 4 layers: 3 columns of 512 + 2·2·64 channels and 512·64 values, all float32
    assert STATE_FORMATS["llama.cpp"].count_bytes(state, None) * count == 4 * 4 * (3 * 768 + 512 * 64)


def test_a_cache_block_that_does_not_divide_a_head_is_refused_as_the_engine_refuses_it() -> None:
    with pytest.raises(RequestError, match="do not divide a head of 16"):
        ours("llama", {"context_tokens_total": 512, "num_slots": 1, "cache_type_k": "q8_0"})
