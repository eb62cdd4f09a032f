"""A converted folder holds the same model: its tensors where other libraries look for them, its tokenizer, its config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from convert import tiny
from inference_bench.convert.flow import ConversionRequest, convert_model
from inference_bench.convert.hugging_face import FILES
from inference_bench.errors import ModelFileError, UnknownNameError


def convert(source: Path, dtype: str = "float32") -> Path:
    target = source.with_name("folder")
    convert_model(ConversionRequest(source, target, "hf", dtype))
    return target


def loaded(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return found


def interleaved(weights: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to queries and keys: row j of the first half of a head becomes row 2j, of the second 2j + 1."""
    rows = weights.reshape(heads, 2, weights.shape[0] // heads // 2, -1)
    return np.stack([rows[:, 0], rows[:, 1]], axis=2).reshape(weights.shape)


def test_every_tensor_is_there_under_its_name_with_the_rows_of_queries_and_keys_put_back(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "in.gguf", tiny.tensors(tied=False))
    given, found = tiny.tensors(tied=False), load_file(convert(source) / "model.safetensors")
    assert len(found) == len(given) == 3 + 9 * tiny.LAYERS
    pairs = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers.1.self_attn.v_proj": "blk.1.attn_v",
        "model.layers.1.self_attn.o_proj": "blk.1.attn_output",
        "model.layers.0.mlp.gate_proj": "blk.0.ffn_gate",
        "model.layers.0.mlp.up_proj": "blk.0.ffn_up",
        "model.layers.0.mlp.down_proj": "blk.0.ffn_down",
        "model.layers.1.input_layernorm": "blk.1.attn_norm",
        "model.layers.1.post_attention_layernorm": "blk.1.ffn_norm",
    }
    for theirs, ours in pairs.items():
        assert np.array_equal(found[f"{theirs}.weight"], given[f"{ours}.weight"]), theirs
    for letter, heads in (("q", tiny.HEADS), ("k", tiny.KV_HEADS)):
        theirs = found[f"model.layers.0.self_attn.{letter}_proj.weight"]
        assert not np.array_equal(theirs, given[f"blk.0.attn_{letter}.weight"])
        assert np.array_equal(interleaved(theirs, heads), given[f"blk.0.attn_{letter}.weight"])


def test_a_qwen2_keeps_its_rows_and_its_biases(tmp_path: Path) -> None:
    given = tiny.tensors(biased=True)
    found = load_file(convert(tiny.write(tmp_path / "in.gguf", given, arch="qwen2", pre="qwen2")) / "model.safetensors")
    assert len(found) == len(given) == 2 + 12 * tiny.LAYERS
    for kind in ("weight", "bias"):
        for letter in "qkv":
            expected = given[f"blk.1.attn_{letter}.{kind}"]
            assert np.array_equal(found[f"model.layers.1.self_attn.{letter}_proj.{kind}"], expected)


def test_float16_is_what_numpy_rounds_to(tmp_path: Path) -> None:
    given = tiny.tensors()
    found = load_file(convert(tiny.write(tmp_path / "in.gguf", given), "float16") / "model.safetensors")
    assert {values.dtype for values in found.values()} == {np.dtype(np.float16)}
    for theirs, ours in (("model.embed_tokens", "token_embd"), ("model.norm", "output_norm")):
        assert np.array_equal(found[f"{theirs}.weight"], given[f"{ours}.weight"].astype(np.float16))


def test_bytes_counted_before_are_the_bytes_of_the_tensors(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "in.gguf")
    for dtype, width in (("float32", 4), ("float16", 2), ("bfloat16", 2)):
        made = convert_model(ConversionRequest(source, tmp_path / dtype, "hf", dtype))
        raw = (tmp_path / dtype / "model.safetensors").read_bytes()
        data = len(raw) - 8 - int.from_bytes(raw[:8], "little")
        values = sum(array.size for array in tiny.tensors().values())
        assert data == values * width == made.counted_bytes == made.tensor_bytes


def test_the_config_says_what_the_file_says_to_the_digit(tmp_path: Path) -> None:
    config = loaded(convert(tiny.write(tmp_path / "in.gguf")), "config.json")
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tiny.VOCABULARY),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    assert {key: config.get(key) for key in expected} == expected


def test_a_model_that_ends_a_turn_with_another_token_stops_at_both(tmp_path: Path) -> None:
    folder = convert(tiny.write(tmp_path / "in.gguf", extra=lambda writer: writer.add_eot_token_id(0)))
    assert loaded(folder, "generation_config.json")["eos_token_id"] == [2, 0]


def test_the_tokenizer_merges_splits_digits_and_finds_special_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(convert(tiny.write(tmp_path / "in.gguf")) / "tokenizer.json"))
    assert tokenizer.encode("hello w12<|im_end|>").tokens == ["hello", "Ġw", "1", "2", "<|im_end|>"]
    assert tokenizer.decode(tokenizer.encode("héllo 日本 😀").ids) == "héllo 日本 😀"


def test_a_file_that_asks_for_a_first_token_gets_one(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "in.gguf")
    patched = source.read_bytes().replace(
        b"tokenizer.ggml.add_bos_token\x07\x00\x00\x00\x00", b"tokenizer.ggml.add_bos_token\x07\x00\x00\x00\x01"
    )
    assert patched != source.read_bytes()
    source.write_bytes(patched)
    tokenizer = Tokenizer.from_file(str(convert(source) / "tokenizer.json"))
    assert tokenizer.encode("hello").tokens == ["<|im_start|>", "hello"]


def test_the_chat_template_and_special_tokens_are_copied(tmp_path: Path) -> None:
    folder = convert(tiny.write(tmp_path / "in.gguf"))
    config = loaded(folder, "tokenizer_config.json")
    assert config["chat_template"] == tiny.TEMPLATE
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert config["added_tokens_decoder"]["2"]["content"] == "<|im_end|>"
    assert loaded(folder, "special_tokens_map.json") == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokenizer": "llama"}, "its vocabulary is 'llama'; converted to a folder: gpt2"),
        ({"pre": "deepseek-llm"}, "its pre-tokenizer is 'deepseek-llm'; converted to a folder: gpt-2, smollm, qwen2"),
        ({"merges": ["h q"]}, "the merge 'h q' is not of two tokens that make a third"),
        ({"vocabulary": ["a"] * len(tiny.VOCABULARY)}, "the token 'a' is in the vocabulary twice"),
        ({"extra": lambda writer: writer.add_rope_scaling_factor(4.0)}, "rope.scaling.factor is set"),
        ({"extra": lambda writer: writer.add_expert_count(8)}, "expert_count"),
    ],
)
def test_what_a_folder_cannot_say_is_refused_by_name(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        convert(tiny.write(tmp_path / "in.gguf", **options))
    assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


def test_a_tensor_without_a_place_in_the_folder_is_refused(tmp_path: Path) -> None:
    weights = tiny.tensors() | {"rope_freqs.weight": np.ones(8, np.float32)}
    with pytest.raises(ModelFileError, match=r"'rope_freqs\.weight' has no place in a llama folder"):
        convert(tiny.write(tmp_path / "in.gguf", weights))


def test_a_missing_tensor_is_refused(tmp_path: Path) -> None:
    weights = tiny.tensors()
    del weights["blk.1.attn_norm.weight"]
    with pytest.raises(ModelFileError, match=r"has no tensor blk\.1\.attn_norm\.weight"):
        convert(tiny.write(tmp_path / "in.gguf", weights))


def test_an_unknown_dtype_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'fp8' is not known; known: float32, float16, bfloat16"):
        convert(tiny.write(tmp_path / "in.gguf"), "fp8")
