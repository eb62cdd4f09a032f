"""Which ggml type llama.cpp stores each tensor in when it writes a file of a named type: "Q4_K_M" is a mix.

In:   a file type's name, the tensors of a model as GGUF names them, and the few facts of the model the rules look at
Out:  the name of a number format for each tensor that is quantised; None for one that keeps its 16 or 32 bits
Leaves out: importance matrices, with which a file may differ in its first feed-forward layers and which types of 3 bits
      and less need; the bytes (see weights)
Read next by: weights.

The rules depend on what a tensor is for, on how deep its layer is, and on how many query heads share a value head. They
were read in the source and are held to llama.cpp's own answers for whole models (tests/golden/published).

Source: llama.cpp, src/llama-quant.cpp (2026-11), tensor type selection without an importance matrix
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# file type → the type its tensors have unless a rule says otherwise
FILE_TYPES: Final[Mapping[str, str]] = {
    "Q4_0": "q4_0",
    "Q4_1": "q4_1",
    "Q5_0": "q5_0",
    "Q5_1": "q5_1",
    "Q8_0": "q8_0",
    "Q2_K": "q2_k",
    "Q2_K_S": "q2_k",
    "Q3_K_S": "q3_k",
    "Q3_K_M": "q3_k",
    "Q3_K_L": "q3_k",
    "Q4_K_S": "q4_k",
    "Q4_K_M": "q4_k",
    "Q5_K_S": "q5_k",
    "Q5_K_M": "q5_k",
    "Q6_K": "q6_k",
    "IQ3_S": "iq3_s",
    "IQ3_M": "iq3_s",
    "IQ4_NL": "iq4_nl",
    "IQ4_XS": "iq4_xs",
    "MXFP4_MOE": "mxfp4",
}
NEEDS_IMPORTANCE_MATRIX: Final = frozenset({"Q2_K_S"})

_BLOCK_VALUES: Final = {**dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"), 32), "f16": 1}
_SMALLER_BLOCKS: Final = {
    "q2_k": "q4_0",
    "q3_k": "q4_0",
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
    "iq3_s": "iq4_nl",
    "iq4_xs": "iq4_nl",
}
_KEPT_NAMES: Final = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|ffn_gate_tid2eid|altup|laurel|per_layer_model_proj|ssm_conv1d|shortconv\.conv\.weight"
    r"|indexer\.[kq]_proj\.weight|time_mix_(?:first|w[012]|v[012]|a[012]|g[12]|decay_w[12]|lerp_fused)\.weight|attn_rel_b\.weight"
    r"|position_embd|token_types"
)
_LAYER: Final = re.compile(r"blk\.(\d+)\.")


class MixTensor(NamedTuple):
    """A tensor as a GGUF file names it: `columns` values a row, `copies` of the matrix (experts) stacked."""

    name: str
    columns: int
    copies: int = 1
    is_vector: bool = False


@dataclass(frozen=True, slots=True)
class MixModel:
    """What the rules look at beside the tensors.

    Where:  queries_per_value is how many query heads share a value head in the first layer, 0 where it has none;
            num_layers counts every block, draft layers included; num_experts is 0 for a dense model
    """

    num_layers: int
    queries_per_value: int
    num_experts: int = 0
    is_falcon: bool = False
    is_llama_70b: bool = False  # 80 layers, grouped queries


def mix_formats(file_type: str, tensors: Sequence[MixTensor], model: MixModel) -> list[str | None]:
    """The number format of each tensor; None where it keeps what it had before.

    Where:  file_type is a key of FILE_TYPES

    >>> layer = [MixTensor("blk.0.attn_v.weight", 4096), MixTensor("blk.0.attn_q.weight", 4096)]
    >>> mix_formats("Q4_K_M", layer, MixModel(num_layers=32, queries_per_value=4))
    ['q6_k', 'q4_k']
    """
    rules = _Rules(file_type, model, tensors)
    formats: list[str | None] = [None] * len(tensors)
    for index in sorted(range(len(tensors)), key=lambda index: _file_order(tensors[index].name)):
        if is_quantised(tensors[index]):
            formats[index] = _fitting(rules.choose(tensors[index]), tensors[index].columns)
    return formats


def is_quantised(tensor: MixTensor) -> bool:
    """Whether llama.cpp quantises the tensor at all: matrices, but no norms, routers and short convolutions."""
    return not tensor.is_vector and tensor.name.endswith("weight") and not _KEPT_NAMES.search(tensor.name)


def _file_order(name: str) -> tuple[int, str]:
    """The order the tensors are visited in, which the rules for the first few layers depend on."""
    match = _LAYER.match(name)
    return (int(match[1]) if match else -1, name)


def _fitting(name: str, columns: int) -> str:
    """The type itself, or the one with smaller blocks that a row of this length can have."""
    if columns % _BLOCK_VALUES.get(name, 256):
        name = _SMALLER_BLOCKS.get(name, name)
    return "fp16" if columns % _BLOCK_VALUES.get(name, 256) else name


def _more_bits(layer: int, num_layers: int) -> bool:
    """The first and the last eighth of the layers, and every third between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


