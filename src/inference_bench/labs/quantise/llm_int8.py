"""What if the channels with outliers stay in 16 bits, and only the rest is rounded?

In:   QuantiseBench, Inputs
Out:  the Method after LLM.int8(): outlier columns in float16, all else int8 by token and by output channel
Leaves out: smoothing (smoothquant)
Read next by: flow.

The paper finds the outlier columns anew in every call; here they are those that pass the threshold anywhere on the calibration windows,
so that the bytes are exact. What passes it only later is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from inference_bench.labs.quantise.activations import Inputs
from inference_bench.labs.quantise.linears import linear_layers, model_bytes, relative_error
from inference_bench.labs.quantise.methods import Method, QuantiseBench
from inference_bench.labs.quantise.result import LLM_INT8_FAMILY
from inference_bench.labs.quantise.rtn import SCALE_BITS, fake_quantised
from inference_bench.labs.quantise.w8a8 import INT8, both_replaced, rounded_by_token
from inference_bench.units import format_count, format_fraction

THRESHOLD: Final = 6.0
_INDEX_BITS: Final = 16  # of the place of a column that stays


def outlier_columns(channel_max: torch.Tensor, threshold: float = THRESHOLD) -> torch.Tensor:
    """Which input channels ever pass the threshold.

    Shape:   [columns], true or false
    Source:  Dettmers et al. 2022, LLM.int8(), section 3.2: 6.0
    """
    return channel_max > threshold


def decomposed_weight(weight: torch.Tensor, stays: torch.Tensor) -> torch.Tensor:
    """Outlier columns as float16 holds them; the others int8 by output channel, with scales that do not see the outliers."""
    rest = fake_quantised(torch.where(stays, torch.zeros_like(weight), weight), INT8)
    return torch.where(stays, weight.half().to(weight.dtype), rest)


def decomposed_input(x: torch.Tensor, stays: torch.Tensor) -> torch.Tensor:
    """Outlier channels as they are; the others int8 by token, with scales that do not see the outliers."""
    return torch.where(stays, x, rounded_by_token(torch.where(stays, torch.zeros_like(x), x)))


def decomposed_bits(rows: int, columns: int, num_staying: int) -> int:
    """Exact bits: int8 with a 16-bit scale a row, and 16 bits a value with a 16-bit index for each column that stays."""
    return rows * ((columns - num_staying) * INT8.bits + SCALE_BITS) + num_staying * (rows * 16 + _INDEX_BITS)


def llm_int8_methods(bench: QuantiseBench, inputs: Inputs) -> Iterator[Method]:
    """The paper's threshold."""
    yield llm_int8_method(bench.model.network, inputs)


def llm_int8_method(network: Any, inputs: Inputs, threshold: float = THRESHOLD) -> Method:
    """Outlier columns apart from the rest."""
    layers = linear_layers(network)
    stays = {name: outlier_columns(most, threshold) for name, most in inputs.channel_max.items()}
    count = {name: int(columns.sum()) for name, columns in stays.items()}
    bits = {name: decomposed_bits(layer.out_features, layer.in_features, count[name]) for name, layer in layers.items()}
    share = sum(count.values()) / sum(columns.numel() for columns in stays.values())
    weights = {name: decomposed_weight(layer.weight.data, stays[name]) for name, layer in layers.items()}
    return Method(
        f"LLM.int8 {threshold:g}",
        LLM_INT8_FAMILY,
        model_bytes(network, bits),
        relative_error(network, weights),
        f"{format_count(sum(count.values()))} columns ({format_fraction(share)}) pass {threshold:g} and stay in float16",
        lambda changed: both_replaced(changed, weights, {k: _decompose(v) for k, v in stays.items()}),
    )


def _decompose(stays: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: decomposed_input(x, stays)
