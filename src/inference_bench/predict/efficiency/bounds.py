"""What a phase takes at least: the bytes and FLOPs of its steps at the same peaks that its expectation is taken over.

In:   Shape, StepTerms
Out:  seconds of the bound, or at stated shares of both peaks
Leaves out: efficiencies and overheads (expectation)
Read next by: expectation, plan, score.

The peak is the one an engine computes at: 16-bit sums where engines use them, so this bound may lie below one that takes
32-bit sums.
"""

from __future__ import annotations

from typing import Final

from inference_bench.predict.efficiency.question import Phase, Shape
from inference_bench.predict.efficiency.terms import COMPUTE_TERMS, MEMORY_TERMS, StepTerms

_NUM_MEMORY: Final = len(MEMORY_TERMS)
_NUM_COUNTED: Final = _NUM_MEMORY + len(COMPUTE_TERMS) - 1  # threads is a second count of the same products


def bound_of_step(terms: StepTerms, bandwidth_share: float = 1.0, compute_share: float = 1.0) -> float:
    """A step at shares of both peaks.

    Formula:  max((weights + experts + cache) / s, (products + expert products + attention) / m)
    Unit:     seconds
    """
    memory = sum(terms.values[:_NUM_MEMORY]) / bandwidth_share
    return max(memory, sum(terms.values[_NUM_MEMORY:_NUM_COUNTED]) / compute_share)


def bound_of(form: Shape, bandwidth_share: float = 1.0, compute_share: float = 1.0) -> float:
    """A phase at shares of both peaks; what a roofline alone says where both are 1.

    Formula:  a step; e2e is prefill + (n - 1) · step; a first token is one prompt
    Ignores:  waiting for room in the cache, which only adds
    Unit:     seconds
    """

    def step(terms: StepTerms | None) -> float:
        return 0.0 if terms is None else bound_of_step(terms, bandwidth_share, compute_share)

    phase = form.question.phase
    if phase in (Phase.DECODE, Phase.SERVING_TPOT):
        return step(form.decode)
    if phase in (Phase.PREFILL, Phase.SERVING_TTFT):
        return step(form.prefill)
    return step(form.prefill) + (form.question.output_tokens - 1) * step(form.decode)
