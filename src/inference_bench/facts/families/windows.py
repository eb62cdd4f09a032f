"""Which layers attend a window: every field that configs use to say so.

In:   Fields, the number of layers
Out:  for each layer the most positions it attends, None for all
Read next by: the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from inference_bench.facts.families.base import unknown_kind
from inference_bench.facts.fields import Fields, shown

Windows: TypeAlias = tuple[int | None, ...]
WindowRule: TypeAlias = Callable[[Fields, int], Windows]

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
_PATTERN_KEYS: Final = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")


def no_window(_fields: Fields, num_layers: int) -> Windows:
    """Every layer attends everything."""
    return (None,) * num_layers


def every_layer(fields: Fields, num_layers: int) -> Windows:
    """Every layer has the window, where the config sets one."""
    return (fields.optional_integer("sliding_window"),) * num_layers


def every_layer_or_4096(fields: Fields, num_layers: int) -> Windows:
    """Every layer has the window; a config without the field gets the class default of 4096, a null one none."""
    if "sliding_window" not in fields.values:
        return (fields.integer("sliding_window_size", default=4096),) * num_layers
    return every_layer(fields, num_layers)


def above_max_window_layers(fields: Fields, num_layers: int) -> Windows:
    """The layers from max_window_layers on, and only where use_sliding_window says so."""
    fields.mark("sliding_window")
    window = fields.integer("sliding_window", default=4096) if fields.boolean("use_sliding_window", False) else None
    first = fields.integer("max_window_layers", default=28, minimum=0)
    return tuple(window if index >= first else None for index in range(num_layers))


def every_other_below_max_window_layers(fields: Fields, num_layers: int) -> Windows:
    """Every other layer below max_window_layers, and only where use_sliding_window says so (Qwen2-MoE)."""
    fields.mark("sliding_window")
    window = fields.integer("sliding_window", default=4096) if fields.boolean("use_sliding_window", False) else None
    first = fields.integer("max_window_layers", default=28, minimum=0)
    return tuple(window if (index + 1) % 2 and index < first else None for index in range(num_layers))


def if_used(fields: Fields, num_layers: int) -> Windows:
    """Every layer, where use_sliding_window says so."""
    fields.mark("sliding_window", "max_window_layers")
    window = fields.integer("sliding_window", default=4096) if fields.boolean("use_sliding_window", False) else None
    return (window,) * num_layers


def alternating(default_window: int) -> WindowRule:
    """Every other layer has the window, starting with the first."""

    def rule(fields: Fields, num_layers: int) -> Windows:
        window = fields.integer("sliding_window", default=default_window)
        return tuple(None if index % 2 else window for index in range(num_layers))

    return rule


def every_nth_is_full(default_window: int, default_period: int) -> WindowRule:
    """All layers but every n-th have the window; the period is a number, or a text such as "LLLG"."""

    def rule(fields: Fields, num_layers: int) -> Windows:
        if "sliding_window" in fields.values and fields.values["sliding_window"] is None:
            fields.mark("sliding_window", *_PATTERN_KEYS)
            return (None,) * num_layers
        window = fields.integer("sliding_window", default=default_window)
        local = _local_layers(fields, num_layers, default_period)
        return tuple(window if is_local else None for is_local in local)

    return rule


def _local_layers(fields: Fields, num_layers: int, default_period: int) -> tuple[bool, ...]:
    key = fields.first(*_PATTERN_KEYS)
    pattern = fields.values[key] if key else None
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            raise fields.refuse(f"{key} is {shown(pattern)}; a text of L and G, or a whole number, is needed")
        return tuple(pattern[index % len(pattern)] == "L" for index in range(num_layers))
    period = fields.integer(*_PATTERN_KEYS, default=default_period)
    return tuple((index + 1) % period != 0 for index in range(num_layers))


def windows_of(fields: Fields, num_layers: int, rule: WindowRule) -> Windows:
    """The window of each layer: `layer_types` where the config has it, the architecture's own rule otherwise.

    Raises:  ModelConfigError for a layer type that is neither full nor sliding
    """
    kinds = fields.per_layer("layer_types", num_layers)
    fields.mark("sliding_window_size")
    if kinds is None:
        return rule(fields, num_layers)
    fields.mark(*_PATTERN_KEYS, "max_window_layers", "use_sliding_window", "sliding_window")
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise unknown_kind(fields, "layer_types", kind, (FULL, SLIDING))
    window = fields.integer("sliding_window") if SLIDING in kinds else None
    return tuple(window if kind == SLIDING else None for kind in kinds)
