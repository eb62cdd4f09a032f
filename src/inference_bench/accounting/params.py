"""How many parameters a model has, by component, and how many of them one token uses.

In:   ModelSpec
Out:  the tensors of a layer as WeightShape rows; ParameterCount: exact integers
Leaves out: buffers that are not trained (rotary tables, router correction biases)
Read next by: weights, work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from inference_bench.facts.models import (
    Attention,
    FeedForward,
    Layer,
    Mixer,
    MixtureOfExperts,
    ModelSpec,
    OutputGate,
    QueryKeyNorm,
    TensorRole,
)

Counted = TypeVar("Counted")
_KEPT_MODELS: Final = 64


class WeightShape(NamedTuple):
    """One kind of tensor in a layer: `copies` of rows × columns; a vector (bias, norm, scale) is one row."""

    role: TensorRole
    rows: int
    columns: int
    copies: int = 1
    is_vector: bool = False

    @property
    def num_params(self) -> int:
        """Values in all copies."""
        return self.rows * self.columns * self.copies


def matrix(role: TensorRole, rows: int, columns: int, copies: int = 1) -> WeightShape:
    """A weight matrix of rows outputs and columns inputs, stored row by row."""
    return WeightShape(role, rows, columns, copies)


def vector(role: TensorRole, size: int, copies: int = 1) -> WeightShape:
    """A bias, norm or scale of so many values."""
    return WeightShape(role, 1, size, copies, True)


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters by component; the tied embedding is counted once, as the input embedding.

    Where:  experts are the routed ones, of which a token uses routed_active; feed_forward is what is dense;
            state_space holds linear attention, state-space and convolution layers; lookup are tables beside the
            embedding of which a token reads one row; encoder and vision run once for an input, not for a token;
            apart are parameters of the published model that the language model's own class does not hold, so that
            they are in no total
    Unit:   values, exact
    """

    embedding: int
    head: int
    attention: int
    feed_forward: int
    norm: int
    experts: int = 0
    routed_active: int = 0
    shared_experts: int = 0
    router: int = 0
    state_space: int = 0
    encoder: int = 0
    vision: int = 0
    lookup: int = 0
    other: int = 0
    apart: tuple[tuple[str, int], ...] = field(default=())

    @property
    def components(self) -> dict[str, int]:
        """Every component that is in the total, by name; those the model lacks are left out."""
        names = (
            *("embedding", "head", "attention", "state_space", "feed_forward", "experts", "shared_experts", "router"),
            *("norm", "encoder", "vision", "lookup", "other"),
        )
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    @property
    def total(self) -> int:
        """N: every parameter once."""
        return sum(self.components.values())

    @property
    def active(self) -> int:
        """Parameters one token uses, embeddings included.

        Formula:  N - routed experts + routed experts · k / E, layer by layer, which is whole: E divides each layer's
        """
        return self.total - self.experts + self.routed_active

    @property
    def matmul(self) -> int:
        """N_matmul: all but an untied input embedding and other input tables, which are look-ups of one row."""
        return self.total - self.lookup - (self.embedding if self.head else 0)

    @property
    def matmul_active(self) -> int:
        """N_matmul of the experts one token uses."""
        return self.matmul - self.experts + self.routed_active


def attention_weights(attention: Attention, hidden_size: int) -> tuple[WeightShape, ...]:
    """Projections of one grouped-query attention layer, with its biases, norms, gate and sinks.

    Formula:  D·N·H + D·K·(H + Hv) + N·Hv·D, plus biases; a shared cache may leave out K and V, and K = V leaves out V
    """
    heads, kv_heads, role = attention.num_attention_heads, attention.num_key_value_heads, TensorRole.ATTENTION
    size_in = hidden_size if attention.input_size is None else attention.input_size
    size_out = hidden_size if attention.output_size is None else attention.output_size
    queries, output = heads * attention.head_dim, heads * attention.value_width
    own = int(attention.projects_key_value)
    keys = own * kv_heads * attention.head_dim
    values = own * int(attention.value_projection) * kv_heads * attention.value_width
    gate = {OutputGate.NONE: 0, OutputGate.PER_VALUE: output, OutputGate.PER_HEAD: heads}[attention.output_gate]
    biases = (
        queries * attention.query_bias + keys * attention.key_bias + values * attention.value_bias,
        size_out * attention.output_bias,
        heads * attention.sinks,
    )
    shapes = (
        matrix(role, queries, size_in),
        matrix(role, keys, size_in),
        matrix(role, values, size_in),
        matrix(role, size_out, output),
        matrix(role, gate, size_in),
        *(vector(role, size) for size in biases),
        vector(TensorRole.NORM, _query_key_norm(attention, queries, keys)),
    )
    return tuple(shape for shape in shapes if shape.num_params)


