"""How sure was a model of its token? The gap that tells a near tie from a fault.

In:   the logits of one position
Out:  a difference of logits
Leaves out: what follows from it (batch, cache, speculate)
Read next by: those labs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def top_two_gap(logits: torch.Tensor) -> float:
    """How far the best token is above the second.

    Shape:  [V]
    """
    best, second = logits.topk(2).values.tolist()
    return float(best - second)
