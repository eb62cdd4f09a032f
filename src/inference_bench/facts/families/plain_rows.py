"""The table of plain decoders: what each architecture adds to one attention and one feed-forward block a layer.

In:   nothing
Out:  ROWS, one Plain for each model_type
Read next by: plain.py.

One row says what an architecture adds to the plain pre-norm decoder: RMS norms before attention and feed-forward,
a gated feed-forward block, no biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families import windows as rules
from inference_bench.facts.fields import Fields
from inference_bench.facts.models import MixtureOfExperts, OutputGate, QueryKeyNorm

PER_HEAD, PER_WIDTH = QueryKeyNorm.PER_HEAD, QueryKeyNorm.PER_WIDTH


class Plain(NamedTuple):
    """What one architecture adds to the plain decoder, and its class defaults.

    Where:  biased are the projections of q, k, v, o that have a bias when bias_field says so (None: always);
            norm_values is 1 for a weight, 2 for a weight and a bias, 0 for a norm without either;
            positions is the field that sizes a learned position table, with position_offset more rows
    """

    windows: rules.WindowRule = rules.no_window
    biased: str = "qkvo"
    bias_field: str | None = "attention_bias"
    output_bias_field: str | None = None
    bias_default: bool = False
    mlp_bias_field: str | None = None
    mlp_bias: bool = False
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    query_key_norm_field: str | None = None
    query_key_norm_default: bool = True
    num_norms: int = 2
    norm_values: int = 1
    gated: bool = True
    experts: moe.ExpertRule | None = None
    sparse: moe.SparseRule = moe.every_layer
    tied: bool = False
    always_tied: bool = False
    head_dim: int | None = None
    key_value_heads: int | None = None
    width_in_hidden: int | None = None  # the feed-forward width in hidden sizes where the config does not say it
    dense_width: str | None = None  # the field of a dense layer's width where experts use the usual one
    head_bias: bool = False
    head_bias_field: str | None = None
    positions: str | None = None
    position_offset: int = 0
    embedding_norm: bool = False
    sinks: bool = False
    output_gate: OutputGate = OutputGate.NONE
    other_params: int = 0
    understood: tuple[str, ...] = ()


def _mixtral(fields: Fields) -> MixtureOfExperts:
    return moe.routed(fields, "intermediate_size")


def _gpt_oss(fields: Fields) -> MixtureOfExperts:
    return replace(moe.routed(fields, "intermediate_size"), bias=True, router_bias=True)


def _llama4(fields: Fields) -> MixtureOfExperts:
    block = moe.routed(fields, "intermediate_size")
    return replace(block, shared_intermediate_size=block.intermediate_size)


def _granite_shared(fields: Fields) -> MixtureOfExperts:
    shared = fields.integer("shared_intermediate_size", default=1024, minimum=0)
    return replace(moe.routed(fields, "intermediate_size"), shared_intermediate_size=shared)


def _afmoe(fields: Fields) -> MixtureOfExperts:
    return replace(moe.with_shared_count(fields), router_bias=True)


def _every_interleave_step(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """The layers of moe_layers, or every interleave_moe_layer_step-th (Llama 4)."""
    chosen = fields.integers("moe_layers")
    step = fields.integer("interleave_moe_layer_step", default=1)
    if chosen is not None:
        return tuple(index in set(chosen) for index in range(num_layers))
    return tuple((index + 1) % step == 0 for index in range(num_layers))


def _ernie_layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    first = fields.integer("moe_layer_start_index", default=1, minimum=0)
    last = fields.optional_integer("moe_layer_end_index", minimum=-1)
    step = fields.integer("moe_layer_interval", default=1)
    end = num_layers - 1 if last is None or last < 0 else last
    return tuple((index + 1) % step == 0 and first <= index <= end for index in range(num_layers))


def _ernie(fields: Fields) -> MixtureOfExperts:
    block = moe.routed(fields)
    shared = fields.integer("moe_num_shared_experts", default=2, minimum=0)
    return replace(block, shared_intermediate_size=shared * block.intermediate_size, router_bias=True)


_QWEN3: Final = Plain(windows=rules.above_max_window_layers, query_key_norm=PER_HEAD, head_dim=128)
_QWEN2: Final = Plain(windows=rules.above_max_window_layers, biased="qkv", bias_field=None)
_GEMMA: Final = Plain(tied=True, head_dim=256)
_GLM4_MOE: Final = Plain(
    biased="qkv",
    query_key_norm=PER_HEAD,
    query_key_norm_field="use_qk_norm",
    query_key_norm_default=False,
    experts=moe.with_shared_count,
    sparse=moe.after_first_dense(1),
)

ROWS: Final[Mapping[str, Plain]] = {
    "llama": Plain(mlp_bias_field="mlp_bias"),
    "cwm": Plain(windows=rules.every_nth_is_full(8192, 4), biased="", mlp_bias_field="mlp_bias"),
    "mistral": Plain(windows=rules.every_layer_or_4096, biased=""),
    "ministral": Plain(windows=rules.every_layer_or_4096, biased=""),
    "ministral3": Plain(windows=rules.every_layer, biased=""),
    "mixtral": Plain(windows=rules.every_layer, biased="", experts=_mixtral, key_value_heads=8),
    "qwen2": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3._replace(windows=rules.no_window),
    "qwen2_moe": _QWEN2._replace(
        windows=rules.every_other_below_max_window_layers,
        bias_field="qkv_bias",
        bias_default=True,
        experts=moe.with_gated_shared_width,
        sparse=moe.every_step_but_listed,
    ),
    "qwen3_moe": _QWEN3._replace(
        windows=rules.if_used,
        experts=moe.routed,
        sparse=moe.every_step_but_listed,
        head_dim=None,
    ),
    "qwen3_vl_moe_text": _QWEN3._replace(
        windows=rules.no_window, experts=moe.routed, sparse=moe.every_step_but_listed, head_dim=None
    ),
    "phi3": Plain(windows=rules.every_layer, biased=""),
    "phimoe": Plain(
        windows=rules.every_layer, experts=_mixtral, head_bias_field="lm_head_bias", norm_values=2, key_value_heads=8
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(windows=rules.alternating(4096), num_norms=4),
    "gemma3_text": _GEMMA._replace(windows=rules.every_nth_is_full(4096, 6), query_key_norm=PER_HEAD, num_norms=4),
    "vaultgemma": _GEMMA._replace(windows=rules.alternating(512)),
    "exaone4": Plain(windows=rules.every_nth_is_full(4096, 4), biased="", query_key_norm=PER_HEAD),
    "minimax_m2": Plain(biased="", query_key_norm=PER_WIDTH, experts=_mixtral, head_dim=128),
    "mimo": Plain(windows=rules.if_used, biased="qkv"),
    "olmo": Plain(norm_values=0),
    "olmo2": Plain(query_key_norm=PER_WIDTH),
    "olmo3": Plain(windows=rules.every_nth_is_full(4096, 4), query_key_norm=PER_WIDTH),
    "olmoe": Plain(query_key_norm=PER_WIDTH, experts=_mixtral),
    "flex_olmo": Plain(query_key_norm=PER_WIDTH, experts=_mixtral),
    "baichuan": Plain(biased=""),
    "internlm": Plain(bias_field="bias", bias_default=True),
    "internlm2": Plain(bias_field="bias"),
    "stablelm": Plain(
        biased="qkv",
        bias_field="use_qkv_bias",
        norm_values=2,
        query_key_norm=PER_WIDTH,
        query_key_norm_field="qk_layernorm",
        query_key_norm_default=False,
    ),
    "starcoder2": Plain(
        windows=rules.every_layer,
        bias_field="use_bias",
        bias_default=True,
        mlp_bias_field="use_bias",
        mlp_bias=True,
        norm_values=2,
        gated=False,
        tied=True,
        key_value_heads=2,
        understood=("mlp_type", "norm_type"),
    ),
    "gpt2": Plain(
        bias_field=None,
        mlp_bias=True,
        norm_values=2,
        gated=False,
        tied=True,
        width_in_hidden=4,
        positions="n_positions",
    ),
    "phi": Plain(
        bias_field=None,
        mlp_bias=True,
        norm_values=2,
        num_norms=1,
        gated=False,
        width_in_hidden=4,
        head_bias=True,
        query_key_norm=QueryKeyNorm.PER_HEAD_WITH_BIAS,
        query_key_norm_field="qk_layernorm",
        query_key_norm_default=False,
    ),
    "gptj": Plain(biased="", mlp_bias=True, norm_values=2, num_norms=1, gated=False, width_in_hidden=4, head_bias=True),
    "codegen": Plain(
        biased="", mlp_bias=True, norm_values=2, num_norms=1, gated=False, width_in_hidden=4, head_bias=True
    ),
    "gpt_neox": Plain(
        bias_default=True, mlp_bias=True, norm_values=2, gated=False, understood=("use_parallel_residual",)
    ),
    "bloom": Plain(
        bias_field=None, mlp_bias=True, norm_values=2, gated=False, tied=True, width_in_hidden=4, embedding_norm=True
    ),
    "glm": Plain(biased="qkv", head_dim=128, key_value_heads=2),
    "glm4": Plain(biased="qkv", head_dim=128, key_value_heads=2, num_norms=4),
    "glm4_moe": _GLM4_MOE,
    "glm4v_text": Plain(biased="qkv", bias_default=True, num_norms=4),
    "glm4v_moe_text": _GLM4_MOE._replace(
        bias_default=True, query_key_norm=QueryKeyNorm.NONE, query_key_norm_field=None
    ),
    "gpt_oss": Plain(windows=rules.alternating(128), bias_default=True, sinks=True, experts=_gpt_oss, head_dim=64),
    "llama4_text": Plain(
        experts=_llama4,
        sparse=_every_interleave_step,
        dense_width="intermediate_size_mlp",
        head_dim=128,
        understood=("use_qk_norm",),
    ),
    "cohere": Plain(
        num_norms=1,
        tied=True,
        query_key_norm=PER_WIDTH,
        query_key_norm_field="use_qk_norm",
        query_key_norm_default=False,
    ),
    "cohere2": Plain(windows=rules.every_nth_is_full(4096, 4), num_norms=1, tied=True),
    "granite": Plain(mlp_bias_field="mlp_bias"),
    "granitemoe": Plain(experts=_mixtral),
    "granitemoeshared": Plain(experts=_granite_shared),
    "smollm3": Plain(
        windows=rules.if_used,
        mlp_bias_field="mlp_bias",
        tied=True,
        key_value_heads=4,
        understood=("no_rope_layers",),
    ),
    "seed_oss": Plain(
        biased="qkv",
        output_bias_field="attention_out_bias",
        bias_default=True,
        mlp_bias_field="mlp_bias",
        head_dim=128,
        key_value_heads=8,
    ),
    "hunyuan_v1_dense": Plain(query_key_norm=PER_HEAD),
    "ernie4_5": Plain(bias_field="use_bias", mlp_bias_field="use_bias", tied=True),
    "ernie4_5_moe": Plain(biased="", experts=_ernie, sparse=_ernie_layers, tied=True),
    "dots1": Plain(
        windows=rules.above_max_window_layers,
        query_key_norm=PER_HEAD,
        experts=moe.with_shared_count,
        sparse=moe.after_first_dense(0),
    ),
    "apertus": Plain(query_key_norm=PER_HEAD, gated=False, other_params=2),
    "arcee": Plain(mlp_bias_field="mlp_bias", gated=False),
    "helium": Plain(biased="qkv", mlp_bias_field="mlp_bias", head_dim=128),
    "nemotron": Plain(mlp_bias_field="mlp_bias", gated=False, norm_values=2),
    "iquestcoder": Plain(mlp_bias_field="mlp_bias"),
    "internlm3": Plain(bias_field="qkv_bias", mlp_bias_field="bias", head_dim=128),
    "nanochat": Plain(norm_values=0, gated=False),
    "persimmon": Plain(
        bias_field=None,
        mlp_bias=True,
        norm_values=2,
        gated=False,
        query_key_norm=QueryKeyNorm.PER_HEAD_WITH_BIAS,
        query_key_norm_field="qk_layernorm",
    ),
    "exaone_moe": Plain(
        windows=rules.every_nth_is_full(4096, 4),
        biased="",
        query_key_norm=PER_HEAD,
        experts=moe.with_shared_count,
        sparse=moe.after_first_dense(1),
    ),
    "hy_v3": Plain(
        query_key_norm=PER_HEAD,
        experts=moe.with_shared_count,
        sparse=moe.after_first_dense(1),
        head_dim=128,
    ),
    "afmoe": Plain(
        windows=rules.every_nth_is_full(1024, 4),
        query_key_norm=PER_HEAD,
        num_norms=4,
        output_gate=OutputGate.PER_VALUE,
        experts=_afmoe,
        sparse=moe.after_dense_layers(1),
        head_dim=128,
    ),
    "orion": Plain(biased="", norm_values=2),
    "xverse": Plain(biased=""),
    "aquila": Plain(biased=""),
    "solar_open": Plain(biased="qkv", experts=moe.with_shared_count),
}
