"""Speculation with a temperature: how is a draft's token accepted or replaced so that the target's own distribution comes out?

In:   p (the target's) and q (the draft's) over the full vocabulary, in float64
Out:  acceptance, residual, what is emitted exactly and by drawing; how far draws may lie from a distribution
Leaves out: models (stochastic)
Read next by: stochastic.

A token x is drawn from q and kept with probability min(1, p(x)/q(x)); else one is drawn from max(p - q, 0), normalised. What is
emitted is p, whatever q is, if both are the distributions that are really drawn from: temperature and top-p belong into both.
Source: Leviathan et al. 2023, appendix A.1; Chen et al. 2023, Accelerating Large Language Model Decoding with Speculative Sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Distribution: TypeAlias = NDArray[np.float64]

ALLOWED_QUANTILE: Final = 0.999
_ROUNDING: Final = 1e-12
_MOST_HELD: Final = 1_000_000  # counts of simulated draws at once


def distribution(logits: NDArray[np.floating], temperature: float, top_p: float = 1.0) -> Distribution:
    """Probabilities of every token.

    Formula:  softmax((logits - their largest) / temperature), then the fewest likeliest tokens that hold top_p together, normalised
    Where:    the token that reaches top_p is still kept; of equal tokens the one with the lower id comes first
    """
    logits = logits.astype(np.float64)
    with np.errstate(over="ignore"):  # so cold that a token's logit is −∞
        weights = np.exp((logits - logits.max()) / temperature)
    probabilities = weights / weights.sum()
    if top_p < 1:
        order = np.argsort(-probabilities, kind="stable")
        before = np.cumsum(probabilities[order]) - probabilities[order]
        probabilities[order[before >= top_p]] = 0.0
        probabilities /= probabilities.sum()
    return probabilities


def one_token(token: int, vocabulary: int) -> Distribution:
    """The distribution of a draft that is sure."""
    sure = np.zeros(vocabulary)
    sure[token] = 1.0
    return sure


def accepted_share(p: Distribution, q: Distribution) -> Distribution:
    """With which probability each token is kept once it is drawn; 0 for what is never drawn.

    Formula:  min(1, p / q)
    """
    return np.minimum(1.0, np.divide(p, q, out=np.zeros_like(p), where=q > 0))


def acceptance_rate(p: Distribution, q: Distribution) -> float:
    """How often a drawn token is kept.

    Formula:  Σ min(p, q)
    """
    return float(np.minimum(p, q).sum())


def residual(p: Distribution, q: Distribution) -> Distribution:
    """What is drawn from after a rejection; all zero where p = q, which rejects nothing.

    Formula:  max(p - q, 0) / Σ max(p - q, 0)
    """
    left = np.maximum(p - q, 0.0)
    total = left.sum()
    return left / total if total > 0 else left


def emitted(
    p: Distribution,
    q: Distribution,
    after_rejection: Distribution | None = None,
    drawn_from: Distribution | None = None,
) -> Distribution:
    """The distribution of what comes out, exactly.

    Formula:  q·min(1, p/q) + (1 - Σ q·min(1, p/q)) · residual
    Where:    after_rejection takes the residual's place and drawn_from that of the q that is drawn from, to see what a mistake there
              does
    """
    kept = (q if drawn_from is None else drawn_from) * accepted_share(p, q)
    return kept + (1.0 - kept.sum()) * (residual(p, q) if after_rejection is None else after_rejection)


def total_variation(first: Distribution, second: Distribution) -> float:
    """How far two distributions lie apart, 0 to 1.

    Formula:  ½ Σ |first - second|
    """
    return float(np.abs(first - second).sum() / 2)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn by acceptance and residual: how often each came out, and how many were the draft's own."""

    counts: NDArray[np.int64]
    num_accepted: int

    @property
    def frequencies(self) -> Distribution:
        """Shares of all draws."""
        return self.counts / self.counts.sum()


def draw(
    rng: np.random.Generator,
    p: Distribution,
    q: Distribution,
    num_draws: int,
    after_rejection: Distribution | None = None,
    drawn_from: Distribution | None = None,
) -> Drawn:
    """Draw first tokens as a speculating server would.

    Where:  after_rejection and drawn_from take the place of the residual and of q, to see what a mistake there does
    """
    proposed = _draw_from(rng, q if drawn_from is None else drawn_from, num_draws)
    is_kept = rng.random(num_draws) < accepted_share(p, q)[proposed]
    replaced = int(num_draws - is_kept.sum())
    others = residual(p, q) if after_rejection is None else after_rejection
    tokens = proposed[is_kept]
    if replaced and others.sum() > 0:
        tokens = np.concatenate([tokens, _draw_from(rng, others, replaced)])
    return Drawn(np.bincount(tokens, minlength=len(p)), num_draws - replaced)


def _draw_from(rng: np.random.Generator, weights: Distribution, num_draws: int) -> NDArray[np.int64]:
    """Tokens by their probabilities; one without any is never drawn."""
    bounds = np.cumsum(weights)
    return np.searchsorted(bounds, rng.random(num_draws) * bounds[-1], side="right").astype(np.int64)


def expected_total_variation(p: Distribution, num_draws: int) -> float:
    """How far draws from p itself lie from p on average.

    Formula:  ½ Σ √(2 p (1 - p) / (π N))
    Ignores:  that counts are whole: it is too large for tokens with N·p well below 1
    """
    return float(np.sqrt(2 * p * (1 - p) / (np.pi * num_draws)).sum() / 2)


def simulated_total_variations(
    rng: np.random.Generator, p: Distribution, num_draws: int, num_simulations: int
) -> Distribution:
    """How far draws from p itself lie from p, so many times over."""
    known = np.sort(p[p > 0])[::-1]  # the likeliest first: where no draw is left, the rest is not asked
    known = known / known.sum()
    found = np.empty(num_simulations)
    at_once = max(1, _MOST_HELD // len(known))
    for begin in range(0, num_simulations, at_once):
        size = min(at_once, num_simulations - begin)
        counts = rng.multinomial(num_draws, known, size=size)
        found[begin : begin + size] = np.abs(counts / num_draws - known).sum(axis=1) / 2
    return found


def allowed_mean(simulations: Sequence[Distribution]) -> float:
    """The 99.9 % quantile of the mean over several contexts, each simulated on its own, and what rounding may add."""
    return float(np.quantile(np.mean(np.stack(simulations), axis=0), ALLOWED_QUANTILE)) + _ROUNDING
