"""State-space models and their hybrids: Mamba, Mamba-2, Jamba, Nemotron-H, Granite 4, Bamba, Falcon-H1.

In:   Fields of the text part
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families.base import (
    Block,
    Design,
    divided,
    few,
    head_dim_of,
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    plain_attention,
    repeated,
    state_bits_of,
    unknown_kind,
)
from inference_bench.facts.fields import Fields
from inference_bench.facts.mixers import Mamba, Mamba2
from inference_bench.facts.models import Attention, FeedForward, Layer, Mixer, MixtureOfExperts

_ATTENTION_NAMES: Final = {"attention": "attention", "full_attention": "attention"}
MAMBA_NAMES: Final = {"mamba": "mamba", "linear_attention": "mamba"}


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of a state-space model or a hybrid of one."""
    return _BUILDERS[model_type](fields)


def _rank(fields: Fields, key: str, hidden_size: int) -> int:
    """The rank of the step projection; "auto" is a sixteenth of the hidden size, rounded up."""
    if fields.values.get(key, "auto") == "auto":
        fields.mark(key)
        return -(-hidden_size // 16)
    return fields.integer(key)


def _mamba(fields: Fields) -> Design:
    """Mamba and Falcon-Mamba: one block a layer and nothing else."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    inner = fields.optional_integer("intermediate_size") or fields.integer("expand", default=2) * hidden_size
    mixer = Mamba(
        intermediate_size=inner,
        state_size=fields.integer("state_size"),
        conv_kernel=fields.integer("conv_kernel", default=4),
        time_step_rank=_rank(fields, "time_step_rank", hidden_size),
        conv_bias=fields.boolean("use_conv_bias", True),
        bias=fields.boolean("use_bias", False),
    )
    return _alike(fields, hidden_size, Layer((mixer,), None, hidden_size), num_layers, tied=True)


def _mamba2(fields: Fields) -> Design:
    """Mamba-2: one block a layer and nothing else."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    heads = fields.integer("num_heads", default=128)
    size = fields.integer("head_dim", default=64)
    if heads * size != fields.integer("expand", default=2) * hidden_size:
        raise fields.refuse(f"num_heads {heads} x head_dim {size} is not expand x hidden_size {hidden_size}")
    fields.mark("time_step_rank")
    mixer = Mamba2(
        num_heads=heads,
        head_dim=size,
        state_size=fields.integer("state_size", default=128),
        n_groups=fields.integer("n_groups", default=8),
        conv_kernel=fields.integer("conv_kernel", default=4),
        conv_bias=fields.boolean("use_conv_bias", True),
        bias=fields.boolean("use_bias", False),
    )
    return _alike(fields, hidden_size, Layer((mixer,), None, hidden_size), num_layers, tied=False)


def _alike(fields: Fields, hidden_size: int, layer: Layer, num_layers: int, tied: bool) -> Design:
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=(layer,) * num_layers,
        num_key_value_heads=None,
        head_dim=None,
        final_norm_params=hidden_size,
        tied_by_default=tied,
        state_bits=state_bits_of(fields),
    )


