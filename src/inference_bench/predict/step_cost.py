"""What one forward step costs in time: the one interface that latency, capacity, plans and the simulator take.

In:   what each sequence brings to a step
Out:  seconds
Leaves out: queueing and admission (a scheduler decides what is in a step)
Read next by: latency, capacity, plan.

Bounds and stated shares of the peaks are one formula (`PeakShares`); what real engines reach is `efficiency.EngineCost`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self, runtime_checkable

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.experts import UNIFORM_ROUTING
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import HeadPositions, SequenceStep, StepWork, count_step_work, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.models import ModelSpec
from inference_bench.roofline import Roof, bound


class StepCost(Protocol):
    """Anything that says how long a step takes."""

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        """Seconds of one step in which these sequences share one read of the weights."""
        ...


@runtime_checkable
class FirstTokenCost(StepCost, Protocol):
    """A cost that knows more of a first token than the step of its prompt."""

    def first_token_s(self, prompt_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """Seconds until a lone request's first token; prompt_tokens include the cached ones."""
        ...


def first_token_s(cost: StepCost, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
    """Seconds until a lone request's first token: the step of its prompt where nothing else is known."""
    if isinstance(cost, FirstTokenCost):
        return cost.first_token_s(prompt_tokens, output_tokens, cached_tokens)
    return cost.step_s(prompt(prompt_tokens, cached_tokens))


@runtime_checkable
class VerifyingCost(StepCost, Protocol):
    """A cost that tells a step that verifies a draft from one that reads a prompt."""

    def verifying(self) -> StepCost:
        """The same with logits at every position, as verifying needs them."""
        ...


def verifying(cost: StepCost) -> StepCost:
    """A cost for steps that verify a draft, with logits at every position; the cost itself where it tells none apart."""
    return cost.verifying() if isinstance(cost, VerifyingCost) else cost


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in the formats it is served in: all that the work of a step depends on."""

    model: ModelSpec
    weights: WeightCount
    cache_format: CacheFormat
    head_positions: HeadPositions = HeadPositions.LAST
    expert_correlation: float = UNIFORM_ROUTING

    def verifying(self) -> Self:
        """The same with logits at every position."""
        return replace(self, head_positions=HeadPositions.ALL)

    def work(self, sequences: Sequence[SequenceStep]) -> StepWork:
        """FLOPs and bytes of one step."""
        return count_step_work(
            self.model, self.weights, self.cache_format, sequences, self.head_positions, self.expert_correlation
        )


@dataclass(frozen=True, slots=True)
class PeakShares:
    """A step at stated shares of both ceilings; with shares of 1 it is the bound.

    Formula:  max(bytes / (s · BW), FLOPs / (m · P_peak)), both divided evenly over the devices
    Where:    s bandwidth_share, m compute_share (the MFU of prefill), each in 0..1
    Unit:     seconds
    Ignores:  launch overhead and what devices send one another
    """

    served: ServedModel
    ceiling: Roof
    bandwidth_share: float = 1.0
    compute_share: float = 1.0
    devices: int = 1

    def verifying(self) -> PeakShares:
        """The same for steps that verify a draft."""
        return replace(self, served=self.served.verifying())

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        """Seconds of one step.

        Raises:  RequestError if neither ceiling is known
        """
        work = self.served.work(sequences)
        bandwidth, peak = self.ceiling.bandwidth_bytes_per_s, self.ceiling.peak_flops_per_s
        reached = Roof(
            None if bandwidth is None else bandwidth * self.bandwidth_share * self.devices,
            None if peak is None else peak * self.compute_share * self.devices,
            self.ceiling.compute_format,
        )
        seconds = bound("step", work.flops, work.num_bytes, reached).seconds
        if seconds is None:
            raise RequestError("neither the bandwidth nor the compute rate is known, so no time can be derived")
        return seconds


MOST_VERIFIED: Final = 16


def is_decode_step(sequences: Sequence[SequenceStep]) -> bool:
    """Whether a step runs as decoding does: sequences that are in the cache, each with a token or a short draft to verify.

    Where:  short is at most 16 positions: engines verify so many by their decode kernels
    """
    return all(step.num_new == 1 or (step.num_cached > 0 and step.num_new <= MOST_VERIFIED) for step in sequences)


@dataclass(frozen=True, slots=True)
class StretchedCost:
    """Another cost with its times multiplied: one end of an interval.

    Where:  decode multiplies decode steps, prefill all others, first_token the time to a first token (None: as prefill);
            bound_s is what no step takes less than
    Unit:   seconds
    """

    cost: StepCost
    decode: float
    prefill: float
    bound_s: Callable[[Sequence[SequenceStep]], float] | None = None
    first_token: float | None = None

    def verifying(self) -> StretchedCost:
        """The same for steps that verify a draft."""
        return replace(self, cost=verifying(self.cost))

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        """Seconds of one step."""
        factor = self.decode if is_decode_step(sequences) else self.prefill
        return self._stretched(self.cost.step_s(sequences), factor, sequences)

    def first_token_s(self, prompt_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """Seconds until a lone request's first token; not before its prompt's bound."""
        factor = self.prefill if self.first_token is None else self.first_token
        seconds = first_token_s(self.cost, prompt_tokens, output_tokens, cached_tokens)
        return self._stretched(seconds, factor, prompt(prompt_tokens, cached_tokens))

    def _stretched(self, seconds: float, factor: float, sequences: Sequence[SequenceStep]) -> float:
        stretched = seconds * factor
        return stretched if self.bound_s is None or factor >= 1 else max(stretched, self.bound_s(sequences))
