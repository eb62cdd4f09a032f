"""Is a speculative answer the plain one, and if not, is that rounding or a fault?

In:   two Decoded
Out:  Comparison, with a Divergence where they part
Read next by: flow, checks.

A step over γ + 1 positions runs other kernels than a step over one, and rounds otherwise. Where the two likeliest tokens are nearer
than that difference, either may come out: a near tie. A larger difference than rounding makes, or a choice that it does not explain,
is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inference_bench.labs.logits import common_length, top_two_gap
from inference_bench.labs.settings import BFLOAT16, FLOAT32
from inference_bench.labs.speculate.greedy import Decoded
from inference_bench.labs.speculate.result import Comparison, Divergence

if TYPE_CHECKING:
    import torch

LOGIT_TOLERANCE: Final = {FLOAT32: 1e-3, BFLOAT16: 0.5}
"""The most that another order of summing may change a logit by; a wrong position or a stale key changes it by tenths and more."""


def compare(
    plain: Decoded, other: Decoded, prompt: str, draft: str, gamma: int, tolerance: float = LOGIT_TOLERANCE[FLOAT32]
) -> Comparison:
    """One speculative answer beside the plain one, token by token and logit by logit."""
    equal = common_length(plain.ids, other.ids)
    mine, theirs = plain.all_logits, other.all_logits
    differences = (mine[:equal] - theirs[:equal]).abs()
    return Comparison(
        prompt=prompt,
        draft=draft,
        gamma=gamma,
        num_tokens=len(plain.ids),
        num_equal_tokens=equal,
        max_logit_difference=float(differences.max()) if equal else 0.0,
        divergence=None if plain.ids == other.ids else _diverged(equal, mine, theirs, tolerance),
    )


def _diverged(position: int, plain: torch.Tensor, other: torch.Tensor, tolerance: float) -> Divergence:
    """Why the two part. One that only ends before the other has lost tokens: no rounding does that."""
    if position >= min(len(plain), len(other)):
        return Divergence(position, 0.0, 0.0, is_near_tie=False)
    gap = top_two_gap(plain[position])
    difference = float((plain[position] - other[position]).abs().max())
    return Divergence(position, gap, difference, is_near_tie=difference <= tolerance and gap <= 2 * difference)
