"""The rarer mixers of a GGUF file: latent attention, gated delta rule, state-space layers, short convolutions.

In:   GGUFMetadata and the tensors of one block
Out:  a mixer of facts/mixers.py; the tensors it covers are taken from the block
Read next by: gguf_layers; loaded only for files that have such a block.

Source: llama.cpp, src/models and gguf-py tensor names (2026-11)
"""

from __future__ import annotations

from typing import Final

from inference_bench.facts.gguf_metadata import Block, GGUFMetadata
from inference_bench.facts.mixers import LatentAttention, LinearAttention, Mamba, Mamba2, ShortConvolution


def latent(metadata: GGUFMetadata, block: Block, num_heads: int) -> LatentAttention:
    """Multi-head latent attention, with the up projection whole or split into keys and values."""
    integer, one = metadata.integer, metadata.one
    rope = integer("rope.dimension_count")
    key_size = one("attention.key_length_mla") or one("attention.key_length")
    value_size = one("attention.value_length_mla") or one("attention.value_length")
    if key_size is None or value_size is None or key_size <= rope:
        raise metadata.error(f"latent attention needs key and value lengths above the rotary {rope}")
    block.take(*(f"attn_{part}.weight" for part in ("q", "q_a", "q_b", "kv_a_mqa", "kv_b", "k_b", "v_b", "output")))
    block.take("attn_q_a_norm.weight", "attn_kv_a_norm.weight")
    return LatentAttention(
        num_attention_heads=num_heads,
        q_lora_rank=integer("attention.q_lora_rank") if "attn_q_a.weight" in block else None,
        kv_lora_rank=integer("attention.kv_lora_rank"),
        qk_nope_head_dim=key_size - rope,
        qk_rope_head_dim=rope,
        v_head_dim=value_size,
    )


def short_convolution(metadata: GGUFMetadata, block: Block, hidden_size: int) -> ShortConvolution:
    """The gated short convolution of LFM2."""
    block.take(*(f"shortconv.{part}.weight" for part in ("conv", "in_proj", "out_proj")))
    return ShortConvolution(hidden_size, metadata.integer("shortconv.l_cache"), bias=False)


_DELTA_MATRICES: Final = ("attn_qkv", "attn_gate", "ssm_in", "ssm_ba", "ssm_beta", "ssm_alpha", "ssm_out")


def gated_delta(metadata: GGUFMetadata, block: Block) -> LinearAttention:
    """The gated delta rule as Qwen3-Next and Qwen3.5 store it."""
    integer = metadata.integer
    key_heads, value_heads = integer("ssm.group_count"), integer("ssm.time_step_rank")
    inner = integer("ssm.inner_size")
    if inner % value_heads:
        raise metadata.error(f"ssm.inner_size {inner} is not a multiple of ssm.time_step_rank {value_heads}")
    matrices = [f"{part}.weight" for part in _DELTA_MATRICES]
    vectors = ["ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_a", "ssm_dt.bias", "ssm_norm.weight"]
    block.take(*matrices, *vectors)
    return LinearAttention(
        num_key_heads=key_heads,
        num_value_heads=value_heads,
        key_head_dim=integer("ssm.state_size"),
        value_head_dim=inner // value_heads,
        conv_kernel=integer("ssm.conv_kernel"),
        matrix_params=block.size(*matrices),
        vector_params=block.size(*vectors),
        state_flops=6,
    )


def _take_state_space(block: Block) -> None:
    block.take(
        *(f"ssm_{part}.weight" for part in ("in", "x", "dt", "out", "conv1d", "norm", "dt_norm", "b_norm", "c_norm"))
    )
    block.take("ssm_in.bias", "ssm_out.bias", "ssm_dt.bias", "ssm_conv1d.bias", "ssm_a", "ssm_d")


def mamba(metadata: GGUFMetadata, block: Block) -> Mamba:
    """A selective state-space layer; Jamba normalises its maps."""
    _take_state_space(block)
    integer = metadata.integer
    return Mamba(
        intermediate_size=integer("ssm.inner_size"),
        state_size=integer("ssm.state_size"),
        conv_kernel=integer("ssm.conv_kernel"),
        time_step_rank=integer("ssm.time_step_rank"),
        conv_bias="ssm_conv1d.bias" in block,
        bias="ssm_in.bias" in block,
        inner_norms="ssm_dt_norm.weight" in block,
    )


def mamba2(metadata: GGUFMetadata, block: Block) -> Mamba2:
    """A state-space layer with scalar decay, one number a head."""
    _take_state_space(block)
    integer = metadata.integer
    heads, inner = integer("ssm.time_step_rank"), integer("ssm.inner_size")
    if inner % heads:
        raise metadata.error(f"ssm.inner_size {inner} is not a multiple of ssm.time_step_rank {heads}")
    return Mamba2(
        num_heads=heads,
        head_dim=inner // heads,
        state_size=integer("ssm.state_size"),
        n_groups=integer("ssm.group_count"),
        conv_kernel=integer("ssm.conv_kernel"),
        conv_bias="ssm_conv1d.bias" in block,
        bias="ssm_in.bias" in block,
        gated_norm="ssm_norm.weight" in block,
    )
