"""What would help? Each change of the model, the setting or the kernels, priced again by the fitted formula.

In:   StepCalibration, the step that is changed, Choices
Out:  Change: what the formula says it gains, beside what bytes and FLOPs alone promise; best first
Leaves out: what a change costs besides time: quality, memory, how long each user waits
Read next by: reading.

A change alters the work (formats, batch, context, drafts), or the formula's own numbers (a rate reached whole, no overhead).
The second kind says what a perfect kernel or engine could gain at most; it leaves bytes, FLOPs and so the bound where they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.errors import RequestError
from inference_bench.gap.decompose import bound_of, title_of
from inference_bench.gap.parts import Cause, Change
from inference_bench.gap.proposals import Choices, ChosenStep, Proposal, propose, usual_choices
from inference_bench.gap.step_parts import StepReads, count_parts
from inference_bench.simulate.step_sources import Ceilings, step_time_at
from inference_bench.units import format_fraction

_NOTHING: Final = 5e-4  # a gain of less is none


def changes(calibration: StepCalibration, at: StepObservation, choices: Choices | None = None) -> tuple[Change, ...]:
    """Every change of a step, the one that gains most first; of drafts of several lengths the best.

    Where:   choices are those usual for the engine where none are given; before and after are both by the fitted formula, and
             what it leaves unexplained is in neither
    Raises:  RequestError for a mixed step, whose tokens are of two kinds
    """
    if at.kind is StepKind.MIXED:
        raise RequestError(f"{title_of(at)}: no one change speeds both kinds of it; ask for decoding or for a prompt")
    pricing = _Pricing.of(calibration, at)
    found: dict[str, Change] = {}
    for proposal in propose(pricing.before, choices or usual_choices(calibration.profile.engine)):
        change = pricing.change(proposal)
        family = proposal.family or proposal.name
        if family not in found or change.gain > found[family].gain:
            found[family] = change
    return best_first([*found.values(), *pricing.reading_once()])


def best_first(found: Iterable[Change]) -> tuple[Change, ...]:
    """The change that gains most first."""
    return tuple(sorted(found, key=lambda change: -change.gain))


def signed(gain: float) -> str:
    """A gain in percent, with its sign; 0 where it is less than one in two thousand.

    >>> signed(0.0424), signed(-0.5), signed(2e-4)
    ('+4.2 %', '−50.0 %', '0 %')
    """
    if abs(gain) < _NOTHING:
        return "0 %"
    return f"{'−' if gain < 0 else '+'}{format_fraction(abs(gain), 3 if abs(gain) >= 0.1 else 2)}"


@dataclass(frozen=True, slots=True)
class _Pricing:
    """The step before a change, with its time, its bound and its parts by the fitted formula."""

    calibration: StepCalibration
    at: StepObservation
    before: ChosenStep
    before_s: float
    bound_s: float
    parts_s: dict[Cause, float]

    @classmethod
    def of(cls, calibration: StepCalibration, at: StepObservation) -> _Pricing:
        tokens = sum(map(len, at.batches)) if at.kind is StepKind.DECODE else at.num_positions
        besides_s = calibration.request_s if at.includes_request else 0.0
        before = ChosenStep(at.kind, at.batches, calibration.served, calibration.shares, float(tokens), besides_s)
        parts_s = count_parts(at, StepReads.of(at.batches, calibration), calibration)
        return cls(calibration, at, before, _step_s(before, calibration), _bound_s(before, calibration), parts_s)

    def change(self, proposal: Proposal) -> Change:
        """A change with what it gains."""
        after_s, bound_s = _step_s(proposal.step, self.calibration), _bound_s(proposal.step, self.calibration)
        more_tokens = proposal.step.tokens / self.before.tokens
        gain = more_tokens * self.before_s / after_s - 1
        promised = more_tokens * self.bound_s / bound_s - 1 if bound_s else 0.0
        share = sum(self.parts_s[cause] for cause in proposal.touches) / self.before_s
        touched = f"; what it changes takes {format_fraction(share)} of the step" if proposal.touches else ""
        return Change(
            name=proposal.name,
            at=title_of(self.at),
            before_s=self.before_s,
            after_s=after_s,
            gain=gain,
            ceiling_gain=promised,
            is_assumed=proposal.is_assumed,
            is_choice=proposal.is_choice,
            words=f"{proposal.words}; {_gains(gain, promised)}{touched}",
        )

    def reading_once(self) -> tuple[Change, ...]:
        """What a vector kernel would gain that reads the weights once for all positions of a step."""
        reads = StepReads.of(self.at.batches, self.calibration)
        if not any(batch.by_vector and batch.reads > 1 for batch in reads.batches):
            return ()
        after_s = self.before_s - self.parts_s[Cause.BATCHING]
        gain = self.before_s / after_s - 1
        words = (
            f"the vector kernel reading the weights once in place of {reads.num_reads} times, its products still hidden"
        )
        return (
            Change(
                name="weights read once a step",
                at=title_of(self.at),
                before_s=self.before_s,
                after_s=after_s,
                gain=gain,
                ceiling_gain=0.0,
                is_assumed=True,
                is_choice=False,
                words=f"{words}; {_gains(gain, 0.0)}",
            ),
        )


def _step_s(step: ChosenStep, calibration: StepCalibration) -> float:
    """What a step takes by the fitted formula."""
    ceilings = Ceilings(calibration.bandwidth_bytes_per_s, calibration.compute_flops_per_s)
    step_time = step_time_at(step.served, ceilings, "the measured machine", step.shares)
    return sum(step_time.step_s(batch) for batch in step.batches) + step.besides_s


def _bound_s(step: ChosenStep, calibration: StepCalibration) -> float:
    return bound_of(step.batches, step.served, calibration).seconds or 0.0


def _gains(gain: float, promised: float) -> str:
    """Both gains, in words."""
    moves = abs(promised) >= _NOTHING
    by_bytes = f"bytes and FLOPs alone promise {signed(promised)}" if moves else "the bound does not move"
    return f"{by_bytes}, the fitted formula says {signed(gain)}"
