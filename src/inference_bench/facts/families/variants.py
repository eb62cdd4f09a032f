"""Attention decoders that name their heads, widths or layers in their own way.

In:   Fields of the text part
Out:  Design
Read next by: config.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from inference_bench.facts.families import experts as moe
from inference_bench.facts.families import windows as rules
from inference_bench.facts.families.base import (
    Block,
    Design,
    checked_key_value_heads,
    divided,
    head_dim_of,
    hidden_size_of,
    key_value_heads_of,
    num_heads_of,
    num_layers_of,
    repeated,
)
from inference_bench.facts.families.plain import build_row
from inference_bench.facts.families.plain_rows import PER_HEAD, Plain
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import Attention, FeedForward, Layer, MixtureOfExperts, Part


def build(model_type: str, fields: Fields, _top: Fields) -> Design:
    """The design of one of these architectures."""
    return _BUILDERS[model_type](fields)


def _all_biased(attention: Attention, biased: bool) -> Attention:
    return replace(attention, query_bias=biased, key_bias=biased, value_bias=biased, output_bias=biased)


def _falcon(fields: Fields) -> Design:
    """Falcon: one KV head with multi_query, num_kv_heads of them in the new decoder, as many as queries otherwise."""
    hidden_size, heads = hidden_size_of(fields), num_heads_of(fields)
    fields.mark("num_kv_heads", "n_head_kv", "multi_query", "alibi", "window_size")
    new = fields.boolean("new_decoder_architecture", False)
    if new:
        kv_heads = checked_key_value_heads(fields, heads, fields.integer("num_kv_heads", "n_head_kv", default=heads))
    else:
        kv_heads = 1 if fields.boolean("multi_query", True) else heads
    bias = fields.boolean("bias", False)
    attention = _all_biased(Attention(heads, kv_heads, divided(fields, "hidden_size", hidden_size, heads)), bias)
    parallel = fields.boolean("parallel_attn", True)
    norms = fields.integer("num_ln_in_parallel_attn", default=2) if new else (1 if parallel else 2)
    row = Plain(num_norms=norms, norm_values=2, gated=False, tied=True, width_in_hidden=4, mlp_bias=bias, biased="")
    design = build_row(row, fields, attention)
    fields.mark("num_key_value_heads")
    return design


def _gpt_bigcode(fields: Fields) -> Design:
    """StarCoder and SantaCoder: one KV head with multi_query."""
    hidden_size, heads = hidden_size_of(fields), num_heads_of(fields)
    kv_heads = 1 if fields.boolean("multi_query", True) else heads
    attention = _all_biased(Attention(heads, kv_heads, divided(fields, "n_embd", hidden_size, heads)), True)
    row = Plain(mlp_bias=True, norm_values=2, gated=False, tied=True, width_in_hidden=4, positions="n_positions")
    return build_row(row, fields, attention)


def _minicpm(fields: Fields) -> Design:
    """MiniCPM: a Llama block. The first generation, as many KV heads as query heads, was released tied."""
    design = build_row(Plain(tied=True), fields)
    if fields.integer("num_key_value_heads", default=num_heads_of(fields)) == num_heads_of(fields):
        design.tied = True
        design.assumptions.append("embeddings taken as tied, as this generation of MiniCPM was released")
    return design


def _chatglm(fields: Fields) -> Design:
    """ChatGLM 2 and 3 and GLM-4-9B: multi_query_group_num KV heads of kv_channels, biases on q, k and v."""
    hidden_size, heads = hidden_size_of(fields), num_heads_of(fields)
    if not fields.boolean("rmsnorm", True):
        raise fields.refuse("rmsnorm is false, which is not counted yet")
    fields.mark("multi_query_group_num", "sequence_length", "seq_length")
    grouped = fields.boolean("multi_query_attention", False)
    kv_heads = checked_key_value_heads(fields, heads, fields.integer("multi_query_group_num")) if grouped else heads
    linear = fields.boolean("add_bias_linear", False)
    qkv = fields.boolean("add_qkv_bias", False) or linear
    size = fields.optional_integer("kv_channels") or divided(fields, "hidden_size", hidden_size, heads)
    attention = Attention(heads, kv_heads, size, query_bias=qkv, key_bias=qkv, value_bias=qkv, output_bias=linear)
    fields.values = {**fields.values, "vocab_size": fields.integer("padded_vocab_size", "vocab_size")}
    design = build_row(Plain(mlp_bias=linear), fields, attention)
    design.max_positions = fields.optional_integer("seq_length")
    return design


def _opt(fields: Fields) -> Design:
    """OPT: learned positions with two more rows, layer norms, and tables that may be narrower than the model."""
    hidden_size, heads = hidden_size_of(fields), num_heads_of(fields)
    bias = fields.boolean("enable_bias", True)
    attention = _all_biased(Attention(heads, heads, divided(fields, "hidden_size", hidden_size, heads)), bias)
    norms = 2 if fields.boolean("layer_norm_elementwise_affine", True) else 0
    row = Plain(
        mlp_bias=bias, norm_values=norms, gated=False, tied=True, positions="max_position_embeddings", position_offset=2
    )
    design = build_row(row, fields, attention)
    width = fields.integer("word_embed_proj_dim", default=hidden_size)
    if width != hidden_size:
        design.embedding_size = width
        design.parts = (*design.parts, Part("embedding projections", 2 * width * hidden_size))
    if not fields.boolean("do_layer_norm_before", True) or fields.boolean("_remove_final_layer_norm", False):
        design.final_norm_params = 0
    return design


def _mpt(fields: Fields) -> Design:
    """MPT: no biases, tied, a feed-forward width of expansion_ratio hidden sizes."""
    hidden_size, heads = hidden_size_of(fields), num_heads_of(fields)
    config = fields.section("attn_config") or Fields({}, fields.what)
    kv_heads = config.integer("kv_n_heads", default=heads)
    if not fields.boolean("no_bias", True) or config.boolean("qk_ln", False) or not config.boolean("alibi", True):
        raise fields.refuse("biases, query-key norms and learned positions of MPT are not counted yet")
    kv_heads = 1 if config.string("attn_type") == "multiquery_attention" else kv_heads
    attention = Attention(
        heads, checked_key_value_heads(fields, heads, kv_heads), divided(fields, "d_model", hidden_size, heads)
    )
    row = Plain(gated=False, tied=True, width_in_hidden=fields.integer("expansion_ratio", default=4))
    design = build_row(row, fields, attention)
    design.max_positions = fields.optional_integer("max_seq_len")
    return design


def _hunyuan_attention(fields: Fields, hidden_size: int) -> Attention:
    heads = num_heads_of(fields)
    attention = Attention(heads, key_value_heads_of(fields, heads), head_dim_of(fields, hidden_size, heads))
    attention = _all_biased(attention, fields.boolean("attention_bias", False))
    return replace(attention, query_key_norm=PER_HEAD) if fields.boolean("use_qk_norm", True) else attention


def _one_of_list(fields: Fields, key: str, default: int | None = None) -> int:
    """A number, or a list that holds one number many times."""
    value = fields.values.get(key)
    if isinstance(value, list):
        numbers = set(fields.integers(key) or ())
        if len(numbers) != 1:
            raise fields.refuse(f"{key} differs by layer, which is not counted yet")
        return numbers.pop()
    return fields.integer(key, default=default, minimum=0)


def _hunyuan_moe(fields: Fields) -> Design:
    """Hunyuan with experts: shared ones beside them, and with use_cla layers that read the cache of the one before."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    attention, num_experts = _hunyuan_attention(fields, hidden_size), _one_of_list(fields, "num_experts", 1)
    for key in ("moe_topk", "moe_intermediate_size", "num_shared_expert", "use_mixed_mlp_moe", "moe_layer_num_skipped"):
        fields.mark(key)
    width = fields.integer("intermediate_size")
    dense, block = FeedForward(width), _hunyuan_experts(fields, num_experts, width)
    skipped = fields.integer("moe_layer_num_skipped", default=0, minimum=0)
    shares = fields.boolean("use_cla", False)
    factor = fields.integer("cla_share_factor", default=1) if shares else 1

    def layer(index: int) -> Layer:
        owner = index - index % factor if index % factor else None
        own = attention if owner is None else replace(attention, shared_kv_from=owner, projects_key_value=False)
        if owner is not None and attention.query_key_norm is PER_HEAD:
            # the class builds the key norm in sharing layers too
            return Layer((own,), block, 2 * hidden_size + attention.head_dim)
        return Layer((own,), dense if index < skipped else block, 2 * hidden_size)

    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(layer, num_layers),
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        final_norm_params=hidden_size,
    )


