"""A GGUF header as a model: its shape from the metadata, its exact tensors from the tensor table.

In:   GGUFHeader
Out:  LoadedModel: ModelSpec plus one StoredTensor for each tensor of the file
Leaves out: architectures whose cache is not counted yet; they are refused by name
Read next by: accounting.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from inference_bench.errors import ModelFileError, UnknownNameError
from inference_bench.facts.fields import MAX_FIELD, shown
from inference_bench.facts.formats import ggml_format
from inference_bench.facts.gguf import check_tensor_extents, read_gguf_header
from inference_bench.facts.gguf_header import GGUFArray, GGUFHeader, GGUFTensor
from inference_bench.facts.models import Attention, FeedForward, Layer, LoadedModel, ModelSpec, StoredTensor, TensorRole
from inference_bench.facts.source import Source

# llama.cpp's architecture names that are counted, and every how many layers one attends the full context
_FULL_ATTENTION_PERIOD: Final = {"llama": 1, "qwen2": 1, "qwen3": 1, "gemma": 1, "gemma2": 2, "gemma3": 6}
_OTHER_DESIGNS: Final = {
    "expert_count": "mixture of experts",
    "attention.kv_lora_rank": "multi-head latent attention",
    "ssm.state_size": "state-space layers",
}
MAX_LAYERS: Final = 4096
_LAYER_NORM: Final = re.compile(r"blk\.0\.(attn_norm|ffn_norm|post_attention_norm|post_ffw_norm)\.weight")
_ROLES: Final = (
    (re.compile(r"token_embd\.weight"), TensorRole.EMBEDDING),
    (re.compile(r"output\.weight"), TensorRole.HEAD),
    (re.compile(r".*norm\.\w+"), TensorRole.NORM),
    (re.compile(r"blk\.\d+\.attn_\w+\.\w+"), TensorRole.ATTENTION),
    (re.compile(r"blk\.\d+\.ffn_\w+\.\w+"), TensorRole.FEED_FORWARD),
)


def load_gguf(path: Path) -> LoadedModel:
    """The model in a GGUF file, from its header alone.

    Raises:  ModelFileError
    """
    header = read_gguf_header(path)
    return model_from_gguf(header, path.name, path)


def model_from_gguf(header: GGUFHeader, file_name: str, path: Path | None = None) -> LoadedModel:
    """The model a GGUF header describes.

    Raises:  ModelFileError naming the key that is missing or impossible, or the design that is not counted
    """
    tensors = tuple(_stored_tensor(tensor, file_name) for tensor in header.tensors)
    by_name = {tensor.name: tensor for tensor in tensors}
    check_tensor_extents(header, lambda tensor: by_name[tensor.name].num_bytes)
    spec = _Metadata(header, file_name).spec(frozenset(by_name))
    return LoadedModel(spec, tensors, path)


def _stored_tensor(tensor: GGUFTensor, file_name: str) -> StoredTensor:
    try:
        number_format = ggml_format(tensor.ggml_type)
    except UnknownNameError as error:
        raise ModelFileError(f"{file_name}: tensor {tensor.name!r}: {error}") from None
    row_values = tensor.shape[0] if tensor.shape else 1
    if row_values % number_format.block_values:
        raise ModelFileError(
            f"{file_name}: tensor {tensor.name!r} has rows of {row_values} values, which {number_format.name} cannot "
            f"store; it needs multiples of {number_format.block_values}"
        )
    role = next((role for pattern, role in _ROLES if pattern.fullmatch(tensor.name)), None)
    return StoredTensor(tensor.name, role or TensorRole.OTHER, tensor.num_values, row_values, number_format)


class _Metadata:
    """Typed access to the metadata of one file under its architecture's prefix."""

    def __init__(self, header: GGUFHeader, file_name: str) -> None:
        self.header = header
        self.file_name = file_name
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str) or architecture not in _FULL_ATTENTION_PERIOD:
            counted = ", ".join(_FULL_ATTENTION_PERIOD)
            raise ModelFileError(
                f"{file_name}: general.architecture {str(architecture)[:40]!r} is not counted yet; counted: {counted}"
            )
        self.architecture = architecture
        for key, design in _OTHER_DESIGNS.items():
            if header.metadata.get(f"{architecture}.{key}"):
                raise ModelFileError(f"{file_name}: {architecture}.{key} means {design}, which is not counted yet")

    def optional(self, key: str) -> int | tuple[int, ...] | None:
        """A whole number, or one for each layer; None when absent."""
        value = self.header.metadata.get(f"{self.architecture}.{key}")
        if value is None:
            return None
        if isinstance(value, GGUFArray):
            return tuple(self._positive(key, item) for item in value.values or ())
        return self._positive(key, value)

    def _positive(self, key: str, item: object) -> int:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 < item <= MAX_FIELD:
            raise ModelFileError(
                f"{self.file_name}: {self.architecture}.{key} is {shown(item)}; a whole number above zero is needed"
            )
        return item

    def integer(self, key: str) -> int:
        """One whole number that must be there."""
        value = self.optional(key)
        if not isinstance(value, int):
            found = "a list" if value else "missing"
            raise ModelFileError(f"{self.file_name}: {self.architecture}.{key} is {found}; one whole number is needed")
        return value

    def per_layer(self, key: str, num_layers: int, default: int | None = None) -> tuple[int, ...]:
        """One number for each layer: the file holds either one for all or a list."""
        value = self.optional(key)
        if value is None and default is None:
            raise ModelFileError(f"{self.file_name} has no {self.architecture}.{key}; it is needed to count this model")
        if isinstance(value, tuple):
            if len(value) != num_layers:
                raise ModelFileError(
                    f"{self.file_name}: {self.architecture}.{key} has {len(value)} entries for {num_layers} layers"
                )
            return value
        return (value or default or 0,) * num_layers

    def spec(self, tensor_names: frozenset[str]) -> ModelSpec:
        """The shape of the model; biases, norms and tying are what the tensor table shows."""
        num_layers = self.integer("block_count")
        if num_layers > MAX_LAYERS:
            raise ModelFileError(f"{self.file_name}: {num_layers} layers; at most {MAX_LAYERS} can be counted")
        layers = self._layers(num_layers, tensor_names)
        context = self.optional("context_length")
        return ModelSpec(
            name=self._name(),
            model_type=self.architecture,
            hidden_size=self.integer("embedding_length"),
            vocab_size=self._vocab_size(),
            num_key_value_heads=layers[0].attention.num_key_value_heads,
            head_dim=layers[0].attention.head_dim,
            layers=layers,
            tie_word_embeddings="output.weight" not in tensor_names,
            max_position_embeddings=context if isinstance(context, int) else None,
            norm_bias="output_norm.bias" in tensor_names,
            source=Source(f"GGUF header of {self.file_name}", "read now"),
        )

    def _layers(self, num_layers: int, tensor_names: frozenset[str]) -> tuple[Layer, ...]:
        heads = self.per_layer("attention.head_count", num_layers)
        kv_heads = self.optional("attention.head_count_kv")
        kv_by_layer = self.per_layer("attention.head_count_kv", num_layers) if kv_heads is not None else heads
        widths = self.per_layer("feed_forward_length", num_layers)
        hidden_size = self.integer("embedding_length")
        head_dim = self._head_dim(hidden_size, heads[0])
        has = tensor_names.__contains__
        return tuple(
            Layer(
                Attention(
                    num_attention_heads=heads[index],
                    num_key_value_heads=kv_by_layer[index],
                    head_dim=head_dim,
                    sliding_window=self._window(index),
                    query_key_value_bias=has(f"blk.{index}.attn_q.bias"),
                    output_bias=has(f"blk.{index}.attn_output.bias"),
                    query_key_norm=has(f"blk.{index}.attn_q_norm.weight"),
                ),
                FeedForward(
                    widths[index], gated=has(f"blk.{index}.ffn_gate.weight"), bias=has(f"blk.{index}.ffn_up.bias")
                ),
                num_norms=sum(1 for name in tensor_names if _LAYER_NORM.fullmatch(name)),
            )
            for index in range(num_layers)
        )

    def _head_dim(self, hidden_size: int, num_heads: int) -> int:
        key_length, value_length = self.optional("attention.key_length"), self.optional("attention.value_length")
        if key_length is None:
            if hidden_size % num_heads:
                raise ModelFileError(
                    f"{self.file_name} has no {self.architecture}.attention.key_length, and embedding_length "
                    f"{hidden_size} is not a multiple of head_count {num_heads}"
                )
            return hidden_size // num_heads
        if value_length not in (None, key_length) or not isinstance(key_length, int):
            raise ModelFileError(
                f"{self.file_name}: keys and values of different widths ({key_length}, {value_length}) are not counted yet"
            )
        return key_length

    def _window(self, layer: int) -> int | None:
        period = _FULL_ATTENTION_PERIOD[self.architecture]
        window = self.optional("attention.sliding_window")
        if period == 1 or not isinstance(window, int) or (layer + 1) % period == 0:
            return None
        return window

    def _vocab_size(self) -> int:
        table = next((tensor for tensor in self.header.tensors if tensor.name == "token_embd.weight"), None)
        if table is None or len(table.shape) != 2:
            raise ModelFileError(f"{self.file_name} has no two-dimensional tensor token_embd.weight")
        return table.shape[1]

    def _name(self) -> str:
        name = self.header.metadata.get("general.name")
        return name if isinstance(name, str) and name.strip() else self.file_name
