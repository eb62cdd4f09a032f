"""Fields of a config that nobody read: those that mean another design refuse it, the rest are named.

In:   Fields, after a family has read what it counts
Out:  a refusal, or the names of fields that are taken to change nothing
Read next by: config.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import Attention, Layer, Part, QueryKeyNorm

# Fields whose presence means a design; whoever counts that design reads them, so one that nobody read is refused.
_SIGNALS: Final = {
    "multi-head latent attention": ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"),
    "an index over the positions": ("index_head_dim", "index_topk", "index_n_heads", "sparse_attention_config"),
    "compressed attention": ("compress_ratios", "compress_rates"),
    "mixture of experts": (
        *("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "moe_intermediate_size"),
        *("n_shared_experts", "shared_expert_intermediate_size", "moe_layers", "enable_moe_block", "ffn_config"),
        *("moe_latent_size", "routed_expert_hidden_size", "zero_expert_num", "moe_layers_enum"),
    ),
    "state-space layers": (
        *("ssm_state_size", "state_size", "mamba_d_state", "mamba_num_heads", "mamba_n_heads", "ssm_cfg"),
        *("mamba_d_ssm", "mamba_config", "attn_layer_period", "layers_block_type", "hybrid_override_pattern"),
    ),
    "linear attention": (
        *("linear_num_value_heads", "linear_conv_kernel_dim", "linear_attn_config", "full_attention_interval"),
        *("attn_type_list", "layer_group_size", "full_attn_idxs"),
    ),
    "convolution layers": ("conv_L_cache", "short_conv_kernel_size", "temporal_conv_width", "conv1d_width"),
    "recurrent layers": ("lru_width", "block_types", "attention_hidden_size", "retention_heads"),
    "chunked attention": ("attention_chunk_size",),
    "cross-layer cache sharing": ("num_kv_shared_layers", "cla_share_factor", "use_cla", "kv_sharing"),
    "layers that differ": (
        *("layer_types", "mlp_layer_types", "block_configs", "sliding_window_pattern", "hybrid_layer_pattern"),
        *("sliding_window_list", "window_size_per_layer", "global_attn_every_n_layers", "attention_types"),
        *("attn_layer_indices", "attention_layers", "global_attn_idx", "cross_attention_layers"),
    ),
    "a sliding window": ("sliding_window", "window_size", "attention_window_size", "sliding_window_size"),
    "keys and values of different widths": ("v_head_dim", "value_head_dim", "swa_head_dim"),
    "multi-query attention": ("multi_query", "multi_query_attention", "multi_query_group_num", "attention_head_type"),
    "an encoder-decoder": ("is_encoder_decoder", "encoder_layers"),
}
_TRIVIAL: Final[tuple[object, ...]] = (None, False, 0, "", [], {})

# Switches that add or leave out weights: one that nobody read is refused where its value is not what is counted.
_SWITCHES: Final = {
    **dict.fromkeys(("attention_bias", "mlp_bias", "qkv_bias", "use_bias", "use_qkv_bias", "add_qkv_bias"), False),
    **dict.fromkeys(("bias", "add_bias_linear", "attention_out_bias", "mamba_proj_bias", "projectors_bias"), False),
    **dict.fromkeys(("o_bias", "lm_head_bias", "use_attention_bias", "use_mlp_bias", "use_linear_bias"), False),
    **dict.fromkeys(("use_parallel_residual", "parallel_attn", "qk_layernorm", "qk_ln"), False),
    **dict.fromkeys(("use_conv_bias", "mamba_conv_bias", "no_bias", "enable_bias", "rmsnorm"), True),
    **dict.fromkeys(("layer_norm_elementwise_affine", "do_layer_norm_before"), True),
}

# Fields that change neither a count nor a byte: numerics, tokens, training, generation, positions.
_HARMLESS_ENDS: Final = (
    *("_token_id", "_token_ids", "_token_index", "_dropout", "_pdrop", "_eps", "_epsilon", "_act", "_activation"),
    *("_multiplier", "_multipliers", "_softcapping", "_soft_cap", "_penalty", "_coef", "_beta", "_alpha", "_theta"),
    *("_scale", "_scaling", "_factor", "_limit", "_limits", "_range", "_std", "_noise", "_implementation", "_func"),
    *("_version", "_group", "_prob", "_dtype", "_interleave", "_class", "_map", "2label", "2id"),
)
_HARMLESS_STARTS: Final = (
    *("rope", "rotary", "summary_", "mask_", "time_step", "output_", "return_", "transformers", "_", "use_cache"),
    *("forced_", "num_beam", "torch", "tf_", "max_", "min_", "scale_", "initializer", "initial_", "tokenizer"),
    *("residual", "norm_", "layerdrop", "quantization_config", "compression_config", "tie_", "mtp_", "num_mtp"),
)
_HARMLESS: Final = frozenset(
    (
        *("hc_sinkhorn_iters", "use_bidirectional_attention", "use_gemma_norm", "moe_shared_expert_overlap"),
        *("use_moe_router_bias", "index_share_for_mtp_iteration", "altup_active_idx", "altup_coef_clip"),
        *("altup_correct_scale", "activation_sparsity_pattern", "enable_moe_fp32_combine", "mup_enabled"),
        *("architectures", "model_type", "auto_map", "dtype", "pretraining_tp", "chunk_size", "norm_topk_prob"),
        *("scoring_func", "topk_method", "topk_group", "n_group", "num_expert_group", "ep_size", "hidden_act"),
        *(
            "activation_function",
            "activation",
            "attention_softmax_in_fp32",
            "is_llama_config",
            "dropout",
            "attn_scale",
            "floor_scale",
            "problem_type",
            "is_decoder",
        ),
        *("add_cross_attention", "chunk_size_feed_forward", "pruned_heads", "prefix", "finetuning_task"),
        *("task_specific_params", "num_logits_to_keep", "rescale_every", "cache_implementation", "do_sample"),
        *("temperature", "top_k", "top_p", "typical_p", "original_max_position_embeddings", "use_mamba_kernels"),
        *("mamba_chunk_size", "logit_scale", "query_pre_attn_scalar", "num_nextn_predict_layers", "use_mtp"),
        *("moe_renormalize", "use_grouped_topk", "rescale_prenorm_residual", "seq_aux", "aux_loss_alpha"),
        *("intermediate_size", "dense_intermediate_size", "use_routing_bias"),
        *("begin_suppress_tokens", "suppress_tokens", "bad_words_ids", "early_stopping", "remove_invalid_values"),
        *("diversity_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences"),
        *("use_bfloat16", "qk_norm_type", "alibi", "n_ctx", "seq_length", "model_max_length"),
        *(
            "context_window_size",
            "prefill_chunk_size",
            "attention_sink_size",
            "name_or_path",
            "cross_attention_hidden_size",
        ),
        *("bos_token_id", "eos_token_id", "pad_token_id", "scale_emb", "dim_model_base", "expand", "num_hash_layers"),
        *("logits_scaling", "attention_temperature_tuning", "attn_temperature_tuning"),
    )
)


# What the name of a field that describes a tower holds, and fields that only name one.
_TOWER_WORDS: Final = {
    "vision": ("vision", "visual", "vit_", "image_encoder", "img_processor"),
    "audio": ("audio", "speech"),
}
_TOWER_NAMES: Final = ("vision_tower", "mm_vision_tower", "audio_tower")


def refuse_unread(fields: Fields) -> None:
    """No field that means a design may stay unread: the count would be of another model.

    Raises:  ModelConfigError naming the field and the design
    """
    if fields.values.get("use_cla") is False:
        fields.mark("cla_share_factor")
    for design, keys in _SIGNALS.items():
        for key in keys:
            value = fields.values.get(key)
            if key not in fields.used and value not in _TRIVIAL and not _all_attend(key, value):
                raise ModelConfigError(
                    f"{fields.what}: {key} means {design}, which is not counted for this architecture yet"
                )


def refuse_switches(fields: Fields, layers: Iterable[Layer]) -> None:
    """No switch that adds or leaves out weights may stay unread where it says other than what is counted.

    Raises:  ModelConfigError naming the switch
    """
    counted = dict(_SWITCHES)
    mixers = {id(mixer): mixer for layer in layers for mixer in layer.mixers}.values()
    attentions = [getattr(mixer, "attention", mixer) for mixer in mixers]
    norms = {attention.query_key_norm for attention in attentions if isinstance(attention, Attention)}
    if norms:
        counted["use_qk_norm"] = norms != {QueryKeyNorm.NONE}
    for key, usual in counted.items():
        value = fields.values.get(key)
        if key not in fields.used and value not in (None, usual):
            raise ModelConfigError(
                f"{fields.what}: {key} is {json.dumps(value) if isinstance(value, bool) else shown(value)}, which is "
                f"not counted for this architecture yet; counted: {json.dumps(usual)}"
            )
        fields.mark(key)


def refuse_negative(layers: Iterable[Layer], parts: Iterable[Part], what: str) -> None:
    """No negative number may reach a count: fields that do not fit together are refused by the part they describe.

    Raises:  ModelConfigError naming the part of the layer
    """
    for layer in {id(layer): layer for layer in layers}.values():
        for found, number in _numbers(layer, "layer"):
            if number < 0:
                raise ModelConfigError(f"{what}: the fields of a layer do not fit together: {found} would be {number}")
    for part in parts:
        if part.num_params < 0:
            raise ModelConfigError(f"{what}: the fields of the {part.name} give {part.num_params} parameters")


def _numbers(value: object, name: str) -> Iterator[tuple[str, int]]:
    """Every whole number in a layer, with the part of the layer it stands in."""
    if isinstance(value, int):
        yield name, value
    elif isinstance(value, tuple):
        for item in value:
            yield from _numbers(item, name)
    elif is_dataclass(value):
        for part in dataclass_fields(value):
            yield from _numbers(getattr(value, part.name), f"{type(value).__name__}.{part.name}")


def other_towers(fields: Fields) -> list[str]:
    """The towers that fields other than vision_config describe, none of which is counted."""
    found = []
    for key, value in fields.values.items():
        kind = next((kind for kind, words in _TOWER_WORDS.items() if any(word in str(key) for word in words)), None)
        described = isinstance(value, dict) or (key in _TOWER_NAMES and isinstance(value, str))
        if kind is not None and value and described and key != "vision_config":
            fields.mark(key)
            found.append(f"the {kind} tower ({shown(key)})")
    return found


def name_unread(fields: Fields) -> tuple[str, ...]:
    """One line naming the fields that may matter and were not read; nothing where there is none."""
    names = [str(key) for key in fields.values if isinstance(key, str) and _may_matter(fields, key)]
    if not names:
        return ()
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (f"fields taken to change no count, as nothing here reads them: {shown(', '.join(names[:8]))}{more}",)


def _may_matter(fields: Fields, key: str) -> bool:
    if key in fields.used or key in _HARMLESS or fields.values[key] in _TRIVIAL:
        return False
    return not (key.endswith(_HARMLESS_ENDS) or key.startswith(_HARMLESS_STARTS))


def _all_attend(key: str, value: object) -> bool:
    """A value that says the plain thing: softmax attention in every layer (MiniMax-M2), as many KV heads as queries."""
    if key == "attention_head_type":
        return value == "multihead"
    return key == "attn_type_list" and isinstance(value, list) and all(kind == 1 for kind in value)
