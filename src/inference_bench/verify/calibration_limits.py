"""What an engine allows a calibration sweep to do: how many sequences, how long, and how it cuts work into batches.

In:   the engine's identity and its own figures
Out:  EngineLimits; the batches that a prompt, alone or beside others, is computed in
Leaves out: which points are measured (calibration_plan)
Read next by: calibration_plan, calibration_points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.engines.base import LLAMA_CPP, SGLANG, VLLM, EngineFigures, EngineIdentity
from inference_bench.simulate.micro_batches import equal_batches, micro_batches
from inference_bench.simulate.step_time import StepPart

_LLAMA_CPP_MICRO_BATCH: Final = 512  # what it computes at once where nobody asked for another number

Batch = tuple[StepPart, ...]


class Mixing(StrEnum):
    """What becomes of a prompt that comes while others decode."""

    EQUAL = "equal parts"  # llama.cpp with a cache a slot: as many tokens of each sequence in a batch
    IN_ORDER = (
        "in order"  # llama.cpp with one cache: the sequences' tokens one after the other, cut where a batch is full
    )
    TOGETHER = "together"  # one batch with all of them, within the engine's budget
    APART = "apart"  # prompts have steps of their own
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What a sweep may ask of a server; None is no known limit.

    Where:    pins_slots says that a request may name the slot it is computed in; most_positions is what the engine computes at
              once, with num_threads; context_tokens is for one sequence, shared_tokens for all together
    """

    engine: str
    pins_slots: bool = False
    max_batch: int | None = None
    context_tokens: int | None = None
    shared_tokens: int | None = None
    most_positions: int | None = None
    mixing: Mixing = Mixing.UNKNOWN
    reuses_prefix: bool = True
    num_threads: int | None = None


def limits_of(identity: EngineIdentity, figures: EngineFigures) -> EngineLimits:
    """The limits of a server that has said who it is."""
    name = identity.kind or "an engine that does not say its name"
    if name == LLAMA_CPP:
        return _llama_cpp(identity, figures)
    return EngineLimits(
        name,
        max_batch=figures.max_sequences,
        context_tokens=figures.max_sequence_tokens,
        shared_tokens=figures.kv_tokens,
        most_positions=figures.token_budget,
        mixing={VLLM: Mixing.TOGETHER, SGLANG: Mixing.APART}.get(name, Mixing.UNKNOWN),
        reuses_prefix=figures.prefix_cache is not False,
    )


def _llama_cpp(identity: EngineIdentity, figures: EngineFigures) -> EngineLimits:
    unified = figures.kv_unified
    known = figures.micro_batch or identity.flag_count("max_micro_batch_tokens")
    return EngineLimits(
        LLAMA_CPP,
        pins_slots=figures.num_slots is not None,
        max_batch=figures.num_slots,
        context_tokens=figures.context_tokens_per_slot,
        shared_tokens=figures.context_tokens_total if unified else None,
        most_positions=known or _LLAMA_CPP_MICRO_BATCH,
        mixing={None: Mixing.UNKNOWN, False: Mixing.EQUAL, True: Mixing.IN_ORDER}[unified],
        num_threads=figures.num_threads or identity.flag_count("num_threads"),
    )


def prompt_batches(cached: int, new: int, most_positions: int | None) -> tuple[Batch, ...]:
    """The batches in which a prompt is read that has the engine to itself."""
    return _cut((StepPart(cached, new, False),), most_positions)


def mixed_batches(decoding: Sequence[int], prompt_tokens: int, limits: EngineLimits) -> tuple[Batch, ...] | None:
    """The batches of the step that holds one token of each decoding sequence and a whole prompt in the slot behind them.

    Where:    decoding are their cached positions; None where the engine's rule is not known, or it takes several steps
    """
    parts = (*(StepPart(cached, 1, True) for cached in decoding), StepPart(0, prompt_tokens, False))
    most = limits.most_positions
    if limits.mixing is Mixing.EQUAL:
        size = most or sum(part.new for part in parts)
        return tuple(map(tuple, equal_batches(enumerate(parts), size)))
    if limits.mixing is Mixing.IN_ORDER:
        return _cut(parts, most)
    fits = most is None or sum(part.new for part in parts) <= most
    return (parts,) if limits.mixing is Mixing.TOGETHER and fits else None


def _cut(parts: Sequence[StepPart], most_positions: int | None) -> tuple[Batch, ...]:
    return tuple(map(tuple, micro_batches(parts, most_positions or sum(part.new for part in parts))))
