"""Which group of columns divides every matrix of a network?

In:   a network
Out:  64, or the greatest smaller power of two that fits, or one scale a channel
Leaves out: the group that a person asks for, which is refused where it does not fit (flow)
Read next by: gptq, awq, mixed.
"""

from __future__ import annotations

from typing import Any, Final

from inference_bench.labs.quantise.linears import linear_layers

_SIZES: Final = (64, 32, 16)


def usual_group(network: Any) -> int | None:
    """The group that methods are shown with; None is one scale an output channel."""
    columns = {layer.in_features for layer in linear_layers(network).values()}
    return next((size for size in _SIZES if not any(each % size for each in columns)), None)
