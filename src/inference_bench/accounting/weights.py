"""What the weights take: from a file's tensor table when there is one, from a plan of formats otherwise.

In:   LoadedModel, or ModelSpec and a WeightPlan
Out:  WeightCount: bytes by component, exact
Leaves out: runtime copies (repacked or dequantised weights), which are an engine's overhead
Read next by: work, predict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.named_weights import Weight, name_layer_weights
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weight_plan import WeightPlan, stored_plan, weight_plan
from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.models import LoadedModel, MixtureOfExperts, ModelSpec, Part, StoredTensor, TensorRole
from inference_bench.origin import Origin

if TYPE_CHECKING:
    from inference_bench.facts.quantization import Quantization

__all__ = ["WeightCount", "WeightPlan", "count_loaded_weights", "count_stored_weights", "count_weights", "weight_plan"]

_QUANTISED_NAME: Final = re.compile(
    r"(?i:NV ?FP4|MXFP4|FP8|AWQ|GPTQ|W[48]A(?:16|8|4)|INT[48]|NF4|[48][- ]?bit|bnb|EETQ|EXL[23]|AQLM)(?![a-z0-9])"
)
_SAYS_QUANTISED: Final = ("quantization_config", "compression_config", "quantization", "text_config")
_LINEAR_ROLES: Final = (
    TensorRole.ATTENTION,
    TensorRole.FEED_FORWARD,
    TensorRole.EXPERT,
    TensorRole.SHARED_EXPERT,
    TensorRole.STATE_SPACE,
)


@dataclass(frozen=True, slots=True)
class WeightCount:
    """Bytes of the stored weights by component.

    Where:  embedding is the input table; a tied head reads that same table, so `head` is 0 then;
            attention is every layer's mixer; feed_forward is dense blocks, shared experts and routers; experts is all
            routed experts of all layers; vision is towers and encoders, which run once for an input; lookup is other
            tables of which a token reads one row; draft is multi-token-prediction layers that a file holds, which plain
            decoding never reads; embedding_row is what one token reads of all tables; linear_format decides which peak
            the products run at; notes are what was assumed
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
    experts: int = 0
    vision: int = 0
    lookup: int = 0
    draft: int = 0
    notes: tuple[str, ...] = ()
    router: int = 0  # of feed_forward, what routers take

    @property
    def total(self) -> int:
        """Bytes that must be resident."""
        layers = self.attention + self.feed_forward + self.experts + self.norm + self.other
        return self.embedding + self.head + layers + self.vision + self.lookup + self.draft

    @property
    def head_read(self) -> int:
        """Bytes the output head reads: its own table, or the tied input table."""
        return self.embedding if self.tied else self.head

    @property
    def read_per_step(self) -> int:
        """Bytes a step reads once when every expert is chosen: all but towers, drafts and tables read by the row."""
        return self.total - self.vision - self.lookup - self.draft - (0 if self.tied else self.embedding)

    @property
    def bits_per_weight(self) -> float:
        """Stored bits a parameter, scales included."""
        return self.total * 8 / self.num_values


@dataclass(slots=True)
class _Sums:
    """Bytes by role, and how many values of layer matrices each format holds."""

    by_role: dict[TensorRole, int] = field(default_factory=lambda: dict.fromkeys(TensorRole, 0))
    values_by_format: dict[NumberFormat, int] = field(default_factory=dict)

    def add(self, weight: Weight, fmt: NumberFormat, count: int = 1) -> None:
        self.by_role[weight.role] += count * weight.copies * _count_bytes(weight, fmt)
        if weight.role in _LINEAR_ROLES and not weight.is_vector:
            self.values_by_format[fmt] = self.values_by_format.get(fmt, 0) + count * weight.num_params

    def main_format(self, default: NumberFormat) -> NumberFormat:
        """The format most layer matrices are in."""
        return max(self.values_by_format, key=lambda fmt: self.values_by_format[fmt], default=default)


def _count_bytes(weight: Weight, fmt: NumberFormat) -> int:
    """Bytes of one copy."""
    return fmt.count_bytes(weight.columns) if weight.is_vector else fmt.count_matrix_bytes(weight.rows, weight.columns)


