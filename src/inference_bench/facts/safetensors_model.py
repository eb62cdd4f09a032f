"""Safetensors headers as a model's tensors: what each is for, and the bytes it takes.

In:   the headers of one file, or of all shards an index names
Out:  StoredTensor rows; the experts of a layer, and others that differ only by a number, are summed into one
Leaves out: the model's shape, which only its config.json says
Read next by: load, hub.

Packed tensors (AWQ, GPTQ, MXFP4, bitsandbytes) count as the bytes they are; how many weights they hold the config says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

from inference_bench.errors import ModelFileError
from inference_bench.facts.byte_window import shown
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.models import StoredTensor, TensorRole
from inference_bench.facts.safetensors import SafetensorsHeader, SafetensorsTensor, read_safetensors_header
from inference_bench.facts.safetensors_index import MAX_INDEX_BYTES, SafetensorsIndex, parse_safetensors_index
from inference_bench.facts.source import Source

INDEX_NAME: Final = "model.safetensors.index.json"
SINGLE_NAME: Final = "model.safetensors"
MAX_TENSOR_KINDS: Final = 1 << 16  # of one model, experts summed

_SHARD_NAME: Final = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_EXPERT_NUMBER: Final = re.compile(r"\.experts\.\d+\.")
_DRAFT: Final = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_layers|mtp_block)\.")
_SAFETENSORS: Final = Source("safetensors format description, dtypes", "2026-11-29")

# dtype → so many values take so many bytes; a value of any other takes one byte
_BYTES_OF_OTHERS: Final = {
    **{"F4": (2, 1), "F6_E2M3": (4, 3), "F6_E3M2": (4, 3)},
    **{"U16": (1, 2), "U32": (1, 4), "U64": (1, 8), "C64": (1, 8)},
}

# the first pattern found in a tensor's name says what it is for
_ROLES: Final = tuple(
    (re.compile("|".join(patterns)), role)
    for role, *patterns in (
        (
            TensorRole.VISION,
            r"(?:^|\.)(?:vision_\w+|visual|image_\w+|audio_\w+|embed_vision|embed_audio|vit|encoder)\.",
            r"(?:^|\.)(?:multi_modal_projector|mm_projector|resampler|connector)\.|image_newline",
        ),
        (TensorRole.LOOKUP, r"per_layer", r"(?:embed_positions|wpe|position_embeddings|token_type_embeddings)\."),
        (
            TensorRole.EMBEDDING,
            r"(?:embed_tokens|embed_in|wte|word_embeddings|tok_embeddings|embeddings?|^shared)\.\w+$",
        ),
        (TensorRole.HEAD, r"(?:^|\.)(?:lm_head|embed_out|output_layer|proj_out)\.", r"^(?:output|head)\."),
        (TensorRole.NORM, r"norm\w*(?:\.\w+)?$", r"(?:^|\.)ln_?\w*\.\w+$"),
        (TensorRole.ROUTER, r"shared_expert_gate\."),
        (TensorRole.SHARED_EXPERT, r"shared_experts?\.", r"shared_mlp\."),
        (TensorRole.EXPERT, r"\.experts\.", r"\.experts$"),
        (TensorRole.ROUTER, r"\.(?:gate|router)(?:\.\w+)?\.(?:weight|bias|e_score_correction_bias)$", r"\.router\."),
        (
            TensorRole.STATE_SPACE,
            r"(?:^|\.)(?:linear_attn|mamba2?|ssm|conv1?d?|short_conv|time_mix|rg_lru|recurrent\w*)\.",
            r"A_log$|dt_bias$",
        ),
        (TensorRole.ATTENTION, r"\.mixer\.[qkvo]_proj\."),
        (TensorRole.FEED_FORWARD, r"\.mixer\.(?:up_proj|down_proj|gate_proj|fc1|fc2|latent\w*)"),
        (TensorRole.STATE_SPACE, r"\.mixer\."),
        (TensorRole.ATTENTION, r"attn|attention|indexer|sinks"),
        (TensorRole.FEED_FORWARD, r"mlp|feed_forward|ffn|fc1|fc2|dense_\w+|block_sparse_moe|\.moe\."),
    )
)


def role_of(name: str, num_layers: int | None = None) -> TensorRole:
    """What a tensor is for, by its name in a Hugging Face checkpoint.

    Where:  layers from num_layers on are multi-token-prediction layers

    >>> role_of("model.layers.3.mlp.experts.17.down_proj.weight").value, role_of("model.layers.61.mlp.gate", 61).value
    ('expert', 'draft')
    """
    layer = _LAYER.search(name)
    if _DRAFT.search(name) or (layer is not None and num_layers is not None and int(layer[1][:9]) >= num_layers):
        return TensorRole.DRAFT
    return next((role for pattern, role in _ROLES if pattern.search(name)), TensorRole.OTHER)


@cache
def dtype_format(dtype: str) -> NumberFormat:
    """The number format of a safetensors dtype."""
    known = {
        "F64": "fp64",
        "F32": "fp32",
        "F16": "fp16",
        "BF16": "bf16",
        "I8": "int8",
        "I16": "int16",
        "I32": "int32",
        "I64": "int64",
    }
    if dtype in known:
        return number_format(known[dtype])
    if dtype.startswith(("F8_E4M3", "F8_E5M2")):
        return number_format("fp8")
    values, num_bytes = _BYTES_OF_OTHERS.get(dtype, (1, 1))
    compute = ("fp4", "bf16", "fp16", "fp32") if dtype == "F4" else ("bf16", "fp16", "fp32")
    return NumberFormat(dtype.lower(), values, num_bytes, compute, _SAFETENSORS)


def stored_tensors(headers: Iterable[SafetensorsHeader], num_layers: int | None) -> tuple[StoredTensor, ...]:
    """The tensors of all headers; those that differ only in the number of their expert are summed.

    Raises:  ModelFileError for more kinds of tensors than a model has
    """
    sums: dict[tuple[str, str, int], int] = {}
    for header in headers:
        for tensor in header.tensors:
            key = (_EXPERT_NUMBER.sub(".experts.*.", tensor.name), tensor.dtype, _row_values(tensor))
            sums[key] = sums.get(key, 0) + tensor.num_values
            if len(sums) > MAX_TENSOR_KINDS:
                raise ModelFileError(
                    f"{header.name}: more than {MAX_TENSOR_KINDS} kinds of tensors; allowed: up to that"
                )
    return tuple(
        StoredTensor(name, role_of(name, num_layers), num_values, row_values, dtype_format(dtype))
        for (name, dtype, row_values), num_values in sums.items()
    )


def _row_values(tensor: SafetensorsTensor) -> int:
    """Values of a row; a dtype of less than a byte may pack across rows, so that the tensor is one row then."""
    row = tensor.shape[-1] if tensor.shape else 1
    packs = dtype_format(tensor.dtype).block_values
    return max(1, tensor.num_values if row % packs else row)


def check_shard(header: SafetensorsHeader, wanted: set[str], index_name: str) -> None:
    """Refuse a shard that does not hold exactly what the index maps to it.

    Raises:  ModelFileError naming the shard and a tensor
    """
    found = {tensor.name for tensor in header.tensors}
    for names, word in ((wanted - found, "lacks"), (found - wanted, "also holds")):
        if names:
            raise ModelFileError(f"{header.name} {word} the tensor {shown(min(names))}, against {index_name}")


def read_index(path: Path) -> SafetensorsIndex:
    """The index of a sharded model on disk.

    Raises:  ModelFileError
    """
    try:
        with path.open("rb") as file:
            return parse_safetensors_index(file.read(MAX_INDEX_BYTES + 1), path.name)
    except OSError as error:
        raise ModelFileError(f"cannot read {path.name}: {error.strerror or error}") from None


def read_model_tensors(folder: Path, num_layers: int | None) -> tuple[StoredTensor, ...] | None:
    """The tensors of a model folder, None where it holds no safetensors.

    Raises:  ModelFileError, also naming a shard that is missing
    """
    if _is_there(folder / INDEX_NAME):
        index = read_index(folder / INDEX_NAME)
        return gather_shards(index, lambda shard: read_safetensors_header(_existing(folder, shard, index)), num_layers)
    if _is_there(folder / SINGLE_NAME):
        return stored_tensors([read_safetensors_header(folder / SINGLE_NAME)], num_layers)
    shard = next((path.name for path in sorted(folder.glob("*.safetensors")) if is_shard(path.name)), None)
    if shard is not None:
        raise ModelFileError(f"{folder.name} holds {shard} but no {INDEX_NAME}; every shard and the index are needed")
    return None


def gather_shards(
    index: SafetensorsIndex, read: Callable[[str], SafetensorsHeader], num_layers: int | None
) -> tuple[StoredTensor, ...]:
    """The tensors of all shards, one header in memory at a time.

    Raises:  ModelFileError; what read raises
    """
    wanted: dict[str, set[str]] = {shard: set() for shard in index.shards}
    for name, shard in index.shard_of.items():
        wanted[shard].add(name)

    def checked(shard: str) -> SafetensorsHeader:
        header = read(shard)
        check_shard(header, wanted.pop(shard), index.name)
        return header

    return stored_tensors((checked(shard) for shard in index.shards), num_layers)


def is_shard(name: str) -> bool:
    """Whether a file name says that the file is one of several."""
    return _SHARD_NAME.fullmatch(name) is not None


def _is_there(path: Path) -> bool:
    """Whether a file is there to be read; a name that leads to no regular file is refused, never passed over.

    Raises:  ModelFileError naming the file
    """
    if path.is_file():
        return True
    if os.path.lexists(path):
        broken = path.is_symlink() and not path.exists()
        what = "is a link to nothing" if broken else "is not a regular file"
        raise ModelFileError(f"{path.name} in {path.parent.name} {what}; a weight file is needed, or none of that name")
    return False


def _existing(folder: Path, shard: str, index: SafetensorsIndex) -> Path:
    if not _is_there(folder / shard):
        raise ModelFileError(f"the shard {shard} that {index.name} names is missing in {folder.name}")
    return folder / shard
