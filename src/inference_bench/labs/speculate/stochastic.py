"""Do tokens drawn by acceptance and residual follow the real model's own distribution, and would the check find mistakes?

In:   a target network, drafts, contexts of real answers
Out:  SampledDraft for each draft, PlantedFault
Leaves out: the arithmetic (sampling)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from inference_bench.labs.speculate import sampling
from inference_bench.labs.speculate.drafts import Draft
from inference_bench.labs.speculate.result import TARGET, PlantedFault, SampledDraft
from inference_bench.labs.speculate.sampling import Distribution

RESIDUAL_OF_P: Final = "residual drawn from p"
TOP_P_ON_ONE: Final = "top-p on the draft alone"
OTHER_TEMPERATURE: Final = "draft hotter than its q"
MISTAKES: Final = (RESIDUAL_OF_P, TOP_P_ON_ONE, OTHER_TEMPERATURE)
_Z_999: Final = 3.29  # two-sided 99.9 % of a normal distribution
_HOTTER: Final = 2.0
_SHOWS: Final = (
    2  # times the limit of honest draws, and so many draws of each context: what is exactly that far off is found
)
_MOVED_DRAWS: Final = 10


@dataclass(frozen=True, slots=True)
class Context:
    """The logits of target and drafts after the same tokens. Shape: [vocabulary]; of a draft that is sure, the token it proposes."""

    target: Distribution
    drafts: dict[str, Distribution | int] = field(default_factory=dict)


class Shaping(NamedTuple):
    """What is applied to target and draft alike, and how much is drawn."""

    temperature: float
    top_p: float
    num_draws: int
    num_simulations: int
    seed: int

    def of(self, logits: Distribution | int, vocabulary: int, top_p: float | None = None) -> Distribution:
        """The distribution that is drawn from; a draft with fewer rows than the target never says the tokens that it has none for."""
        if isinstance(logits, int):
            return sampling.one_token(logits, vocabulary)
        known = sampling.distribution(logits, self.temperature, self.top_p if top_p is None else top_p)
        return np.pad(known, (0, vocabulary - len(known)))


def contexts_of(target: Draft, drafts: Sequence[Draft], ids: Sequence[int], places: Sequence[int]) -> list[Context]:
    """What target and drafts say after ids[: place], for each place; a lookup that proposes nothing is left out there."""
    whole = {each.name: each.logits(ids) for each in (target, *drafts)}
    found = []
    for place in places:
        said: dict[str, Distribution | int] = {}
        for draft in drafts:
            logits = whole[draft.name]
            if logits is not None:
                said[draft.name] = logits[place - 1].double().numpy()
            elif proposed := draft.propose(ids[:place], 1):
                said[draft.name] = proposed[0]
        mine = whole[target.name]
        if mine is not None:
            found.append(Context(mine[place - 1].double().numpy(), said))
    return found


def simulate(contexts: Sequence[Context], shaping: Shaping, say: Callable[[str], None]) -> list[Distribution]:
    """For each context, how far draws from the target's own distribution lie from it, many times over."""
    rng = np.random.default_rng((shaping.seed, 1))
    simulated = []
    for number, context in enumerate(contexts, 1):
        say(f"honest draws, simulated: context {number} of {len(contexts)}")
        p = shaping.of(context.target, len(context.target))
        simulated.append(sampling.simulated_total_variations(rng, p, shaping.num_draws, shaping.num_simulations))
    return simulated


def sample_drafts(
    contexts: Sequence[Context],
    names: Sequence[str],
    shaping: Shaping,
    simulated: Sequence[Distribution],
    say: Callable[[str], None],
) -> tuple[SampledDraft, ...]:
    """Every draft, and the target as its own draft, which accepts everything; simulated is what `simulate` gave."""
    rng = np.random.default_rng(shaping.seed)
    sampled = []
    for name in (*names, TARGET):
        say(f"drawing tokens, {name}")
        known = [place for place, each in enumerate(contexts) if name == TARGET or name in each.drafts]
        pairs = [_pair(contexts[place], name, shaping) for place in known]
        if pairs:
            allowed = sampling.allowed_mean([simulated[place] for place in known])
            sampled.append(_sampled(name, pairs, shaping, allowed, rng))
    return tuple(sampled)