@dataclass(slots=True)
class _Rules:
    """The rules of one file type over one model, with what they count while they go through the tensors."""

    file_type: str
    model: MixModel
    tensors: Iterable[MixTensor]
    num_values_seen: int = 0
    num_down_seen: int = 0
    num_values: int = field(init=False)
    tied: bool = field(init=False)

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        self.num_values = sum(1 for name in names if _category(name) == "value")
        self.tied = "output.weight" not in names

    @property
    def base(self) -> str:
        return FILE_TYPES[self.file_type]

    @property
    def is_grouped(self) -> bool:
        return self.model.queries_per_value >= 4

    def choose(self, tensor: MixTensor) -> str:
        """The type of one tensor before its row length is looked at."""
        category = _category(tensor.name)
        if category == "head" or (category == "embedding" and self.tied):
            return self._head(tensor)
        if self.file_type == "MXFP4_MOE":
            return "mxfp4" if tensor.copies > 1 else "q8_0"
        rule: Callable[[MixTensor], str] | None = {
            "value": self._value,
            "key": self._key,
            "attention_output": self._attention_output,
            "down": self._down,
        }.get(category)
        return rule(tensor) if rule else self.base

    def _head(self, tensor: MixTensor) -> str:
        too_short = tensor.columns % _BLOCK_VALUES.get(self.base, 256)
        if self.file_type == "MXFP4_MOE" or self.model.is_falcon or too_short or self.base == "q8_0":
            return "q8_0"
        return "q6_k"

    def _value(self, _tensor: MixTensor) -> str:
        """Value projections (and fused ones) are few and matter most."""
        seen = self.num_values_seen
        self.num_values_seen += 1
        match self.file_type:
            case "Q2_K":
                chosen = "q4_k" if self.is_grouped else "q3_k"
            case "Q2_K_S" | "IQ3_S":
                chosen = "q4_k" if self.is_grouped else self.base
            case "IQ3_M":
                chosen = "q4_k"
            case "Q3_K_M":
                chosen = "q5_k" if seen < 2 else "q4_k"
            case "Q3_K_L":
                chosen = "q5_k"
            case "IQ4_NL" | "IQ4_XS":
                chosen = "q5_k" if self.is_grouped else self.base
            case "Q4_K_M" | "Q5_K_M":
                chosen = "q6_k" if _more_bits(seen, self.num_values) else self.base
            case "Q4_K_S":
                chosen = "q5_k" if seen < 4 else self.base
            case _:
                chosen = self.base
        if self.model.is_llama_70b and chosen in ("q3_k", "q4_k"):
            chosen = "q5_k"
        return "q8_0" if self.model.num_experts == 8 else chosen

    def _key(self, _tensor: MixTensor) -> str:
        return "q8_0" if self.model.num_experts == 8 else self.base

    def _attention_output(self, _tensor: MixTensor) -> str:
        if self.model.is_falcon:
            return "q4_k" if self.file_type == "Q3_K_L" else self.base
        if self.model.num_experts == 8:
            small = ("Q2_K", "Q3_K_S", "Q3_K_M", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS", "Q4_K_S", "Q4_K_M")
            return "q5_k" if self.file_type in small else self.base
        return {"Q2_K": "q3_k", "Q3_K_M": "q4_k", "Q3_K_L": "q5_k", "IQ3_M": "q4_k"}.get(self.file_type, self.base)

    def _down(self, tensor: MixTensor) -> str:
        """The second feed-forward matrix: the first layers, and those with more bits."""
        layer, num_layers = self.num_down_seen, self.model.num_layers
        self.num_down_seen += 1
        if self.model.num_experts > 1:
            layer = _file_order(tensor.name)[0]
        first, more = layer < num_layers // 8, _more_bits(layer, num_layers)
        if self.model.is_falcon:
            return self._down_in_falcon(layer, more)
        match self.file_type:
            case "Q2_K":
                return "q3_k"
            case "Q2_K_S":
                return "q4_k" if first else self.base
            case "Q3_K_M":
                return "q5_k" if layer < num_layers // 16 else "q4_k"
            case "Q3_K_L":
                return "q5_k"
            case "IQ3_M":
                return "q4_k" if first or (self.model.num_experts == 8 and more) else self.base
            case "Q4_K_M" | "Q5_K_M":
                return "q6_k" if more else self.base
            case "Q4_K_S" | "IQ4_NL" | "IQ4_XS":
                return "q5_k" if first else self.base
        return self.base

    def _down_in_falcon(self, layer: int, more: bool) -> str:
        first = layer < self.model.num_layers // 8
        very_first = layer < self.model.num_layers // 16
        match self.file_type:
            case "Q2_K":
                return "q3_k"
            case "Q2_K_S" | "IQ3_M":
                return "q4_k" if first else self.base
            case "Q3_K_M":
                return "q5_k" if very_first else "q4_k" if more else "q3_k"
            case "Q3_K_L":
                return "q4_k"
            case "Q4_K_M":
                return "q6_k" if very_first else "q5_k" if more else "q4_k"
            case "Q5_K_M":
                return "q6_k" if more else self.base
            case "IQ4_NL" | "IQ4_XS":
                return "q5_k" if first else self.base
        return self.base


_CATEGORIES: Final = (
    ("attn_qkv.weight", "value"),
    ("attn_kv_b.weight", "value"),
    ("attn_v.weight", "value"),
    ("attn_k.weight", "key"),
    ("attn_output.weight", "attention_output"),
    ("ffn_down", "down"),
)


def _category(name: str) -> str:
    if name == "output.weight":
        return "head"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((category for mark, category in _CATEGORIES if mark in name), "other")
