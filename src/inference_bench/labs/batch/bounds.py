"""What does a step of a batch take at least on this machine? The accounting's work under this run's ceilings.

In:   ModelSpec, a number format, the real tokens of each sequence, LabCeilings
Out:  Bounds, of a whole step or of its products and its attention
Leaves out: padding, which is work nobody needs
Read next by: speed, breakdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_weights
from inference_bench.accounting.work import SequenceStep, StepWork, count_step_work
from inference_bench.facts.formats import number_format
from inference_bench.facts.models import ModelSpec
from inference_bench.labs.machine.result import LabCeilings
from inference_bench.roofline import Bound, bound, bound_step


def decode_work(spec: ModelSpec, dtype: str, contexts: Sequence[int]) -> StepWork:
    """One decode step of sequences that attend so many positions each, their own new one included."""
    counts = Counter(contexts)
    return _work(spec, dtype, [SequenceStep(context - 1, 1, count) for context, count in sorted(counts.items())])


def prefill_work(spec: ModelSpec, dtype: str, lengths: Sequence[int]) -> StepWork:
    """One pass over whole prompts."""
    return _work(spec, dtype, [SequenceStep(0, length, count) for length, count in sorted(Counter(lengths).items())])


def _work(spec: ModelSpec, dtype: str, sequences: Sequence[SequenceStep]) -> StepWork:
    fmt = number_format(dtype)
    return count_step_work(spec, count_weights(spec, weight_plan(fmt.name)), CacheFormat(fmt, fmt), sequences)


def whole_step(work: StepWork, ceilings: LabCeilings) -> Bound:
    """The least time of all of it."""
    return bound_step("step", work, ceilings.roof)


def products_alone(work: StepWork, ceilings: LabCeilings) -> Bound:
    """The least time of what reads weights."""
    parts = [each for each in work.operations if each.weight_bytes and each.flops and each.name != "norms and other"]
    flops, num_bytes = sum(each.flops for each in parts), sum(each.weight_bytes for each in parts)
    return bound("products", flops, num_bytes, ceilings.roof)


def attention_alone(work: StepWork, ceilings: LabCeilings) -> Bound:
    """The least time of what reads the cache."""
    parts = [each for each in work.operations if each.cache_read_bytes]
    return bound("attention", sum(each.flops for each in parts), sum(each.num_bytes for each in parts), ceilings.roof)
