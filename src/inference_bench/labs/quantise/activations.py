"""What goes into each linear layer, channel by channel, on the calibration windows?

In:   a network, calibration windows
Out:  Inputs: the range of every channel, and which layers read the same input
Leaves out: Hessians (hessians), which channels are outliers (outliers)
Read next by: outliers, w8a8, smoothquant, llm_int8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from inference_bench.labs.quantise.linears import linear_layers
from inference_bench.labs.windows import Windows


@dataclass(slots=True)
class Inputs:
    """What every linear layer was given.

    Where:  channel_max is the greatest |x| of each input channel of each layer; groups are the layers that read one and the same
            tensor: the query, key and value projections of a block, or the two that open its feed-forward part
    Shape:  channel_max: [columns] each
    """

    channel_max: dict[str, torch.Tensor] = field(default_factory=dict)
    groups: list[tuple[str, ...]] = field(default_factory=list)

    def largest(self, name: str) -> float:
        """The greatest |x| that a layer was given."""
        return float(self.channel_max[name].max())


@contextmanager
def inputs_watched(network: Any, watch: Callable[[str, torch.Tensor], None]) -> Iterator[None]:
    """Every linear layer's input is shown to watch(name, x) before it is used."""

    def hook(name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _module, inputs: watch(name, inputs[0])

    with ExitStack() as hooks:
        for name, layer in linear_layers(network).items():
            hooks.enter_context(layer.register_forward_pre_hook(hook(name)))
        yield


def watch_inputs(network: Any, windows: Windows, say: Callable[[str], None]) -> Inputs:
    """The ranges of every linear layer's input over all windows."""
    found = Inputs()
    last: list[torch.Tensor] = []  # held, so that no later tensor can be taken for it

    def watch(name: str, x: torch.Tensor) -> None:
        most = x.abs().flatten(0, -2).amax(dim=0)
        if name in found.channel_max:
            found.channel_max[name] = torch.maximum(found.channel_max[name], most)
            return
        found.channel_max[name] = most
        if last and last[0] is x:
            found.groups[-1] = (*found.groups[-1], name)
        else:
            found.groups.append((name,))
        last[:] = [x]

    with torch.inference_mode(), inputs_watched(network, watch):
        for index, ids in enumerate(windows.ids):
            say(f"calibrating on window {index + 1} of {len(windows.ids)}")
            network.get_decoder()(input_ids=torch.tensor([ids]), use_cache=False)
    return found
