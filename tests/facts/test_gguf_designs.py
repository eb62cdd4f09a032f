"""Every design in a GGUF file against the same design in a config.json: two readers that share no code must agree."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.errors import ModelFileError
from inference_bench.facts.config import model_from_config
from inference_bench.facts.gguf_model import load_gguf
from inference_bench.facts.models import TensorRole
from inference_bench.facts.source import Source

D, F, V, N, K, H = 64, 96, 100, 4, 2, 16
Shapes = dict[str, tuple[int, ...]]


class Design(NamedTuple):
    architecture: str
    metadata: dict[str, Any]
    block: Any  # layer index → tensors of the block
    config: dict[str, Any]
    num_layers: int = 4
    tied: bool = False
    uncounted: int = 0  # values of correction biases, which Transformers keeps as buffers


def attention(kv: int = K, *, bias: bool = False, norm: int = 0, gate: bool = False, output: bool = True) -> Shapes:
    found: Shapes = {
        "attn_q.weight": (N * H * (2 if gate else 1), D),
        "attn_k.weight": (kv * H, D),
        "attn_v.weight": (kv * H, D),
        "attn_output.weight": (D, N * H),
        "attn_norm.weight": (D,),
    }
    if bias:
        found |= {"attn_q.bias": (N * H,), "attn_k.bias": (kv * H,), "attn_v.bias": (kv * H,)}
    if norm:
        found |= {"attn_q_norm.weight": (norm,), "attn_k_norm.weight": (norm,)}
    return found


def dense(width: int = F) -> Shapes:
    return {
        "ffn_gate.weight": (width, D),
        "ffn_up.weight": (width, D),
        "ffn_down.weight": (D, width),
        "ffn_norm.weight": (D,),
    }


def experts(count: int, width: int, *, shared: int = 0, gate: bool = False) -> Shapes:
    found: Shapes = {
        "ffn_gate_inp.weight": (count, D),
        "ffn_gate_exps.weight": (count, width, D),
        "ffn_up_exps.weight": (count, width, D),
        "ffn_down_exps.weight": (count, D, width),
        "ffn_norm.weight": (D,),
    }
    if shared:
        found |= {
            "ffn_gate_shexp.weight": (shared, D),
            "ffn_up_shexp.weight": (shared, D),
            "ffn_down_shexp.weight": (D, shared),
        }
    return found | ({"ffn_gate_inp_shexp.weight": (D,)} if gate else {})


def mamba2(heads: int, size: int, state: int, groups: int) -> Shapes:
    inner = heads * size
    channels = inner + 2 * groups * state
    return {
        "ssm_in.weight": (inner + channels + heads, D),
        "ssm_conv1d.weight": (channels, 4),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        "ssm_norm.weight": (groups, inner // groups),
        "ssm_out.weight": (D, inner),
        "attn_norm.weight": (D,),
    }


BASE = {
    "hidden_size": D,
    "vocab_size": V,
    "num_hidden_layers": 4,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
}
HEADS = {"num_attention_heads": N, "num_key_value_heads": K, "head_dim": H}
HEADS_GGUF = {
    "attention.head_count": N,
    "attention.head_count_kv": K,
    "attention.key_length": H,
    "attention.value_length": H,
}


def _latent(index: int) -> Shapes:
    heads, rank, rope, nope, value, query = 4, 32, 8, 16, 24, 40
    found: Shapes = {
        "attn_q_a.weight": (query, D),
        "attn_q_a_norm.weight": (query,),
        "attn_q_b.weight": (heads * (nope + rope), query),
        "attn_kv_a_mqa.weight": (rank + rope, D),
        "attn_kv_a_norm.weight": (rank,),
        "attn_k_b.weight": (heads, rank, nope),
        "attn_v_b.weight": (heads, value, rank),
        "attn_output.weight": (D, heads * value),
        "attn_norm.weight": (D,),
    }
    return found | (dense() if index < 1 else experts(8, 32, shared=64) | {"exp_probs_b.bias": (8,)})


def _mamba(inner: int, state: int, rank: int, norms: bool = False) -> Shapes:
    found: Shapes = {
        "ssm_in.weight": (2 * inner, D),
        "ssm_conv1d.weight": (inner, 4),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, state),
        "ssm_d": (inner,),
        "ssm_out.weight": (D, inner),
        "attn_norm.weight": (D,),
    }
    return found | (
        {"ssm_dt_norm.weight": (rank,), "ssm_b_norm.weight": (state,), "ssm_c_norm.weight": (state,)} if norms else {}
    )


def _delta(gate_name: str) -> Shapes:
    keys, values, heads = 2 * 16, 4 * 8, 4
    return {
        "attn_qkv.weight": (2 * keys + values, D),
        "attn_gate.weight": (values, D),
        "ssm_conv1d.weight": (2 * keys + values, 4),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads,),
        gate_name: (2 * heads, D),
        "ssm_norm.weight": (8,),
        "ssm_out.weight": (D, values),
        "attn_norm.weight": (D,),
        "post_attention_norm.weight": (D,),
    }


def _without_feed_forward_norm(shapes: Shapes) -> Shapes:
    return {name: shape for name, shape in shapes.items() if name != "ffn_norm.weight"}


DESIGNS = {
    "mixtral": Design(
        "llama",
        HEADS_GGUF | {"expert_count": 8, "expert_used_count": 2, "feed_forward_length": F},
        lambda _: attention() | experts(8, F),
        BASE
        | HEADS
        | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": F},
    ),
    "qwen2": Design(
        "qwen2",
        HEADS_GGUF,
        lambda _: attention(bias=True) | dense(),
        BASE | HEADS | {"model_type": "qwen2", "intermediate_size": F},
    ),
    "qwen3": Design(
        "qwen3",
        HEADS_GGUF,
        lambda _: attention(norm=H) | dense(),
        BASE | HEADS | {"model_type": "qwen3", "intermediate_size": F, "tie_word_embeddings": True},
        tied=True,
    ),
    "qwen3moe": Design(
        "qwen3moe",
        HEADS_GGUF | {"expert_count": 8, "expert_used_count": 2},
        lambda _: attention(norm=H) | experts(8, 32),
        BASE
        | HEADS
        | {
            "model_type": "qwen3_moe",
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "intermediate_size": F,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
    "qwen2moe": Design(
        "qwen2moe",
        HEADS_GGUF | {"expert_count": 8, "expert_used_count": 2},
        lambda _: attention(bias=True) | experts(8, 32, shared=F, gate=True),
        BASE
        | HEADS
        | {
            "model_type": "qwen2_moe",
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": F,
            "intermediate_size": F,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
    "phi3": Design(
        "phi3",
        HEADS_GGUF,
        lambda _: {
            "attn_qkv.weight": ((N + 2 * K) * H, D),
            "attn_output.weight": (D, N * H),
            "attn_norm.weight": (D,),
            "ffn_up.weight": (2 * F, D),
            "ffn_down.weight": (D, F),
            "ffn_norm.weight": (D,),
        },
        BASE | {"model_type": "phi3", "num_attention_heads": N, "num_key_value_heads": K, "intermediate_size": F},
    ),
    "gpt-oss": Design(
        "gpt-oss",
        HEADS_GGUF | {"expert_count": 8, "expert_used_count": 2, "attention.sliding_window": 128},
        lambda _: (
            _without_feed_forward_norm(attention(bias=True) | experts(8, F))
            | {
                "attn_output.bias": (D,),
                "attn_sinks.weight": (N,),
                "post_attention_norm.weight": (D,),
                "ffn_gate_inp.bias": (8,),
                "ffn_gate_exps.bias": (8, F),
                "ffn_up_exps.bias": (8, F),
                "ffn_down_exps.bias": (8, D),
            }
        ),
        BASE
        | HEADS
        | {
            "model_type": "gpt_oss",
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": F,
            "sliding_window": 128,
            "attention_bias": True,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "gemma2": Design(
        "gemma2",
        HEADS_GGUF | {"attention.sliding_window": 128},
        lambda _: attention() | dense() | {"post_attention_norm.weight": (D,), "post_ffw_norm.weight": (D,)},
        BASE
        | HEADS
        | {"model_type": "gemma2", "intermediate_size": F, "sliding_window": 128, "tie_word_embeddings": True},
        tied=True,
    ),
    "olmo2": Design(
        "olmo2",
        HEADS_GGUF | {"attention.head_count_kv": N, "attention.sliding_window": 0},
        lambda _: (
            _without_feed_forward_norm(
                {**{k: v for k, v in attention(N).items() if k != "attn_norm.weight"}, **dense()}
            )
            | {
                "attn_q_norm.weight": (N * H,),
                "attn_k_norm.weight": (N * H,),
                "post_attention_norm.weight": (D,),
                "post_ffw_norm.weight": (D,),
            }
        ),
        BASE | {"model_type": "olmo2", "num_attention_heads": N, "num_key_value_heads": N, "intermediate_size": F},
    ),
    "deepseek": Design(
        "deepseek2",
        {
            "attention.head_count": 4,
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": 40,
            "attention.kv_lora_rank": 32,
            "attention.key_length": 40,
            "attention.value_length": 32,
            "attention.key_length_mla": 24,
            "attention.value_length_mla": 24,
            "rope.dimension_count": 8,
            "expert_count": 8,
            "expert_used_count": 2,
            "leading_dense_block_count": 1,
        },
        _latent,
        BASE
        | {
            "model_type": "deepseek_v3",
            "num_attention_heads": 4,
            "q_lora_rank": 40,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 24,
            "intermediate_size": F,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
        },
        uncounted=3 * 8,
    ),
    "mamba": Design(
        "mamba",
        {
            "ssm.inner_size": 128,
            "ssm.state_size": 8,
            "ssm.conv_kernel": 4,
            "ssm.time_step_rank": 4,
            "attention.head_count": 0,
        },
        lambda _: _mamba(128, 8, 4),
        BASE
        | {
            "model_type": "mamba",
            "intermediate_size": 128,
            "state_size": 8,
            "conv_kernel": 4,
            "time_step_rank": 4,
            "use_conv_bias": True,
            "use_bias": False,
        },
    ),
    "mamba2": Design(
        "mamba2",
        {
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.conv_kernel": 4,
            "ssm.time_step_rank": 8,
            "ssm.group_count": 2,
            "attention.head_count": 0,
        },
        lambda _: mamba2(8, 16, 16, 2),
        BASE
        | {
            "model_type": "mamba2",
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 16,
            "n_groups": 2,
            "conv_kernel": 4,
            "expand": 2,
            "use_conv_bias": True,
            "use_bias": False,
        },
    ),
    "jamba": Design(
        "jamba",
        {
            "ssm.inner_size": 128,
            "ssm.state_size": 8,
            "ssm.conv_kernel": 4,
            "ssm.time_step_rank": 4,
            "attention.head_count": N,
            "attention.head_count_kv": [0, 0, K, 0],
            "expert_count": 8,
            "expert_used_count": 2,
        },
        lambda index: (
            ({**attention()} if index == 2 else _mamba(128, 8, 4, norms=True))
            | (experts(8, F) if index % 2 else dense())
        ),
        BASE
        | {
            "model_type": "jamba",
            "num_attention_heads": N,
            "num_key_value_heads": K,
            "intermediate_size": F,
            "mamba_d_state": 8,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": 4,
            "attn_layer_period": 4,
            "attn_layer_offset": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "nemotron_h": Design(
        "nemotron_h",
        {
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.conv_kernel": 4,
            "ssm.time_step_rank": 8,
            "ssm.group_count": 2,
            **HEADS_GGUF,
            "attention.head_count": [0, 0, N, 0],
            "attention.head_count_kv": [0, 0, K, 0],
        },
        lambda index: [
            mamba2(8, 16, 16, 2),
            {"ffn_up.weight": (F, D), "ffn_down.weight": (D, F), "attn_norm.weight": (D,)},
            attention(),
            mamba2(8, 16, 16, 2),
        ][index],
        BASE
        | {
            "model_type": "nemotron_h",
            "hybrid_override_pattern": "M-*M",
            "num_attention_heads": N,
            "num_key_value_heads": K,
            "head_dim": H,
            "intermediate_size": F,
            "mamba_num_heads": 8,
            "mamba_head_dim": 16,
            "ssm_state_size": 16,
            "n_groups": 2,
            "conv_kernel": 4,
        },
    ),
    "falcon-h1": Design(
        "falcon-h1",
        {
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.conv_kernel": 4,
            "ssm.time_step_rank": 8,
            "ssm.group_count": 2,
            **HEADS_GGUF,
        },
        lambda _: mamba2(8, 16, 16, 2) | attention() | dense(),
        BASE
        | HEADS
        | {
            "model_type": "falcon_h1",
            "intermediate_size": F,
            "mamba_d_ssm": 128,
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
            "mamba_n_groups": 2,
            "mamba_d_conv": 4,
            "mamba_rms_norm": True,
        },
    ),
    "lfm2": Design(
        "lfm2",
        HEADS_GGUF | {"attention.head_count_kv": [0, 0, K, 0], "shortconv.l_cache": 3},
        lambda index: (
            dense()
            | (
                attention(norm=H)
                if index == 2
                else {
                    "shortconv.conv.weight": (D, 3),
                    "shortconv.in_proj.weight": (3 * D, D),
                    "shortconv.out_proj.weight": (D, D),
                    "attn_norm.weight": (D,),
                }
            )
        ),
        BASE
        | {
            "model_type": "lfm2",
            "num_attention_heads": N,
            "num_key_value_heads": K,
            "head_dim": H,
            "intermediate_size": F,
            "block_auto_adjust_ff_dim": False,
            "conv_L_cache": 3,
            "conv_bias": False,
            "tie_word_embeddings": True,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
        },
        tied=True,
    ),
    "qwen3next": Design(
        "qwen3next",
        HEADS_GGUF
        | {
            "ssm.group_count": 2,
            "ssm.time_step_rank": 4,
            "ssm.state_size": 16,
            "ssm.inner_size": 32,
            "ssm.conv_kernel": 4,
            "expert_count": 8,
            "expert_used_count": 2,
        },
        lambda index: (
            _without_feed_forward_norm(experts(8, 32, shared=F, gate=True))
            | (
                attention(norm=H, gate=True) | {"post_attention_norm.weight": (D,)}
                if index == 3
                else _delta("ssm_ba.weight")
            )
        ),
        BASE
        | HEADS
        | {
            "model_type": "qwen3_next",
            "full_attention_interval": 4,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 4,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": F,
            "intermediate_size": F,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
    ),
}


def write(path: Path, design: Design, **more: Any) -> Path:
    writer = gguf.GGUFWriter(path, design.architecture)
    values = {"block_count": design.num_layers, "embedding_length": D, "context_length": 512} | design.metadata | more
    for key, value in values.items():
        if isinstance(value, list):
            writer.add_array(f"{design.architecture}.{key}", value)
        elif value is not None:
            writer.add_uint32(f"{design.architecture}.{key}", value)
    shapes: Shapes = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    if not design.tied:
        shapes["output.weight"] = (V, D)
    for index in range(design.num_layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in design.block(index).items()}
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", DESIGNS)
def test_a_file_and_a_config_of_one_design_give_the_same_layers(tmp_path: Path, name: str) -> None:
    design = DESIGNS[name]
    model = load_gguf(write(tmp_path / "m.gguf", design))
    expected = model_from_config(design.config, name, Source("a test", "2026-11-29"))
    assert [layer.mixers for layer in model.spec.layers] == [layer.mixers for layer in expected.layers]
    own, other = count_params(model.spec), count_params(expected)
    assert own.components == other.components
    assert own.active == other.active


@pytest.mark.parametrize("name", DESIGNS)
def test_every_value_of_a_file_is_counted_once(tmp_path: Path, name: str) -> None:
    design = DESIGNS[name]
    model = load_gguf(write(tmp_path / "m.gguf", design))
    assert model.tensors is not None
    assert count_params(model.spec).total == sum(tensor.num_values for tensor in model.tensors) - design.uncounted
    weights = count_loaded_weights(model)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert weights.total == sum(int(tensor.n_bytes) for tensor in reader.tensors)
    params = count_params(model.spec)
    assert weights.experts == 2 * params.experts
    assert weights.other == 0


def test_a_list_of_windowed_layers_in_the_file_wins_over_the_period(tmp_path: Path) -> None:
    design = DESIGNS["gemma2"]
    model = load_gguf(
        write(tmp_path / "m.gguf", design, **{"attention.sliding_window_pattern": [True, True, True, False]})
    )
    assert [layer.attention.sliding_window for layer in model.spec.layers] == [128, 128, 128, None]


def test_layers_that_share_keys_and_values_name_their_owner(tmp_path: Path) -> None:
    design = DESIGNS["gemma2"]
    model = load_gguf(write(tmp_path / "m.gguf", design, **{"attention.shared_kv_layers": 2}))
    assert [layer.attention.shared_kv_from for layer in model.spec.layers] == [None, None, 0, 1]


def test_draft_blocks_are_told_from_the_model(tmp_path: Path) -> None:
    design = DESIGNS["qwen3moe"]._replace(architecture="glm4moe")
    model = load_gguf(write(tmp_path / "m.gguf", design, nextn_predict_layers=1))
    assert model.spec.num_hidden_layers == 3
    assert model.tensors is not None
    drafts = [tensor for tensor in model.tensors if tensor.role is TensorRole.DRAFT]
    assert {tensor.name.split(".")[1] for tensor in drafts} == {"3"}
    weights = count_loaded_weights(model)
    assert weights.draft == sum(tensor.num_bytes for tensor in drafts)
    assert weights.read_per_step == weights.total - weights.draft - weights.embedding


def test_experts_stored_one_by_one_are_refused(tmp_path: Path) -> None:
    design = DESIGNS["mixtral"]._replace(
        block=lambda _: attention() | {"ffn_down.0.weight": (D, F), "ffn_norm.weight": (D,)}
    )
    with pytest.raises(ModelFileError, match="one by one"):
        load_gguf(write(tmp_path / "m.gguf", design))


def test_a_block_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    design = DESIGNS["mixtral"]._replace(block=lambda _: {"something_new.weight": (D, F)})
    with pytest.raises(ModelFileError, match="neither a mixer nor a feed-forward"):
        load_gguf(write(tmp_path / "m.gguf", design))


def test_one_part_of_several_is_refused(tmp_path: Path) -> None:
    design = DESIGNS["qwen3"]
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, design.architecture)
    writer.add_int32("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match="one of 3 parts"):
        load_gguf(path)


KEYS = sorted({key for design in DESIGNS.values() for key in design.metadata} | {"block_count", "nextn_predict_layers"})


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(DESIGNS)), st.sampled_from(KEYS), st.integers(0, 9) | st.lists(st.integers(0, 5), max_size=5)
)
def test_metadata_that_lies_gives_a_model_or_a_model_file_error(name: str, key: str, value: int | list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "m.gguf", DESIGNS[name], **{key: value or None})
        try:
            model = load_gguf(path)
        except ModelFileError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert count_params(model.spec).total > 0
