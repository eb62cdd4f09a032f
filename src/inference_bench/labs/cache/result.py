"""What came out of the cache lab.

In:   plain values
Out:  CacheResult
Read next by: flow, judge, charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead

TOY: Final = "toy"
MODEL: Final = "model"
CONCATENATING: Final = "concatenating"
PREALLOCATED: Final = "pre-allocated"


@dataclass(frozen=True, slots=True)
class PathComparison:
    """One run of a cached path held against full recomputation, greedy, as far as both saw the same tokens.

    Where:  subject is the toy or the real model, prompt the name of a prompt, fault None for the path as it should be;
            num_equal_tokens are those before the first that differs; num_compared are the emitted tokens whose logits were
            compared: one more, since both paths still saw the same tokens there; nothing after it is compared;
            top_two_gap is the distance of the two largest logits of full recomputation where the tokens part, None where they
            do not; logit_errors has the largest absolute difference over the vocabulary, token by token, and
            first_over_tolerance the place of the first of them above the tolerance, counted from 0, None where none is
    """

    subject: str
    prompt: str
    store: str
    fault: Fault | None
    num_prompt_tokens: int
    num_emitted: int
    num_compared: int
    num_equal_tokens: int
    top_two_gap: float | None
    max_logit_error: float
    first_over_tolerance: int | None
    logit_errors: tuple[float, ...]

    @property
    def tokens_part(self) -> bool:
        """Whether the tokens alone show a difference."""
        return self.num_equal_tokens < self.num_emitted

    @property
    def is_seen_by_logits_alone(self) -> bool:
        """Whether every token is the same and a logit is not."""
        return self.first_over_tolerance is not None and not self.tokens_part


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """A cache as its tensors are, and as the formula says.

    Formula:  2 · L · K · H · 4 bytes a position; positions = prompt + emitted - 1
    """

    subject: str
    num_prompt_tokens: int
    num_emitted: int
    num_positions: int
    measured_bytes: int
    formula_bytes: int
    formula_bytes_per_position: int


@dataclass(frozen=True, slots=True)
class StoreRun:
    """A whole generation by the toy with one way of keeping the cache.

    Where:  copied_bytes are those written to make room or to append, counted from the tensors; formula_copied_bytes what they should
            be; peak_bytes are the most that the cache's tensors held at one moment, a copy under way included
    """

    store: str
    num_positions: int
    elapsed_s: float
    copied_bytes: int
    formula_copied_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class StorePoint:
    """One token appended to a cache of the real model's shape at one length, both ways.

    Where:  seconds are of all layers, keys and values; bytes are those written
    """

    num_positions: int
    concatenating_s: float
    preallocated_s: float
    concatenating_copied_bytes: int
    preallocated_copied_bytes: int
    concatenating_peak_bytes: int
    preallocated_peak_bytes: int


@dataclass(frozen=True, slots=True)
class LengthPoint:
    """Generating so many tokens, with a cache and without.

    Where:  step_s is one cached step at this context, forward_s one forward over the whole of it; cached_s and uncached_s are sums
            over the run by the rule in the head's assumptions
    """

    num_emitted: int
    context_tokens: int
    step_s: float
    forward_s: float
    cached_s: float
    uncached_s: float
    speedup: float
    cached_flops: int
    uncached_flops: int
    flops_ratio: float


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A generation that was run whole, both ways, beside what the rule for sums says of it."""

    num_prompt_tokens: int
    num_emitted: int
    cached_s: float
    uncached_s: float
    cached_by_rule_s: float
    uncached_by_rule_s: float


@dataclass(frozen=True, slots=True)
class PrefixReuse:
    """The time to the first token of a prompt whose prefix is cached (warm), and of the same ids computed whole (cold).

    Where:  warm_s is the suffix alone; copy_s is the copy of the prefix's cache before it, copied_bytes its size
    """

    num_prefix_tokens: int
    num_suffix_tokens: int
    cold_s: float
    warm_s: float
    copy_s: float
    copied_bytes: int
    max_logit_error: float


@dataclass(frozen=True, slots=True)
class Branch:
    """One suffix continued from a cached prefix, held against the same ids computed whole.

    Where:  num_cached_before are the positions the cache held when this suffix came, which should be num_prefix_tokens;
            max_logit_error is over the suffix, num_equal_tokens counts what was emitted after it up to the first token that differs
    """

    name: str
    is_shared: bool
    num_prefix_tokens: int
    num_cached_before: int
    max_logit_error: float
    num_emitted: int
    num_equal_tokens: int


@dataclass(frozen=True, slots=True)
class BoundaryCase:
    """A prefix and a suffix tokenised apart, and the whole text tokenised at once.

    Where:  num_reusable_tokens are those at the head of the prefix that the whole begins with too; first_difference is the place of the
            first token that differs, None where nothing merges; apart_logit_change is how far the last logits move when the pieces
            are joined as they are, and reused_logit_error when only what may be reused is
    """

    prefix: str
    suffix: str
    num_prefix_tokens: int
    num_apart_tokens: int
    num_whole_tokens: int
    num_reusable_tokens: int
    first_difference: int | None
    apart_logit_change: float
    is_next_token_equal: bool
    reused_logit_error: float


@dataclass(frozen=True, slots=True)
class CacheResult:
    """The figures of one run.

    Where:  logit_tolerance is the largest difference of logits that rounding is taken to explain
    """

    head: LabHead
    checks: tuple[Check, ...]
    logit_tolerance: float
    sizes: tuple[CacheBytes, ...]
    comparisons: tuple[PathComparison, ...]
    stores: tuple[StoreRun, ...]
    store_points: tuple[StorePoint, ...]
    lengths: tuple[LengthPoint, ...]
    timed_run: TimedRun
    reuse: PrefixReuse
    branches: tuple[Branch, ...]
    boundaries: tuple[BoundaryCase, ...]
