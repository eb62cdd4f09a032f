"""The tensors of a model by name: what a quantiser sees when it decides which of them it converts.

In:   a layer of a ModelSpec
Out:  Weight rows: role, shape, and the name the module has in Hugging Face Transformers and in GGUF
Leaves out: tensors that are no matrices are summed by role; designs that few models have go by running numbers
Read next by: weight_plan, weights.

The rows of a layer add up to what params.py counts for it; a test holds them to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from inference_bench.accounting.params import WeightShape, expert_weights, layer_weights, mixer_weights
from inference_bench.facts.models import Attention, FeedForward, Layer, Mixer, MixtureOfExperts, OutputGate, TensorRole


class Weight(NamedTuple):
    """One kind of tensor in a layer: `copies` of rows × columns.

    Where:  name is the module's in Transformers, "self_attn.q_proj"; gguf that of GGUF, "attn_q"; a vector (bias, norm,
            scale) is one row, and stands for all vectors of its role
    """

    name: str
    gguf: str
    role: TensorRole
    rows: int
    columns: int
    copies: int = 1
    is_vector: bool = False

    @property
    def num_params(self) -> int:
        """Values in all copies."""
        return self.rows * self.columns * self.copies


# names of the matrices of rarer mixers, in the order params.py lists them
_ORDERED: Final = {
    "Mamba": (
        ("mixer.in_proj", "ssm_in"),
        ("mixer.x_proj", "ssm_x"),
        ("mixer.dt_proj", "ssm_dt"),
        ("mixer.out_proj", "ssm_out"),
    ),
    "Mamba2": (("mixer.in_proj", "ssm_in"), ("mixer.out_proj", "ssm_out")),
    "ShortConvolution": (("conv.in_proj", "shortconv.in_proj"), ("conv.out_proj", "shortconv.out_proj")),
}


def name_layer_weights(layer: Layer, hidden_size: int) -> tuple[Weight, ...]:
    """Every tensor of one layer."""
    rows = [weight for mixer in layer.mixers for weight in _name_mixer(mixer, hidden_size)]
    block = layer.feed_forward
    if isinstance(block, MixtureOfExperts):
        rows += _name_experts(block, hidden_size)
    elif block is not None:
        rows += _name_feed_forward(block, hidden_size, "mlp", "", TensorRole.FEED_FORWARD)
    matrices = [weight for weight in rows if weight.num_params]
    return (*matrices, *_vectors(layer_weights(layer, hidden_size)))


def _vectors(shapes: Iterable[WeightShape]) -> Iterator[Weight]:
    """Biases, norms and scales, summed by role."""
    sums: dict[TensorRole, int] = {}
    for shape in shapes:
        if shape.is_vector:
            sums[shape.role] = sums.get(shape.role, 0) + shape.num_params
    for role, size in sums.items():
        yield Weight(f"{role}.vectors", f"{role}_norm", role, 1, size, is_vector=True)


def _name_mixer(mixer: Mixer, hidden_size: int) -> Iterable[Weight]:
    kind = type(mixer).__name__
    if isinstance(mixer, Attention):
        return name_attention(mixer, hidden_size)
    shapes = [shape for shape in mixer_weights(mixer, hidden_size) if not shape.is_vector]
    if kind in _ORDERED and len(_ORDERED[kind]) == len(shapes):
        return _name_in_order(shapes, _ORDERED[kind])
    from inference_bench.accounting import named_rare_weights

    return named_rare_weights.name_mixer(mixer, hidden_size, shapes)


def _name_in_order(shapes: Sequence[WeightShape], names: Sequence[tuple[str, str]]) -> Iterator[Weight]:
    for shape, (name, gguf) in zip(shapes, names, strict=True):
        yield Weight(name, gguf, shape.role, shape.rows, shape.columns, shape.copies)


def name_attention(
    attention: Attention, hidden_size: int, name: str = "self_attn", gguf: str = "attn"
) -> Iterator[Weight]:
    """Queries, keys, values, output and gate of grouped-query attention."""
    heads, kv_heads, role = attention.num_attention_heads, attention.num_key_value_heads, TensorRole.ATTENTION
    size_in = hidden_size if attention.input_size is None else attention.input_size
    size_out = hidden_size if attention.output_size is None else attention.output_size
    queries, output = heads * attention.head_dim, heads * attention.value_width
    own = attention.projects_key_value
    gate = {OutputGate.NONE: 0, OutputGate.PER_VALUE: output, OutputGate.PER_HEAD: heads}[attention.output_gate]
    yield Weight(f"{name}.q_proj", f"{gguf}_q", role, queries, size_in)
    yield Weight(f"{name}.k_proj", f"{gguf}_k", role, kv_heads * attention.head_dim * own, size_in)
    values = kv_heads * attention.value_width * (own and attention.value_projection)
    yield Weight(f"{name}.v_proj", f"{gguf}_v", role, values, size_in)
    yield Weight(f"{name}.o_proj", f"{gguf}_output", role, size_out, output)
    yield Weight(f"{name}.gate_proj", f"{gguf}_gate", role, gate, size_in)


def _name_feed_forward(
    block: FeedForward, hidden_size: int, name: str, suffix: str, role: TensorRole, copies: int = 1
) -> Iterator[Weight]:
    """Gate, up and down of a feed-forward block, or of experts built alike."""
    width = block.intermediate_size
    if block.gated:
        yield Weight(f"{name}.gate_proj", f"ffn_gate{suffix}", role, width, hidden_size, copies)
    yield Weight(f"{name}.up_proj", f"ffn_up{suffix}", role, width, hidden_size, copies)
    yield Weight(f"{name}.down_proj", f"ffn_down{suffix}", role, hidden_size, width, copies)


def _name_experts(moe: MixtureOfExperts, hidden_size: int) -> Iterator[Weight]:
    """Routed experts, shared experts, router, and what else stands beside them."""
    inner = hidden_size if moe.latent_size is None else moe.latent_size
    routed = FeedForward(moe.intermediate_size, moe.gated)
    yield from _name_feed_forward(routed, inner, "mlp.experts", "_exps", TensorRole.EXPERT, moe.num_experts)
    if moe.shared_intermediate_size:
        shared = FeedForward(moe.shared_intermediate_size, moe.gated if moe.shared_gated is None else moe.shared_gated)
        yield from _name_feed_forward(shared, hidden_size, "mlp.shared_experts", "_shexp", TensorRole.SHARED_EXPERT)
    if moe.dense is not None:
        yield from _name_feed_forward(moe.dense, hidden_size, "mlp", "", TensorRole.FEED_FORWARD)
    for shape in expert_weights(moe, hidden_size):
        if shape.role is TensorRole.ROUTER and not shape.is_vector:
            yield Weight("mlp.gate", "ffn_gate_inp", shape.role, shape.rows, shape.columns, shape.copies)
    if moe.latent_size is not None:
        yield Weight("mlp.latent_in_proj", "ffn_latent_down", TensorRole.FEED_FORWARD, inner, hidden_size)
        yield Weight("mlp.latent_out_proj", "ffn_latent_up", TensorRole.FEED_FORWARD, hidden_size, inner)
