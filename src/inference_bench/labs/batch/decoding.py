"""How is a batch decoded with a cache, rightly or with one thing wrong?

In:   a network, prompts, how they are laid out
Out:  Decoder, one step at a time; Decoded: tokens and logits of a greedy run
Leaves out: times (speed), judgement (agreement)
Read next by: speed, agreement, faults.

The end of a text is not looked for: every sequence runs as long as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import torch

from inference_bench.labs.batch.padding import Padded, pad_left, pad_right

_SAY_EVERY: Final = 8  # steps


class Positions(Enum):
    """Where positions come from."""

    MASK = "the mask"
    LEFT = "the left edge, padding counted"
    LEFT_THEN_MASK = "the left edge in the prefill, the mask after it"
    WIDTH_AFTER = "the mask in the prefill, the padded width after it"


class Masking(Enum):
    """Which tokens attention is told to leave out."""

    KEPT = "padding, always"
    MISSING = "none"
    DROPPED_AFTER = "padding in the prefill, none after it"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a batch is laid out and read; the default is right.

    Where:  reads_last_column is whether the logits of a prompt are taken from the last column, whatever stands there
    """

    positions: Positions = Positions.MASK
    masking: Masking = Masking.KEPT
    is_left: bool = True
    reads_last_column: bool = True


RIGHT: Final = Layout()


@dataclass(frozen=True, slots=True)
class Decoded:
    """A greedy run.

    Shape:  logits [T, B, V] in float32, of the step that chose each token; tokens T of each of B
    """

    tokens: list[list[int]]
    logits: torch.Tensor


class Decoder:
    """One batch under way: its cache, its mask, and where its next positions are."""

    def __init__(self, network: Any, padded: Padded, layout: Layout = RIGHT) -> None:
        from transformers import DynamicCache

        self._network, self._padded, self._layout = network, padded, layout
        self._cache = DynamicCache(config=network.config)
        self._mask = padded.mask
        self._width = padded.width

    def prefill(self) -> torch.Tensor:
        """The whole prompts, and the logits from which each first token is chosen.

        Shape:  [B, V]
        """
        padded, layout = self._padded, self._layout
        is_from_left = layout.positions in (Positions.LEFT, Positions.LEFT_THEN_MASK)
        positions = torch.arange(padded.width).expand(padded.ids.shape[0], -1) if is_from_left else padded.positions
        mask = None if layout.masking is Masking.MISSING else padded.mask
        if layout.is_left or layout.reads_last_column:
            return self._forward(padded.ids, mask, positions, 1)[:, -1]
        logits = self._forward(padded.ids, mask, positions, 0)
        own_last = padded.mask.sum(dim=1) - 1
        return logits[torch.arange(len(own_last)), own_last]

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """One token of each sequence, and the logits of the next.

        Shape:  tokens [B]; logits [B, V]
        """
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self._width += 1
        layout = self._layout
        if layout.positions in (Positions.LEFT, Positions.WIDTH_AFTER):
            positions = torch.full((len(tokens), 1), self._width - 1)
        else:
            positions = self._mask.sum(dim=1, keepdim=True) - 1
        mask = self._mask if layout.masking is Masking.KEPT else None
        return self._forward(tokens[:, None], mask, positions, 1)[:, -1]

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, keep: int
    ) -> torch.Tensor:
        found: torch.Tensor = self._network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=keep,
        ).logits
        return found


def decode(
    network: Any,
    padded: Padded,
    num_tokens: int,
    *,
    layout: Layout = RIGHT,
    forced: Sequence[Sequence[int]] | None = None,
    say: Callable[[str], None] | None = None,
) -> Decoded:
    """So many greedy tokens of every sequence; with `forced`, the logits along those tokens instead.

    Shape:  forced [B][at least T - 1]
    """
    decoder = Decoder(network, padded, layout)
    with torch.inference_mode():
        first = decoder.prefill().float()
        logits = first.new_empty(num_tokens, *first.shape)
        logits[0] = first
        for step in range(1, num_tokens):
            if say is not None and step % _SAY_EVERY == 0:
                say(f"{step} of {num_tokens} tokens of {first.shape[0]} sequence(s)")
            fed = logits[step - 1].argmax(dim=-1) if forced is None else torch.tensor([ids[step - 1] for ids in forced])
            logits[step] = decoder.step(fed)
    return Decoded(logits.argmax(dim=-1).T.tolist(), logits)


def in_one_pass(network: Any, prompt: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
    """The logits of every step of a run, by one pass over the prompt and what came of it, alone and without a cache.

    Shape:  [T, V]
    """
    ids = torch.tensor([[*prompt, *tokens[:-1]]], dtype=torch.long)
    with torch.inference_mode():
        found: torch.Tensor = network(input_ids=ids, use_cache=False, logits_to_keep=len(tokens)).logits
    return found[0].float()


def lay_out(prompts: Sequence[Sequence[int]], pad_id: int, layout: Layout) -> Padded:
    """Prompts padded on the side that a layout says."""
    return pad_left(prompts, pad_id) if layout.is_left else pad_right(prompts, pad_id)
