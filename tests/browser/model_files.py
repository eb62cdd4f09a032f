"""Model files for a browser to read: small whole ones, and ones of 50 GB that are nearly all hole."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from facts.test_gguf_model import write_model
from facts.test_safetensors import header_bytes

HUGE_BYTES = 50_000_000_000
SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
# 29 layers of 1.71 GB and two tables of half a GB: 50.7 GB in bf16
LARGE = SMALL | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "vocab_size": 32000,
    "num_hidden_layers": 29,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def tensors_of(config: dict[str, Any]) -> dict[str, list[int]]:
    """The tensors of such a model by their names, as checkpoints have them."""
    width, inner, words = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries, keys = (config[f"num_{kind}_heads"] * config["head_dim"] for kind in ("attention", "key_value"))
    shapes = {
        "model.embed_tokens.weight": [words, width],
        "lm_head.weight": [words, width],
        "model.norm.weight": [width],
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {at + f"self_attn.{part}_proj.weight": [keys, width] for part in "kv"}
        shapes |= {at + "self_attn.q_proj.weight": [queries, width], at + "self_attn.o_proj.weight": [width, queries]}
        shapes |= {at + f"mlp.{part}_proj.weight": [inner, width] for part in ("gate", "up")}
        shapes |= {at + "mlp.down_proj.weight": [width, inner]}
        shapes |= {at + f"{part}_layernorm.weight": [width] for part in ("input", "post_attention")}
    return shapes


def write_safetensors(path: Path, shapes: dict[str, list[int]]) -> int:
    """A bf16 file with a hole for its data; returns the bytes of its tensors."""
    at, header = 0, {}
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    head = header_bytes(header)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + at)
    return at


def write_checkpoint(folder: Path, config: dict[str, Any]) -> tuple[int, list[Path]]:
    """A safetensors file and the config.json beside it; returns the bytes of its tensors too."""
    config_path, path = folder / "config.json", folder / "model.safetensors"
    config_path.write_text(json.dumps(config))
    return write_safetensors(path, tensors_of(config)), [config_path, path]


def write_shards(folder: Path, config: dict[str, Any]) -> list[Path]:
    """The same in two files with an index."""
    shapes = list(tensors_of(config).items())
    parts = {"model-00001-of-00002.safetensors": shapes[:7], "model-00002-of-00002.safetensors": shapes[7:]}
    for name, held in parts.items():
        write_safetensors(folder / name, dict(held))
    index = {"weight_map": {tensor: name for name, held in parts.items() for tensor, _ in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    return sorted(folder.iterdir())


def write_gguf(path: Path, num_bytes: int | None = None) -> Path:
    """A GGUF file of a small model; with a size, a hole follows."""
    write_model(path)
    if num_bytes is not None:
        os.truncate(path, num_bytes)
    return path


def write_hole(path: Path, head: bytes, num_bytes: int = HUGE_BYTES) -> Path:
    """Some bytes, then nothing for very long."""
    path.write_bytes(head)
    os.truncate(path, num_bytes)
    return path
