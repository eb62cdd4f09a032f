"""What came out of the batch lab.

In:   plain values
Out:  BatchResult
Read next by: flow, charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead
from inference_bench.labs.machine.result import LabCeilings


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """One batch, timed.

    Formula:  tokens_per_s = B / step_s; tokens_per_s_per_sequence = 1 / step_s; fraction = bound / measured
    Unit:     seconds; tokens/s
    Where:    ttft_s is the prefill of the padded batch up to its first tokens; step_s the median decode step after warm-up, at a mean of
              context_tokens without padding; padded_fraction is the share of the padded prompt that is padding; a bound is what the work
              of the real tokens alone takes at least under this run's ceilings
    """

    batch: int
    num_prompt_tokens: int
    padded_length_tokens: int
    padded_fraction: float
    context_tokens: float
    ttft_s: float
    ttft_bound_s: float
    ttft_limited_by: str
    ttft_fraction_of_bound: float
    step_s: float
    step_spread_fraction: float | None
    step_bound_s: float
    step_limited_by: str
    step_flops: int
    step_bytes: int
    step_fraction_of_bound: float
    tokens_per_s: float
    tokens_per_s_per_sequence: float
    bound_tokens_per_s: float
    step_values_s: tuple[float, ...]
    ttft_values_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepPart:
    """One kind of work in a decode step: calls, time, and the least its work takes.

    Where:  bound_s is None where the least is nothing: a copy that another cache would not make, a call that does no arithmetic
    """

    name: str
    num_calls: int
    taken_s: float
    fraction_of_step: float
    bound_s: float | None


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Where one decode step's time goes.

    Formula:  step_s = Σ parts; the last of them, Python and dispatch, is what the others leave of a step timed without any recorder
    Where:    times are those of the fastest step of each kind, which other work disturbed least; linears_alone_s is every linear layer
              of the model on inputs of the same shape, one after another and nothing else; copied_cache_bytes are read and written to
              make the cache one position longer; overhead_per_call_s is the last part over all calls, None where noise made that part
              less than nothing
    """

    batch: int
    context_tokens: float
    step_s: float
    bound_s: float
    num_calls: int
    parts: tuple[StepPart, ...]
    num_linears: int
    linears_alone_s: float
    linear_weight_bytes: int
    copied_cache_bytes: int
    overhead_per_call_s: float | None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a greedy run in a batch first takes another token than alone.

    Where:  is_near_tie is whether the two best tokens were closer than twice what logits may differ by; alone they were top_two_gap
            apart, and the logits of that step differed by logit_difference
    """

    step: int
    token_alone: int
    token_in_batch: int
    top_two_gap: float
    logit_difference: float
    is_near_tie: bool


@dataclass(frozen=True, slots=True)
class PromptAgreement:
    """One prompt alone and in a batch.

    Unit:   logits
    Where:  prompt_difference is at the prompt's last position, max_difference at any step that was compared; the gap is between the two
            best tokens of the run alone
    """

    prompt_index: int
    num_prompt_tokens: int
    num_pad_tokens: int
    num_steps_compared: int
    prompt_difference: float
    max_difference: float
    median_top_two_gap: float
    least_top_two_gap: float
    divergence: Divergence | None


@dataclass(frozen=True, slots=True)
class BatchAgreement:
    """Every prompt of one batch against itself alone.

    Where:  alone is how it was run alone: token by token with its own cache, or in one pass over what the batch emitted
    """

    dtype: str
    batch: int
    num_tokens: int
    alone: str
    allowed_difference: float
    prompts: tuple[PromptAgreement, ...]

    @property
    def max_difference(self) -> float:
        """The largest of any prompt and step."""
        return max(each.max_difference for each in self.prompts)

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """The first of each prompt that has one."""
        return tuple(each.divergence for each in self.prompts if each.divergence is not None)


@dataclass(frozen=True, slots=True)
class DtypeRun:
    """Everything in one number format."""

    dtype: str
    ceilings: LabCeilings
    points: tuple[SpeedPoint, ...]
    breakdowns: tuple[StepBreakdown, ...]
    agreements: tuple[BatchAgreement, ...]


@dataclass(frozen=True, slots=True)
class PadRow:
    """One prompt with so many pads more before it, against itself without."""

    num_pad_tokens: int
    num_steps: int
    max_difference: float
    num_changed_tokens: int


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One planted fault: what it does to logits and to tokens.

    Where:  is_expected says whether it can show in this model's logits at all, and why is in words; num_changed_tokens counts the
            greedy choices that differ, of num_tokens
    """

    name: str
    max_difference: float
    num_changed_tokens: int
    num_tokens: int
    is_caught_by_logits: bool
    is_caught_by_tokens: bool
    is_expected: bool
    why: str


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The figures of one run; allowed_difference is for float32."""

    head: LabHead
    checks: tuple[Check, ...]
    num_prompts: int
    prompt_lengths_tokens: tuple[int, ...]
    allowed_difference: float
    runs: tuple[DtypeRun, ...]
    pads: tuple[PadRow, ...]
    faults: tuple[FaultRow, ...]