def count_weights(model: ModelSpec, plan: WeightPlan) -> WeightCount:
    """Bytes of the model's weights stored by a plan.

    Formula:  Σ tensors of rows · ceil(columns / block) · block bytes, with the scales kept beside a matrix
    Unit:     bytes, exact
    Ignores:  padding that a packed layout adds where a matrix does not fill its blocks
    """
    sums, towers = _Sums(), _Sums()
    for weight, fmt, count in _layer_formats(model, plan):
        sums.add(weight, fmt, count)
    for layer in model.encoder_layers:
        for weight in name_layer_weights(layer, model.hidden_size):
            towers.add(weight, plan.layer_format(weight, 0, is_sparse=False))
    table, head = _tables(model, plan)
    tables = [part for part in model.parts if part.counted and part.lookup]
    rest = [part for part in model.parts if part.counted and not part.lookup]
    by_role = sums.by_role
    return WeightCount(
        embedding=table.count_matrix_bytes(model.vocab_size, model.table_width),
        head=head,
        attention=by_role[TensorRole.ATTENTION] + by_role[TensorRole.STATE_SPACE],
        feed_forward=by_role[TensorRole.FEED_FORWARD] + by_role[TensorRole.SHARED_EXPERT] + by_role[TensorRole.ROUTER],
        norm=by_role[TensorRole.NORM] + plan.part_format("norm").count_bytes(model.final_norm_params),
        other=by_role[TensorRole.OTHER] + sum(_part_bytes(p, plan, "other") for p in rest if not _is_tower(p)),
        embedding_row=table.count_bytes(model.table_width)
        + sum(table.count_bytes(part.row_values or 0) for part in tables),
        tied=model.tie_word_embeddings,
        format_name=plan.name,
        linear_format=sums.main_format(plan.converted),
        origin=Origin.COUNTED,
        num_values=count_params(model).total,
        experts=by_role[TensorRole.EXPERT],
        vision=sum(towers.by_role.values())
        + sum(_part_bytes(part, plan, "vision") for part in rest if _is_tower(part)),
        lookup=sum(table.count_bytes(part.num_params, part.row_values) for part in tables),
        notes=plan.notes,
        router=by_role[TensorRole.ROUTER],
    )


def _tables(model: ModelSpec, plan: WeightPlan) -> tuple[NumberFormat, int]:
    """The format of the input table and the bytes of the output head with its bias; a tied head has none of its own."""
    table, head = plan.part_format("embedding"), plan.part_format("head")
    if plan.file_type is not None:
        from inference_bench.accounting.gguf_layout import table_formats

        table, head = table_formats(model, plan)
    own = 0 if model.tie_word_embeddings else head.count_matrix_bytes(model.vocab_size, model.table_width)
    bias = plan.part_format("norm").count_bytes(model.vocab_size) if model.head_bias else 0
    return table, own + bias


def _layer_formats(model: ModelSpec, plan: WeightPlan) -> Iterator[tuple[Weight, NumberFormat, int]]:
    """Each tensor of the layers with its format, and how many layers have it so."""
    if plan.file_type is not None:
        from inference_bench.accounting.gguf_layout import layer_formats

        yield from layer_formats(model, plan)
        return
    is_sparse = any(isinstance(layer.feed_forward, MixtureOfExperts) for layer, _ in model.layer_groups())
    if not plan.differs_by_layer:
        for layer, count in model.layer_groups():
            for weight in name_layer_weights(layer, model.hidden_size):
                yield weight, plan.layer_format(weight, 0, is_sparse), count
        return
    named = {layer: name_layer_weights(layer, model.hidden_size) for layer, _ in model.layer_groups()}
    for index, layer in enumerate(model.layers):
        for weight in named[layer]:
            yield weight, plan.layer_format(weight, index, is_sparse), 1


def _is_tower(part: Part) -> bool:
    return part.name.startswith(("vision", "audio"))


def _part_bytes(part: Part, plan: WeightPlan, name: str) -> int:
    return plan.part_format(name).count_bytes(part.num_params)


def count_loaded_weights(model: LoadedModel, text: str | None = None) -> WeightCount:
    """The weights of a model: in the format a person names, or as its file holds them, or as its config says.

    Raises:  UnknownNameError, RequestError, and ModelConfigError where the config's quantisation is not known
    """
    if text is not None:
        return count_weights(model.spec, weight_plan(text))
    quantization = _quantization(model)
    if model.tensors is None:
        count = count_weights(model.spec, stored_plan(quantization, model.spec.stored_format))
        return count if quantization is not None else _with_doubts(count, model.spec)
    if model.config is None:  # a GGUF file: every value is one weight
        return count_stored_weights(model.tensors, model.spec.tie_word_embeddings)
    converted = quantization.rules[0][0] if quantization is not None and quantization.rules else None
    return count_stored_weights(
        model.tensors, model.spec.tie_word_embeddings, count_params(model.spec).total, converted
    )


