"""What does a coarser cache of keys and values do? Attention that reads them rounded, but for the latest.

In:   a network, a CacheGrid: bits, which of keys and values share scales along tokens, and how many latest positions stay exact
Out:  the network with that attention for the time of a block; exact bytes a token
Leaves out: a cache that is really that small, and its speed
Read next by: flow.

Keys have a few channels that are large at every token, so that one scale a channel suits them; values have none, and one scale a token
suits them. Both ways round are computed, to show it. Scales of a channel stand for 32 tokens, counted from the first; keys are rounded
as they are kept, after the rotary embedding. Each scale has a zero point; both take 16 bits.

A query at position t sees exactly what an engine would hold then. With R latest positions exact, a token is rounded once it is R or more
positions back; a group of 32 tokens that shares scales is rounded when the whole of it is. All queries of a window are computed at once
from two products: with the rounded and with the exact keys, each where it holds; `tests` hold this against one query at a time.

Source: Liu et al. 2024, KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from inference_bench.errors import RequestError
from inference_bench.labs.quantise.linears import model_bytes
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import KV_FAMILY

NAME: Final = "inference_bench_rounded_cache"
GROUP_TOKENS: Final = 32
_SCALE_AND_ZERO_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class CacheGrid:
    """How keys and values are kept.

    Where:   bits of each number; by_channel is one scale for group_tokens tokens of a channel, else one a token of a head;
             exact_tokens are the latest positions that stay as they are
    Raises:  RequestError
    """

    bits: int
    keys_by_channel: bool = True
    values_by_channel: bool = False
    exact_tokens: int = GROUP_TOKENS
    group_tokens: int = GROUP_TOKENS

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8 or self.exact_tokens < 0 or self.group_tokens < 1:
            raise RequestError(
                f"a cache of {self.bits} bits with {self.exact_tokens} exact tokens in groups of {self.group_tokens} cannot be; "
                "1 to 8 bits, 0 tokens or more, groups of 1 or more"
            )


def rounded(values: torch.Tensor, bits: int, by_channel: bool, group_tokens: int = GROUP_TOKENS) -> torch.Tensor:
    """Keys or values on their grid; a last group of tokens that is not full stays as it is, since it is never rounded.

    Formula:  scale = (max - min) / (2^b - 1); min + scale · round((x - min) / scale)
    Shape:    [..., tokens, channels]
    """
    if not by_channel:
        return _on_grid(values, bits, -1)
    tokens, channels = values.shape[-2:]
    whole = tokens - tokens % group_tokens
    groups = values[..., :whole, :].reshape(*values.shape[:-2], whole // group_tokens, group_tokens, channels)
    done = _on_grid(groups, bits, -2).reshape(*values.shape[:-2], whole, channels)
    return torch.cat([done, values[..., whole:, :]], dim=-2)


def _on_grid(values: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """Scale and least value as float16 holds them."""
    if not values.numel():
        return values
    least = values.amin(dim=axis, keepdim=True).half().to(values.dtype)
    scale = ((values.amax(dim=axis, keepdim=True) - least) / (2**bits - 1)).half().to(values.dtype)
    steps = torch.round((values - least) / torch.where(scale > 0, scale, torch.ones_like(scale)))
    return least + scale * steps.clamp(0, 2**bits - 1)


def is_rounded(num_queries: int, num_keys: int, grid: CacheGrid, by_channel: bool) -> torch.Tensor:
    """Which keys (or values) each query finds rounded; its own position is the last that it sees.

    Formula:  t + 1 - exact tokens ≥ the place after the token, or after its group where they share scales
    Shape:    [queries, keys]
    """
    seen = torch.arange(num_keys - num_queries, num_keys)[:, None] + 1
    place = torch.arange(num_keys)[None, :]
    after = (place // grid.group_tokens + 1) * grid.group_tokens if by_channel else place + 1
    return after <= seen - grid.exact_tokens


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    grid: CacheGrid,
) -> torch.Tensor:
    """Attention of every query to the keys and values as they are kept when it is computed.

    Shape:   query [batch, heads, queries, channels]; key, value [batch, key heads, keys, channels]; mask is added to the scores; the
             result [batch, queries, heads, channels]
    Ignores: sinks, soft caps and other additions to attention that some models have
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    repeats = query.shape[1] // key.shape[1]
    old_keys = is_rounded(num_queries, num_keys, grid, grid.keys_by_channel)
    old_values = is_rounded(num_queries, num_keys, grid, grid.values_by_channel)
    kept_key = rounded(key, grid.bits, grid.keys_by_channel, grid.group_tokens)
    kept_value = rounded(value, grid.bits, grid.values_by_channel, grid.group_tokens)
    key, kept_key, value, kept_value = (
        each.repeat_interleave(repeats, dim=1) for each in (key, kept_key, value, kept_value)
    )
    scores = torch.where(old_keys, query @ kept_key.mT, query @ key.mT) * scaling
    hidden = torch.arange(num_keys)[None, :] > torch.arange(num_keys - num_queries, num_keys)[:, None]
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    if mask is not None:
        scores = scores + mask[..., :num_keys]
    shares = torch.softmax(scores, dim=-1, dtype=torch.promote_types(query.dtype, torch.float32)).to(query.dtype)
    return ((shares * old_values) @ kept_value + (shares * ~old_values) @ value).transpose(1, 2)


