"""What came out of the speculate lab.

In:   plain values
Out:  SpeculateResult
Read next by: flow, charts, report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead, SubjectIdentity

LOOKUP: Final = "lookup"
EARLY_EXIT: Final = "early exit"
MODEL: Final = "draft model"
TARGET: Final = "target itself"


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """Who proposes: its kind, and how many parameters a step of it reads, as a share of the target's."""

    name: str
    kind: str
    parameters_fraction: float
    identity: SubjectIdentity | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token at which a speculative answer is not the plain one.

    Where:  position counts the answer's tokens from 0; top_two_gap is how far the plain run's first choice lay above its second;
            logit_difference the most that any logit differs there between the two; a near tie is a gap that this difference can
            close, and a difference that rounding explains
    """

    position: int
    top_two_gap: float
    logit_difference: float
    is_near_tie: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """One speculative answer beside the plain one. Where: max_logit_difference is over the tokens both have in common."""

    prompt: str
    draft: str
    gamma: int
    num_tokens: int
    num_equal_tokens: int
    max_logit_difference: float
    divergence: Divergence | None


@dataclass(frozen=True, slots=True)
class PromptFacts:
    """One prompt: its length, that of its plain answer, and whether that ended by itself."""

    name: str
    num_prompt_tokens: int
    num_tokens: int
    has_ended: bool
    step_s: float


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What steps cost at one context, medians.

    Where:  verify_s and verify_cost are by γ: a step over γ + 1 positions; a cost is in plain decode steps of the target
    """

    context_tokens: int
    num_repeats: int
    step_s: float
    verify_s: Mapping[int, float]
    draft_step_s: Mapping[str, float]

    def draft_cost(self, draft: str) -> float:
        """c: a draft's step, in plain decode steps."""
        return self.draft_step_s[draft] / self.step_s

    def verify_cost(self, num_proposed: int) -> float:
        """v: a step over so many proposals and one more, in plain decode steps; between measured lengths, on the line between them."""
        known = {0: self.step_s, **self.verify_s}
        if num_proposed in known:
            return known[num_proposed] / self.step_s
        low = max((each for each in known if each < num_proposed), default=0)
        high = min((each for each in known if each > num_proposed), default=low)
        share = 0.0 if high == low else (num_proposed - low) / (high - low)
        return (known[low] + share * (known[high] - known[low])) / self.step_s


@dataclass(frozen=True, slots=True)
class PositionAcceptance:
    """How often the proposal at one place of the draft (1: the first) was judged, and accepted."""

    position: int
    num_trials: int
    num_accepted: int


@dataclass(frozen=True, slots=True)
class SpeedUps:
    """One speed-up, predicted and measured, and the steps between the two.

    Where:  predicted takes the acceptance as one number, the same at every place of the draft; with_tokens_counted has the tokens a
            round really gave in the place of E[K]; with_rounds_counted also what each round really proposed and verified;
            measured is the plain run's time over the speculative one's
    """

    predicted: float
    with_tokens_counted: float
    with_rounds_counted: float
    measured: float


@dataclass(frozen=True, slots=True)
class DraftRun:
    """One draft at one γ, over all prompts.

    Where:  num_tokens leaves out each answer's first token, which comes from the prompt; a cut round is one that the length asked for
            or the end of the answer made shorter; a short round is one in which the draft proposed fewer than it could have, an
            empty one none at all; a trial is a proposal that was judged: those after the first rejection are not
    Unit:   seconds; costs in plain decode steps; speed-ups are ratios
    """

    draft: str
    gamma: int
    num_prompts: int
    num_equal_prompts: int
    num_tokens: int
    num_rounds: int
    num_cut_rounds: int
    num_short_rounds: int
    num_empty_rounds: int
    num_proposed: int
    num_trials: int
    num_accepted: int
    acceptance: float | None
    accepted_of_proposed_fraction: float | None
    tokens_per_round: float
    tokens_per_full_round: float | None
    expected_tokens_per_round: float | None
    by_position: tuple[PositionAcceptance, ...]
    draft_cost: float
    verify_cost: float
    break_even_acceptance: float | None
    speed_ups: SpeedUps | None
    plain_s: float
    elapsed_s: float
    draft_s: float
    verify_s: float
    rollback_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class SampledDraft:
    """Tokens drawn by acceptance and residual, one draft, over several contexts of the real model.

    Where:  identity_error is the most by which Σ q·min(1, p/q) and the residual together miss p at any token; acceptances are means
            of Σ min(p, q) and of what was drawn; total variations are means over contexts, expected that of draws of a known
            distribution, allowed its 99.9 % quantile by simulation
    """

    draft: str
    num_contexts: int
    num_draws: int
    identity_error: float
    acceptance_analytic: float
    acceptance_sampled: float
    acceptance_error_allowed: float
    total_variation: float
    total_variation_expected: float
    total_variation_allowed: float


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A mistake made on purpose, to see that the check would find it."""

    name: str
    total_variation: float
    total_variation_allowed: float

    @property
    def is_caught(self) -> bool:
        """Whether the check would have found it."""
        return self.total_variation > self.total_variation_allowed


@dataclass(frozen=True, slots=True)
class PlantedRollback:
    """A cache rolled back to the wrong place on purpose. Where: off_by is how many tokens too many stay in it, below 0: too few"""

    off_by: int
    num_tokens: int
    num_equal_tokens: int
    max_logit_difference: float
    is_caught_by_tokens: bool
    is_caught_by_logits: bool


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """One load on the server, with its option off and on."""

    concurrency: int
    num_requests: int
    off_tokens_per_s: float | None
    on_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """One prompt's answer from the server, off and on.

    Where:  times are the server's own, per token; proposed and accepted its own counts; where texts differ, gap_nats is how far the
            first choice lay above the second in the run without, at the first token that differs
    """

    prompt: str
    num_tokens: int
    is_same_text: bool
    off_s_per_token: float | None
    on_s_per_token: float | None
    num_proposed: int | None
    num_accepted: int | None
    first_difference: int | None
    gap_nats: float | None


@dataclass(frozen=True, slots=True)
class ServerResult:
    """A real server with its own speculation off and on."""

    engine: str
    version: str | None
    option: str
    answers: tuple[ServerAnswer, ...]
    loads: tuple[ServerLoad, ...]


@dataclass(frozen=True, slots=True)
class SpeculateResult:
    """The figures of one run. Where: logit_tolerance is the most that rounding may change a logit by."""

    head: LabHead
    checks: tuple[Check, ...]
    drafts: tuple[DraftFacts, ...] = ()
    prompts: tuple[PromptFacts, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    costs: StepCosts | None = None
    runs: tuple[DraftRun, ...] = ()
    sampled: tuple[SampledDraft, ...] = ()
    planted: tuple[PlantedFault, ...] = ()
    planted_rollbacks: tuple[PlantedRollback, ...] = ()
    server: ServerResult | None = None
    logit_tolerance: float | None = None
