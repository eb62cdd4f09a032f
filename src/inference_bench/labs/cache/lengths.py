"""How much longer does a generation take without a cache, by its length? Measured at a few lengths, summed by a stated rule.

In:   a causal language model, token ids, lengths
Out:  Knot for each measured context; LengthPoint for each length
Leaves out: whether both say the same (compare)
Read next by: flow.

A generation of n tokens without a cache is n forwards, each one token longer; run whole, 1,024 of them would take over ten minutes.
So forwards and cached steps are measured at some contexts, and those between lie on straight lines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.weight_plan import WeightPlan
from inference_bench.accounting.weights import count_weights
from inference_bench.accounting.work import count_step_work, decode_batch, prompt
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import ModelSpec
from inference_bench.labs.cache.model_paths import ModelCached, ModelRecomputed
from inference_bench.labs.cache.result import LengthPoint
from inference_bench.measure.timing import wall_clock
from inference_bench.stats import median

TIMED_PROMPT_TOKENS: Final = 16
RULE: Final = (
    "time by length: a forward and a cached step are measured at each context, the median of several; what lies between two contexts "
    "is taken to lie on a straight line; cached = the prompt's forward and each further token's step, uncached = a forward for each token"
)
_timed: Final = wall_clock()


@dataclass(frozen=True, slots=True)
class Knot:
    """A context at which both were measured: one forward over all of it, and one cached step that attends all of it."""

    context_tokens: int
    forward_s: float
    step_s: float


def measure_knots(
    network: Any, ids: Sequence[int], contexts: Sequence[int], repeats: int, say: Callable[[str], None]
) -> tuple[Knot, ...]:
    """Forwards and cached steps at each context, longest first to warm up."""
    knots = []
    with torch.inference_mode():
        for context in sorted(set(contexts), reverse=True):
            forward_s = _forward_s(network, ids[:context], repeats, say)
            say(f"cached steps at {context} tokens")
            knots.append(Knot(context, forward_s, _step_s(network, ids[:context], repeats)))
    return tuple(reversed(knots))


def _forward_s(network: Any, ids: Sequence[int], repeats: int, say: Callable[[str], None]) -> float:
    path, seconds = ModelRecomputed(network), []
    for index in range(repeats):
        say(f"forward over {len(ids)} tokens, {index + 1} of {repeats}")
        seconds.append(_timed(lambda: path.begin(ids), 1))
    return median(seconds)


def _step_s(network: Any, ids: Sequence[int], repeats: int) -> float:
    """A step after which this many positions are cached, taken back and repeated."""
    path, seconds = ModelCached(network), []
    path.begin(ids[:-1])
    for _ in range(2 * repeats):
        seconds.append(_timed(lambda: path.step(ids[-1]), 1))
        path.cache.crop(-1)
    return median(seconds)


def summed(knots: Sequence[tuple[int, float]], first: int, last: int) -> float:
    """The sum over every whole number from first to last of values known at some of them, on straight lines between.

    Formula:  Σ t = first … last of v_i + (v_{i+1} - v_i) · (t - x_i) / (x_{i+1} - x_i)
    Where:    (x_i, v_i) are the knots, going up; first and last lie within them
    """
    places = [place for place, _ in knots]
    total = 0.0
    for t in range(first, last + 1):
        right = min(max(bisect_right(places, t), 1), len(knots) - 1)
        (x, v), (x2, v2) = knots[right - 1], knots[right]
        total += v + (v2 - v) * (t - x) / (x2 - x)
    return total


def cached_s(knots: Sequence[Knot], num_prompt: int, num_emitted: int) -> float:
    """The prompt once, then a step for every further token."""
    last = num_prompt + num_emitted - 1
    begin = summed([(knot.context_tokens, knot.forward_s) for knot in knots], num_prompt, num_prompt)
    return begin + summed([(knot.context_tokens, knot.step_s) for knot in knots], num_prompt + 1, last)


def uncached_s(knots: Sequence[Knot], num_prompt: int, num_emitted: int) -> float:
    """A forward over everything for every token."""
    last = num_prompt + num_emitted - 1
    return summed([(knot.context_tokens, knot.forward_s) for knot in knots], num_prompt, last)


def length_points(spec: ModelSpec, knots: Sequence[Knot], lengths: Sequence[int]) -> tuple[LengthPoint, ...]:
    """Both sums at each length, beside the FLOPs that the accounting counts for them."""
    counter = FlopsCounter(spec)
    by_context = {knot.context_tokens: knot for knot in knots}
    points = []
    for length in lengths:
        context = TIMED_PROMPT_TOKENS + length - 1
        with_cache = cached_s(knots, TIMED_PROMPT_TOKENS, length)
        without = uncached_s(knots, TIMED_PROMPT_TOKENS, length)
        flops, more = counter.cached(TIMED_PROMPT_TOKENS, length), counter.uncached(TIMED_PROMPT_TOKENS, length)
        points.append(
            LengthPoint(
                num_emitted=length,
                context_tokens=context,
                step_s=by_context[context].step_s,
                forward_s=by_context[context].forward_s,
                cached_s=with_cache,
                uncached_s=without,
                speedup=without / with_cache,
                cached_flops=flops,
                uncached_flops=more,
                flops_ratio=more / flops,
            )
        )
    return tuple(points)


class FlopsCounter:
    """FLOPs of whole generations, the output head computed for one token a forward."""

    def __init__(self, spec: ModelSpec) -> None:
        fmt = number_format("fp32")
        self.spec, self.cache_format = spec, CacheFormat(fmt, fmt)
        self.weights = count_weights(spec, WeightPlan(fmt.name, fmt, fmt))

    def cached(self, num_prompt: int, num_emitted: int) -> int:
        """The prompt, then one token at a time."""
        steps = (decode_batch(num_prompt + index, 1) for index in range(1, num_emitted))
        return sum(self._flops(step) for step in (prompt(num_prompt), *steps))

    def uncached(self, num_prompt: int, num_emitted: int) -> int:
        """Everything anew for each token."""
        return sum(self._flops(prompt(num_prompt + index)) for index in range(num_emitted))

    def _flops(self, step: Any) -> int:
        return count_step_work(self.spec, self.weights, self.cache_format, step).flops