@contextmanager
def rounded_cache(network: Any, grid: CacheGrid) -> Iterator[None]:
    """The network attends to rounded keys and values; its own attention comes back at the end.

    Raises:  RequestError for a network that does not let its attention be exchanged
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def attention(_module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_others: Any) -> Any:
        return attend(query, key, value, mask, scaling, grid).contiguous(), None

    before = network.config._attn_implementation
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    try:
        network.set_attn_implementation(NAME)
        if network.config._attn_implementation != NAME:
            raise RequestError(f"a {type(network).__name__} does not let its attention be exchanged")
        yield
    finally:
        network.set_attn_implementation(before)


def cache_bits(channels: int, grid: CacheGrid) -> float:
    """Bits a token takes in one head of one layer, keys and values with their scales, once it is rounded.

    Formula:  2 · channels · bits + for each of keys and values 32 · channels / group tokens, or 32
    Unit:     bits; exact, as the mean over a group's tokens
    """
    return 2 * channels * grid.bits + sum(
        _SCALE_AND_ZERO_BITS * channels / grid.group_tokens if by_channel else _SCALE_AND_ZERO_BITS
        for by_channel in (grid.keys_by_channel, grid.values_by_channel)
    )


def kv_methods(bench: QuantiseBench) -> Iterator[Method]:
    """Bit widths, with the latest tokens exact; then the other way round, and without exact tokens."""
    network = bench.model.network
    wanted = [CacheGrid(4), CacheGrid(2), CacheGrid(2, keys_by_channel=False, values_by_channel=True)]
    if not bench.is_quick:
        wanted = [CacheGrid(bits) for bits in (8, 4, 3, 2)]
        wanted += [CacheGrid(2, keys_by_channel=False, values_by_channel=True)]
        wanted += [CacheGrid(2, exact_tokens=0)]
    for grid in wanted:
        yield Method(
            name=cache_name(grid),
            family=KV_FAMILY,
            weight_bytes=model_bytes(network, {}),
            weight_error=None,
            detail=f"the latest {grid.exact_tokens} tokens stay exact; scales by channel stand for {grid.group_tokens} tokens",
            applied=partial(rounded_cache, grid=grid),
            cache_bytes_per_token=cache_bytes(network, grid),
        )


def cache_name(grid: CacheGrid) -> str:
    """What a table calls it; the exact tokens where they are not one group.

    >>> cache_name(CacheGrid(2)), cache_name(CacheGrid(2, exact_tokens=0))
    ('KV 2 bits, K by channel, V by token', 'KV 2 bits, K by channel, V by token, 0 exact')
    """
    ways = {True: "channel", False: "token"}
    last = "" if grid.exact_tokens == GROUP_TOKENS else f", {grid.exact_tokens} exact"
    return f"KV {grid.bits} bits, K by {ways[grid.keys_by_channel]}, V by {ways[grid.values_by_channel]}{last}"


def cache_bytes(network: Any, grid: CacheGrid) -> float:
    """Bytes a token of the whole cache, all layers and heads; exact, as the mean over a group's tokens."""
    config = network.config
    channels = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return float(config.num_hidden_layers * config.num_key_value_heads * cache_bits(channels, grid) / 8)
