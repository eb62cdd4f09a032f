"""How do prompts of different lengths become one rectangle, and which position has each token?

In:   token ids of each prompt
Out:  Padded: ids, mask, positions
Leaves out: what is computed with it (decoding)
Read next by: decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Padded:
    """A batch of prompts.

    Shape:  ids, mask, positions are [B, L]
    Where:  mask is 1 at real tokens
    """

    ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor

    @property
    def lengths(self) -> list[int]:
        """Real tokens of each prompt."""
        return [int(length) for length in self.mask.sum(dim=1)]

    @property
    def width(self) -> int:
        """Columns, padding included."""
        return int(self.ids.shape[1])


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """The position of each token among the real ones of its own prompt; 0 at padding, where nothing reads it.

    Formula:  p_j = max(Σ_{i<=j} mask_i - 1, 0)
    Shape:    [B, L]
    """
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int, extra: int = 0) -> Padded:
    """Padding before each prompt, so that the last column is the last token of all; extra columns of it besides."""
    return _padded([[pad_id] * extra + [pad_id] * gap + list(ids) for ids, gap in _gaps(prompts)],
                   [[0] * (extra + gap) + [1] * len(ids) for ids, gap in _gaps(prompts)])  # fmt: skip


def pad_right(prompts: Sequence[Sequence[int]], pad_id: int) -> Padded:
    """Padding after each prompt: its last token is in a column of its own."""
    return _padded([list(ids) + [pad_id] * gap for ids, gap in _gaps(prompts)],
                   [[1] * len(ids) + [0] * gap for ids, gap in _gaps(prompts)])  # fmt: skip


def _gaps(prompts: Sequence[Sequence[int]]) -> list[tuple[Sequence[int], int]]:
    width = max(map(len, prompts))
    return [(ids, width - len(ids)) for ids in prompts]


def _padded(ids: list[list[int]], mask: list[list[int]]) -> Padded:
    kept = torch.tensor(mask, dtype=torch.long)
    return Padded(torch.tensor(ids, dtype=torch.long), kept, positions_of(kept))
