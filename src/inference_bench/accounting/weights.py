"""What the weights take: from a file's tensor table when there is one, from a stated format otherwise.

In:   LoadedModel, or ModelSpec and a WeightPlan
Out:  WeightCount: bytes by component, exact
Leaves out: runtime copies (repacked or dequantised weights), which are an engine's overhead
Read next by: work, predict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.params import count_params
from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.models import ModelSpec, StoredTensor, TensorRole
from inference_bench.origin import Origin

_PARTS: Final = ("linear", "embedding", "head", "norm")


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """Which format each class of tensor is stored in: quantisers convert the linears and leave the rest."""

    linear: NumberFormat
    embedding: NumberFormat
    head: NumberFormat
    norm: NumberFormat

    @property
    def name(self) -> str:
        """The format of the linears, with the others where they differ from what that format implies."""
        usual = weight_plan(self.linear.name)
        others = [
            f"{part}={getattr(self, part).name}"
            for part in ("embedding", "head", "norm")
            if getattr(self, part) != getattr(usual, part)
        ]
        return ",".join([self.linear.name, *others])


@dataclass(frozen=True, slots=True)
class WeightCount:
    """Bytes of the stored weights by component.

    Where:  embedding is the input table; a tied head reads that same table, so `head` is 0 then;
            embedding_row is one token's row of the table; linear_format decides which peak the products run at
    Unit:   bytes, exact
    """

    embedding: int
    head: int
    attention: int
    feed_forward: int
    norm: int
    other: int
    embedding_row: int
    tied: bool
    format_name: str
    linear_format: NumberFormat
    origin: Origin
    num_values: int

    @property
    def total(self) -> int:
        """Bytes that must be resident."""
        return self.embedding + self.head + self.attention + self.feed_forward + self.norm + self.other

    @property
    def head_read(self) -> int:
        """Bytes the output head reads: its own table, or the tied input table."""
        return self.embedding if self.tied else self.head

    @property
    def read_per_step(self) -> int:
        """Bytes every step reads once, whatever the batch: all but an untied input table."""
        return self.total if self.tied else self.total - self.embedding

    @property
    def bits_per_weight(self) -> float:
        """Stored bits a parameter, scales included."""
        return self.total * 8 / self.num_values


def weight_plan(text: str) -> WeightPlan:
    """The plan a name stands for: "bf16" is everything in bf16; "int4-g128" is int4 linears, the rest in bf16.

    Parts can be named: "int4-g128,embedding=int8,head=int8".

    Raises:  UnknownNameError for a format, RequestError for a part

    >>> weight_plan("int4-g128,head=int8").head.name, weight_plan("fp16").norm.name
    ('int8', 'fp16')
    """
    first, *rest = (piece.strip() for piece in text.split(","))
    linear = number_format(first.removeprefix("linear="))
    plain = linear if linear.name in {"fp32", "fp16", "bf16", "fp64"} else number_format("bf16")
    parts = {"linear": linear, "embedding": plain, "head": plain, "norm": plain}
    for piece in rest:
        part, _, name = piece.partition("=")
        if part not in _PARTS or not name:
            raise RequestError(f"weights {text!r}: {piece!r} is not PART=FORMAT with PART one of {', '.join(_PARTS)}")
        parts[part] = number_format(name)
    return WeightPlan(**parts)


def count_weights(model: ModelSpec, plan: WeightPlan) -> WeightCount:
    """Bytes of the model's weights stored by a plan.

    Formula:  Σ components of parameters · bits / 8, each matrix row in whole blocks
    Unit:     bytes, exact
    Ignores:  per-tensor scales; biases are counted in the linear's format
    """
    params = count_params(model)
    return WeightCount(
        embedding=plan.embedding.count_bytes(params.embedding, model.hidden_size),
        head=plan.head.count_bytes(params.head, model.hidden_size),
        attention=plan.linear.count_bytes(params.attention),
        feed_forward=plan.linear.count_bytes(params.feed_forward),
        norm=plan.norm.count_bytes(params.norm),
        other=0,
        embedding_row=plan.embedding.count_bytes(model.hidden_size),
        tied=model.tie_word_embeddings,
        format_name=plan.name,
        linear_format=plan.linear,
        origin=Origin.COUNTED,
        num_values=params.total,
    )


def count_stored_weights(tensors: Iterable[StoredTensor], tied: bool) -> WeightCount:
    """Bytes of the weights in a file, from its tensor table.

    Unit:     bytes, exact
    Raises:   RequestError for a file without an embedding table or without linears
    """
    by_role = {role: [tensor for tensor in tensors if tensor.role is role] for role in TensorRole}
    tables, linears = by_role[TensorRole.EMBEDDING], by_role[TensorRole.ATTENTION] + by_role[TensorRole.FEED_FORWARD]
    if not tables or not linears:
        raise RequestError("the file holds no embedding table or no linear layers; it is not a whole model")
    sums = {role: sum(tensor.num_bytes for tensor in by_role[role]) for role in TensorRole}
    values_by_format: dict[NumberFormat, int] = {}
    for tensor in linears:
        values_by_format[tensor.number_format] = values_by_format.get(tensor.number_format, 0) + tensor.num_values
    linear_format = max(values_by_format, key=lambda fmt: values_by_format[fmt])
    everything = [tensor for role in TensorRole for tensor in by_role[role]]
    return WeightCount(
        embedding=sums[TensorRole.EMBEDDING],
        head=sums[TensorRole.HEAD],
        attention=sums[TensorRole.ATTENTION],
        feed_forward=sums[TensorRole.FEED_FORWARD],
        norm=sums[TensorRole.NORM],
        other=sums[TensorRole.OTHER],
        embedding_row=tables[0].number_format.count_bytes(tables[0].row_values),
        tied=tied,
        format_name=_mix_name(everything),
        linear_format=linear_format,
        origin=Origin.COUNTED,
        num_values=sum(tensor.num_values for tensor in everything),
    )


def _mix_name(tensors: list[StoredTensor]) -> str:
    """The formats of a file, the one with most bytes first: "q4_1 + q8_0 + fp32"."""
    num_bytes: dict[str, int] = {}
    for tensor in tensors:
        num_bytes[tensor.number_format.name] = num_bytes.get(tensor.number_format.name, 0) + tensor.num_bytes
    return " + ".join(sorted(num_bytes, key=lambda name: -num_bytes[name]))