def _hunyuan_experts(fields: Fields, num_experts: int, width: int) -> Block:
    if num_experts <= 1:
        return FeedForward(width)
    chosen = _one_of_list(fields, "moe_topk", 1)
    if not 0 < chosen <= num_experts:
        raise fields.refuse(f"{chosen} experts a token of {num_experts} cannot be chosen")
    own = _one_of_list(fields, "moe_intermediate_size", width) if "moe_intermediate_size" in fields else width
    shared = _one_of_list(fields, "num_shared_expert", 1) if fields.boolean("use_mixed_mlp_moe", True) else 0
    return MixtureOfExperts(num_experts, chosen, own, shared_intermediate_size=shared * width)


def _mimo_v2(fields: Fields) -> Design:
    """MiMo-V2-Flash: values narrower than keys, windows with more KV heads, experts after the first layer."""
    hidden_size, num_layers = hidden_size_of(fields), num_layers_of(fields)
    heads = num_heads_of(fields)
    local = _mimo_windows(fields, num_layers)
    full = Attention(
        heads,
        key_value_heads_of(fields, heads, 4 if heads % 4 == 0 else None),
        fields.integer("head_dim", default=192),
        value_head_dim=fields.integer("v_head_dim", default=128),
        sinks=fields.boolean("add_full_attention_sink_bias", False),
    )
    swa_heads = fields.integer("swa_num_attention_heads", default=heads)
    kv_default = 2 * full.num_key_value_heads if swa_heads % (2 * full.num_key_value_heads) == 0 else None
    swa_kv = fields.integer("swa_num_key_value_heads", default=kv_default)
    window = Attention(
        swa_heads,
        checked_key_value_heads(fields, swa_heads, swa_kv),
        fields.integer("swa_head_dim", default=full.head_dim),
        fields.integer("sliding_window", "sliding_window_size", default=129),
        value_head_dim=fields.integer("swa_v_head_dim", default=full.value_width),
        sinks=fields.boolean("add_swa_attention_sink_bias", True),
    )
    fields.mark("attention_chunk_size", "sliding_window_size", "n_shared_experts")
    if fields.boolean("attention_bias", False):
        full, window = (replace(mixer, query_bias=True, key_bias=True, value_bias=True) for mixer in (full, window))
    sparse = _mimo_sparse(fields, num_layers)
    mixture: Block = moe.with_shared_count(fields)
    dense: Block = None if all(sparse) else FeedForward(fields.integer("intermediate_size"))
    return Design(
        hidden_size=hidden_size,
        vocab_size=fields.integer("vocab_size"),
        layers=repeated(
            lambda index: Layer(
                (window if local[index] else full,), mixture if sparse[index] else dense, 2 * hidden_size
            ),
            num_layers,
        ),
        num_key_value_heads=full.num_key_value_heads,
        head_dim=full.head_dim,
        final_norm_params=hidden_size,
    )


