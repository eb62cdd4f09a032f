"""Which channels of which layers carry values far above the rest?

In:   Inputs, a network
Out:  OutlierRow of each input
Read next by: flow.
"""

from __future__ import annotations

import re
from typing import Final

import torch

from inference_bench.labs.quantise.activations import Inputs
from inference_bench.labs.quantise.result import OUTLIER_RATIO, OutlierRow

_BLOCK: Final = re.compile(r"\.(\d+)\.")


def outlier_rows(inputs: Inputs) -> tuple[OutlierRow, ...]:
    """Every input once, in the order in which the network reads them."""
    return tuple(outlier_row(group, inputs.channel_max[group[0]]) for group in inputs.groups)


def outlier_row(layers: tuple[str, ...], channel_max: torch.Tensor) -> OutlierRow:
    """How far an input's channels lie apart.

    Formula:  ratio = max_j max|x_j| / median_j max|x_j|
    """
    middle = float(channel_max.median())
    largest, channel = channel_max.max(dim=0)
    block = _BLOCK.search(layers[0])
    return OutlierRow(
        layer=layers[0],
        block=int(block[1]) if block else None,
        kind=", ".join(name.rpartition(".")[2] for name in layers),
        num_channels=channel_max.numel(),
        largest=float(largest),
        largest_channel=int(channel),
        median_channel_max=middle,
        ratio=float(largest) / middle if middle > 0 else None,
        num_outlier_channels=int((channel_max > OUTLIER_RATIO * middle).sum()),
    )
