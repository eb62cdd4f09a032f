"""A result as the lab gives it, made by hand: two drafts, one of which cannot gain, a server, and every kind of figure."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.labs.checks import Check
from inference_bench.labs.speculate.result import (
    Comparison,
    Divergence,
    DraftFacts,
    DraftRun,
    PlantedFault,
    PlantedRollback,
    PositionAcceptance,
    PromptFacts,
    SampledDraft,
    ServerAnswer,
    ServerLoad,
    ServerResult,
    SpeculateResult,
    SpeedUps,
    StepCosts,
)
from labs.made_page import HEAD

QUESTION = "Does speculative decoding keep its output, and what does it gain?"
EXIT = "early exit 20/30"
NEAR_TIE = Divergence(7, 1e-6, 1e-5, is_near_tie=True)
FAULT = Divergence(7, 0.5, 0.25, is_near_tie=False)


def run(draft: str, gamma: int, acceptance: float, speeds: SpeedUps, break_even: float | None) -> DraftRun:
    places = tuple(
        PositionAcceptance(place, 100 // place, round(acceptance * 100 / place)) for place in range(1, gamma + 1)
    )
    return DraftRun(
        draft=draft,
        gamma=gamma,
        num_prompts=5,
        num_equal_prompts=5,
        num_tokens=155,
        num_rounds=100,
        num_cut_rounds=5,
        num_short_rounds=40,
        num_empty_rounds=30,
        num_proposed=150,
        num_trials=100,
        num_accepted=round(acceptance * 100),
        acceptance=acceptance,
        accepted_of_proposed_fraction=acceptance / 1.5,
        tokens_per_round=1.55,
        tokens_per_full_round=2.1,
        expected_tokens_per_round=2.3,
        by_position=places,
        draft_cost=0.75 if draft == EXIT else 1e-4,
        verify_cost=2.0,
        break_even_acceptance=break_even,
        speed_ups=speeds,
        plain_s=6.0,
        elapsed_s=5.0,
        draft_s=0.5,
        verify_s=4.3,
        rollback_s=0.1,
        other_s=0.1,
    )


RUNS = (
    run("lookup", 2, 0.65, SpeedUps(0.95, 0.7, 0.92, 0.85), 0.7),
    run("lookup", 4, 0.62, SpeedUps(1.25, 0.8, 1.1, 1.12), 0.5),
    run(EXIT, 2, 0.16, SpeedUps(0.3, 0.3, 0.31, 0.29), None),
)
SERVER = ServerResult(
    "llama.cpp",
    "xllamacpp 2026.1",
    "ngram_simple, n-grams of 3, up to 4 tokens a draft",
    (
        ServerAnswer("copy", 32, True, 0.007, 0.006, 20, 18, None, None),
        ServerAnswer("story", 32, True, 0.007, 0.009, 10, 1, None, None),
    ),
    (ServerLoad(2, 5, 82.0, 74.0),),
)


def sample(divergence: Divergence | None = None) -> SpeculateResult:
    """The result; divergence is that of one of its answers."""
    equal = [
        Comparison(prompt, each.draft, each.gamma, 32, 32, 1e-4, None) for each in RUNS for prompt in ("copy", "story")
    ]
    equal[0] = replace(equal[0], divergence=divergence, num_equal_tokens=32 if divergence is None else 7)
    return SpeculateResult(
        head=replace(HEAD, lab="speculate", question=QUESTION),
        checks=(Check("greedy answers, lookup", True, "4 of 4 equal", "all equal, or a near tie"),),
        drafts=(DraftFacts("lookup", "lookup", 0.0), DraftFacts(EXIT, "early exit", 0.74)),
        prompts=(PromptFacts("copy", 62, 25, True, 0.04), PromptFacts("story", 17, 32, False, 0.04)),
        comparisons=tuple(equal),
        costs=StepCosts(74, 5, 0.04, {2: 0.08, 4: 0.08}, {"lookup": 4e-6, EXIT: 0.03}),
        runs=RUNS,
        sampled=(SampledDraft("lookup", 6, 20_000, 1e-16, 0.39, 0.391, 0.002, 0.0024, 0.003, 0.005),),
        planted=(PlantedFault("residual drawn from p", 0.056, 0.0056),),
        planted_rollbacks=(PlantedRollback(1, 8, 8, 0.4, False, True),),
        server=SERVER,
        logit_tolerance=1e-3,
    )
