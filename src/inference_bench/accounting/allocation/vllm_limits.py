"""The limits that vLLM's API server sets by itself: sequences and tokens of one step, by the card it finds.

In:   HardwareSpec, or None where no machine was named
Out:  VllmLimits
Leaves out: what a user sets (max_num_seqs, max_num_batched_tokens), and vLLM on a TPU or a CPU, which has limits of its own
Read next by: predict.placement, simulate.presets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import ModelSpec
from inference_bench.units import GIBI

LARGE_CARD_BYTES: Final = 70 * GIBI
_SMALL_STEPS: Final = "a100"  # of a card's name: larger steps were slower there


class VllmLimits(NamedTuple):
    """What one step takes at most: max_num_seqs and max_num_batched_tokens."""

    sequences: int
    batched_tokens: int


SMALL_CARD: Final = VllmLimits(256, 2048)
LARGE_CARD: Final = VllmLimits(1024, 8192)


def vllm_limits(machine: HardwareSpec | None) -> VllmLimits:
    """The limits of vLLM's API server on a machine: the larger ones from 70 GiB of memory on, but for the A100.

    Where:   no machine named: those of a large card; a memory that is not known is taken for a small one, as vLLM does
    Source:  vLLM 0.19.0 vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults, UsageContext.OPENAI_API_SERVER
    """
    if machine is None:
        return LARGE_CARD
    is_large = (machine.memory_bytes or 0) >= LARGE_CARD_BYTES and _SMALL_STEPS not in machine.name.casefold()
    return LARGE_CARD if is_large else SMALL_CARD


def in_flight_words(model: ModelSpec, machine: HardwareSpec | None) -> tuple[str, ...]:
    """What was taken for the tokens in flight, where the cache depends on it: in layers with a window or chunks."""
    if all(attention.max_positions is None for attention, _ in model.attention_groups()):
        return ()
    taken, cards = vllm_limits(machine), "cards of 70 GiB or more, but for the A100"
    where = f"{cards}; no machine was named" if machine is None else machine.name
    why = "" if machine is None or taken is LARGE_CARD else f", which is none of its {cards}"
    return (f"vLLM's cache counted with {taken.batched_tokens:,} tokens in flight, as its server sets on {where}{why}",)
