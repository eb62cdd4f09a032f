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

from inference_bench.facts.families.architectures import HOLDS_TOWER, WHOLE_CLASSES
from inference_bench.facts.families.base import Design
from inference_bench.facts.families.unread import other_towers
from inference_bench.facts.fields import Fields, shown
from inference_bench.facts.models import Part


def towers(fields: Fields, design: Design, assumptions: list[str]) -> tuple[Part, ...]:
    """The towers of a config; those of a design that is not counted are named in one assumption."""
    parts, left_out = [], []
    outer, vision = fields.string("model_type"), fields.section("vision_config")
    if vision is None and outer == "fuyu":
        vision = fields
    if vision is not None:
        kind = vision.string("model_type") or outer or "unnamed"
        counter = _COUNTERS.get(kind)
        if counter is None or _unlike(kind, vision, fields):
            left_out.append(f"the vision tower ({shown(kind)})")
        else:
            held = outer in HOLDS_TOWER or _names_whole_class(fields)
            parts.append(Part("vision tower", counter(vision, fields, design.hidden_size), counted=held, tower=True))
            if not held:
                assumptions.append("the vision tower is counted apart from the total, as the text class leaves it out")
    left_out += other_towers(fields)
    if left_out:
        assumptions.append(f"not counted: {' and '.join(left_out)}; only the text decoder and what is named are")
    return tuple(parts)


def _names_whole_class(fields: Fields) -> bool:
    """Whether the config names a class that holds the tower, where a text class could read it as well."""
    classes = fields.values.get("architectures")
    return isinstance(classes, list) and bool(classes) and str(classes[0]) in WHOLE_CLASSES


def _unlike(kind: str, vision: Fields, top: Fields) -> bool:
    """Whether a tower of a known kind has a switch that is not counted, or a projection that is another model's."""
    outer = str(top.values.get("model_type"))
    if kind in _UNDER and not outer.startswith(_UNDER[kind]):
        return True
    if kind == "internvl_vision":
        return top.values.get("downsample_ratio", 0.5) != 0.5 or vision.values.get("norm_type") == "rms_norm"
    return kind.startswith("gemma4") and bool(vision.values.get("attention_bias"))


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
    size, inner = vision.integer("hidden_size", default=768), vision.integer("intermediate_size", default=3072)
    heads, head_dim = vision.integer("num_attention_heads", default=12), vision.integer("head_dim", default=64)
    kv_heads = vision.integer("num_key_value_heads", default=heads)
    patch = vision.integer("patch_size", default=16)
    attention = size * head_dim * (2 * heads + 2 * kv_heads) + 2 * head_dim
    block = attention + 3 * size * inner + 4 * size
    front = 2 * vision.integer("position_embedding_size", default=10240) * size + size * 3 * patch * patch
    return front + vision.integer("num_hidden_layers", default=16) * block + size * hidden_size


def _pixtral(vision: Fields, top: Fields, hidden_size: int) -> int:
    """Pixtral under Mistral 3: gated blocks without biases, a patch merger and two projections."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size"), vision.integer("num_channels", default=3)
    merge = top.integer("spatial_merge_size", default=2)
    block = 4 * size * size + 3 * size * inner + 2 * size
    biases = 2 * hidden_size if top.boolean("multimodal_projector_bias", False) else 0
    projector = size + size * size * merge * merge + hidden_size * size + hidden_size * hidden_size + biases
    return size * channels * patch * patch + size + vision.integer("num_hidden_layers") * block + projector


def _fuyu(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """Fuyu: no tower, one projection of the pixels of a patch."""
    pixels = vision.integer("num_channels", default=3) * vision.integer("patch_size", default=30) ** 2
    return _biased(hidden_size, pixels)


def _qwen25_vl(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """Qwen2.5-VL: gated blocks with biases and RMS norms, rotary positions, a merger of patches."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size", default=14), vision.integer("in_channels", "in_chans", default=3)
    merged = size * vision.integer("spatial_merge_size", default=2) ** 2
    output = vision.integer("out_hidden_size", default=hidden_size)
    block = _biased(3 * size, size) + _biased(size, size) + 2 * _biased(inner, size) + _biased(size, inner) + 2 * size
    front = size * channels * vision.integer("temporal_patch_size", default=2) * patch * patch
    return front + vision.integer("depth") * block + size + _biased(merged, merged) + _biased(output, merged)


