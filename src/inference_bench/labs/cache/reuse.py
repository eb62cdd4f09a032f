"""What does a cached prefix save, and when does sharing it give wrong answers?

In:   a LabModel, token ids
Out:  PrefixReuse, Branches, BoundaryCases
Leaves out: which tokens may be reused (boundary)
Read next by: flow.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from inference_bench.labs.cache.boundary import reusable_prefix
from inference_bench.labs.cache.model_paths import cache_bytes, cache_positions, new_cache
from inference_bench.labs.cache.result import BoundaryCase, Branch, PrefixReuse
from inference_bench.labs.logits import common_length
from inference_bench.labs.model import LabModel, as_batch
from inference_bench.measure.timing import wall_clock
from inference_bench.stats import median

BRANCH_EMITTED: Final = 8
BOUNDARY_TEXTS: Final = (
    ("The capital of France is", " Paris, and"),
    ("The capital of France is ", "Paris, and"),
    ("It was un", "believable that"),
)
_timed: Final = wall_clock()


def fill(network: Any, ids: Sequence[int]) -> Any:
    """A cache of these tokens."""
    cache = new_cache(network)
    continued(network, cache, ids, 1)
    return cache


def continued(network: Any, cache: Any, ids: Sequence[int], num_logits: int) -> Tensor:
    """Logits after the last few of ids, which follow whatever the cache holds and are added to it.

    Shape:  [num_logits, V]
    """
    start = cache_positions(cache)
    with torch.inference_mode():
        output = network(
            input_ids=as_batch(ids),
            position_ids=torch.arange(start, start + len(ids)).unsqueeze(0),
            cache=cache,
            use_cache=True,
            logits_to_keep=num_logits,
        )
    logits: Tensor = output.logits[0]
    return logits.float()


def measure_reuse(
    network: Any, prefix: Sequence[int], suffix: Sequence[int], repeats: int, say: Callable[[str], None]
) -> PrefixReuse:
    """Cold over all ids, warm over the suffix from a copy of the prefix's cache; both fill a cache and give one token's logits."""
    whole, kept = [*prefix, *suffix], fill(network, prefix)
    cold, warm, copies = [], [], []
    for index in range(repeats):
        say(f"one prefix cold and warm, {index + 1} of {repeats}")
        cold.append(_timed(lambda: continued(network, new_cache(network), whole, 1), 1))
        start_s = time.perf_counter()
        own = copy.deepcopy(kept)
        copies.append(time.perf_counter() - start_s)
        warm.append(_timed(lambda cache=own: continued(network, cache, suffix, 1), 1))  # type: ignore[misc]
    right = continued(network, new_cache(network), whole, len(suffix))
    found = continued(network, copy.deepcopy(kept), suffix, len(suffix))
    return PrefixReuse(
        num_prefix_tokens=len(prefix),
        num_suffix_tokens=len(suffix),
        cold_s=median(cold),
        warm_s=median(warm),
        copy_s=median(copies),
        copied_bytes=cache_bytes(kept),
        max_logit_error=_error(right, found),
    )


def measure_branches(
    network: Any, prefix: Sequence[int], first: Sequence[int], second: Sequence[int], say: Callable[[str], None]
) -> tuple[tuple[Branch, ...], bool]:
    """Two suffixes from one prefix: from copies, from one cache without a copy, and from that cache rolled back.

    Where:  the second value is whether the prefix's own cache is bit for bit what it was, after its copies were used
    """
    say("two suffixes from one prefix, computed whole")
    kept = fill(network, prefix)
    before = [(layer.keys.clone(), layer.values.clone()) for layer in kept.layers]
    right = {id(ids): _Continuation(network, new_cache(network), ids, prefix) for ids in (first, second)}

    def branch(name: str, cache: Any, ids: Sequence[int], *, is_shared: bool = False) -> Branch:
        say(f"two suffixes from one prefix: {name}")
        held = cache_positions(cache)
        found, wanted = _Continuation(network, cache, ids), right[id(ids)]
        return Branch(
            name=name,
            is_shared=is_shared,
            num_prefix_tokens=len(prefix),
            num_cached_before=held,
            max_logit_error=_error(wanted.logits, found.logits),
            num_emitted=len(found.tokens),
            num_equal_tokens=common_length(wanted.tokens, found.tokens),
        )

    from_copies = (
        branch("first suffix, from a copy", copy.deepcopy(kept), first),
        branch("second suffix, from a copy", copy.deepcopy(kept), second),
    )
    is_untouched = all(
        torch.equal(layer.keys, keys) and torch.equal(layer.values, values)
        for layer, (keys, values) in zip(kept.layers, before, strict=True)
    )
    shared = copy.deepcopy(kept)
    one = branch("first suffix, into a shared cache", shared, first)
    two = branch("second suffix, into that cache too", shared, second, is_shared=True)
    shared.crop(len(prefix) - cache_positions(shared))
    three = branch("second suffix, the rest taken back", shared, second)
    return (*from_copies, one, two, three), is_untouched


class _Continuation:
    """A suffix after whatever a cache holds: the logits of its own tokens, and the tokens that are emitted after it."""

    def __init__(self, network: Any, cache: Any, suffix: Sequence[int], prefix: Sequence[int] = ()) -> None:
        self.logits = continued(network, cache, [*prefix, *suffix], len(suffix))
        self.tokens = [int(self.logits[-1].argmax())]
        while len(self.tokens) < BRANCH_EMITTED:
            self.tokens.append(int(continued(network, cache, self.tokens[-1:], 1)[-1].argmax()))


def measure_boundaries(model: LabModel, say: Callable[[str], None]) -> tuple[BoundaryCase, ...]:
    """Pairs of texts, tokenised apart and whole; the logits after the last token of each."""
    cases = []
    for prefix, suffix in BOUNDARY_TEXTS:
        say("tokenising a prefix and a suffix apart and as one")
        found = reusable_prefix(model.encode, prefix, suffix)
        network = model.network
        right = continued(network, new_cache(network), found.whole_ids, 1)
        apart = continued(network, fill(network, found.prefix_ids), found.apart_ids[len(found.prefix_ids) :], 1)
        kept = min(found.num_reusable_tokens, len(found.whole_ids) - 1)
        cache = fill(network, found.prefix_ids)
        cache.crop(kept - len(found.prefix_ids))
        reused = continued(network, cache, found.whole_ids[kept:], 1)
        cases.append(
            BoundaryCase(
                prefix=prefix,
                suffix=suffix,
                num_prefix_tokens=len(found.prefix_ids),
                num_apart_tokens=len(found.apart_ids),
                num_whole_tokens=len(found.whole_ids),
                num_reusable_tokens=found.num_reusable_tokens,
                first_difference=found.first_difference,
                apart_logit_change=_error(right, apart),
                is_next_token_equal=bool(right[-1].argmax() == apart[-1].argmax()),
                reused_logit_error=_error(right, reused),
            )
        )
    return tuple(cases)


def _error(right: Tensor, found: Tensor) -> float:
    return float((right - found).abs().max())
