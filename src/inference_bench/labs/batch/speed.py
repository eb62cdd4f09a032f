"""How fast is a batch? Its prefill and its decode steps timed, each beside the least that its work takes.

In:   LabModel, prompts, LabCeilings
Out:  SpeedPoint
Leaves out: why a step takes longer than its bound (breakdown)
Read next by: flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from inference_bench.labs.batch.bounds import decode_work, prefill_work, whole_step
from inference_bench.labs.batch.decoding import Decoder
from inference_bench.labs.batch.padding import Padded, pad_left
from inference_bench.labs.batch.result import SpeedPoint
from inference_bench.labs.machine.result import LabCeilings
from inference_bench.labs.model import LabModel
from inference_bench.stats import median, relative_spread

_WARMUP_STEPS: Final = 2
_SAY_EVERY: Final = 8  # steps, between two that are timed


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often a batch is prefilled, and how many steps are timed after each prefill."""

    num_prefills: int
    num_steps: int


@dataclass(slots=True)
class Timing:
    """The raw values of one batch so far, each in seconds."""

    ttft_s: list[float]
    step_s: list[float]


def time_batch(model: LabModel, padded: Padded, repeats: Repeats, say: Callable[[str], None]) -> Timing:
    """Prefill, warm up, decode; and again. One prefill more comes first, since the first of a shape prepares what later ones use."""
    timing = Timing([], [])
    say(f"B = {len(padded.ids)}: warm-up")
    with torch.inference_mode():
        Decoder(model.network, padded).prefill()
    for number in range(repeats.num_prefills):
        say(f"B = {len(padded.ids)}: prefill {number + 1} of {repeats.num_prefills}")
        decoder = Decoder(model.network, padded)
        with torch.inference_mode():
            began = time.perf_counter()
            tokens = decoder.prefill().argmax(dim=-1)
            timing.ttft_s.append(time.perf_counter() - began)
            for step in range(_WARMUP_STEPS + repeats.num_steps):
                if step % _SAY_EVERY == 0:
                    say(f"B = {len(padded.ids)}: step {step + 1} of {_WARMUP_STEPS + repeats.num_steps}")
                began = time.perf_counter()
                tokens = decoder.step(tokens).argmax(dim=-1)
                if step >= _WARMUP_STEPS:
                    timing.step_s.append(time.perf_counter() - began)
    return timing


def mean_contexts(lengths: Sequence[int], num_steps: int) -> list[int]:
    """Positions that each sequence attends in the middle timed step, its own new one included.

    Formula:  prompt + warm-up steps + (timed steps + 1) / 2, rounded
    """
    return [length + _WARMUP_STEPS + (num_steps + 1) // 2 for length in lengths]


def measure_point(
    model: LabModel,
    prompts: Sequence[Sequence[int]],
    pad_id: int,
    ceilings: LabCeilings,
    repeats: Repeats,
    say: Callable[[str], None],
) -> SpeedPoint:
    """One batch, from its prompts to its row."""
    padded = pad_left(prompts, pad_id)
    timing = time_batch(model, padded, repeats, say)
    return speed_point(model, padded.lengths, ceilings, timing, repeats.num_steps)


def speed_point(
    model: LabModel, lengths: Sequence[int], ceilings: LabCeilings, timing: Timing, num_steps: int
) -> SpeedPoint:
    """Times as rates, beside the bounds of the real tokens' work."""
    batch, width = len(lengths), max(lengths)
    contexts = mean_contexts(lengths, num_steps)
    work = decode_work(model.spec, model.dtype, contexts)
    step_bound = whole_step(work, ceilings)
    ttft_bound = whole_step(prefill_work(model.spec, model.dtype, lengths), ceilings)
    step_s, ttft_s = median(timing.step_s), median(timing.ttft_s)
    least_step_s, least_ttft_s = step_bound.seconds or 0.0, ttft_bound.seconds or 0.0
    return SpeedPoint(
        batch=batch,
        num_prompt_tokens=sum(lengths),
        padded_length_tokens=width,
        padded_fraction=1 - sum(lengths) / (batch * width),
        context_tokens=sum(contexts) / batch,
        ttft_s=ttft_s,
        ttft_bound_s=least_ttft_s,
        ttft_limited_by=str(ttft_bound.limited_by),
        ttft_fraction_of_bound=least_ttft_s / ttft_s,
        step_s=step_s,
        step_spread_fraction=relative_spread(timing.step_s),
        step_bound_s=least_step_s,
        step_limited_by=str(step_bound.limited_by),
        step_flops=work.flops,
        step_bytes=work.num_bytes,
        step_fraction_of_bound=least_step_s / step_s,
        tokens_per_s=batch / step_s,
        tokens_per_s_per_sequence=1 / step_s,
        bound_tokens_per_s=batch / least_step_s,
        step_values_s=tuple(timing.step_s),
        ttft_values_s=tuple(timing.ttft_s),
    )
