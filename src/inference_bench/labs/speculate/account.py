"""What did speculation gain, what should it have gained, and where do the two part?

In:   the rounds and times of one draft at one γ over all prompts, StepCosts
Out:  DraftRun
Leaves out: decoding (greedy); whether the tokens are right (compare)
Read next by: flow.

From the formula to the stopwatch in three steps: the tokens a round gave in the place of E[K], which shows that acceptance is not one
number along the draft; what each round proposed in the place of γ, which shows rounds that were short; and what is left: rolling back,
Python, and steps that took another time in the run than where they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference_bench.labs.speculate.greedy import Round, Times
from inference_bench.labs.speculate.result import DraftRun, PositionAcceptance, SpeedUps, StepCosts
from inference_bench.predict.speculation import break_even_acceptance, expected_tokens, round_cost, speed_up


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt decoded with a draft. Where: plain_s is what its plain answer took."""

    rounds: Sequence[Round]
    times: Times
    plain_s: float
    is_equal: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """What all rounds together did."""

    rounds: tuple[Round, ...]
    gamma: int

    @property
    def num_accepted(self) -> int:
        """Proposals that were right."""
        return sum(each.num_accepted for each in self.rounds)

    @property
    def num_trials(self) -> int:
        """Proposals that were judged."""
        return sum(each.num_trials for each in self.rounds)

    @property
    def num_proposed(self) -> int:
        """Proposals, judged or not."""
        return sum(each.num_proposed for each in self.rounds)

    @property
    def num_tokens(self) -> int:
        """Tokens that came of it."""
        return sum(each.num_emitted for each in self.rounds)

    @property
    def full(self) -> tuple[Round, ...]:
        """Rounds that neither the answer's end nor the draft made shorter than γ."""
        return tuple(each for each in self.rounds if not each.is_cut and each.num_proposed == self.gamma)

    @property
    def acceptance(self) -> float | None:
        """α: the share of judged proposals that were right; None where none was judged."""
        return self.num_accepted / self.num_trials if self.num_trials else None


def account(draft: str, gamma: int, answers: Sequence[Answer], costs: StepCosts) -> DraftRun:
    """One draft at one γ over all prompts."""
    counts = Counts(tuple(each for answer in answers for each in answer.rounds), gamma)
    alpha, c, v = counts.acceptance, costs.draft_cost(draft), costs.verify_cost(gamma)
    elapsed_s, draft_s, verify_s, rollback_s = _times(answers)
    full = counts.full
    return DraftRun(
        draft=draft,
        gamma=gamma,
        num_prompts=len(answers),
        num_equal_prompts=sum(answer.is_equal for answer in answers),
        num_tokens=counts.num_tokens,
        num_rounds=len(counts.rounds),
        num_cut_rounds=sum(each.is_cut for each in counts.rounds),
        num_short_rounds=sum(each.num_proposed < each.num_wanted for each in counts.rounds),
        num_empty_rounds=sum(each.num_proposed == 0 < each.num_wanted for each in counts.rounds),
        num_proposed=counts.num_proposed,
        num_trials=counts.num_trials,
        num_accepted=counts.num_accepted,
        acceptance=alpha,
        accepted_of_proposed_fraction=counts.num_accepted / counts.num_proposed if counts.num_proposed else None,
        tokens_per_round=counts.num_tokens / max(1, len(counts.rounds)),
        tokens_per_full_round=sum(each.num_emitted for each in full) / len(full) if full else None,
        expected_tokens_per_round=None if alpha is None else expected_tokens(alpha, gamma),
        by_position=by_position(counts.rounds, gamma),
        draft_cost=c,
        verify_cost=v,
        break_even_acceptance=break_even_acceptance(gamma, c, v),
        speed_ups=_speed_ups(counts, c, costs, sum(answer.plain_s for answer in answers) / elapsed_s)
        if elapsed_s
        else None,
        plain_s=sum(answer.plain_s for answer in answers),
        elapsed_s=elapsed_s,
        draft_s=draft_s,
        verify_s=verify_s,
        rollback_s=rollback_s,
        other_s=elapsed_s - draft_s - verify_s - rollback_s,
    )


def by_position(rounds: Sequence[Round], gamma: int) -> tuple[PositionAcceptance, ...]:
    """How often each place of the draft was judged, and accepted."""
    return tuple(
        PositionAcceptance(
            place,
            sum(each.num_trials >= place for each in rounds),
            sum(each.num_accepted >= place for each in rounds),
        )
        for place in range(1, gamma + 1)
    )


def _times(answers: Sequence[Answer]) -> tuple[float, float, float, float]:
    spent = [answer.times for answer in answers]
    return (
        sum(each.elapsed_s for each in spent),
        sum(each.draft_s for each in spent),
        sum(each.verify_s for each in spent),
        sum(each.rollback_s for each in spent),
    )


def _speed_ups(counts: Counts, c: float, costs: StepCosts, measured: float) -> SpeedUps | None:
    """The same tokens by the formula, by the tokens counted, by the rounds counted, and by the stopwatch.

    Formula:  E[K] / (γ·c + v), then K̄ / (γ·c + v), then K̄ / mean over rounds of (n·c + v_n)
    Where:    K̄ is the tokens of all rounds over their number, n what a round proposed
    """
    if not counts.rounds or counts.acceptance is None:
        return None
    gamma, tokens = counts.gamma, counts.num_tokens / len(counts.rounds)
    v = costs.verify_cost(gamma)
    paid = sum(each.num_proposed * c + costs.verify_cost(each.num_proposed) for each in counts.rounds) / len(
        counts.rounds
    )
    return SpeedUps(
        predicted=speed_up(counts.acceptance, gamma, c, v),
        with_tokens_counted=tokens / round_cost(gamma, c, v),
        with_rounds_counted=tokens / paid,
        measured=measured,
    )