def _jamba(fields: Fields) -> Design:
    """Jamba: attention every attn_layer_period layers, experts every expert_layer_period layers."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    mamba = Mamba(
        intermediate_size=fields.integer("mamba_expand", default=2) * hidden_size,
        state_size=fields.integer("mamba_d_state", default=16),
        conv_kernel=fields.integer("mamba_d_conv", default=4),
        time_step_rank=_rank(fields, "mamba_dt_rank", hidden_size),
        conv_bias=fields.boolean("mamba_conv_bias", True),
        bias=fields.boolean("mamba_proj_bias", False),
        inner_norms=True,
    )
    attention = plain_attention(fields, hidden_size)
    period, offset = (
        fields.integer("attn_layer_period", default=8),
        fields.integer("attn_layer_offset", default=4, minimum=0),
    )
    every, after = (
        fields.integer("expert_layer_period", default=2),
        fields.integer("expert_layer_offset", default=1, minimum=0),
    )
    fields.mark("layers_block_type", "layer_types", "num_experts")
    dense = FeedForward(fields.integer("intermediate_size"))
    experts = fields.integer("num_experts", default=16)
    mixture: Block = moe.routed(fields, "intermediate_size") if experts > 1 else dense

    def layer(index: int) -> Layer:
        mixer: Mixer = attention if index % period == offset else mamba
        return Layer((mixer,), mixture if index % every == after else dense, 2 * hidden_size)

    return hybrid_design(fields, hidden_size, repeated(layer, num_layers), attention)


def hybrid_design(
    fields: Fields, hidden_size: int, layers: Sequence[Layer], attention: Attention, tied: bool = False
) -> Design:
    """The design of a hybrid, once its layers are known."""
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=layers,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
        tied_by_default=tied,
        state_bits=state_bits_of(fields),
    )


_NEMOTRON_LETTERS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NEMOTRON_KINDS: Final = {**_ATTENTION_NAMES, **MAMBA_NAMES, "mlp": "mlp", "moe": "moe"}


def _nemotron_kinds(fields: Fields) -> tuple[str, ...]:
    """One letter of hybrid_override_pattern a layer, or layers_block_type."""
    fields.mark("num_hidden_layers", "layer_types", "layers_block_type", "hybrid_override_pattern")
    pattern = fields.string("hybrid_override_pattern")
    if pattern is not None:
        for letter in pattern:
            if letter not in _NEMOTRON_LETTERS:
                raise unknown_kind(fields, "hybrid_override_pattern", letter, tuple(_NEMOTRON_LETTERS))
        kinds = tuple(_NEMOTRON_LETTERS[letter] for letter in pattern)
    else:
        names = fields.strings("layers_block_type") or fields.strings("layer_types")
        if not names:
            raise fields.refuse(
                "there is no hybrid_override_pattern and no layers_block_type; one is needed to count it"
            )
        for name in names:
            if name not in _NEMOTRON_KINDS:
                raise unknown_kind(fields, "layers_block_type", name, tuple(_NEMOTRON_KINDS))
        kinds = tuple(_NEMOTRON_KINDS[name] for name in names)
    if len(kinds) != fields.integer("num_hidden_layers", default=len(kinds)):
        raise fields.refuse(
            f"{len(kinds)} layers are listed for num_hidden_layers {fields.values['num_hidden_layers']}"
        )
    few(fields, "num_hidden_layers", len(kinds))
    return kinds


def _nemotron_h(fields: Fields) -> Design:
    """Nemotron-H: every layer is one thing, a Mamba-2 block, attention, a dense block or experts."""
    hidden_size, kinds = hidden_size_of(fields), _nemotron_kinds(fields)
    heads, mlp_bias = num_heads_of(fields), fields.boolean("mlp_bias", False)
    attention = Attention(
        heads,
        key_value_heads_of(fields, heads),
        head_dim_of(fields, hidden_size, heads, None if "attention_head_dim" in fields else 128),
    )
    fields.mark("sliding_window")
    mamba = Mamba2(
        num_heads=fields.integer("mamba_num_heads", default=128),
        head_dim=fields.integer("mamba_head_dim", default=64),
        state_size=fields.integer("ssm_state_size", default=128),
        n_groups=fields.integer("n_groups", "mamba_n_groups", default=8),
        conv_kernel=fields.integer("conv_kernel", "mamba_d_conv", default=4),
        conv_bias=fields.boolean("use_conv_bias", True),
        bias=fields.boolean("use_bias", False),
    )
    fields.mark("mamba_proj_bias")  # the class reads use_bias alone
    if fields.boolean("attention_bias", False):
        raise fields.refuse("attention_bias is true, which released classes read in unlike ways; not counted yet")
    if mlp_bias and "moe" in kinds:
        raise fields.refuse("mlp_bias is true, which is not counted for experts yet")
    layers: dict[str, Layer] = {
        "mamba": Layer((mamba,), None, hidden_size),
        "attention": Layer((attention,), None, hidden_size),
    }
    if "mlp" in kinds:
        layers["mlp"] = Layer((), FeedForward(fields.integer("intermediate_size"), False, mlp_bias), hidden_size)
    if "moe" in kinds:
        layers["moe"] = Layer((), _nemotron_experts(fields), hidden_size)
    return hybrid_design(fields, hidden_size, tuple(layers[kind] for kind in kinds), attention)


def _nemotron_experts(fields: Fields) -> MixtureOfExperts:
    """Ungated experts, one shared expert of its own width, and a latent width they may work in."""
    block = moe.routed(fields, gated=False)
    fields.mark("n_shared_experts")
    shared = fields.integer("moe_shared_expert_intermediate_size", default=0, minimum=0)
    return replace(block, shared_intermediate_size=shared, latent_size=fields.optional_integer("moe_latent_size"))


def _mamba2_of(fields: Fields, inner: int, gated_norm: bool = True) -> Mamba2:
    """A Mamba-2 block as Granite 4, Bamba and Falcon-H1 name its fields."""
    heads = fields.integer("mamba_n_heads", default=128)
    if fields.values.get("mamba_d_head", "auto") == "auto":
        fields.mark("mamba_d_head")
        size = divided(fields, "the Mamba width", inner, heads)
    else:
        size = fields.integer("mamba_d_head")
    if heads * size != inner:
        raise fields.refuse(f"mamba_n_heads {heads} x mamba_d_head {size} is not the Mamba width {inner}")
    return Mamba2(
        num_heads=heads,
        head_dim=size,
        state_size=fields.integer("mamba_d_state", default=256),
        n_groups=fields.integer("mamba_n_groups", default=1),
        conv_kernel=fields.integer("mamba_d_conv", default=4),
        conv_bias=fields.boolean("mamba_conv_bias", True),
        bias=fields.boolean("mamba_proj_bias", False),
        gated_norm=gated_norm,
    )


def _biased(attention: Attention, bias: bool) -> Attention:
    return replace(attention, query_bias=bias, key_bias=bias, value_bias=bias, output_bias=bias) if bias else attention


def _granite_hybrid(fields: Fields) -> Design:
    """Granite 4: Mamba-2 and attention layers, with experts, a shared block, or the shared block alone."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    kinds = fields.per_layer("layer_types", num_layers) or fields.per_layer("layers_block_type", num_layers)
    fields.mark("layers_block_type", "layer_types", "num_local_experts", "num_experts_per_tok")
    kinds = kinds or ("mamba",) * num_layers
    attention = _biased(plain_attention(fields, hidden_size), fields.boolean("attention_bias", False))
    mamba = _mamba2_of(fields, fields.integer("mamba_expand", default=2) * hidden_size)
    shared = fields.integer("shared_intermediate_size", default=1024)
    block: Block = FeedForward(shared)
    if fields.integer("num_local_experts", default=8, minimum=0):
        block = replace(moe.routed(fields, "intermediate_size"), shared_intermediate_size=shared)
    for kind in kinds:
        if kind not in {**_ATTENTION_NAMES, **MAMBA_NAMES}:
            raise unknown_kind(fields, "layer_types", kind, ("mamba", "attention"))

    def layer(index: int) -> Layer:
        mixer: Mixer = mamba if kinds[index] in MAMBA_NAMES else attention
        return Layer((mixer,), block, 2 * hidden_size)

    return hybrid_design(fields, hidden_size, repeated(layer, num_layers), attention)