def _pair(context: Context, name: str, shaping: Shaping) -> tuple[Distribution, Distribution]:
    vocabulary = len(context.target)
    p = shaping.of(context.target, vocabulary)
    return p, p if name == TARGET else shaping.of(context.drafts[name], vocabulary)


def _sampled(
    name: str,
    pairs: Sequence[tuple[Distribution, Distribution]],
    shaping: Shaping,
    allowed: float,
    rng: np.random.Generator,
) -> SampledDraft:
    draws = [sampling.draw(rng, p, q, shaping.num_draws) for p, q in pairs]
    rates = np.array([sampling.acceptance_rate(p, q) for p, q in pairs])
    return SampledDraft(
        draft=name,
        num_contexts=len(pairs),
        num_draws=shaping.num_draws,
        identity_error=max(float(np.abs(sampling.emitted(p, q) - p).max()) for p, q in pairs),
        acceptance_analytic=float(rates.mean()),
        acceptance_sampled=float(np.mean([each.num_accepted for each in draws]) / shaping.num_draws),
        acceptance_error_allowed=_acceptance_error(rates, shaping.num_draws),
        total_variation=_mean_distance(pairs, draws),
        total_variation_expected=float(
            np.mean([sampling.expected_total_variation(p, shaping.num_draws) for p, _ in pairs])
        ),
        total_variation_allowed=allowed,
    )


def _acceptance_error(rates: Distribution, num_draws: int) -> float:
    """How far the mean acceptance may lie from Σ min(p, q).

    Formula:  3.29 · √(Σ a (1 - a) / N) / contexts, and one draw more for rounding
    """
    spread = np.sqrt((rates * (1 - rates).clip(0)).clip(0).sum() / num_draws) / len(rates)
    return float(_Z_999 * spread + 1 / num_draws)


def _mean_distance(pairs: Sequence[tuple[Distribution, Distribution]], draws: Sequence[sampling.Drawn]) -> float:
    each = [sampling.total_variation(drawn.frequencies, p) for (p, _), drawn in zip(pairs, draws, strict=True)]
    return float(np.mean(each))


class _Wrong(NamedTuple):
    """What a first token is drawn with where something is wrong; None for what is right."""

    p: Distribution
    q: Distribution
    after_rejection: Distribution | None = None
    drawn_from: Distribution | None = None


def plant_faults(
    contexts: Sequence[Context], shaping: Shaping, simulated: Sequence[Distribution], say: Callable[[str], None]
) -> tuple[PlantedFault, ...]:
    """Draw with each mistake in it, and hold that against the limit of honest draws.

    Where:  the draft is the target at twice the temperature, which is right often enough that what follows a rejection shows;
            a mistake that changes less than so many draws can show, such as top-p where it cuts nothing off, is not planted
    """
    rng, allowed = np.random.default_rng(shaping.seed), sampling.allowed_mean(simulated)
    right = [shaping.of(context.target, len(context.target)) for context in contexts]
    planted = []
    for name in MISTAKES:
        say(f"planted mistakes: {name}")
        wrong = [_made_wrong(name, context, shaping) for context in contexts]
        exactly = np.mean(
            [sampling.total_variation(sampling.emitted(*w), p) for w, p in zip(wrong, right, strict=True)]
        )
        if exactly >= _SHOWS * allowed + _MOVED_DRAWS / shaping.num_draws:
            draws = [sampling.draw(rng, w.p, w.q, shaping.num_draws, w.after_rejection, w.drawn_from) for w in wrong]
            found = np.mean([sampling.total_variation(d.frequencies, p) for d, p in zip(draws, right, strict=True)])
            planted.append(PlantedFault(name, float(found), allowed))
    return tuple(planted)


def _made_wrong(name: str, context: Context, shaping: Shaping) -> _Wrong:
    vocabulary = len(context.target)
    p = shaping.of(context.target, vocabulary)
    q = shaping._replace(temperature=_HOTTER * shaping.temperature).of(context.target, vocabulary)
    if name == RESIDUAL_OF_P:
        return _Wrong(p, q, after_rejection=p)
    if name == TOP_P_ON_ONE:
        return _Wrong(shaping.of(context.target, vocabulary, top_p=1.0), q)
    hotter = q ** (1 / _HOTTER)
    return _Wrong(p, q, drawn_from=hotter / hotter.sum())