def _llama4(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """Llama 4: learned positions and a class token, an adapter of shuffled pixels, a projection without bias."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size"), vision.integer("num_channels", default=3)
    positions = (vision.integer("image_size") // patch) ** 2 + 1
    block = 4 * _biased(size, size) + _biased(inner, size) + _biased(size, inner) + 4 * size
    front = size + positions * size + size * channels * patch * patch + 4 * size
    wide, output = vision.integer("projector_input_dim"), vision.integer("projector_output_dim")
    head = wide * inner + output * wide + hidden_size * vision.integer("vision_output_dim")
    return front + vision.integer("num_hidden_layers") * block + head


def _mllama(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """Llama 3.2 Vision: gated tables of positions for each tile and shape, local and gated global blocks."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    patch, channels = vision.integer("patch_size"), vision.integer("num_channels", default=3)
    positions = (vision.integer("image_size") // patch) ** 2 + 1
    shapes = vision.values.get("supported_aspect_ratios")
    vision.mark("supported_aspect_ratios")
    rows = 1 + (len(shapes) if isinstance(shapes, list) else 8)
    tiles, num_global = vision.integer("max_num_tiles", default=4), vision.integer("num_global_layers")
    front = size + size * channels * patch * patch + 4 * size
    front += 1 + positions * size * (1 + rows * tiles) + 2 * (1 + rows * tiles * size)
    block = 4 * size * size + _biased(inner, size) + _biased(size, inner) + 4 * size
    blocks = (vision.integer("num_hidden_layers") + num_global) * block + 2 * num_global
    return front + blocks + _biased(hidden_size, vision.integer("vision_output_dim"))


def _internvl(vision: Fields, _top: Fields, hidden_size: int) -> int:
    """InternVL: scaled residuals, learned positions and a class token, a projection of four patches."""
    size, inner = vision.integer("hidden_size"), vision.integer("intermediate_size")
    (rows, columns), (high, wide) = (_pair(vision, key) for key in ("image_size", "patch_size"))
    positions = (rows // high) * (columns // wide) + 1
    block = 4 * size * size + size + (3 * size if vision.boolean("attention_bias", False) else 0)
    block += 2 * size if vision.boolean("use_qk_norm", False) else 0
    block += _biased(inner, size) + _biased(size, inner) + 4 * size + 2 * size
    front = size + _biased(size, vision.integer("num_channels", default=3) * high * wide)
    front += positions * size if vision.boolean("use_absolute_position_embeddings", True) else 0
    front += size if vision.boolean("use_mask_token", False) else 0
    front += 0 if vision.boolean("use_mean_pooling", True) else 2 * size
    projector = 8 * size + _biased(hidden_size, 4 * size) + _biased(hidden_size, hidden_size)
    return front + vision.integer("num_hidden_layers") * block + projector


def _pair(vision: Fields, key: str) -> tuple[int, int]:
    """Height and width, given as two numbers or as one for both."""
    if not isinstance(vision.values.get(key), list):
        return (vision.integer(key),) * 2
    pair = vision.integers(key, minimum=1) or ()
    if len(pair) != 2:
        raise vision.refuse(f"{key} has {len(pair)} numbers; a height and a width are needed")
    return pair[0], pair[1]


# Towers whose projection differs by the model around them: only under these it is known.
_UNDER: Final = {
    "siglip_vision_model": ("gemma3",),
    "pixtral": ("mistral3", "ministral3"),
    "internvl_vision": ("internvl",),
    "llama4_vision_model": ("llama4",),
    "mllama_vision_model": ("mllama",),
}

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
    "gemma4": _gemma4,
    "fuyu": _fuyu,
    "qwen2_5_vl": _qwen25_vl,
    "qwen2_5_vl_vision": _qwen25_vl,
    "llama4_vision_model": _llama4,
    "mllama_vision_model": _mllama,
    "internvl_vision": _internvl,
    "pixtral": _pixtral,
}