def _query_key_norm(attention: Attention, queries: int, keys: int) -> int:
    kind, one = attention.query_key_norm, attention.head_dim
    if kind is QueryKeyNorm.NONE:
        return 0
    if kind is QueryKeyNorm.PER_WIDTH:
        return queries + keys
    vectors = 2 if kind is QueryKeyNorm.PER_HEAD_WITH_BIAS else 1
    return vectors * one * (2 if attention.projects_key_value else 1)


def feed_forward_weights(
    feed_forward: FeedForward, hidden_size: int, role: TensorRole = TensorRole.FEED_FORWARD, copies: int = 1
) -> tuple[WeightShape, ...]:
    """Matrices of a feed-forward block, or of so many experts built alike.

    Formula:  3·D·F when gated (gate, up, down), 2·D·F otherwise, plus biases
    """
    num_inner, width = (2 if feed_forward.gated else 1), feed_forward.intermediate_size
    shapes = (
        matrix(role, num_inner * width, hidden_size, copies),
        matrix(role, hidden_size, width, copies),
        vector(role, num_inner * width + hidden_size if feed_forward.bias else 0, copies),
    )
    return tuple(shape for shape in shapes if shape.num_params)


def expert_weights(moe: MixtureOfExperts, hidden_size: int) -> tuple[WeightShape, ...]:
    """Routed experts, shared experts, router and the gates and dense block beside them."""
    inner = hidden_size if moe.latent_size is None else moe.latent_size
    routed = FeedForward(moe.intermediate_size, moe.gated, moe.bias)
    shared = FeedForward(moe.shared_intermediate_size, moe.gated if moe.shared_gated is None else moe.shared_gated)
    outputs = moe.num_experts if moe.num_router_outputs is None else moe.num_router_outputs
    router = outputs * hidden_size if moe.router_params is None else moe.router_params
    shapes = [
        *feed_forward_weights(routed, inner, TensorRole.EXPERT, moe.num_experts),
        matrix(TensorRole.ROUTER, router // hidden_size, hidden_size),
        vector(TensorRole.ROUTER, router % hidden_size + (outputs if moe.router_bias else 0)),
        vector(TensorRole.SHARED_EXPERT, hidden_size if moe.shared_gate else 0),
        matrix(TensorRole.FEED_FORWARD, 0 if moe.latent_size is None else inner, hidden_size, 2),
    ]
    if moe.shared_intermediate_size:
        shapes += feed_forward_weights(shared, hidden_size, TensorRole.SHARED_EXPERT)
    if moe.dense is not None:
        shapes += feed_forward_weights(moe.dense, hidden_size)
    return tuple(shape for shape in shapes if shape.num_params)


def mixer_weights(mixer: Mixer, hidden_size: int) -> tuple[WeightShape, ...]:
    """The tensors of one layer's mixer."""
    if isinstance(mixer, Attention):
        return attention_weights(mixer, hidden_size)
    from inference_bench.accounting import rare_mixers

    shapes: Iterable[WeightShape] = rare_mixers.weights(mixer, hidden_size)
    return tuple(shape for shape in shapes if shape.num_params)


def layer_weights(layer: Layer, hidden_size: int) -> tuple[WeightShape, ...]:
    """Every tensor of one layer; norms and scalars are summed into one vector each."""
    shapes = [shape for mixer in layer.mixers for shape in mixer_weights(mixer, hidden_size)]
    block = layer.feed_forward
    if isinstance(block, MixtureOfExperts):
        shapes += expert_weights(block, hidden_size)
    elif block is not None:
        shapes += feed_forward_weights(block, hidden_size)
    ends = (vector(TensorRole.NORM, layer.norm_params), vector(TensorRole.OTHER, layer.other_params))
    return (*shapes, *(shape for shape in ends if shape.num_params))


def count_attention_params(mixer: Mixer, hidden_size: int) -> int:
    """Projections of one layer's mixer with their biases; the norms on queries and keys are counted as norms.

    Formula:  D·N·H + 2·D·K·H + N·H·D, plus (N + 2K)·H for q, k, v biases and D for an output bias
    Where:    D hidden_size, N query heads, K key/value heads, H head_dim
    Unit:     values, exact
    """
    shapes = mixer_weights(mixer, hidden_size)
    return sum(shape.num_params for shape in shapes if shape.role is not TensorRole.NORM)


def count_feed_forward_params(feed_forward: FeedForward | MixtureOfExperts | None, hidden_size: int) -> int:
    """Matrices of one feed-forward block, all experts included.

    Formula:  3·D·F when gated (gate, up, down), 2·D·F otherwise, plus biases
    Unit:     values, exact
    """
    if feed_forward is None:
        return 0
    if isinstance(feed_forward, MixtureOfExperts):
        return sum(shape.num_params for shape in expert_weights(feed_forward, hidden_size))
    return sum(shape.num_params for shape in feed_forward_weights(feed_forward, hidden_size))


def count_norm_params(layer: Layer, model: ModelSpec) -> int:
    """Norms of one layer: those over the hidden size, and those inside its mixers.

    Unit:  values, exact
    """
    return sum(s.num_params for s in layer_weights(layer, model.hidden_size) if s.role is TensorRole.NORM)


def count_routed_active(block: FeedForward | MixtureOfExperts | None, hidden_size: int) -> int:
    """Parameters of the routed experts one token uses in one layer.

    Formula:  routed · k / E
    """
    if not isinstance(block, MixtureOfExperts):
        return 0
    routed = sum(s.num_params for s in expert_weights(block, hidden_size) if s.role is TensorRole.EXPERT)
    return routed // block.num_experts * block.experts_per_token


def count_params(model: ModelSpec) -> ParameterCount:
    """Every parameter of the model, by component.

    Formula:  V·D (twice when untied) + Σ layers + the final norm + the parts beside the layers
    Unit:     values, exact
    Source:   the modelling files of Hugging Face Transformers; checked against published totals
    """
    sums, routed_active = dict.fromkeys(TensorRole, 0), 0
    for layer, count in model.layer_groups():
        for shape in layer_weights(layer, model.hidden_size):
            sums[shape.role] += count * shape.num_params
        routed_active += count * count_routed_active(layer.feed_forward, model.hidden_size)
    table = model.vocab_size * model.table_width
    parts = [part for part in model.parts if part.counted]
    vision = sum(part.num_params for part in parts if part.tower)
    lookup = sum(part.num_params for part in parts if part.lookup)
    rest = sum(part.num_params for part in parts) - vision - lookup
    return ParameterCount(
        embedding=table,
        head=(0 if model.tie_word_embeddings else table) + (model.vocab_size if model.head_bias else 0),
        attention=sums[TensorRole.ATTENTION],
        feed_forward=sums[TensorRole.FEED_FORWARD],
        norm=sums[TensorRole.NORM] + model.final_norm_params,
        experts=sums[TensorRole.EXPERT],
        routed_active=routed_active,
        shared_experts=sums[TensorRole.SHARED_EXPERT],
        router=sums[TensorRole.ROUTER],
        state_space=sums[TensorRole.STATE_SPACE],
        encoder=sum(s.num_params for layer in model.encoder_layers for s in layer_weights(layer, model.hidden_size)),
        vision=vision,
        lookup=lookup,
        other=sums[TensorRole.OTHER] + rest,
        apart=_apart(model),
    )


def kept_by_identity(count: Callable[[ModelSpec], Counted]) -> Callable[[ModelSpec], Counted]:
    """The same function, with its results for the last few models kept.

    Where:  a model is known by being the same object, which is never compared layer by layer
    """
    kept: dict[int, tuple[ModelSpec, Counted]] = {}

    def counted(model: ModelSpec) -> Counted:
        found = kept.get(id(model))
        if found is not None and found[0] is model:
            return found[1]
        result = count(model)
        if len(kept) >= _KEPT_MODELS:
            kept.clear()
        kept[id(model)] = (model, result)
        return result

    return counted


def _apart(model: ModelSpec) -> tuple[tuple[str, int], ...]:
    """Parameters that are published with the model but are no part of the language model's class."""
    rows = [(part.name, part.num_params) for part in model.parts if not part.counted]
    predicting = sum(s.num_params for layer in model.prediction_layers for s in layer_weights(layer, model.hidden_size))
    return (*rows, ("multi-token prediction", predicting)) if predicting else tuple(rows)
