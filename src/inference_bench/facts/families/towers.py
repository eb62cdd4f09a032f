"""Vision and audio towers beside a language model: counted apart, exactly where the tower's design is known.

In:   Fields of the whole config
Out:  Part rows
Leaves out: towers of other designs, which are named in the assumptions; what a tower costs to run
Read next by: config.py.

Whether a tower is in the model's total follows the class that Transformers loads for the config: some language-model
classes hold the tower, others leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from inference_bench.facts.families.architectures import HOLDS_TOWER
from inference_bench.facts.families.base import Design
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import Part


def towers(_model_type: str, fields: Fields, design: Design, assumptions: list[str]) -> tuple[Part, ...]:
    """The towers of a multimodal config; those of a design that is not counted are named in the assumptions."""
    parts = []
    vision = fields.section("vision_config")
    if vision is not None:
        kind = vision.string("model_type") or fields.string("model_type") or "unnamed"
        counter = _COUNTERS.get(kind)
        held = fields.string("model_type") in HOLDS_TOWER
        if counter is None:
            assumptions.append(f"the vision tower ({shown(kind)}) is not counted: only the text decoder is")
        else:
            parts.append(Part("vision tower", counter(vision, fields, design.hidden_size), counted=held, tower=True))
            if not held:
                assumptions.append("the vision tower is counted apart from the total, as the text class leaves it out")
    if "audio_config" in fields:
        assumptions.append("the audio tower is not counted: only the text decoder and what is named are")
    return tuple(parts)


def _biased(rows: int, columns: int) -> int:
    return rows * columns + rows


def _siglip(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """SigLIP under Gemma 3: layer norms and biases everywhere, learned positions, a projection with a norm."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size"), vision.integer("num_channels", default=3)
    positions = (vision.integer("image_size") // patch) ** 2
    block = 4 * _biased(size, size) + _biased(inner, size) + _biased(size, inner) + 4 * size
    front = _biased(size, channels * patch * patch) + positions * size
    head = 0
    if vision.boolean("vision_use_head", True):  # one query that pools the patches
        head = size + 4 * _biased(size, size) + 2 * size + _biased(inner, size) + _biased(size, inner)
    return front + vision.integer("num_hidden_layers") * block + 2 * size + head + size * hidden_size + size


def _qwen3_vl(vision: Fields, _top: Fields, _hidden_size: int) -> int:
    """Qwen3-VL: fused queries, keys and values, learned positions, a merger and one more for each deep stack."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size"), vision.integer("in_channels", "num_channels", default=3)
    merged = size * vision.integer("spatial_merge_size", default=2) ** 2
    output = vision.integer("out_hidden_size")
    block = _biased(3 * size, size) + _biased(size, size) + _biased(inner, size) + _biased(size, inner) + 4 * size
    front = _biased(size, channels * vision.integer("temporal_patch_size", default=2) * patch * patch)
    front += vision.integer("num_position_embeddings") * size
    merger = _biased(merged, merged) + _biased(output, merged)
    deep = len(vision.integers("deepstack_visual_indexes") or ())
    return front + vision.integer("depth") * block + merger + 2 * size + deep * (merger + 2 * merged)


def _gemma4(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """Gemma 4's tower: gated blocks without biases, query and key norms, a table of positions for each axis."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    heads, head_dim = vision.integer("num_attention_heads"), vision.integer("head_dim")
    kv_heads = vision.integer("num_key_value_heads", default=heads)
    patch = vision.integer("patch_size")
    attention = size * head_dim * (2 * heads + 2 * kv_heads) + 2 * head_dim
    block = attention + 3 * size * inner + 4 * size
    front = 2 * vision.integer("position_embedding_size", default=10240) * size + size * 3 * patch * patch
    return front + vision.integer("num_hidden_layers") * block + size * hidden_size


def _pixtral(vision: Fields, top: Fields, hidden_size: int) -> int:
    """Pixtral under Mistral 3: gated blocks without biases, a patch merger and two projections."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size"), vision.integer("num_channels", default=3)
    merge = top.integer("spatial_merge_size", default=2)
    block = 4 * size * size + 3 * size * inner + 2 * size
    biases = 2 * hidden_size if top.boolean("multimodal_projector_bias", False) else 0
    projector = size + size * size * merge * merge + hidden_size * size + hidden_size * hidden_size + biases
    return size * channels * patch * patch + size + vision.integer("num_hidden_layers") * block + projector


_COUNTERS: Final[dict[str, Callable[[Fields, Fields, int], int]]] = {
    "siglip_vision_model": _siglip,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen3_vl_vision": _qwen3_vl,
    "qwen3_vl_moe_vision": _qwen3_vl,
    "qwen3_5_vision": _qwen3_vl,
    "qwen3_5_moe_vision": _qwen3_vl,
    "gemma4_vision": _gemma4,
    "pixtral": _pixtral,
}
