"""Tiny random models of every cache design that llama.cpp runs, written as GGUF files.

tiny_models.json holds, by name, the metadata and tensor shapes that llama.cpp asks for, and the config.json of the same
model. The tensors were found by asking the engine: it names each tensor it misses and the shape it expects.
"#" stands for every layer, "0-2,5" for some.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TINY_MODELS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).with_name("tiny_models.json")).read_text(encoding="utf-8")
)
_LAYERS = re.compile(r"^blk\.(#|[\d,-]+)\.")


def write_tiny_model(name: str, path: Path) -> None:
    """The model as a GGUF file with random weights and a vocabulary of single bytes."""
    import gguf
    import numpy as np

    model = TINY_MODELS[name]
    writer = gguf.GGUFWriter(str(path), model["architecture"])
    _add_tokenizer(writer)
    for key, value in model["metadata"].items():
        _add_value(writer, f"{model['architecture']}.{key}", value)
    random = np.random.default_rng(0)
    for tensor, shape in model["tensors"]:
        for each in _each_layer(tensor, model["metadata"]["block_count"]):
            writer.add_tensor(each, (random.standard_normal(shape[::-1]) * 0.05).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _each_layer(tensor: str, num_layers: int) -> Iterator[str]:
    found = _LAYERS.match(tensor)
    if found is None:
        yield tensor
        return
    for index in range(num_layers) if found[1] == "#" else _numbers(found[1]):
        yield f"blk.{index}.{tensor[found.end() :]}"


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _add_value(writer: Any, key: str, value: Any) -> None:
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    adders.get(type(value), writer.add_array)(key, value)


def _add_tokenizer(writer: Any) -> None:
    """256 byte tokens, one merge and four special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (chr(256 + index) for index in range(256 - len(printable)))
    tokens = [chr(byte) if byte in printable else next(others) for byte in range(256)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*tokens, "He", "<s>", "</s>", "<unk>", "<pad>"])
    writer.add_token_types([1] * 257 + [3] * 4)
    writer.add_token_merges(["H e"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
