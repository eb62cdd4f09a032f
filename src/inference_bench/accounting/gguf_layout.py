"""A model's tensors as llama.cpp's converter lays them out, so that its file types can be applied to them.

In:   ModelSpec and a WeightPlan of a llama.cpp file type
Out:  the tensors of the layers with their formats; the formats of the input table and the head
Leaves out: tables the converter adds (rotary factors of long contexts), a few kilobytes
Read next by: weights; loaded only for a plan of a llama.cpp file type.

Source: llama.cpp, conversion/ and gguf-py tensor names (2026-11)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.accounting.llama_cpp_mix import MixModel, MixTensor, mix_formats
from inference_bench.accounting.named_weights import Weight, name_layer_weights
from inference_bench.accounting.weight_plan import PART_OF_ROLE, WeightPlan
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.mixers import LatentAttention
from inference_bench.facts.models import Attention, Layer, MixtureOfExperts, ModelSpec

_FUSED_QUERY_KEY_VALUE: Final = frozenset(
    {
        "phi3",
        "phi",
        "phi-msft",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "bloom",
        "mpt",
        "chatglm",
        "codeshell",
        "dbrx",
    }
)
_FUSED_GATE_UP: Final = frozenset({"phi3", "chatglm", "glm", "glm4"})
_FALCONS: Final = frozenset({"falcon"})
# where the first layer has no attention, files of these architectures still state one head count for all layers
_ONE_HEAD_COUNT: Final = ("qwen3_next", "qwen3_5", "qwen3next", "qwen35")
_IN_32_BITS: Final = ("ffn_gate_inp", "indexer.proj")


def layer_formats(model: ModelSpec, plan: WeightPlan) -> Iterator[tuple[Weight, NumberFormat, int]]:
    """Each tensor of the layers with its format."""
    rows = _rows(model)
    chosen = mix_formats(plan.file_type or "", [tensor for _, tensor in rows] + _tables(model), _facts(model))
    for (weight, tensor), name in zip(rows, chosen, strict=False):
        override = plan.override("norm" if weight.is_vector else PART_OF_ROLE[weight.role])
        yield weight, override or _kept(tensor, plan) if name is None else override or number_format(name), 1


def table_formats(model: ModelSpec, plan: WeightPlan) -> tuple[NumberFormat, NumberFormat]:
    """The formats of the input table and of the output head."""
    tables = _tables(model)
    names = mix_formats(plan.file_type or "", tables, _facts(model))
    formats = [plan.plain if name is None else number_format(name) for name in names]
    return plan.override("embedding") or formats[0], plan.override("head") or formats[-1]


def _kept(tensor: MixTensor, plan: WeightPlan) -> NumberFormat:
    """What the converter writes for a tensor that is not quantised: 32 bits for vectors and routers, else 16."""
    in_32_bits = tensor.is_vector or any(mark in tensor.name for mark in _IN_32_BITS)
    return number_format("fp32") if in_32_bits else plan.plain


def _tables(model: ModelSpec) -> list[MixTensor]:
    table = MixTensor("token_embd.weight", model.table_width)
    return [table] if model.tie_word_embeddings else [table, MixTensor("output.weight", model.table_width)]


def _facts(model: ModelSpec) -> MixModel:
    blocks = [layer.feed_forward for layer, _ in model.layer_groups()]
    return MixModel(
        num_layers=model.num_hidden_layers,
        queries_per_value=_queries_per_value(model),
        num_experts=max((block.num_experts for block in blocks if isinstance(block, MixtureOfExperts)), default=0),
        is_falcon=model.model_type in _FALCONS,
        is_llama_70b=model.model_type == "llama" and model.num_hidden_layers == 80 and _queries_per_value(model) > 1,
    )


def _queries_per_value(model: ModelSpec) -> int:
    """Query heads to a value head in the first layer, as the rules read it from the file's head counts."""
    layers: Sequence[Layer] = model.layers
    if model.model_type.startswith(_ONE_HEAD_COUNT):
        layers = [layer for layer in layers if any(isinstance(mixer, Attention) for mixer in layer.mixers)]
    for mixer in layers[0].mixers if layers else ():
        attention = getattr(mixer, "attention", mixer)
        if isinstance(attention, Attention):
            return attention.num_attention_heads // attention.num_key_value_heads
        if isinstance(mixer, LatentAttention):  # stored as one key-value head
            return mixer.num_attention_heads
    return 0


def _rows(model: ModelSpec) -> list[tuple[Weight, MixTensor]]:
    """Every tensor of the layers under the name and in the shape it has in a GGUF file."""
    named = {layer: _laid_out(layer, model) for layer, _ in model.layer_groups()}
    rows: list[tuple[Weight, MixTensor]] = []
    for index, layer in enumerate(model.layers):
        for weight in named[layer]:
            name = f"blk.{index}.{weight.gguf}.weight"
            rows.append((weight, MixTensor(name, weight.columns, weight.copies, weight.is_vector)))
    return rows


def _laid_out(layer: Layer, model: ModelSpec) -> tuple[Weight, ...]:
    weights = list(name_layer_weights(layer, model.hidden_size))
    if model.model_type in _FUSED_QUERY_KEY_VALUE:
        weights = _fused(weights, ("attn_q", "attn_k", "attn_v"), "attn_qkv")
    if model.model_type in _FUSED_GATE_UP:
        weights = _fused(weights, ("ffn_gate", "ffn_up"), "ffn_up")
    return tuple(part for weight in weights for part in _split_latent(weight, layer))


def _fused(weights: list[Weight], names: tuple[str, ...], fused: str) -> list[Weight]:
    """Matrices over the same input stored as one."""
    together = [weight for weight in weights if weight.gguf in names]
    if len(together) < 2:
        return weights
    one = together[0]._replace(gguf=fused, rows=sum(weight.rows for weight in together))
    return [one, *(weight for weight in weights if weight not in together)]


def _split_latent(weight: Weight, layer: Layer) -> tuple[Weight, ...]:
    """The up projection of latent attention is stored as keys (transposed) and values, one matrix a head."""
    if weight.gguf != "attn_kv_b":
        return (weight,)
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            heads, rank = mixer.num_attention_heads, mixer.kv_lora_rank
            keys = weight._replace(gguf="attn_k_b", rows=rank, columns=mixer.qk_nope_head_dim, copies=heads)
            values = weight._replace(gguf="attn_v_b", rows=mixer.v_head_dim, columns=rank, copies=heads)
            return (keys, values)
    return (weight,)
