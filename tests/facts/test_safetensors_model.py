from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from facts.test_safetensors import header_bytes
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.errors import InferenceBenchError, ModelConfigError, ModelFileError
from inference_bench.facts.load import load_model
from inference_bench.facts.models import TensorRole
from inference_bench.facts.safetensors_model import dtype_format, role_of

D, F, V = 64, 128, 100
Tensors = dict[str, tuple[str, list[int]]]
BITS = {"BF16": 16, "F32": 32, "I32": 32, "U8": 8, "F16": 16, "F8_E4M3": 8, "I64": 64}
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": D,
    "intermediate_size": F,
    "vocab_size": V,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def plain(num_layers: int = 2) -> Tensors:
    shapes = {"model.embed_tokens.weight": [V, D], "lm_head.weight": [V, D], "model.norm.weight": [D]}
    for layer in range(num_layers):
        at = f"model.layers.{layer}."
        shapes |= {at + f"self_attn.{part}_proj.weight": [64 if part in "qo" else 32, D] for part in "qkvo"}
        shapes |= {
            at + "mlp.gate_proj.weight": [F, D],
            at + "mlp.up_proj.weight": [F, D],
            at + "mlp.down_proj.weight": [D, F],
        }
        shapes |= {at + "input_layernorm.weight": [D], at + "post_attention_layernorm.weight": [D]}
    return {name: ("BF16", shape) for name, shape in shapes.items()}


def write(path: Path, tensors: Tensors) -> int:
    """A file with holes for data; returns the bytes of its tensors."""
    at, header = 0, {}
    for name, (dtype, shape) in tensors.items():
        num_bytes = BITS[dtype] // 8
        for size in shape:
            num_bytes *= size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + num_bytes]}
        at += num_bytes
    head = header_bytes(header)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
    return at


def folder_with(folder: Path, tensors: Tensors, config: dict[str, Any] | None = None) -> int:
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    return write(folder / "model.safetensors", tensors)