def _mimo_windows(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    if "hybrid_layer_pattern" in fields:
        fields.mark("layer_types")
        return moe.listed(fields, "hybrid_layer_pattern", num_layers)
    kinds = fields.per_layer("layer_types", num_layers)
    if kinds is None:
        return tuple(index != 0 and (index + 1) % 6 != 0 for index in range(num_layers))
    if set(kinds) - {rules.FULL, rules.SLIDING}:
        raise fields.refuse(f"layer_types {sorted(set(kinds))} are not counted yet")
    return tuple(kind == rules.SLIDING for kind in kinds)


def _mimo_sparse(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    if isinstance(fields.values.get("moe_layer_freq"), list) or "mlp_layer_types" in fields:
        return moe.after_first_dense(1)(fields, num_layers)
    return tuple(index > 0 for index in range(num_layers))


def _exaone(fields: Fields) -> Design:
    """EXAONE 3: a Llama block under other names."""
    return build_row(Plain(biased=""), fields)


def _qwen(fields: Fields) -> Design:
    """Qwen, the first: biases on q, k and v, and a feed-forward width the config gives twice."""
    hidden_size, heads = hidden_size_of(fields), num_heads_of(fields)
    if not fields.boolean("no_bias", True):
        raise fields.refuse("no_bias is false, which is not counted yet")
    size = fields.optional_integer("kv_channels") or divided(fields, "hidden_size", hidden_size, heads)
    attention = Attention(heads, heads, size, query_bias=True, key_bias=True, value_bias=True)
    width = fields.integer("intermediate_size")
    fields.values = {**fields.values, "intermediate_size": width // 2}
    return build_row(Plain(), fields, attention)


def _gpt_neo(fields: Fields) -> Design:
    """GPT-Neo: global and local layers as attention_types lists them, learned positions, a bias on the output alone."""
    hidden_size, heads, num_layers = hidden_size_of(fields), num_heads_of(fields), num_layers_of(fields)
    kinds = _neo_kinds(fields, num_layers)
    window = fields.integer("window_size", default=256)
    attention = Attention(heads, heads, divided(fields, "hidden_size", hidden_size, heads), output_bias=True)
    row = Plain(
        mlp_bias=True,
        norm_values=2,
        gated=False,
        tied=True,
        width_in_hidden=4,
        positions="max_position_embeddings",
        windows=lambda _fields, _count: tuple(window if kind == "local" else None for kind in kinds),
    )
    return build_row(row, fields, attention)


def _neo_kinds(fields: Fields, num_layers: int) -> tuple[str, ...]:
    """attention_layers, or attention_types as pairs of a list of kinds and how often it repeats."""
    kinds = fields.per_layer("attention_layers", num_layers)
    pairs = fields.values.get("attention_types")
    fields.mark("attention_types")
    if kinds is None and isinstance(pairs, list):
        found: list[str] = []
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], list):
                raise fields.refuse(f"attention_types holds {shown(pair)}; a list of kinds and a number is needed")
            times = fields.count(pair[1], "attention_types")
            found += (pair[0] * min(times, num_layers))[: num_layers + 1] if len(pair[0]) <= num_layers else pair[0]
        kinds = tuple(found)
    if kinds is None:
        kinds = tuple(("global", "local")[index % 2] for index in range(num_layers))
    if len(kinds) != num_layers or not all(kind in ("global", "local") for kind in kinds):
        raise fields.refuse(
            f"attention_types gives {len(kinds)} kinds for {num_layers} layers; global and local are counted"
        )
    return kinds


_BUILDERS: Final[dict[str, Callable[[Fields], Design]]] = {
    "falcon": _falcon,
    "gpt_bigcode": _gpt_bigcode,
    "minicpm": _minicpm,
    "chatglm": _chatglm,
    "opt": _opt,
    "mpt": _mpt,
    "hunyuan": _hunyuan_moe,
    "hunyuan_v1_moe": _hunyuan_moe,
    "mimo_v2_flash": _mimo_v2,
    "mimo_v2": _mimo_v2,
    "exaone": _exaone,
    "qwen": _qwen,
    "gpt_neo": _gpt_neo,
}
