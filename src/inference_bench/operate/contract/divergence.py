"""Two greedy answers to one prompt: where do they part, and is that a near tie or a bug?

In:   the tokens of both with their log-probabilities, or their texts
Out:  Parting; Comparison of many pairs
Leaves out: asking (greedy)
Read next by: greedy.

Greedy decoding takes the likeliest token. Kernels that add in another order shift log-probabilities a little, so the second
likeliest wins where both were that close before. A flip needs both to move, together by the gap between them: with shifts of up
to s it can happen up to a gap of 2 s.

    near tie:  gap <= MARGIN_NATS + 2 * min(shift, MOST_SHIFT_NATS)

shift is the largest that was seen between the same answers at tokens before they part, where the contexts are the same. The
margin of 0.05 nats is twice the 0.025 seen between a warm and a cold prefix on llama.cpp with 4-bit weights, and holds where no
shift was seen. The most that a shift excuses, 0.15 nats, leads to a gap of 0.35: just above the 0.3 up to which engines with
int8 activations were seen to differ, and nearly three of the steps of 0.125 that bfloat16 logits between 16 and 32 have. A shift
beyond 0.3 nats is not rounding, whichever token wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.operate.contract.reading import TokenLogprob

MARGIN_NATS: Final = 0.05
MOST_SHIFT_NATS: Final = 0.15
NOT_ROUNDING_NATS: Final = 0.3


class Kind(StrEnum):
    """What a pair of answers is."""

    SAME = "same"
    NEAR_TIE = "near_tie"
    BUG = "bug"
    UNKNOWN = "unknown"  # they part, and without log-probabilities nothing says why


@dataclass(frozen=True, slots=True)
class Answered:
    """One greedy answer. tokens is () where the server gives no log-probabilities."""

    text: str
    tokens: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Parting:
    """One pair.

    Unit:   nats
    Where:  at is the number of equal tokens before they part, or of equal characters where there are no tokens; gap_nats is how
            much likelier the first answer's token was than the second's, in the first answer; top_two_gap_nats that of the
            two likeliest there; shift_nats the largest change of a log-probability at tokens before
    """

    condition: str
    prompt: int
    at: int | None
    gap_nats: float | None
    top_two_gap_nats: float | None
    shift_nats: float | None


def part(condition: str, prompt: int, first: Answered, second: Answered) -> Parting:
    """Where two answers part; `at` is None where they do not."""
    if not first.tokens or not second.tokens:
        at = None if first.text == second.text else _equal(first.text, second.text)
        return Parting(condition, prompt, at, None, None, None)
    names, others = [t.token for t in first.tokens], [t.token for t in second.tokens]
    num_equal = _equal(names, others)
    before = zip(first.tokens[:num_equal], second.tokens[:num_equal], strict=True)
    shift = max((abs(a.logprob - b.logprob) for a, b in before), default=None)
    if names == others:
        return Parting(condition, prompt, None, None, None, shift)
    gap = top_two = None
    if num_equal < min(len(names), len(others)):
        here, there = first.tokens[num_equal], second.tokens[num_equal]
        gap, top_two = _gap(here, there), _top_two(here)
    return Parting(condition, prompt, num_equal, gap, top_two, shift)


def _equal(first: Sequence[object], second: Sequence[object]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _gap(here: TokenLogprob, there: TokenLogprob) -> float | None:
    """How much likelier the first token was than the second: by the first answer, or at least so where it did not list the second."""
    second = here.logprob_of(there.token)
    if second is None and here.top:
        second = min(logprob for _, logprob in here.top)
    return None if second is None else here.logprob - second


def _top_two(here: TokenLogprob) -> float | None:
    return here.top[0][1] - here.top[1][1] if len(here.top) > 1 else None


def largest_shift(partings: Iterable[Parting]) -> float | None:
    """The largest shift in any of these pairs."""
    return max((each.shift_nats for each in partings if each.shift_nats is not None), default=None)


def judge(parting: Parting, shift_nats: float | None) -> Kind:
    """What one pair is, when shifts up to so much were seen in its condition."""
    if parting.shift_nats is not None and parting.shift_nats > NOT_ROUNDING_NATS:
        return Kind.BUG
    if parting.at is None:
        return Kind.SAME
    if parting.gap_nats is None:
        return Kind.UNKNOWN
    return Kind.NEAR_TIE if parting.gap_nats <= tie_nats(shift_nats) else Kind.BUG


def tie_nats(shift_nats: float | None) -> float:
    """The largest gap that is a near tie."""
    return MARGIN_NATS + 2 * min(shift_nats or 0.0, MOST_SHIFT_NATS)
