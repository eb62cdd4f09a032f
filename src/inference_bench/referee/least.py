"""The least time of a prompt and of a generation, for many requests at little cost.

In:   Subject, and the contexts that its requests decode at
Out:  Least: seconds, bytes and FLOPs
Leaves out: what was measured (seen)
Read next by: seen, judged.

Decode steps are priced at every 128th context and taken as straight lines between, so that any generation is two
look-ups; a row that a cache gains now and then lies below such a line by less than a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from inference_bench.accounting.work import StepWork, decode_batch, prompt
from inference_bench.referee.subject import Subject
from inference_bench.roofline import Bound, bound_step

MOST_CONTEXT_TOKENS: Final = 1 << 30
_STRIDE: Final = 128
_MOST_STRIDES: Final = 4096
_KEPT_BITS: Final = 7  # of the lengths that prompts are priced at


class Least(NamedTuple):
    """The least that some work takes; seconds are None where no rate is known."""

    seconds: float | None
    num_bytes: float
    flops: float


_NOTHING: Final = Least(0.0, 0.0, 0.0)


class LeastTimes:
    """Bounds of one subject.

    Where:  contexts are those at which steps will be asked for
    """

    def __init__(self, subject: Subject, contexts: Iterable[int]) -> None:
        self._served, self.ceiling = subject.least_served, subject.ceiling
        seen = [min(context, MOST_CONTEXT_TOKENS) for context in contexts] or [1]
        stride = _STRIDE
        while (max(seen) - min(seen)) // stride > _MOST_STRIDES:
            stride *= 2
        self._stride, self._first = stride, (min(seen) - 1) // stride
        self._steps = [self._step(at * stride + 1) for at in range(self._first, (max(seen) - 1) // stride + 3)]
        self._sums = [_NOTHING]
        for at in range(len(self._steps) - 1):
            self._sums.append(_plus(self._sums[-1], self._part(at, stride)))
        self._prompts: dict[tuple[int, int], Bound] = {}
        # what one token's step reads of the weights, whatever its context; a batch shares it
        self.weight_bytes = sum(operation.weight_bytes for operation in self._work(1).operations)

    def decode(self, first_context: int, last_context: int) -> Least:
        """All steps of one sequence from a context to another, both included.

        Formula:  Σ step(1 sequence at context c); each max(bytes / BW, FLOPs / P)
        Where:    whatever else is in the batch, none of its steps is shorter
        """
        if last_context < first_context:
            return _NOTHING
        return _minus(self._upto(last_context), self._upto(first_context - 1))

    def step_s(self, context: int) -> float | None:
        """One step of one sequence."""
        return self.decode(context, context).seconds

    def prompt(self, num_tokens: int, num_cached: int) -> Bound:
        """Computing a prompt of which so many tokens are in the cache already; the weights are read at least once.

        Where:  long prompts are priced at a length up to 1.6 % below their own
        """
        whole = max(1, min(num_tokens, MOST_CONTEXT_TOKENS))
        exact = max(1, whole - num_cached)
        new, cached = _rounded(exact), _rounded(whole - exact)
        if (new, cached) not in self._prompts:
            work = self._served.work(prompt(new + cached, cached))
            self._prompts[new, cached] = bound_step("prompt", work, self.ceiling)
        return self._prompts[new, cached]

    def _work(self, context: int) -> StepWork:
        return self._served.work(decode_batch(min(context, MOST_CONTEXT_TOKENS), 1))

    def _step(self, context: int) -> Least:
        found = bound_step("decode step", self._work(context), self.ceiling)
        return Least(found.seconds, found.num_bytes, found.flops)

    def _upto(self, context: int) -> Least:
        """All steps from the first priced context to this one."""
        at, rest = divmod(min(context, MOST_CONTEXT_TOKENS) - self._first * self._stride, self._stride)
        return _plus(self._sums[at], self._part(at, rest)) if context > 0 else _NOTHING

    def _part(self, at: int, count: int) -> Least:
        """So many steps from a priced one on: count · v + slope · count · (count - 1) / 2."""
        begin, end = self._steps[at], self._steps[at + 1]
        growth = count * (count - 1) / 2 / self._stride
        seconds = None
        if begin.seconds is not None and end.seconds is not None:
            seconds = count * begin.seconds + growth * (end.seconds - begin.seconds)
        return Least(
            seconds,
            count * begin.num_bytes + growth * (end.num_bytes - begin.num_bytes),
            count * begin.flops + growth * (end.flops - begin.flops),
        )


def _rounded(count: int) -> int:
    """The count with its first bits alone, never more than it is."""
    shift = max(0, count.bit_length() - _KEPT_BITS)
    return count >> shift << shift


def _plus(one: Least, other: Least, sign: int = 1) -> Least:
    known = one.seconds is not None and other.seconds is not None
    seconds = (one.seconds or 0.0) + sign * (other.seconds or 0.0) if known else None
    return Least(seconds, one.num_bytes + sign * other.num_bytes, one.flops + sign * other.flops)


def _minus(one: Least, other: Least) -> Least:
    return _plus(one, other, -1)
