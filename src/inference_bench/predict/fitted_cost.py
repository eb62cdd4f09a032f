"""Step times that were fitted to a real server, as `fit` and `plan` take them.

In:   whoever holds a fit (FittedSteps), the bounds of both phases
Out:  FittedCost; ExpectedSpeeds with the range of the fit's error
Leaves out: the fitted formula itself (simulate.step_profile), which is loaded only where a profile is named
Read next by: fit, scenario, plan_assumptions, simulate.profile_cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from inference_bench.accounting.work import SequenceStep, decode_batch, prompt
from inference_bench.predict.expected_speeds import ExpectedSpeeds
from inference_bench.predict.latency import Range
from inference_bench.units import format_count, format_fraction

if TYPE_CHECKING:
    from inference_bench.facts.hardware import HardwareSpec
    from inference_bench.predict.step_cost import ServedModel


@dataclass(frozen=True, slots=True)
class MeasuredReach:
    """How far the steps reached that a formula was fitted to.

    Unit:  positions before a step; sequences in a step
    """

    max_context_tokens: int
    max_batch: int

    def beyond(self, context_tokens: int, sequences: int) -> tuple[str, ...]:
        """What is said where more is asked for: the formula goes on there, and nobody measured it."""
        asked = (
            ("context", context_tokens, self.max_context_tokens, "tokens"),
            ("batch", sequences, self.max_batch, "sequence(s)"),
        )
        return tuple(
            f"extrapolated: a {what} of {format_count(value)} {unit} is asked for, and steps were measured up to "
            f"{format_count(most)}"
            for what, value, most, unit in asked
            if value > most
        )


@dataclass(frozen=True, slots=True)
class FittedCost:
    """A step at fitted efficiencies.

    Where:  price says how long a step takes; request_s is what a request takes before it; error is the median of |predicted /
            measured - 1| of what the fit did not see, None where nothing was held out; lines say what it rests on; reach is how
            far steps were measured, where that is known
    Unit:   seconds
    """

    price: Callable[[Sequence[SequenceStep]], float]
    lines: tuple[str, ...]
    request_s: float = 0.0
    error: float | None = None
    reach: MeasuredReach | None = None

    def lines_at(self, context_tokens: int, sequences: int) -> tuple[str, ...]:
        """What it rests on where so much is asked for."""
        return self.lines if self.reach is None else (*self.lines, *self.reach.beyond(context_tokens, sequences))

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        """Seconds of one step."""
        return self.price(sequences)

    def first_token_s(self, prompt_tokens: int, output_tokens: int, cached_tokens: int) -> float:  # noqa: ARG002  # of any length
        """Seconds until a lone request's first token."""
        return self.request_s + self.price(prompt(prompt_tokens, cached_tokens))

    def range_of(self, seconds: float) -> Range:
        """Between what a time lies if it is off by the error.

        Formula:  t / (1 + e) .. t · (1 + e)
        """
        by = 1 + (self.error or 0.0)
        return Range(seconds / by, seconds * by)


class FittedSteps(Protocol):
    """A fit that can be asked about other models on its machine."""

    @property
    def engine(self) -> str:
        """The engine it is of."""
        ...

    def cost(self, served: ServedModel, machine: HardwareSpec, devices: int) -> FittedCost:
        """How long steps of a model take.

        Raises:  RequestError for another machine
        """
        ...


def fitted_speeds(cost: FittedCost, context_tokens: int, sequences: int) -> ExpectedSpeeds:
    """A decode step of so many sequences, and one prompt of the whole context.

    Unit:  seconds
    """
    decode_s, prefill_s = cost.step_s(decode_batch(context_tokens, sequences)), cost.step_s(prompt(context_tokens))
    off = "nothing was held out of the fit, and how far off it is was not measured"
    if cost.error is not None:
        off = f"the ranges above are {format_fraction(cost.error)} to both sides, the median error on what the fit did not see"
    return ExpectedSpeeds(
        decode_s=cost.range_of(decode_s),
        prefill_s=cost.range_of(prefill_s),
        decode_middle_s=decode_s,
        prefill_middle_s=prefill_s,
        lines=cost.lines_at(context_tokens, sequences),
        about_range=off,
    )
