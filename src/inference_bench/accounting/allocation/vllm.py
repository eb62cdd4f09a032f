"""The cache of vLLM: pages made equal, layers gathered in groups, and blocks drawn from one pool.

In:   ModelSpec, CacheFormat, the length and number of requests, VllmSettings
Out:  EngineAllocation with its BlockPool: bytes a block, blocks a request may hold, what one token pins
Leaves out: the activations the engine profiles, graphs, prefix caching (blocks kept after a request ends)
Read next by: predict.fit.

Every group draws whole blocks from one pool, and a block holds one page of each layer of the widest group: so a request
costs blocks times the widest group, whichever group asked for the block.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from inference_bench.accounting.allocation import BlockGroup, BlockPool, EngineAllocation, LayerAllocation
from inference_bench.accounting.allocation.vllm_limits import LARGE_CARD
from inference_bench.accounting.allocation.vllm_pages import FULL_KINDS, Kind, LayerPage, layer_pages
from inference_bench.accounting.cache import CacheFormat
from inference_bench.errors import RequestError
from inference_bench.facts.models import ModelSpec

DEFAULT_IN_FLIGHT_TOKENS: Final = LARGE_CARD.batched_tokens


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """What vLLM was started with, as far as the cache depends on it.

    Where:  block_tokens None takes 16, or 64 with latent attention; in_flight_tokens is max_num_batched_tokens (see
            vllm_limits) times the batches in flight; cache_dtype overrides the cache format by vLLM's own name, for the ones that carry
            scales; state_bits None is what the model or vLLM says; align_states is the mode that prefix caching turns
            on, which keeps one more state
    """

    block_tokens: int | None = None
    in_flight_tokens: int = DEFAULT_IN_FLIGHT_TOKENS
    tensor_parallel: int = 1
    hybrid_manager: bool = True
    cache_dtype: str | None = None
    state_bits: int | None = None
    align_states: bool = False
    speculative_tokens: int = 0


def vllm_allocation(
    model: ModelSpec,
    fmt: CacheFormat,
    context_tokens: int,
    sequences: int = 1,
    settings: VllmSettings | None = None,
) -> EngineAllocation:
    """The blocks vLLM draws for so many requests of one length, on one tensor-parallel rank.

    Formula:  bytes = bytes per block · (admission blocks + (sequences - 1) · steady blocks): one request reads its
              prompt while the others hold what they keep
    Where:    blocks at length L with B tokens in flight: full ceil(L/b); sliding ceil(min(W - 1 + B, L)/b) + 1;
              chunked ceil(min(C + B, L)/b); state 1; cross-attention ceil(encoder tokens/b); steady is B = 1, and
              never more than ceil(L/b)
    Unit:     bytes, exact
    Raises:   RequestError for an empty length, a format vLLM does not store, or a design it lays out in a way that is
              not counted
    Source:   vLLM 0.32 vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py, vllm/platforms/interface.py
    """
    settings = settings or VllmSettings()
    if context_tokens < 1 or sequences < 1 or settings.in_flight_tokens < 1 or settings.tensor_parallel < 1:
        raise RequestError(
            f"context {context_tokens}, sequences {sequences}, tokens in flight {settings.in_flight_tokens} and "
            f"tensor parallel {settings.tensor_parallel} must be at least 1"
        )
    pages = layer_pages(model, fmt, settings)
    if not settings.hybrid_manager:
        pages = _promoted(pages)
        if not _alike(pages):
            raise RequestError(f"vLLM cannot serve {model.name} with its hybrid manager off: its layers stay unlike")
    pool = _pool(_buckets(pages), context_tokens, settings)
    blocks = pool.admission_blocks + (sequences - 1) * pool.steady_blocks
    return EngineAllocation(
        engine="vllm",
        num_bytes=blocks * pool.bytes_per_block,
        layers=_layer_rows(pool, sequences),
        rule=_rule(pool, settings),
        context_tokens_per_sequence=context_tokens,
        pool=pool,
        in_flight_tokens=settings.in_flight_tokens,
    )


def _promoted(pages: Mapping[LayerPage, int]) -> dict[LayerPage, int]:
    """Without the hybrid manager, layers with a window are allocated as full ones where the model has both."""
    if not any(page.kind in FULL_KINDS for page in pages):
        return dict(pages)
    promoted: dict[LayerPage, int] = {}
    for page, count in pages.items():
        windowed = page.kind in (Kind.SLIDING, Kind.CHUNKED)
        full = page._replace(kind=Kind.FULL, window=None) if windowed else page
        promoted[full] = promoted.get(full, 0) + count
    return promoted


class _Buckets(NamedTuple):
    """Layers by page; `whole` says that all of them form one group although their pages may differ."""

    pages: Mapping[LayerPage, int]
    whole: bool


def _alike(pages: Mapping[LayerPage, int]) -> bool:
    """Whether all layers need the same number of tokens, so that one block table serves them."""
    if len({page.block_tokens for page in pages}) > 1:
        return False
    kinds = {page.kind for page in pages}
    if kinds == {Kind.STATE}:
        return len({page.page_bytes for page in pages}) == 1
    return kinds <= FULL_KINDS or (len(kinds) == 1 and len({page.window for page in pages}) == 1)


def _buckets(pages: Mapping[LayerPage, int]) -> _Buckets:
    """Pages made equal: a smaller one gets a larger block where that divides, and is padded where it does not.

    Where:  latent pages may not be padded; layers with a window are then allocated as full ones
    """
    if _alike(pages):
        return _Buckets(pages, whole=True)
    largest = max(page.page_bytes for page in pages)
    equal = {}
    for page, count in pages.items():
        ratio, rest = divmod(largest, page.page_bytes)
        if page.kind is not Kind.STATE and not rest:
            equal[page._replace(block_tokens=page.block_tokens * ratio)] = count
        elif page.kind is Kind.LATENT:
            return _all_full(pages)
        else:
            equal[page._replace(padded_bytes=largest)] = count
    return _Buckets(equal, whole=False)


def _all_full(pages: Mapping[LayerPage, int]) -> _Buckets:
    promoted = _promoted(pages)
    if not _alike(promoted):
        raise RequestError("vLLM cannot make the pages of these layers equal: latent pages may not be padded")
    return _Buckets(promoted, whole=True)


def _group_width(counts: Collection[int]) -> int:
    """Layers a group: those of the smallest bucket, or of the largest where that is less than 1.5 times as many."""
    smallest, largest = min(counts), max(counts)
    return largest if 2 * largest < 3 * smallest else smallest


def _pool(buckets: _Buckets, context_tokens: int, settings: VllmSettings) -> BlockPool:
    pages = buckets.pages
    if buckets.whole:
        groups = [_group(next(iter(pages)), (sum(pages.values()),), context_tokens, settings)]
        sizes = {page.page_bytes for page in pages}
        holds = " and ".join(dict.fromkeys(page.holds for page in pages))
        groups = [replace(groups[0], holds=holds, page_bytes=sizes.pop() if len(sizes) == 1 else None)]
        bytes_per_block = sum(count * page.page_bytes for page, count in pages.items())
    else:
        width = _group_width(pages.values())
        groups = [_group(page, _widths(count, width), context_tokens, settings) for page, count in pages.items()]
        bytes_per_block = max(max(group.widths) for group in groups) * next(iter(pages)).page_bytes
    return BlockPool(
        bytes_per_block=bytes_per_block,
        groups=tuple(groups),
        admission_blocks=sum(group.num_groups * group.admission_blocks for group in groups),
        steady_blocks=sum(group.num_groups * group.steady_blocks for group in groups),
        first_token_blocks=sum(
            group.num_groups * page.held_blocks(1, settings) for group, page in zip(groups, pages, strict=False)
        ),
    )


def _widths(count: int, width: int) -> tuple[int, ...]:
    """Layers of each group that a bucket is cut into: every n-th layer goes to one group."""
    num_groups = -(-count // width)
    return tuple(len(range(index, count, num_groups)) for index in range(num_groups))


def _group(page: LayerPage, widths: tuple[int, ...], context_tokens: int, settings: VllmSettings) -> BlockGroup:
    return BlockGroup(
        layer_type=page.layer_type,
        widths=widths,
        block_tokens=page.block_tokens,
        page_bytes=page.page_bytes,
        padding_bytes=page.padding_bytes,
        admission_blocks=page.admission_blocks(context_tokens, settings),
        steady_blocks=page.held_blocks(context_tokens, settings),
        holds=page.holds,
    )


def _layer_rows(pool: BlockPool, sequences: int) -> tuple[LayerAllocation, ...]:
    rows = []
    for group in pool.groups:
        blocks = group.num_groups * (group.admission_blocks + (sequences - 1) * group.steady_blocks)
        rows.append(
            LayerAllocation(
                layer_type=group.layer_type,
                count=sum(group.widths),
                cells=group.admission_blocks * group.block_tokens,
                streams=sequences,
                num_bytes=blocks * pool.bytes_per_block,
                holds=group.holds,
            )
        )
    return tuple(rows)


def _rule(pool: BlockPool, settings: VllmSettings) -> str:
    tokens = sorted({group.block_tokens for group in pool.groups if group.block_tokens > 1})
    size = " or ".join(str(count) for count in tokens)
    num_groups = sum(group.num_groups for group in pool.groups)
    said = [f"vLLM draws whole blocks of {size} tokens" if tokens else "vLLM draws one block for each state"]
    if num_groups > 1:
        widest = max(max(group.widths) for group in pool.groups)
        said.append(f"for each of {num_groups} groups of up to {widest} layers")
    if any(group.padding_bytes for group in pool.groups):
        said.append("pads the smaller pages to the largest")
    if pool.admission_blocks != pool.steady_blocks:
        said.append(
            f"admits a request only if {pool.admission_blocks} blocks are free, for {settings.in_flight_tokens} tokens "
            f"in flight, of which it keeps {pool.steady_blocks}"
        )
    if settings.tensor_parallel > 1:
        said.append(f"counted for one of {settings.tensor_parallel} tensor-parallel ranks")
    return ", ".join(said)
