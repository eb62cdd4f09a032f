"""Acceptance and residual give the target's own distribution, exactly and by drawing; mistakes do not."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")

from inference_bench.labs.speculate import sampling  # noqa: E402
from inference_bench.labs.speculate.result import SampledDraft  # noqa: E402
from inference_bench.labs.speculate.sampling import Distribution  # noqa: E402
from inference_bench.labs.speculate.stochastic import (  # noqa: E402
    OTHER_TEMPERATURE,
    RESIDUAL_OF_P,
    TOP_P_ON_ONE,
    Context,
    Shaping,
    plant_faults,
    sample_drafts,
    simulate,
)

VOCABULARY = 200
SHAPING = Shaping(temperature=0.8, top_p=0.9, num_draws=20_000, num_simulations=1_000, seed=0)


def random_logits(seed: int, spread: float = 2.0) -> Distribution:
    return np.random.default_rng(seed).normal(0, spread, VOCABULARY)


def pair(seed: int, top_p: float = 1.0) -> tuple[Distribution, Distribution]:
    first, second = random_logits(seed), random_logits(seed + 1000)
    return (
        sampling.distribution(first, 0.8, top_p),
        sampling.distribution(0.6 * first + 0.4 * second, 0.8, top_p),
    )


# ── the distribution ───────────────────────────────────────────────────────────────────────────────


def test_a_temperature_divides_the_logits() -> None:
    found = sampling.distribution(np.array([0.0, math.log(4)]), 0.5)
    assert found == pytest.approx([1 / 17, 16 / 17])


def test_top_p_keeps_the_fewest_tokens_that_hold_it_with_the_one_that_reaches_it() -> None:
    logits = np.log([0.1, 0.5, 0.3, 0.1])
    assert sampling.distribution(logits, 1.0, 0.7) == pytest.approx([0, 5 / 8, 3 / 8, 0])
    assert sampling.distribution(logits, 1.0, 0.4) == pytest.approx([0, 1, 0, 0])


# ── exactly ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_and_what_replaces_it_are_together_the_target(seed: int, top_p: float) -> None:
    p, q = pair(seed, top_p)
    assert np.abs(sampling.emitted(p, q) - p).max() < 1e-12
    assert q @ sampling.accepted_share(p, q) == pytest.approx(sampling.acceptance_rate(p, q), abs=1e-12)


def test_a_draft_equal_to_the_target_is_always_kept_and_leaves_nothing_to_draw_from() -> None:
    p, _ = pair(1)
    assert sampling.acceptance_rate(p, p) == pytest.approx(1)
    assert sampling.residual(p, p).sum() == 0
    drawn = sampling.draw(np.random.default_rng(0), p, p, 1000)
    assert (drawn.num_accepted, int(drawn.counts.sum())) == (1000, 1000)


def test_a_token_that_the_draft_never_proposes_comes_out_through_the_residual_alone() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 0.0])
    assert sampling.residual(p, q) == pytest.approx([0, 1, 0])
    assert sampling.emitted(p, q) == pytest.approx(p)
    drawn = sampling.draw(np.random.default_rng(0), p, q, 10_000)
    assert drawn.counts[1] == 10_000 - drawn.num_accepted


def test_a_token_that_the_target_never_says_is_always_refused() -> None:
    p, q = np.array([0.0, 1.0]), np.array([0.7, 0.3])
    assert sampling.accepted_share(p, q)[0] == 0
    assert sampling.draw(np.random.default_rng(0), p, q, 10_000).counts[0] == 0
    assert sampling.acceptance_rate(p, q) == pytest.approx(0.3)


def test_a_worked_example() -> None:
    p, q = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1])
    assert sampling.accepted_share(p, q) == pytest.approx([1 / 3, 1, 1])
    assert sampling.acceptance_rate(p, q) == pytest.approx(0.6)
    assert sampling.residual(p, q) == pytest.approx([0, 0.5, 0.5])
    assert sampling.total_variation(p, q) == pytest.approx(0.4)


# ── by drawing ─────────────────────────────────────────────────────────────────────────────────────


def test_the_expected_distance_of_draws_is_that_of_simulated_ones() -> None:
    p = np.full(20, 0.05)
    simulated = sampling.simulated_total_variations(np.random.default_rng(0), p, 20_000, 1_000)
    assert sampling.expected_total_variation(p, 20_000) == pytest.approx(simulated.mean(), rel=0.02)


def contexts() -> list[Context]:
    logits = [(random_logits(seed), random_logits(seed + 1000)) for seed in range(4)]
    return [Context(p, {"d": 0.6 * p + 0.4 * q, "sure": int(p.argmax())}) for p, q in logits]


def say_nothing(_line: str) -> None:
    return


def draws(*names: str) -> tuple[SampledDraft, ...]:
    known = contexts()
    return sample_drafts(known, names, SHAPING, simulate(known, SHAPING, say_nothing), say_nothing)


def test_honest_draws_lie_within_their_sampling_error_for_every_draft() -> None:
    sampled = draws("d", "sure")
    assert [each.draft for each in sampled] == ["d", "sure", "target itself"]
    for each in sampled:
        assert each.identity_error < 1e-12
        assert each.total_variation <= each.total_variation_allowed
        assert abs(each.acceptance_sampled - each.acceptance_analytic) <= each.acceptance_error_allowed
    assert sampled[2].acceptance_sampled == 1


def test_every_planted_mistake_lies_outside_the_sampling_error() -> None:
    simulated = simulate(contexts(), SHAPING, say_nothing)
    planted = plant_faults(contexts(), SHAPING, simulated, say_nothing)
    assert [each.name for each in planted] == [RESIDUAL_OF_P, TOP_P_ON_ONE, OTHER_TEMPERATURE]
    assert all(each.is_caught for each in planted)


@pytest.mark.parametrize(
    ("shaping", "left"),
    [
        (SHAPING._replace(top_p=0.9999), [RESIDUAL_OF_P, OTHER_TEMPERATURE]),  # top-p that cuts nearly nothing off
        (SHAPING._replace(temperature=0.005), []),  # so cold that every draw is the likeliest token
    ],
)
def test_a_mistake_that_so_many_draws_cannot_show_is_not_planted(shaping: Shaping, left: list[str]) -> None:
    simulated = simulate(contexts(), shaping, say_nothing)
    planted = plant_faults(contexts(), shaping, simulated, say_nothing)
    assert [each.name for each in planted] == left
    assert all(each.is_caught for each in planted)
    for each in sample_drafts(contexts(), ["d"], shaping, simulated, say_nothing):
        assert each.total_variation <= each.total_variation_allowed


def test_a_draft_with_fewer_rows_than_the_target_never_says_the_rest() -> None:
    """As of Qwen2.5: one tokenizer, and heads of 151,936 and 152,064 rows."""
    known = [Context(each.target, {"d": each.target[:-5]}) for each in contexts()]
    (sampled, _) = sample_drafts(known, ["d"], SHAPING, simulate(known, SHAPING, say_nothing), say_nothing)
    assert sampled.identity_error < 1e-12
    assert sampled.total_variation <= sampled.total_variation_allowed


def test_a_temperature_near_zero_leaves_the_likeliest_token() -> None:
    found = sampling.distribution(np.array([1.0, 3.0, 2.0]), 1e-320)
    assert found == pytest.approx([0, 1, 0])


def test_a_check_that_judges_draws_by_another_distribution_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "residual", lambda p, q: p)
    (sampled, _) = draws("d")
    assert sampled.total_variation > sampled.total_variation_allowed
    assert sampled.identity_error > 1e-3
