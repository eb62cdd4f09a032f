from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from inference_bench.accounting.params import count_params
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_stored_weights, count_weights
from inference_bench.accounting.work import count_step_work, decode_batch
from inference_bench.errors import ModelFileError
from inference_bench.facts.gguf_model import load_gguf
from shapes import cache_in

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 64, 12, 4, 2, 32, 96, 100


def write_model(
    path: Path, architecture: str = "llama", *, tied: bool = False, drop: str = "", **metadata: Any
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    values: dict[str, Any] = {
        "block_count": LAYERS,
        "embedding_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "feed_forward_length": FFN,
        "context_length": 512,
    } | metadata
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        elif value is not None:
            writer.add_uint32(f"{architecture}.{key}", value)
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        shapes["output.weight"] = (VOCAB, HIDDEN)
    listed = values["attention.head_count_kv"]
    kv_heads = listed if isinstance(listed, list) and len(listed) == LAYERS else [KV_HEADS] * LAYERS
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (HIDDEN,),
            f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
            f"blk.{layer}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_k.weight": (kv_heads[layer] * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_v.weight": (kv_heads[layer] * HEAD_DIM, HIDDEN),
            f"blk.{layer}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{layer}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{layer}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{layer}.ffn_down.weight": (HIDDEN, FFN),
        }
    for name, shape in shapes.items():
        if name != drop:
            writer.add_tensor(name, np.zeros(shape, dtype=np.float16 if len(shape) == 2 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_from_the_shape_equal_the_values_stored_in_the_file(tmp_path: Path, tied: bool) -> None:
    model = load_gguf(write_model(tmp_path / "m.gguf", tied=tied))
    assert model.tensors is not None
    assert count_params(model.spec).total == sum(tensor.num_values for tensor in model.tensors)
    assert model.spec.tie_word_embeddings is tied


def test_weight_bytes_are_those_of_the_tensor_table(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    model = load_gguf(path)
    assert model.tensors is not None
    weights = count_stored_weights(model.tensors, model.spec.tie_word_embeddings)
    reader = gguf.GGUFReader(path)
    assert weights.total == sum(int(tensor.n_bytes) for tensor in reader.tensors)
    assert weights.linear_format.name == "fp16"
    assert weights.read_per_step == weights.total - VOCAB * HIDDEN * 2


@pytest.mark.parametrize("tied", [True, False])
def test_each_component_of_the_file_is_what_the_shape_says(tmp_path: Path, tied: bool) -> None:
    model = load_gguf(write_model(tmp_path / "m.gguf", tied=tied))
    assert model.tensors is not None
    stored = count_stored_weights(model.tensors, tied)
    planned = count_weights(model.spec, weight_plan("fp16,norm=fp32"))
    for part in ("embedding", "head", "attention", "feed_forward", "norm", "other", "embedding_row"):
        assert getattr(stored, part) == getattr(planned, part), part


@pytest.mark.parametrize("tied", [True, False])
def test_a_decode_step_reads_every_weight_of_the_file_once(tmp_path: Path, tied: bool) -> None:
    model = load_gguf(write_model(tmp_path / "m.gguf", tied=tied))
    assert model.tensors is not None
    stored = count_stored_weights(model.tensors, tied)
    work = count_step_work(model.spec, stored, cache_in("fp16"), decode_batch(1, 1))
    read = sum(operation.weight_bytes for operation in work.operations)
    assert read == stored.total - (0 if tied else stored.embedding - stored.embedding_row)


def test_heads_that_differ_by_layer_are_kept_layer_by_layer(tmp_path: Path) -> None:
    kv_heads = [1, 2] * (LAYERS // 2)
    model = load_gguf(write_model(tmp_path / "m.gguf", **{"attention.head_count_kv": kv_heads}))
    assert [layer.attention.num_key_value_heads for layer in model.spec.layers] == [1, 2] * (LAYERS // 2)


def test_gemma_3_windows_follow_the_period_of_six(tmp_path: Path) -> None:
    model = load_gguf(write_model(tmp_path / "m.gguf", "gemma3", **{"attention.sliding_window": 128}))
    assert [layer.attention.sliding_window for layer in model.spec.layers] == ([128] * 5 + [None]) * 2


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"block_count": None}, "block_count"),
        ({"block_count": 100_000}, "at most 4096"),
        ({"block_count": 0}, "above zero"),
        ({"attention.head_count_kv": [1, 2, 3]}, "3 entries for 12 layers"),
        ({"attention.value_length": 16}, r"attn_v\.weight has 64 rows, not 2 heads of 16"),
        ({"attention.head_count_kv": 4}, r"attn_k\.weight has 64 rows, not 4 heads of 32"),
        (
            {
                "attention.key_length": None,
                "attention.value_length": None,
                "attention.head_count": 7,
                "attention.head_count_kv": 7,
            },
            "not a multiple",
        ),
        ({"attention.head_count": 5}, "5 query heads and 2 key-value heads"),
        ({"attention.head_count": 0}, "0 query heads"),
        ({"nextn_predict_layers": 12}, "leave no model"),
        ({"attention.shared_kv_layers": 12}, "one must own them"),
        ({"context_length": [1, 2]}, "a list"),
    ],
)
def test_metadata_that_cannot_be_counted_is_refused_by_key(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        load_gguf(write_model(tmp_path / "m.gguf", **metadata))


def test_an_architecture_that_is_not_counted_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="rwkv7"):
        load_gguf(write_model(tmp_path / "m.gguf", "rwkv7"))


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match=r"end|truncated"):
        load_gguf(path)


def test_a_model_without_an_embedding_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="token_embd"):
        load_gguf(write_model(tmp_path / "m.gguf", drop="token_embd.weight"))
