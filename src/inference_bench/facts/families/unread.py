"""Fields of a config that nobody read: those that mean another design refuse it, the rest are named.

In:   Fields, after a family has read what it counts
Out:  a refusal, or the names of fields that are taken to change nothing
Read next by: config.py.
"""

from __future__ import annotations

from typing import Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.fields import Fields, shown

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
    "multi-query attention": ("multi_query", "multi_query_attention", "multi_query_group_num"),
    "an encoder-decoder": ("is_encoder_decoder", "encoder_layers"),
}
_TRIVIAL: Final[tuple[object, ...]] = (None, False, 0, "", [], {})

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
        *("attention_bias", "mlp_bias", "intermediate_size", "dense_intermediate_size", "use_routing_bias"),
        *("begin_suppress_tokens", "suppress_tokens", "bad_words_ids", "early_stopping", "remove_invalid_values"),
        *("diversity_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences"),
        *("use_bfloat16", "use_qk_norm", "qk_norm_type", "alibi", "n_ctx", "seq_length", "model_max_length"),
        *(
            "context_window_size",
            "prefill_chunk_size",
            "attention_sink_size",
            "name_or_path",
            "cross_attention_hidden_size",
        ),
        *("bos_token_id", "eos_token_id", "pad_token_id", "scale_emb", "dim_model_base", "expand", "num_hash_layers"),
        *("logits_scaling", "use_parallel_residual", "attention_temperature_tuning", "attn_temperature_tuning"),
    )
)


def refuse_unread(fields: Fields) -> None:
    """No field that means a design may stay unread: the count would be of another model.

    Raises:  ModelConfigError naming the field and the design
    """
    for design, keys in _SIGNALS.items():
        for key in keys:
            value = fields.values.get(key)
            if key not in fields.used and value not in _TRIVIAL and not _all_attend(key, value):
                raise ModelConfigError(
                    f"{fields.what}: {key} means {design}, which is not counted for this architecture yet"
                )


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
    """A list of layer kinds that says every layer has softmax attention, as MiniMax-M2 writes it."""
    return key == "attn_type_list" and isinstance(value, list) and all(kind == 1 for kind in value)
