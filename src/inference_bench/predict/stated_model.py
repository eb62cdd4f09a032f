"""A served model whose traffic was stated by hand: the weights a step reads, or whether cache writes count.

In:   what ServedModel takes, and what was stated
Out:  the same StepWork, with what was stated in place of what was counted
Leaves out: FLOPs: they are always counted
Read next by: plan.

Hand calculations read "the 5.5 GB of weights" once a step and leave the cache's writes out; stating both here makes a
plan repeat such a calculation to the digit. Without either, the work is the exact count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inference_bench.accounting.work import SequenceStep, StepWork
from inference_bench.predict.step_cost import ServedModel


@dataclass(frozen=True, slots=True)
class StatedModel(ServedModel):
    """A served model with stated traffic.

    Where:  weight_bytes is what a step reads of the weights, None counts it; cache_writes says whether a step's writes to
            the cache are part of its traffic
    """

    weight_bytes: int | None = None
    cache_writes: bool = True

    def work(self, sequences: Sequence[SequenceStep]) -> StepWork:
        """FLOPs as counted, bytes as stated."""
        counted = ServedModel.work(self, sequences)
        operations = list(counted.operations)
        if not self.cache_writes:
            operations = [replace(operation, cache_write_bytes=0) for operation in operations]
        if self.weight_bytes is not None:
            operations = [replace(operation, weight_bytes=0) for operation in operations]
            operations[0] = replace(operations[0], weight_bytes=self.weight_bytes)
        return StepWork(tuple(operations), counted.num_positions, counted.num_sequences)
