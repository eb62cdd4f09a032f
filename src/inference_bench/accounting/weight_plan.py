"""Which format each tensor of a model is stored in: by a name a person gives, or by what a config says.

In:   "bf16", "awq", "Q4_K_M", "int4-g128,embedding=int8,head=int8", or a Quantization read from a config
Out:  WeightPlan
Leaves out: the bytes (see weights); the per-tensor rules of llama.cpp's file types (see llama_cpp_mix)
Read next by: weights.

Quantisers convert the matrices of the layers. Embeddings, the output head, routers, norms, biases and image or audio
towers stay in 16 bits unless a part is named otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.named_weights import Weight
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.models import TensorRole
from inference_bench.facts.names import fold_name

if TYPE_CHECKING:
    from inference_bench.facts.quantization import Quantization

# parts of a model that can be given a format of their own; "linear" is all of LINEAR_PARTS
LINEAR_PARTS: Final = ("attention", "state_space", "feed_forward", "experts", "shared_experts")
PARTS: Final = ("embedding", "head", *LINEAR_PARTS, "router", "norm", "vision", "other")
PART_OF_ROLE: Final[Mapping[TensorRole, str]] = {
    TensorRole.EMBEDDING: "embedding",
    TensorRole.HEAD: "head",
    TensorRole.ATTENTION: "attention",
    TensorRole.STATE_SPACE: "state_space",
    TensorRole.FEED_FORWARD: "feed_forward",
    TensorRole.EXPERT: "experts",
    TensorRole.SHARED_EXPERT: "shared_experts",
    TensorRole.ROUTER: "router",
    TensorRole.NORM: "norm",
    TensorRole.VISION: "vision",
    TensorRole.OTHER: "other",
}

# name of a scheme → the format of what it converts; a format's own name is a scheme too
_SCHEMES: Final[Mapping[str, str]] = {
    "fp8": "fp8-tensor",
    "int8": "int8-channel",
    "int4": "int4-g128",
    "awq": "awq-g128",
    "gptq": "gptq-g128",
    "bnb-4bit": "nf4",
    "bnb-8bit": "int8-bnb",
    "torchao-int4": "int4-g128-zp",
}
_EXPERTS_ONLY: Final = frozenset({"mxfp4"})  # as gpt-oss is released; of a dense model all layer matrices
FILE_TYPE_NOTE: Final = (
    "file type of llama.cpp without an importance matrix; tables the converter adds for long contexts are not counted"
)


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """Which format each class of tensor is stored in.

    Where:  converted is the format of what the scheme converts, plain that of the rest; file_type is a llama.cpp mix
            that decides tensor by tensor, quantization a config's own rules by module name; overrides are parts
            with a format of their own, which win
    """

    scheme: str
    converted: NumberFormat
    plain: NumberFormat
    file_type: str | None = None
    quantization: Quantization | None = None
    experts_only: bool = False
    overrides: tuple[tuple[str, NumberFormat], ...] = ()

    @property
    def name(self) -> str:
        """The scheme, and the parts that were given another format."""
        return ",".join([self.scheme, *(f"{part}={fmt.name}" for part, fmt in self.overrides)])

    @property
    def differs_by_layer(self) -> bool:
        """Layers built alike may still be stored in different formats."""
        return self.file_type is not None or self.quantization is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the plan assumes, in words."""
        if self.file_type is not None:
            from inference_bench.accounting.llama_cpp_mix import NEEDS_IMPORTANCE_MATRIX

            needs = ("llama.cpp writes this file type only with an importance matrix",)
            return (FILE_TYPE_NOTE, *(needs if self.file_type in NEEDS_IMPORTANCE_MATRIX else ()))
        if self.quantization is not None:
            said = f"stored as its config says ({self.quantization.method})"
            return (f"{said}; routers, norms and biases in {self.plain.name}", *self.quantization.notes)
        if self.experts_only:
            return (f"{self.converted.name} for routed experts, as gpt-oss is released; the rest in {self.plain.name}",)
        if self.converted is self.plain:
            return ()
        return (
            f"{self.converted.name} for the matrices of the layers; embeddings, output head, routers, norms, biases "
            f"and towers in {self.plain.name}, unless named otherwise",
        )

    def override(self, part: str) -> NumberFormat | None:
        """The format a part was given."""
        return next((fmt for name, fmt in self.overrides if name == part), None)

    def part_format(self, part: str) -> NumberFormat:
        """The format of a part that is no layer matrix: tables, head, norms, towers."""
        chosen = self.override(part)
        if chosen is None and self.quantization is not None:
            chosen = self._converted_table(self.quantization, part)
        if chosen is None and part == "norm" and self.file_type is not None:
            chosen = number_format("fp32")
        return self.plain if chosen is None else chosen

    def _converted_table(self, quantization: Quantization, part: str) -> NumberFormat | None:
        """The format a config's rules give the head or the input table, None where they leave it alone."""
        if part == "head":
            return quantization.format_of("lm_head")
        return (
            quantization.format_of("model.embed_tokens")
            if part == "embedding" and quantization.converts_embedding
            else None
        )

    def layer_format(self, weight: Weight, layer: int, is_sparse: bool) -> NumberFormat:
        """The format of a tensor of a layer, file types aside.

        Where:  is_sparse says whether the model has routed experts
        """
        part = "norm" if weight.is_vector else PART_OF_ROLE[weight.role]
        chosen = self.override(part)
        if chosen is not None:
            return chosen
        if part not in LINEAR_PARTS or (self.experts_only and is_sparse and part != "experts"):
            return self.plain
        if self.quantization is not None:
            return self.quantization.format_of(f"model.layers.{layer}.{weight.name}") or self.plain
        return self.converted


