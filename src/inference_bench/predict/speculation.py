"""What speculative decoding gains: a draft proposes γ tokens, the target verifies them in one step.

In:   acceptance α, draft length γ, and the costs of a draft step and of a verifying step in target steps
Out:  tokens a round, speed-up, the acceptance that breaks even, the best draft length
Leaves out: the memory of the draft model; that acceptance falls along the draft (α is one number a token, independent)
Read next by: plan.

It gains only where E[K] > γ·c + v. A verifying step over γ + 1 positions costs little where weights are what a step
reads (a small batch), and more as the batch grows towards the compute limit: there v grows and the gain is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inference_bench.errors import RequestError
from inference_bench.predict.step_cost import MOST_VERIFIED

_STEPS = 60  # halvings of 0..1: below what a float tells apart


def expected_tokens(acceptance: float, draft_tokens: int) -> float:
    """Tokens that one round of drafting and verifying emits.

    Formula:  E[K] = (1 - α^(γ+1)) / (1 - α); γ + 1 at α = 1
    Unit:     tokens, between 1 and γ + 1
    Raises:   RequestError for an α outside 0..1 or a γ below 0
    Source:   Leviathan et al. 2023, Fast Inference from Transformers via Speculative Decoding, equation 1

    >>> round(expected_tokens(0.865, 4), 3), expected_tokens(1.0, 4)
    (3.82, 5.0)
    """
    if not 0 <= acceptance <= 1:
        raise RequestError(f"an acceptance of {acceptance:g} is not a probability; it must lie in 0..1")
    if draft_tokens < 0:
        raise RequestError(f"a draft of {draft_tokens} tokens cannot be; at least 0 are needed")
    return float(sum(acceptance**position for position in range(draft_tokens + 1)))


def round_cost(draft_tokens: int, draft_cost: float, verify_cost: float) -> float:
    """What a round costs, in plain decode steps of the target.

    Formula:  γ · c + v
    """
    return draft_tokens * draft_cost + verify_cost


def speed_up(acceptance: float, draft_tokens: int, draft_cost: float, verify_cost: float) -> float:
    """How much faster decoding becomes; below 1 it becomes slower.

    Formula:  E[K] / (γ · c + v_γ)
    Where:    c is a draft step and v_γ a verifying step over γ + 1 positions, both in target steps
    Source:   Leviathan et al. 2023, theorem 3.8, with the cost of verifying kept
    """
    return expected_tokens(acceptance, draft_tokens) / round_cost(draft_tokens, draft_cost, verify_cost)


def break_even_acceptance(draft_tokens: int, draft_cost: float, verify_cost: float) -> float | None:
    """The acceptance above which speculation gains; None where even a perfect draft does not.

    Formula:  α with E[K] = γ · c + v_γ
    """
    cost = round_cost(draft_tokens, draft_cost, verify_cost)
    if cost >= draft_tokens + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if expected_tokens(middle, draft_tokens) >= cost else (middle, high)
    return high if cost > 1 else 0.0


def best_draft_tokens(
    acceptance: float,
    draft_cost: float,
    verify_cost: Callable[[int], float],
    choices: Iterable[int] = range(1, MOST_VERIFIED),
) -> int:
    """The draft length with the largest speed-up, the shortest among equals.

    Where:  verify_cost gives v_γ for each γ, which grows with it; choices end where γ + 1 positions are still a decode step
    """
    return max(choices, key=lambda tokens: (speed_up(acceptance, tokens, draft_cost, verify_cost(tokens)), -tokens))