def sharded(folder: Path, tensors: Tensors, at: int) -> dict[str, Any]:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = list(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:at], "model-00002-of-00002.safetensors": names[at:]}
    for shard, held in parts.items():
        write(folder / shard, {name: tensors[name] for name in held})
    index = {
        "metadata": {"total_size": 1},
        "weight_map": {name: shard for shard, held in parts.items() for name in held},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


def test_a_folder_is_sized_by_the_headers_of_its_files(tmp_path: Path) -> None:
    size = folder_with(tmp_path, plain())
    for path in (tmp_path, tmp_path / "model.safetensors"):
        model = load_model(str(path))
        weights = count_loaded_weights(model)
        assert weights.total == size == 2 * count_params(model.spec).total
        assert weights.other == 0
        assert weights.bits_per_weight == 16


def test_shards_add_up_to_the_whole_however_it_is_named(tmp_path: Path) -> None:
    sharded(tmp_path, plain(), 7)
    names = ("", "model.safetensors.index.json", "model-00002-of-00002.safetensors")
    totals = {count_loaded_weights(load_model(str(tmp_path / name))).total for name in names}
    assert totals == {2 * count_params(load_model(str(tmp_path / "config.json")).spec).total}


def test_a_config_file_alone_says_nothing_of_the_files_beside_it(tmp_path: Path) -> None:
    folder_with(tmp_path, plain())
    assert load_model(str(tmp_path / "config.json")).tensors is None


def test_packed_tensors_count_as_the_bytes_they_are_and_parameters_come_from_the_config(tmp_path: Path) -> None:
    tensors = {name: value for name, value in plain().items() if "_proj" not in name}
    expected = sum(2 * V * D for _ in range(2)) + 2 * D * 5
    for name, (_, (rows, columns)) in ((name, value) for name, value in plain().items() if "_proj" in name):
        base = name.removesuffix(".weight")
        tensors |= {
            f"{base}.qweight": ("I32", [columns, rows // 8]),
            f"{base}.qzeros": ("I32", [columns // 64, rows // 8]),
            f"{base}.scales": ("F16", [columns // 64, rows]),
        }
        expected += rows * columns // 2 + columns // 64 * rows // 2 + columns // 64 * rows * 2
    config = CONFIG | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}}
    assert folder_with(tmp_path, tensors, config) == expected
    model = load_model(str(tmp_path))
    weights = count_loaded_weights(model)
    assert weights.total == expected
    assert weights.num_values == count_params(model.spec).total
    assert weights.linear_format.name == "awq-g64"
    assert count_loaded_weights(load_model(str(tmp_path / "config.json"))).total == expected


def test_experts_are_summed_and_told_from_what_every_token_reads(tmp_path: Path) -> None:
    tensors = {name: value for name, value in plain().items() if ".mlp." not in name}
    for layer in range(2):
        at = f"model.layers.{layer}.block_sparse_moe."
        tensors[at + "gate.weight"] = ("BF16", [8, D])
        for expert in range(8):
            tensors |= {
                f"{at}experts.{expert}.{name}.weight": ("BF16", shape)
                for name, shape in (("w1", [F, D]), ("w2", [D, F]), ("w3", [F, D]))
            }
    config = CONFIG | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    size = folder_with(tmp_path, tensors, config)
    model = load_model(str(tmp_path))
    weights = count_loaded_weights(model)
    assert weights.total == size == 2 * count_params(model.spec).total
    assert weights.experts == 2 * 2 * 8 * 3 * F * D
    assert weights.feed_forward == 2 * 2 * 8 * D
    assert len(model.tensors or ()) < 30


def test_draft_layers_and_towers_are_in_the_total_but_not_in_a_step(tmp_path: Path) -> None:
    extra: Tensors = {
        "model.layers.2.self_attn.q_proj.weight": ("BF16", [64, D]),
        "mtp.fc.weight": ("BF16", [D, 2 * D]),
        "model.vision_tower.blocks.0.attn.qkv.weight": ("BF16", [3 * D, D]),
    }
    size = folder_with(tmp_path, plain() | extra)
    weights = count_loaded_weights(load_model(str(tmp_path)))
    assert weights.total == size
    assert weights.draft == 2 * (64 * D + 2 * D * D)
    assert weights.vision == 2 * 3 * D * D
    assert weights.read_per_step == weights.total - weights.draft - weights.vision - weights.embedding


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("missing", "shard model-00002-of-00002.safetensors .* missing"),
        ("lacks", "lacks the tensor"),
        ("more", "also holds the tensor"),
        ("no index", "no model.safetensors.index.json"),
        ("truncated", "truncated"),
        ("traversal", "beside the index"),
        ("not json", "cannot read the index"),
    ],
)
def test_a_sharded_folder_that_does_not_add_up_is_refused(tmp_path: Path, spoil: str, message: str) -> None:
    index = sharded(tmp_path, plain(), 7)
    second, index_path = tmp_path / "model-00002-of-00002.safetensors", tmp_path / "model.safetensors.index.json"
    if spoil == "missing":
        second.unlink()
    elif spoil == "lacks":
        write(second, dict(list(plain().items())[8:]))
    elif spoil == "more":
        write(second, dict(list(plain().items())[7:]) | {"x": ("BF16", [1])})
    elif spoil == "no index":
        index_path.unlink()
    elif spoil == "truncated":
        second.write_bytes(second.read_bytes()[:-1])
    elif spoil == "traversal":
        index["weight_map"]["model.norm.weight"] = "../model.safetensors"
        index_path.write_text(json.dumps(index))
    else:
        index_path.write_text("<html>")
    with pytest.raises(ModelFileError, match=message) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_file_without_a_config_beside_it_says_what_it_holds(tmp_path: Path) -> None:
    size = write(tmp_path / "model.safetensors", plain())
    with pytest.raises(ModelFileError, match=rf"{len(plain())} tensors of {size} bytes.*config\.json"):
        load_model(str(tmp_path / "model.safetensors"))


def test_quantisation_in_a_file_beside_the_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}})
    )
    weights = count_loaded_weights(load_model(str(tmp_path)))
    assert weights.linear_format.name == "nvfp4"
    assert weights.head == 2 * V * D
    (tmp_path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(ModelConfigError, match="quantization"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\0" * 8, b"{}", b"\xff" * 64, header_bytes(b"[" * 1000)])
def test_any_broken_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InferenceBenchError) as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("model.embed_tokens.weight", TensorRole.EMBEDDING),
        ("transformer.wte.weight", TensorRole.EMBEDDING),
        ("backbone.embeddings.weight", TensorRole.EMBEDDING),
        ("model.language_model.embed_tokens.weight", TensorRole.EMBEDDING),
        ("model.language_model.embed_tokens_per_layer.weight", TensorRole.LOOKUP),
        ("transformer.wpe.weight", TensorRole.LOOKUP),
        ("lm_head.weight", TensorRole.HEAD),
        ("output.weight", TensorRole.HEAD),
        ("model.layers.0.self_attn.q_proj.weight", TensorRole.ATTENTION),
        ("model.layers.0.self_attn.q_proj.bias", TensorRole.ATTENTION),
        ("model.layers.0.self_attn.q_norm.weight", TensorRole.NORM),
        ("model.layers.0.self_attn.sinks", TensorRole.ATTENTION),
        ("model.layers.0.self_attn.indexer.wk.weight", TensorRole.ATTENTION),
        ("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", TensorRole.ATTENTION),
        ("transformer.h.0.attn.c_attn.weight", TensorRole.ATTENTION),
        ("transformer.h.0.ln_1.weight", TensorRole.NORM),
        ("transformer.h.0.mlp.c_fc.weight", TensorRole.FEED_FORWARD),
        ("model.layers.0.input_layernorm.weight", TensorRole.NORM),
        ("model.norm.weight", TensorRole.NORM),
        ("model.layers.0.mlp.down_proj.weight", TensorRole.FEED_FORWARD),
        ("model.layers.0.mlp.gate_proj.weight", TensorRole.FEED_FORWARD),
        ("model.layers.0.mlp.gate.weight", TensorRole.ROUTER),
        ("model.layers.0.mlp.gate.e_score_correction_bias", TensorRole.ROUTER),
        ("model.layers.0.mlp.router.weight", TensorRole.ROUTER),
        ("model.layers.0.mlp.experts.gate_up_proj_blocks", TensorRole.EXPERT),
        ("model.layers.0.mlp.experts.3.down_proj.weight_scale_inv", TensorRole.EXPERT),
        ("model.layers.0.mlp.shared_experts.down_proj.weight", TensorRole.SHARED_EXPERT),
        ("model.layers.0.mlp.shared_expert_gate.weight", TensorRole.ROUTER),
        ("model.layers.0.linear_attn.in_proj_qkvz.weight", TensorRole.STATE_SPACE),
        ("model.layers.0.linear_attn.A_log", TensorRole.STATE_SPACE),
        ("backbone.layers.0.mixer.in_proj.weight", TensorRole.STATE_SPACE),
        ("backbone.layers.0.mixer.q_proj.weight", TensorRole.ATTENTION),
        ("backbone.layers.0.mixer.up_proj.weight", TensorRole.FEED_FORWARD),
        ("model.layers.0.conv.in_proj.weight", TensorRole.STATE_SPACE),
        ("model.visual.blocks.0.mlp.up_proj.weight", TensorRole.VISION),
        ("vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", TensorRole.VISION),
        ("multi_modal_projector.linear.weight", TensorRole.VISION),
        ("mtp.layers.0.mlp.down_proj.weight", TensorRole.DRAFT),
        ("something.else", TensorRole.OTHER),
    ],
)
def test_what_a_tensor_is_for_is_told_by_its_name(name: str, role: TensorRole) -> None:
    assert role_of(name, 61) is role


@pytest.mark.parametrize(
    ("dtype", "values", "num_bytes"),
    [
        ("BF16", 10, 20),
        ("F8_E4M3", 10, 10),
        ("F8_E8M0", 10, 10),
        ("F4", 10, 5),
        ("F6_E2M3", 8, 6),
        ("I64", 2, 16),
        ("BOOL", 3, 3),
        ("U32", 2, 8),
    ],
)
def test_stored_values_take_the_bits_of_their_dtype(dtype: str, values: int, num_bytes: int) -> None:
    assert dtype_format(dtype).count_bytes(values) == num_bytes
