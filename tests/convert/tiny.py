"""Small GGUF models, written by the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
HEAD_DIM = HIDDEN // HEADS
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w")
VECTORS = ("attn_norm", "ffn_norm")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary, as GPT-2 chose them."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in kept)
    return [chr(byte) for byte in kept] + [chr(256 + index) for index, _ in enumerate(others)]


VOCABULARY = [*SPECIAL, *byte_letters(), *(merge.replace(" ", "") for merge in MERGES)]


def tensors(seed: int = 0, tied: bool = True, biased: bool = False, scale: float = 0.2) -> dict[str, np.ndarray]:
    """Random weights by their names in a GGUF file, rows first."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    found = {"token_embd.weight": draw(len(VOCABULARY), HIDDEN)}
    for index in range(LAYERS):
        rows = {
            "attn_q": (HIDDEN, HIDDEN),
            "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output": (HIDDEN, HIDDEN),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }
        found |= {f"blk.{index}.{name}.weight": draw(*shape) for name, shape in rows.items()}
        found |= {f"blk.{index}.{name}.weight": 1 + draw(HIDDEN) for name in VECTORS}
        if biased:
            found |= {f"blk.{index}.{name}.bias": draw(rows[name][0]) for name in ("attn_q", "attn_k", "attn_v")}
    found["output_norm.weight"] = 1 + draw(HIDDEN)
    if not tied:
        found["output.weight"] = draw(len(VOCABULARY), HIDDEN)
    return found


def write(path: Path, weights: dict[str, np.ndarray] | None = None, **options: Any) -> Path:
    """A model file.

    Where:  arch, pre, matrix_type (how the matrices are stored), extra (a callable that adds keys) are options
    """
    arch, kind = options.get("arch", "llama"), options.get("matrix_type", gguf.GGMLQuantizationType.F32)
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model(options.get("tokenizer", "gpt2"))
    writer.add_tokenizer_pre(options.get("pre", "smollm"))
    writer.add_token_list(options.get("vocabulary", VOCABULARY))
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)))
    writer.add_token_merges(list(options.get("merges", MERGES)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    options.get("extra", lambda _writer: None)(writer)
    for name, values in (weights or tensors()).items():
        if values.ndim == 2 and kind is not gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path) -> gguf.GGUFReader:
    """A model file as the gguf package reads it."""
    return gguf.GGUFReader(str(path))


def stored(path: Path) -> dict[str, tuple[Any, np.ndarray]]:
    """Format and raw values of each tensor, as the gguf package reads them."""
    return {tensor.name: (tensor.tensor_type, np.array(tensor.data)) for tensor in read(path).tensors}
