"""What do a layer's inputs look like? Their second moments, sizes and a sample, over the calibration windows.

In:   a network, windows to calibrate on
Out:  LayerInputs for each linear layer; or block by block, while the blocks before are being changed
Leaves out: what is done with them (gptq, awq, gguf_quality)
Read next by: gptq, awq, gguf_quality.

Linear layers that are given the very same tensor (queries, keys and values; gate and up) share one LayerInputs. `block_by_block` is
the order of the GPTQ paper: the inputs of a block come from blocks that are quantised already; within a block they come from its own
unchanged matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from inference_bench.errors import RequestError
from inference_bench.labs.quantise.linears import linear_layers
from inference_bench.labs.windows import Windows

SAMPLE_TOKENS: Final = 128


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What was seen at the input of some linear layers that share it.

    Formula:  magnitude = mean |x|, mean_square = mean x² of each column; hessian = 2/n · Σ x xᵀ, of the squared output error of a row
    Shape:    [columns] each; sample [tokens, columns], spread evenly over what was seen; hessian [columns, columns]
    Where:    hessian is None where nobody asked for it: it is large
    """

    names: tuple[str, ...]
    magnitude: torch.Tensor
    mean_square: torch.Tensor
    sample: torch.Tensor
    hessian: torch.Tensor | None = None


def inputs_of(
    names: tuple[str, ...], seen: torch.Tensor, sample_tokens: int = SAMPLE_TOKENS, with_hessian: bool = False
) -> LayerInputs:
    """The figures of one tensor of inputs.

    Shape:  seen [tokens, columns]
    """
    chosen = torch.linspace(0, len(seen) - 1, min(sample_tokens, len(seen))).round().long()
    hessian = seen.T @ seen * (2.0 / len(seen)) if with_hessian else None
    return LayerInputs(names, seen.abs().mean(dim=0), seen.square().mean(dim=0), seen[chosen].clone(), hessian)


def calibration_inputs(
    network: Any, windows: Sequence[Sequence[int]], say: Callable[[str], None], sample_tokens: int = SAMPLE_TOKENS
) -> list[LayerInputs]:
    """The inputs of every linear layer in the network as it is, without second moments between columns."""
    names = {id(layer): name for name, layer in linear_layers(network).items()}
    blocks = decoder_blocks(network)
    found: list[LayerInputs] = []

    def after(number: int, take: Callable[[], list[LayerInputs]]) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            say(f"looking at the inputs of block {number} of {len(blocks)}")
            found.extend(take())

        return hook

    ids = torch.tensor([list(window) for window in windows], dtype=torch.long)
    with torch.no_grad(), ExitStack() as hooks:
        for number, block in enumerate(blocks, start=1):
            take = hooks.enter_context(seen_inputs(block, names, sample_tokens=sample_tokens))
            hooks.enter_context(block.register_forward_hook(after(number, take)))
        network.get_decoder()(input_ids=ids, use_cache=False)
    return found


def block_by_block(
    network: Any,
    windows: Sequence[Sequence[int]],
    visit: Callable[[Any, list[LayerInputs]], None],
    say: Callable[[str], None],
) -> None:
    """Each block in turn with the inputs of its linear layers, second moments and all; what `visit` changes in it, later blocks see.

    Where:   a block is a decoder layer; it is computed once with its own matrices to see their inputs, and once more after the visit
    Raises:  RequestError for a network without decoder layers
    """
    names = {id(layer): name for name, layer in linear_layers(network).items()}
    blocks = decoder_blocks(network)

    def before(number: int, block: nn.Module) -> Callable[..., None]:
        def hook(_module: nn.Module, args: Any, kwargs: Any) -> None:
            say(f"calibrating block {number} of {len(blocks)}")
            with seen_inputs(block, names, with_hessian=True) as inputs:
                block.forward(*args, **kwargs)
            visit(block, inputs())

        return hook

    ids = torch.tensor([list(window) for window in windows], dtype=torch.long)
    with torch.no_grad(), ExitStack() as hooks:
        for number, block in enumerate(blocks, start=1):
            hooks.enter_context(block.register_forward_pre_hook(before(number, block), with_kwargs=True))
        network.get_decoder()(input_ids=ids, use_cache=False)


def decoder_blocks(network: Any) -> list[nn.Module]:
    """The decoder layers in their order.

    Raises:  RequestError
    """
    layers = getattr(network.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        raise RequestError(f"a {type(network).__name__} keeps its decoder layers where this lab does not look for them")
    return list(layers)


@contextmanager
def seen_inputs(
    block: nn.Module, names: Mapping[int, str], sample_tokens: int = SAMPLE_TOKENS, with_hessian: bool = False
) -> Iterator[Callable[[], list[LayerInputs]]]:
    """What is given to the linear layers of a block during the `with`, by the names of these ids; taking it forgets it."""
    seen: dict[int, tuple[torch.Tensor, list[str]]] = {}

    def hook(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        _, sharing = seen.setdefault(id(args[0]), (args[0], []))  # the tensor is kept, so that no other gets its id
        sharing.append(names[id(module)])

    with ExitStack() as hooks:
        for module in block.modules():
            if id(module) in names:
                hooks.enter_context(module.register_forward_pre_hook(hook))

        def take() -> list[LayerInputs]:
            each = list(seen.values())
            seen.clear()
            return [
                inputs_of(tuple(shared), tensor.flatten(0, -2).float(), sample_tokens, with_hessian)
                for tensor, shared in each
            ]

        yield take


def calibration_windows(windows: Windows, is_quick: bool) -> tuple[tuple[int, ...], ...]:
    """All of them, or the first alone."""
    return windows.ids[:1] if is_quick else windows.ids
