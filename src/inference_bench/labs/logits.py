"""Where do two answers part, and how sure was a model of its token there? The gap that tells a near tie from a fault.

In:   two sequences of token ids; the logits of one position
Out:  how many ids they share; a difference of logits
Leaves out: what follows from it (batch, cache, speculate)
Read next by: those labs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def top_two_gap(logits: torch.Tensor) -> float:
    """How far the best token is above the second.

    Shape:  [V]
    """
    best, second = logits.topk(2).values.tolist()
    return float(best - second)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two sequences begin with alike.

    >>> common_length([1, 2, 3], [1, 2, 4, 5]), common_length([1], [1, 2])
    (2, 1)
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
