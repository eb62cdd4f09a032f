"""Which faults are planted in the cached path, and what each of them makes of positions, masks and heads?

In:   Fault, the length of the prompt, how many positions are cached
Out:  the position of the first prompt token and of a new token; which mask is shifted
Leaves out: how a model is told (toy_paths, model_paths)
Read next by: toy_paths, model_paths, result, report.

Positions enter a model with rotary embedding only by their differences, so a shift of every position alike changes nothing. Each
fault here changes a difference, a mask, or which head reads which key.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

STALE_SHIFT_TOKENS: Final = 16


class Fault(StrEnum):
    """Something wrong with the cached path, and with nothing else."""

    POSITION_OFF_BY_ONE = "position off by one"
    POSITION_FROZEN = "position frozen"
    MASK_ONE_SHORT = "mask one short"
    MASK_ONE_AHEAD = "mask one ahead"
    KV_HEADS_TILED = "KV heads tiled"
    ROTARY_STALE = "stale rotary"


WHAT_IT_IS: Final[Mapping[Fault, str]] = {
    Fault.POSITION_OFF_BY_ONE: "every decoded token is one place too far from the prompt",
    Fault.POSITION_FROZEN: "every decoded token has the place of the first one",
    Fault.MASK_ONE_SHORT: "a decoded token does not attend itself, the newest row",
    Fault.MASK_ONE_AHEAD: "each token of the prompt attends the one after it",
    Fault.KV_HEADS_TILED: "KV heads repeated as 0 1 0 1, not as 0 0 1 1",
    Fault.ROTARY_STALE: f"reused keys keep the rotation of {STALE_SHIFT_TOKENS} places further on",
}


def prompt_start(fault: Fault | None) -> int:
    """The position that the first token of the prompt is rotated for."""
    return STALE_SHIFT_TOKENS if fault is Fault.ROTARY_STALE else 0


def step_position(fault: Fault | None, num_prompt: int, num_cached: int) -> int:
    """The position that a decoded token is given when so many are cached before it: without a fault just their number."""
    if fault is Fault.POSITION_OFF_BY_ONE:
        return num_cached + 1
    return num_prompt if fault is Fault.POSITION_FROZEN else num_cached


def prompt_reach(fault: Fault | None) -> int:
    """How many positions after itself a token of the prompt attends."""
    return 1 if fault is Fault.MASK_ONE_AHEAD else 0


def hides_newest(fault: Fault | None) -> bool:
    """Whether a decoded token's mask ends before the token itself."""
    return fault is Fault.MASK_ONE_SHORT


def tiles_heads(fault: Fault | None) -> bool:
    """Whether query heads find their key head by remainder instead of by group."""
    return fault is Fault.KV_HEADS_TILED
