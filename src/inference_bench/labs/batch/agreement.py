"""Does a sequence in a batch get the logits that it gets alone, and where does it first go another way?

In:   logits and tokens of one prompt, alone and in a batch
Out:  PromptAgreement, with its first Divergence
Leaves out: where the logits are from (decoding)
Read next by: flow.

Two runs that are right differ by the order in which sums are rounded. What float32 allows here is 2e-4, the tolerance that cached and
full logits are held to: rounding was seen to make 5e-5 on logits of about 30, and a wrong position or mask makes 0.1 and more.
bfloat16 writes logits between 16 and 32 in steps of 1/8; eight of them, 1.0, is what a near tie is judged by there. It is no check:
with steps that large, whether a batch is right is told in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from inference_bench.labs.batch.result import Divergence, PromptAgreement
from inference_bench.labs.logits import top_two_gap
from inference_bench.labs.settings import BFLOAT16, FLOAT32
from inference_bench.stats import median

ALLOWED: Final = {FLOAT32: 2e-4, BFLOAT16: 1.0}
_TIES: Final = 2  # both of two logits can move, in opposite directions


def first_divergence(
    alone: torch.Tensor, in_batch: torch.Tensor, tokens_in_batch: Sequence[int], allowed: float
) -> Divergence | None:
    """The first step at which the best token alone is not the one the batch took.

    Formula:  a near tie is top-two gap <= 2 · allowed: less than two logits may move towards one another
    Shape:    logits [T, V], of the same contexts up to that step
    """
    for step, taken in enumerate(tokens_in_batch[: len(alone)]):
        best = int(alone[step].argmax())
        if best != taken:
            gap = top_two_gap(alone[step])
            off = float((alone[step] - in_batch[step]).abs().max())
            return Divergence(step, best, taken, gap, off, gap <= _TIES * allowed)
    return None


def compare(
    prompt_index: int,
    lengths: tuple[int, int],
    alone: torch.Tensor,
    in_batch: torch.Tensor,
    tokens_in_batch: Sequence[int],
    *,
    is_forced: bool,
    allowed: float,
) -> PromptAgreement:
    """One prompt, every step at which both runs had the same context.

    Where:  is_forced is whether the run alone went along the batch's tokens; else it is compared up to where it first diverged;
            lengths are the prompt's tokens and its pads
    Shape:  logits [T, V]
    """
    divergence = first_divergence(alone, in_batch, tokens_in_batch, allowed)
    num_steps = len(alone) if is_forced or divergence is None else divergence.step + 1
    differences = (alone[:num_steps] - in_batch[:num_steps]).abs().amax(dim=1).tolist()
    gaps = [top_two_gap(each) for each in alone[:num_steps]]
    return PromptAgreement(
        prompt_index=prompt_index,
        num_prompt_tokens=lengths[0],
        num_pad_tokens=lengths[1],
        num_steps_compared=num_steps,
        prompt_difference=differences[0],
        max_difference=max(differences),
        median_top_two_gap=median(gaps),
        least_top_two_gap=min(gaps),
        divergence=divergence,
    )
