"""One step as a reader wants it listed: routers apart, attention by phase.

In:   ModelSpec, WeightCount, CacheFormat, the sequences that decode and those that prefill
Out:  StepWork with the same sums as count_step_work, in more operations
Leaves out: what devices send one another (communication)
Read next by: predict.phases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import HeadPositions, Operation, SequenceStep, StepWork, count_step_work
from inference_bench.facts.models import ModelSpec


def itemise_step(
    model: ModelSpec,
    weights: WeightCount,
    fmt: CacheFormat,
    decodes: Sequence[SequenceStep] = (),
    prefills: Sequence[SequenceStep] = (),
) -> StepWork:
    """The operations of a step in which some sequences decode and others prefill.

    Where:   the output head is counted for the last position of each sequence
    Unit:    FLOPs and bytes, exact but for the expected number of experts
    Raises:  RequestError as count_step_work
    """
    whole = count_step_work(model, weights, fmt, (*prefills, *decodes), HeadPositions.LAST)
    listed: list[Operation] = []
    for operation in whole.operations:
        if operation.name == "attention":
            for phase, sequences in (("prefill", prefills), ("decode", decodes)):
                listed += _attention(model, weights, fmt, phase, sequences)
        elif operation.name == "feed-forward":
            listed += _without_router(model, weights, operation, whole.num_positions)
        else:
            listed.append(operation)
    return replace(whole, operations=tuple(listed))


def _attention(
    model: ModelSpec, weights: WeightCount, fmt: CacheFormat, phase: str, sequences: Sequence[SequenceStep]
) -> Iterator[Operation]:
    """The attention of one phase, under a name of its own."""
    if sequences:
        for operation in count_step_work(model, weights, fmt, sequences).operations:
            if operation.name == "attention":
                yield replace(operation, name=f"attention {phase}")


def _without_router(
    model: ModelSpec, weights: WeightCount, operation: Operation, positions: int
) -> Iterator[Operation]:
    """The feed-forward operation without its routers, and the routers; either is left out where there is none."""
    router = Operation("router", 2 * count_params(model).router * positions, weights.router)
    rest = replace(
        operation, flops=operation.flops - router.flops, weight_bytes=operation.weight_bytes - router.weight_bytes
    )
    for part in (rest, router):
        if part.flops or part.num_bytes:
            yield part
