"""What is the smallest decoder in which every fault of a cache can happen? Ours, in one page, with weights drawn from a seed.

In:   token ids, their positions, a store, a mask
Out:  logits
Leaves out: training: its text means nothing, its arithmetic is a real decoder's
Read next by: toy_paths.

Grouped-query attention (query head h reads KV head h // (N / K)), rotary positions that the caller gives, RMSNorm, a gated
feed-forward, an output head of its own: tied to the input table, an untrained decoder repeats one token for ever. Nothing is
inferred from how much is cached: what a position or a mask is, the caller says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import ModelSpec
from inference_bench.facts.source import Source
from inference_bench.labs.cache.stores import Store

TOY_PROMPT_TOKENS: Final = 16
TOY_EMITTED: Final = 256
TOY_POSITIONS: Final = 271  # prompt + emitted - 1
TOY_BYTES: Final = 555_008  # 2 · 4 layers · 2 KV heads · 32 values · 4 bytes · 271 positions
_EPSILON: Final = 1e-6


@dataclass(frozen=True, slots=True)
class ToyShape:
    """The toy's numbers, by the names of a config.json."""

    vocab_size: int = 512
    hidden_size: int = 256
    intermediate_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 10_000.0

    def spec(self) -> ModelSpec:
        """The same shape as the accounting reads it."""
        config: dict[str, Any] = {
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "tie_word_embeddings": False,
        }
        return model_from_config(config, "toy decoder", Source("labs/cache/toy.py", "2026-11-30"))


@dataclass(frozen=True, slots=True)
class _Layer:
    """The matrices of one layer.

    Shape:  query [N·H, D], key and value [K·H, D], output [D, N·H]; gate and up [F, D], down [D, F]
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


class ToyDecoder:
    """The weights, drawn so that every activation has about unit variance, and the forward pass."""

    def __init__(self, shape: ToyShape, seed: int) -> None:
        self.shape = shape
        self._draw = torch.Generator().manual_seed(seed)
        queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        width, inner = shape.hidden_size, shape.intermediate_size
        self.table, self.head = self._matrix(shape.vocab_size, width), self._matrix(shape.vocab_size, width)
        self.layers = tuple(
            _Layer(
                query=self._matrix(queries, width),
                key=self._matrix(keys, width),
                value=self._matrix(keys, width),
                output=self._matrix(width, queries),
                gate=self._matrix(inner, width),
                up=self._matrix(inner, width),
                down=self._matrix(width, inner),
            )
            for _ in range(shape.num_hidden_layers)
        )

    def _matrix(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self._draw) / math.sqrt(columns)

    def prompt(self, num_tokens: int) -> list[int]:
        """Token ids drawn after the weights."""
        drawn = torch.randint(0, self.shape.vocab_size, (num_tokens,), generator=self._draw)
        return [int(token) for token in drawn]

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        store: Store | None = None,
        mask: Tensor | None = None,
        *,
        tiles_heads: bool = False,
    ) -> Tensor:
        """Logits of every token that was given.

        Shape:  mask [num new, num new and cached], true where attended; logits [num new, V]
        Where:  mask None is causal over what is cached; tiles_heads plants the wrong repeat of KV heads
        """
        cached = 0 if store is None else store.num_positions
        attends = causal_mask(len(ids), cached) if mask is None else mask
        angles = self._angles(positions)
        hidden = functional.embedding(torch.tensor(list(ids)), self.table) * math.sqrt(self.shape.hidden_size)
        for index, layer in enumerate(self.layers):
            hidden = hidden + self._attend(index, layer, _normed(hidden), angles, store, attends, tiles_heads)
            inner = _normed(hidden)
            hidden = hidden + (functional.silu(inner @ layer.gate.T) * (inner @ layer.up.T)) @ layer.down.T
        return _normed(hidden) @ self.head.T

    def _attend(
        self,
        index: int,
        layer: _Layer,
        inner: Tensor,
        angles: Tensor,
        store: Store | None,
        attends: Tensor,
        tiles_heads: bool,
    ) -> Tensor:
        """One layer's attention over what is cached and what is new."""
        query = rotated(self._heads(inner @ layer.query.T), angles)
        keys, values = rotated(self._heads(inner @ layer.key.T), angles), self._heads(inner @ layer.value.T)
        if store is not None:
            keys, values = store.append(index, keys, values)
        groups = self.shape.num_attention_heads // self.shape.num_key_value_heads
        keys, values = (repeated_heads(each, groups, tiles_heads=tiles_heads) for each in (keys, values))
        scores = query @ keys.transpose(1, 2) / math.sqrt(self.shape.head_dim)
        weights = scores.masked_fill(~attends, -math.inf).softmax(dim=-1)
        return (weights @ values).transpose(0, 1).flatten(1) @ layer.output.T

    def _heads(self, flat: Tensor) -> Tensor:
        """Shape:  [num_tokens, heads · H] to [heads, num_tokens, H]."""
        return flat.unflatten(-1, (-1, self.shape.head_dim)).transpose(0, 1)

    def _angles(self, positions: Sequence[int]) -> Tensor:
        """Position times frequency, for each pair of values of a head.

        Formula:  p · θ^(-2i/H), i = 0 … H/2 - 1
        Shape:    [num_tokens, H/2]
        Source:   Su et al. 2021, RoFormer, equation 15
        """
        exponents = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float32) / self.shape.head_dim
        return torch.outer(torch.tensor(list(positions), dtype=torch.float32), self.shape.rope_theta**-exponents)


def causal_mask(num_new: int, num_cached: int, reach: int = 0) -> Tensor:
    """Which positions each new token attends: all before it, itself, and `reach` after it as far as there are any.

    Shape:  [num_new, num_cached + num_new], true where attended
    """
    ones = torch.ones(num_new, num_cached + num_new, dtype=torch.bool)
    return ones.tril(num_cached + reach)


def rotated(heads: Tensor, angles: Tensor) -> Tensor:
    """Each head's two halves turned against one another by the angles.

    Shape:  heads [heads, num_tokens, H], angles [num_tokens, H/2]
    """
    first, second = heads.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def repeated_heads(heads: Tensor, groups: int, *, tiles_heads: bool = False) -> Tensor:
    """A KV head for each query head: 0 0 1 1 as trained, 0 1 0 1 where the fault is planted.

    Shape:  [K, num_tokens, H] to [K · groups, num_tokens, H]
    """
    return heads.repeat(groups, 1, 1) if tiles_heads else heads.repeat_interleave(groups, dim=0)


def _normed(hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, hidden.shape[-1:], eps=_EPSILON)
