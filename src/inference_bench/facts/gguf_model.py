"""A GGUF header as a model: its shape from the metadata, its exact tensors from the tensor table.

In:   GGUFHeader
Out:  LoadedModel: ModelSpec plus one StoredTensor for each tensor of the file
Leaves out: architectures whose cache is not counted yet; they are refused by name
Read next by: accounting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from inference_bench.errors import ModelFileError, UnknownNameError
from inference_bench.facts.formats import ggml_format
from inference_bench.facts.gguf import check_tensor_extents, read_gguf_header
from inference_bench.facts.gguf_header import GGUFHeader, GGUFTensor
from inference_bench.facts.gguf_layers import FULL_ATTENTION_PERIOD, LayerReader
from inference_bench.facts.gguf_metadata import MAX_LAYERS, Block, GGUFMetadata
from inference_bench.facts.models import Attention, Layer, LoadedModel, ModelSpec, Part, StoredTensor, TensorRole
from inference_bench.facts.source import Source

_BLOCK: Final = re.compile(r"blk\.(\d{1,5})\.(.+)")
_STATE_SPACE_BLOCK: Final = ("attn_qkv.", "attn_gate.")  # of a block with a gated delta rule
# the first mark found in a tensor's name says what it is for
_ROLES: Final = (
    ("per_layer_token_embd.", TensorRole.LOOKUP),
    ("position_embd.", TensorRole.LOOKUP),
    ("token_types.", TensorRole.LOOKUP),
    ("token_embd.", TensorRole.EMBEDDING),
    ("_norm.", TensorRole.NORM),
    ("_exps.", TensorRole.EXPERT),
    ("ffn_gate_inp", TensorRole.ROUTER),
    ("exp_probs_b", TensorRole.ROUTER),
    ("_shexp.", TensorRole.SHARED_EXPERT),
    (".ssm_", TensorRole.STATE_SPACE),
    (".shortconv.", TensorRole.STATE_SPACE),
    (".time_mix_", TensorRole.STATE_SPACE),
    (".attn_", TensorRole.ATTENTION),
    (".indexer", TensorRole.ATTENTION),
    (".ffn_", TensorRole.FEED_FORWARD),
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
    parts = header.get_int("split.count")
    if parts is not None and parts > 1:
        raise ModelFileError(f"{file_name} is one of {parts} parts of a model; merge them to size the whole")
    num_drafts, num_layers = _num_layers(header, file_name)
    blocks = _blocks(header)
    tensors = tuple(_stored_tensor(tensor, file_name, num_layers, blocks) for tensor in header.tensors)
    by_name = {tensor.name: tensor for tensor in tensors}
    check_tensor_extents(header, lambda tensor: by_name[tensor.name].num_bytes)
    metadata = _metadata(header, file_name)
    return LoadedModel(_spec(metadata, num_layers, num_drafts, blocks), tensors, path)


def _metadata(header: GGUFHeader, file_name: str) -> GGUFMetadata:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in FULL_ATTENTION_PERIOD:
        counted = ", ".join(FULL_ATTENTION_PERIOD)
        raise ModelFileError(
            f"{file_name}: general.architecture {str(architecture)[:40]!r} is not counted yet; counted: {counted}"
        )
    return GGUFMetadata(header, file_name, architecture)


def _num_layers(header: GGUFHeader, file_name: str) -> tuple[int, int]:
    """How many multi-token-prediction blocks the file ends with, and how many layers come before them."""
    metadata = _metadata(header, file_name)
    num_blocks = metadata.integer("block_count")
    if num_blocks > MAX_LAYERS:
        raise metadata.error(f"{num_blocks} layers; at most {MAX_LAYERS} can be counted")
    num_drafts = metadata.one("nextn_predict_layers", 0, minimum=0) or 0
    if num_drafts >= num_blocks:
        raise metadata.error(f"{num_drafts} prediction layers of {num_blocks} blocks leave no model")
    return num_drafts, num_blocks - num_drafts


def _blocks(header: GGUFHeader) -> Mapping[int, Mapping[str, GGUFTensor]]:
    """The tensors of each block by name without its number."""
    found: dict[int, dict[str, GGUFTensor]] = {}
    for tensor in header.tensors:
        match = _BLOCK.fullmatch(tensor.name)
        if match is not None:
            found.setdefault(int(match[1]), {})[match[2]] = tensor
    return found


def _stored_tensor(
    tensor: GGUFTensor, file_name: str, num_layers: int, blocks: Mapping[int, Mapping[str, GGUFTensor]]
) -> StoredTensor:
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
    return StoredTensor(
        tensor.name, _role(tensor.name, num_layers, blocks), tensor.num_values, row_values, number_format
    )


def _role(name: str, num_layers: int, blocks: Mapping[int, Mapping[str, GGUFTensor]]) -> TensorRole:
    match = _BLOCK.fullmatch(name)
    if match is not None and int(match[1]) >= num_layers:
        return TensorRole.DRAFT
    if match is not None and match[2].startswith(_STATE_SPACE_BLOCK) and "ssm_out.weight" in blocks[int(match[1])]:
        return TensorRole.STATE_SPACE
    if name.startswith("output."):  # and not blk.0.attn_output.weight
        return TensorRole.HEAD
    found = next((role for mark, role in _ROLES if mark in f".{name}" or name.startswith(mark)), None)
    return found or TensorRole.OTHER


def _spec(
    metadata: GGUFMetadata, num_layers: int, num_drafts: int, blocks: Mapping[int, Mapping[str, GGUFTensor]]
) -> ModelSpec:
    """The shape of the model; biases, norms and tying are what the tensor table shows."""
    names = {tensor.name: tensor for tensor in metadata.header.tensors}
    reader = LayerReader(metadata, num_layers)
    layers = tuple(reader.layer(index, Block(blocks.get(index, {}))) for index in range(num_layers))
    attention = next((m for layer in layers for m in layer.mixers if isinstance(m, Attention)), None)
    table = names.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise metadata.error("there is no two-dimensional tensor token_embd.weight")
    return ModelSpec(
        name=_name(metadata),
        model_type=metadata.architecture,
        hidden_size=reader.hidden_size,
        vocab_size=table.shape[1],
        num_key_value_heads=attention.num_key_value_heads if attention else None,
        head_dim=attention.head_dim if attention else None,
        layers=layers,
        tie_word_embeddings="output.weight" not in names,
        max_position_embeddings=metadata.one("context_length"),
        final_norm_params=sum(t.num_values for name, t in names.items() if name.startswith("output_norm.")),
        source=Source(f"GGUF header of {metadata.file_name}", "read now"),
        parts=_parts(names, blocks, num_layers),
        head_bias="output.bias" in names,
        embedding_size=table.shape[0] if table.shape[0] != reader.hidden_size else None,
        assumptions=_assumptions(layers, num_drafts),
    )


def _parts(
    names: Mapping[str, GGUFTensor],
    blocks: Mapping[int, Mapping[str, GGUFTensor]],
    num_layers: int,
) -> tuple[Part, ...]:
    """Tables, projections and draft layers beside the layers; rotary factors are no parameters."""
    known = ("token_embd.", "output.", "output_norm.", "rope_freqs.", "rope_factors_", "blk.")
    parts = [
        Part(
            name.removesuffix(".weight"),
            tensor.num_values,
            lookup="_embd" in name or "token_types" in name,
            row_values=tensor.shape[0] if "_embd" in name or "token_types" in name else None,
        )
        for name, tensor in names.items()
        if not name.startswith(known)
    ]
    drafts = sum(tensor.num_values for index in blocks if index >= num_layers for tensor in blocks[index].values())
    if drafts:
        parts.append(Part("multi-token prediction", drafts, counted=False))
    return tuple(parts)


def _assumptions(layers: tuple[Layer, ...], num_drafts: int) -> tuple[str, ...]:
    lines = []
    if any(layer.other_params for layer in layers):
        lines.append("tensors of the blocks that are no attention, feed-forward or norm are counted as other")
    if num_drafts:
        lines.append(f"{num_drafts} multi-token-prediction block(s) of the file are not part of the model that is run")
    return tuple(lines)


def _name(metadata: GGUFMetadata) -> str:
    name = metadata.header.metadata.get("general.name")
    return name if isinstance(name, str) and name.strip() else metadata.file_name