def _bamba(fields: Fields) -> Design:
    """Bamba: Mamba-2 layers, with attention at attn_layer_indices."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    fields.mark("layers_block_type", "layer_types")
    attending = set(fields.integers("attn_layer_indices") or ())
    attention = _biased(plain_attention(fields, hidden_size), fields.boolean("attention_bias", False))
    mamba = _mamba2_of(fields, fields.integer("mamba_expand", default=2) * hidden_size)
    block = FeedForward(fields.integer("intermediate_size"), bias=fields.boolean("mlp_bias", False))

    def layer(index: int) -> Layer:
        mixer: Mixer = attention if index in attending else mamba
        return Layer((mixer,), block, 2 * hidden_size)

    return hybrid_design(fields, hidden_size, repeated(layer, num_layers), attention)


def _falcon_h1(fields: Fields) -> Design:
    """Falcon-H1: a Mamba-2 block and attention side by side in every layer."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    fields.mark("layers_block_type", "layer_types")
    attention = _biased(plain_attention(fields, hidden_size), fields.boolean("attention_bias", False))
    inner = fields.optional_integer("mamba_d_ssm") or fields.integer("mamba_expand", default=2) * hidden_size
    mamba = _mamba2_of(fields, inner, gated_norm=fields.boolean("mamba_rms_norm", False))
    if fields.boolean("projectors_bias", False):
        raise fields.refuse("projectors_bias is true, which is not counted yet")
    block = FeedForward(fields.integer("intermediate_size"), bias=fields.boolean("mlp_bias", False))
    in_bias = mamba.conv_channels + inner + mamba.num_heads if mamba.bias else 0  # the projection out has none
    layer = Layer((attention, replace(mamba, bias=False)), block, 2 * hidden_size, in_bias)
    return hybrid_design(fields, hidden_size, (layer,) * num_layers, attention)


_BUILDERS: Final[dict[str, Callable[[Fields], Design]]] = {
    "mamba": _mamba,
    "falcon_mamba": _mamba,
    "mamba2": _mamba2,
    "jamba": _jamba,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite_hybrid,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
}
