"""The ways through a real model of Transformers: computed anew, or with its own cache, sound or with a fault planted from outside.

In:   a causal language model, a Fault
Out:  Path; bytes and positions of a cache
Leaves out: the toy (toy_paths)
Read next by: flow, lengths, reuse.

Nothing inside the library is changed but, for the time of one forward, which key head a query head reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from inference_bench.errors import MeasurementError
from inference_bench.labs.cache.faults import (
    Fault,
    hides_newest,
    prompt_reach,
    prompt_start,
    step_position,
    tiles_heads,
)
from inference_bench.labs.cache.stores import tensor_bytes
from inference_bench.labs.cache.toy import causal_mask
from inference_bench.labs.model import as_batch


class ModelRecomputed:
    """Nothing is kept but the ids."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.ids: list[int] = []

    def begin(self, ids: Sequence[int]) -> Tensor:
        """A forward over the prompt, without a cache; the output head for its last token alone."""
        self.ids = list(ids)
        return _last(self.network(input_ids=as_batch(self.ids), use_cache=False, logits_to_keep=1))

    def step(self, token: int) -> Tensor:
        """A forward over everything, once more."""
        return self.begin([*self.ids, token])


class ModelCached:
    """The library's own growing cache; positions are always said, never left to it."""

    def __init__(self, network: Any, fault: Fault | None = None) -> None:
        self.network, self.fault = network, fault
        self.cache = new_cache(network)
        self.num_prompt = 0

    def begin(self, ids: Sequence[int]) -> Tensor:
        """Fill the cache from the prompt; the faults that concern a prompt are in its positions and its mask."""
        self.num_prompt = len(ids)
        reach = prompt_reach(self.fault)
        mask = causal_mask(len(ids), 0, reach) if reach else None
        return self._forward(ids, prompt_start(self.fault), mask)

    def step(self, token: int) -> Tensor:
        """One token at the position the fault leaves it, seeing the rows the fault leaves it."""
        cached = cache_positions(self.cache)
        mask = None
        if hides_newest(self.fault):
            mask = causal_mask(1, cached)
            mask[:, -1] = False
        return self._forward([token], step_position(self.fault, self.num_prompt, cached), mask)

    def _forward(self, ids: Sequence[int], start: int, mask: Tensor | None) -> Tensor:
        with tiled_heads() if tiles_heads(self.fault) else nullcontext():
            return _last(
                self.network(
                    input_ids=as_batch(ids),
                    position_ids=torch.arange(start, start + len(ids)).unsqueeze(0),
                    attention_mask=None if mask is None else mask[None, None],
                    cache=self.cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            )


def new_cache(network: Any) -> Any:
    """An empty cache of the kind the library uses when it is asked for none."""
    from transformers import DynamicCache

    return DynamicCache(config=network.config)


def cache_positions(cache: Any) -> int:
    """Tokens of which a cache has keys and values."""
    return int(cache.get_seq_length())


def cache_bytes(cache: Any) -> int:
    """Bytes of every layer's keys and values, counted from the tensors."""
    return sum(tensor_bytes(layer.keys, layer.values) for layer in cache.layers if layer.is_initialized)


@contextmanager
def tiled_heads() -> Iterator[None]:
    """Query head h reads KV head h mod K, not h // (N / K), wherever PyTorch's attention is called with fewer KV heads.

    Raises:  MeasurementError where it never is: a fault that was not planted may not count as one
    """
    functional = torch.nn.functional
    sound = functional.scaled_dot_product_attention
    planted = False

    def tiled(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        nonlocal planted
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            planted = True
            options.pop("enable_gqa", None)
            key, value = key.repeat(1, groups, 1, 1), value.repeat(1, groups, 1, 1)
        return sound(query, key, value, **options)

    functional.scaled_dot_product_attention = tiled
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = sound
    if not planted:
        raise MeasurementError(
            "the fault in the repeat of KV heads could not be planted: no attention with fewer KV heads ran"
        )


def _last(output: Any) -> Tensor:
    """Logits after the last token.

    Shape:  [V]
    """
    logits: Tensor = output.logits[0, -1]
    return logits.float()
