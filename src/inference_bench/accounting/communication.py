"""What tensor-parallel ranks send one another in a step.

In:   ModelSpec, positions of the step, a number of ranks
Out:  bytes that one rank sends
Leaves out: pipelines, which hand on one activation a stage; expert parallelism; the latency of a message
Read next by: predict.phases.
"""

from __future__ import annotations

from typing import Final

from inference_bench.facts.models import ModelSpec

ACTIVATION_BITS: Final = 16


def count_all_reduces(model: ModelSpec) -> int:
    """All-reduces of a step: one after each layer's mixers and one after its feed-forward block.

    Formula:  2·L for layers that have both
    Ignores:  the sums over a divided input table and the gathered logits, which only add; blocks that run beside their
              attention need one sum for both
    Source:   Shoeybi et al. 2019, Megatron-LM, section 3
    """
    return sum(count * (bool(layer.mixers) + (layer.feed_forward is not None)) for layer, count in model.layer_groups())


def count_all_reduce_bytes(model: ModelSpec, positions: int, ranks: int, bits: int = ACTIVATION_BITS) -> int:
    """Bytes that one rank sends in the all-reduces of a step, by rings.

    Formula:  all-reduces · 2·(N - 1)/N · positions · D · bits / 8, rounded up
    Where:    N ranks: each sends all but one of the N parts twice, once summed and once shared
    Unit:     bytes
    Ignores:  reductions inside a switch, which can halve it
    Source:   Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms
    """
    values = count_all_reduces(model) * positions * model.hidden_size
    return -(-2 * (ranks - 1) * values * bits // (8 * ranks))