def known_schemes() -> tuple[tuple[str, str], ...]:
    """Every scheme that is not a format's own name, with what it stores the layer matrices in."""
    from inference_bench.accounting.llama_cpp_mix import FILE_TYPES

    mixes = ((name, f"{base}, others by tensor as llama.cpp chooses") for name, base in FILE_TYPES.items())
    return (*_SCHEMES.items(), *mixes)


def weight_plan(text: str) -> WeightPlan:
    """The plan a name stands for: "bf16" is everything in bf16; "int4-g128" is int4 layer matrices, the rest in bf16.

    Parts can be named: "int4-g128,embedding=int8,head=int8"; "linear" is every layer matrix.

    Raises:  UnknownNameError for a format, RequestError for a part

    >>> weight_plan("int4-g128,head=int8").part_format("head").name, weight_plan("q4_k_m").scheme
    ('int8', 'Q4_K_M')
    """
    first, *rest = (piece.strip() for piece in text.split(","))
    plan = _scheme(first)
    chosen: dict[str, NumberFormat] = {}
    for piece in rest:
        part, _, name = piece.partition("=")
        if part not in (*PARTS, "linear") or not name:
            allowed = ", ".join((*PARTS, "linear"))
            raise RequestError(f"weights {text[:80]!r}: {piece[:40]!r} is not PART=FORMAT with PART one of {allowed}")
        chosen |= dict.fromkeys(LINEAR_PARTS if part == "linear" else (part,), number_format(name))
    overrides = tuple((part, chosen[part]) for part in PARTS if part in chosen and chosen[part] != _usual(plan, part))
    return replace(plan, overrides=overrides)


def _scheme(name: str) -> WeightPlan:
    if name.startswith("linear="):
        return _plain_plan(number_format(name.removeprefix("linear=")))
    file_type = _file_type(name)
    if file_type is not None:
        return WeightPlan(file_type, number_format(_base_of(file_type)), number_format("bf16"), file_type=file_type)
    folded = {fold_name(scheme): scheme for scheme in _SCHEMES}
    scheme = folded.get(fold_name(name))
    if scheme is not None:
        return WeightPlan(scheme, number_format(_SCHEMES[scheme]), number_format("bf16"))
    try:
        return _plain_plan(number_format(name))
    except UnknownNameError as error:
        from inference_bench.accounting.llama_cpp_mix import FILE_TYPES

        raise UnknownNameError(f"{error}; schemes: {', '.join((*_SCHEMES, *FILE_TYPES))}") from None


def _plain_plan(fmt: NumberFormat) -> WeightPlan:
    """A format for the layer matrices; one of 16 bits and more is for everything."""
    plain = fmt if fmt.is_plain and not fmt.name.startswith("int") else number_format("bf16")
    return WeightPlan(fmt.name, fmt, plain, experts_only=fmt.name in _EXPERTS_ONLY)


def _file_type(name: str) -> str | None:
    """The llama.cpp file type of that name; loaded only where the name may be one."""
    if name[:1].lower() not in ("q", "i", "m") or "_" not in name:
        return None
    from inference_bench.accounting.llama_cpp_mix import FILE_TYPES

    return name.upper() if name.upper() in FILE_TYPES else None


def _base_of(file_type: str) -> str:
    from inference_bench.accounting.llama_cpp_mix import FILE_TYPES

    return FILE_TYPES[file_type]


def _usual(plan: WeightPlan, part: str) -> NumberFormat | None:
    """What a part has without being named; None where that depends on the tensor."""
    if plan.file_type is not None:
        return None
    if part in LINEAR_PARTS:
        return None if plan.experts_only else plan.converted
    return plan.plain


def stored_plan(quantization: Quantization | None, plain: NumberFormat | None) -> WeightPlan:
    """How the checkpoint a config describes is stored: its quantisation, or the type it names, or bf16.

    Raises:  RequestError where the quantisation has no rule
    """
    base = number_format("bf16") if plain is None else plain
    if quantization is None:
        return _plain_plan(base)
    if not quantization.rules:
        raise RequestError(f"the {quantization.method} settings hold no format for any weight")
    rest = base if base.is_plain else number_format("bf16")
    return WeightPlan(quantization.method, quantization.rules[0][0], rest, quantization=quantization)
