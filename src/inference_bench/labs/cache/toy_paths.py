"""The ways through the toy: all of it computed anew at each token, or from a store, sound or with a fault planted.

In:   a ToyDecoder, a Store, a Fault
Out:  Path
Leaves out: the real model (model_paths)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from inference_bench.labs.cache.faults import (
    Fault,
    hides_newest,
    prompt_reach,
    prompt_start,
    step_position,
    tiles_heads,
)
from inference_bench.labs.cache.stores import Store
from inference_bench.labs.cache.toy import ToyDecoder, causal_mask


class ToyRecomputed:
    """Nothing is kept but the ids."""

    def __init__(self, toy: ToyDecoder) -> None:
        self.toy = toy
        self.ids: list[int] = []

    def begin(self, ids: Sequence[int]) -> Tensor:
        """A forward over the prompt."""
        self.ids = list(ids)
        return self.toy.forward(self.ids, range(len(self.ids)))[-1]

    def step(self, token: int) -> Tensor:
        """A forward over everything, once more."""
        return self.begin([*self.ids, token])


class ToyCached:
    """Keys and values are kept; each step computes one token."""

    def __init__(self, toy: ToyDecoder, store: Store, fault: Fault | None = None) -> None:
        self.toy, self.store, self.fault = toy, store, fault
        self.num_prompt = 0

    def begin(self, ids: Sequence[int]) -> Tensor:
        """Fill the store from the prompt; the faults that concern a prompt are in its positions and its mask."""
        self.num_prompt = len(ids)
        start, reach = prompt_start(self.fault), prompt_reach(self.fault)
        return self.toy.forward(
            ids,
            range(start, start + len(ids)),
            self.store,
            causal_mask(len(ids), 0, reach),
            tiles_heads=tiles_heads(self.fault),
        )[-1]

    def step(self, token: int) -> Tensor:
        """One token at the position the fault leaves it, seeing the rows the fault leaves it."""
        cached = self.store.num_positions
        mask = causal_mask(1, cached)
        if hides_newest(self.fault):
            mask[:, -1] = False
        position = step_position(self.fault, self.num_prompt, cached)
        return self.toy.forward([token], [position], self.store, mask, tiles_heads=tiles_heads(self.fault))[-1]
