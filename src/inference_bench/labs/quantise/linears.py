"""Which matrices of a network are quantised, how are they exchanged for a while, and what does the whole take then?

In:   a network, matrices by name
Out:  the linear layers but the head; the network with other matrices, put back bit for bit; exact bytes
Leaves out: how a matrix is rounded (rtn, gptq)
Read next by: every method, flow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from inference_bench.labs.quantise.rtn import Grid, fake_quantised, storage_bits


def linear_layers(network: Any) -> dict[str, nn.Linear]:
    """Every linear layer by its name, the head apart: it shares its table with the embedding in many models."""
    head = network.get_output_embeddings()
    return {
        name: module for name, module in network.named_modules() if isinstance(module, nn.Linear) and module is not head
    }


@contextmanager
def weights_replaced(network: Any, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """The linear layers of these names hold other matrices; their own come back at the end, the very same memory.

    Raises:  KeyError for a name that is no linear layer; ValueError for a matrix of another shape
    """
    layers = linear_layers(network)
    for name, weight in weights.items():
        if weight.shape != layers[name].weight.shape:
            raise ValueError(f"{name} is {tuple(layers[name].weight.shape)}, not {tuple(weight.shape)}")
    own = {name: layers[name].weight.data for name in weights}
    try:
        for name, weight in weights.items():
            layers[name].weight.data = weight.to(own[name].dtype)
        yield
    finally:
        for name, weight in own.items():
            layers[name].weight.data = weight


@contextmanager
def inputs_changed(network: Any, change: Mapping[str, Any]) -> Iterator[None]:
    """The linear layers of these names are given change(x) for x."""
    layers = linear_layers(network)
    with ExitStack() as hooks:
        for name, function in change.items():
            hooks.enter_context(layers[name].register_forward_pre_hook(_on_input(function)))
        yield


def _on_input(function: Any) -> Any:
    def hook(_module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (function(inputs[0]), *inputs[1:])

    return hook


def rounded_weights(network: Any, grid: Grid) -> dict[str, torch.Tensor]:
    """Every linear layer's matrix on the same kind of grid."""
    return {name: fake_quantised(layer.weight.data, grid) for name, layer in linear_layers(network).items()}


def grid_bits(network: Any, grid: Grid) -> dict[str, int]:
    """Exact bits of every linear layer's matrix on the same kind of grid."""
    return {
        name: storage_bits(layer.out_features, layer.in_features, grid)
        for name, layer in linear_layers(network).items()
    }


def relative_error(network: Any, weights: Mapping[str, torch.Tensor]) -> float:
    """How far the changed matrices are from their own, all together.

    Formula:  √(Σ |W - W'|²) / √(Σ |W|²)
    """
    layers = linear_layers(network)
    off = sum(
        float((weight - layers[name].weight.data).square().sum(dtype=torch.float64)) for name, weight in weights.items()
    )
    own = sum(float(layers[name].weight.data.square().sum(dtype=torch.float64)) for name in weights)
    return float((off / own) ** 0.5) if own else 0.0


def num_linear_values(network: Any) -> int:
    """Values of all the linear layers' matrices."""
    return sum(int(layer.weight.numel()) for layer in linear_layers(network).values())


def kept_bytes(network: Any) -> int:
    """Bytes of everything but the linear layers' matrices, in the format it is computed in; a tied table once."""
    quantised = {id(layer.weight) for layer in linear_layers(network).values()}
    return sum(int(each.numel() * each.element_size()) for each in network.parameters() if id(each) not in quantised)


def model_bytes(network: Any, bits: Mapping[str, int]) -> int:
    """Exact bytes of the whole model with these linear layers stored in so many bits.

    Formula:  Σ ⌈bits / 8⌉ over the named matrices + every other parameter in the format it is computed in
    Unit:     bytes
    """
    named = sum(-(-number // 8) for number in bits.values())
    others = sum(
        int(layer.weight.numel() * layer.weight.element_size())
        for name, layer in linear_layers(network).items()
        if name not in bits
    )
    return named + others + kept_bytes(network)


def network_sha256(network: Any) -> str:
    """A hash over every parameter and buffer of a network, by name: whether anything at all has changed."""
    found = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        found.update(name.encode())
        found.update(memoryview(tensor.detach().contiguous().flatten().view(torch.uint8).numpy()))
    return found.hexdigest()


def network_state(network: Any) -> tuple[object, ...]:
    """Enough of a network to tell, cheaply, that a change was taken back.

    Where:  of every parameter its place in memory and the sum of its bits as whole numbers; of all modules the number of hooks; and
            how attention is computed
    """
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    weights = tuple(
        (name, each.data_ptr(), int(each.detach().flatten().view(bits[each.element_size()]).sum()))
        for name, each in network.named_parameters()
    )
    hooks = sum(len(each._forward_pre_hooks) + len(each._forward_hooks) for each in network.modules())
    return (*weights, hooks, getattr(network.config, "_attn_implementation", None))