def loaded_plan(model: LoadedModel, text: str | None = None) -> WeightPlan:
    """The plan behind `count_loaded_weights` where no tensor table decides: the format named, or the config's own.

    Raises:  UnknownNameError, RequestError, ModelConfigError
    """
    return weight_plan(text) if text is not None else stored_plan(_quantization(model), model.spec.stored_format)


def _with_doubts(count: WeightCount, spec: ModelSpec) -> WeightCount:
    """A count that says what its format rests on where the config is silent, or its name speaks of a quantisation."""
    doubts = []
    if spec.stored_format is None:
        doubts.append(f"the config names no dtype: weights taken as {count.format_name}")
    match = _QUANTISED_NAME.search(spec.name)
    if match is not None:
        doubts.append(
            f"its name says {match[0]}, its config does not: counted in {count.format_name}; name the format to be sure"
        )
    return replace(count, notes=(*count.notes, *doubts)) if doubts else count


def _quantization(model: LoadedModel) -> Quantization | None:
    if model.config is None or not any(model.config.get(key) for key in _SAYS_QUANTISED):
        return None
    from inference_bench.facts.quantization import quantization_from_config

    return quantization_from_config(model.config, f"the config of {model.spec.name}")


def count_stored_weights(
    tensors: Iterable[StoredTensor],
    tied: bool,
    num_params: int | None = None,
    linear_format: NumberFormat | None = None,
) -> WeightCount:
    """Bytes of the weights in a file, from its tensor table.

    Where:    num_params and linear_format are given where the file packs several weights into one stored value
    Unit:     bytes, exact
    Raises:   RequestError for a file without an embedding table or without linears
    """
    by_role: dict[TensorRole, list[StoredTensor]] = {role: [] for role in TensorRole}
    for tensor in tensors:
        by_role[tensor.role].append(tensor)
    tables = by_role[TensorRole.EMBEDDING]
    linears = [tensor for role in _LINEAR_ROLES for tensor in by_role[role]]
    if not tables or not linears:
        raise RequestError("the file holds no embedding table or no linear layers; it is not a whole model")
    sums = {role: sum(tensor.num_bytes for tensor in by_role[role]) for role in TensorRole}
    values_by_format: dict[NumberFormat, int] = {}
    for tensor in linears:
        values_by_format[tensor.number_format] = values_by_format.get(tensor.number_format, 0) + tensor.num_values
    everything = [tensor for role in TensorRole for tensor in by_role[role]]
    return WeightCount(
        embedding=sums[TensorRole.EMBEDDING],
        head=sums[TensorRole.HEAD],
        attention=sums[TensorRole.ATTENTION] + sums[TensorRole.STATE_SPACE],
        feed_forward=sums[TensorRole.FEED_FORWARD] + sums[TensorRole.SHARED_EXPERT] + sums[TensorRole.ROUTER],
        norm=sums[TensorRole.NORM],
        other=sums[TensorRole.OTHER],
        experts=sums[TensorRole.EXPERT],
        vision=sums[TensorRole.VISION],
        lookup=sums[TensorRole.LOOKUP],
        draft=sums[TensorRole.DRAFT],
        embedding_row=sum(t.number_format.count_bytes(t.row_values) for t in (tables[0], *by_role[TensorRole.LOOKUP])),
        tied=tied,
        format_name=_mix_name(everything),
        linear_format=linear_format or max(values_by_format, key=lambda fmt: values_by_format[fmt]),
        origin=Origin.COUNTED,
        num_values=num_params or sum(tensor.num_values for tensor in everything),
        notes=_stored_notes(sums[TensorRole.DRAFT]),
        router=sums[TensorRole.ROUTER],
    )


def _stored_notes(draft_bytes: int) -> tuple[str, ...]:
    if not draft_bytes:
        return ()
    return (f"{draft_bytes} bytes of the file are multi-token-prediction layers, which plain decoding never reads",)


def _mix_name(tensors: list[StoredTensor]) -> str:
    """The formats of a file, the one with most bytes first: "q4_1 + q8_0 + fp32"."""
    num_bytes: dict[str, int] = {}
    for tensor in tensors:
        num_bytes[tensor.number_format.name] = num_bytes.get(tensor.number_format.name, 0) + tensor.num_bytes
    return " + ".join(sorted(num_bytes, key=lambda name: -num_bytes[name]))
