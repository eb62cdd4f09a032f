"""What is assumed of the efficiencies before any row is read: prior means, and how far each kind of effect spreads.

In:   the name of an effect
Out:  its prior mean and standard deviation, as logarithms of a factor
Leaves out: the fit itself (fitting)
Read next by: fitting.

The spreads were chosen by cross-validation over machines on the visible rows: the same score that is published, so its
last digit is a little kind. A small spread says that the kind of effect hardly differs between its members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# medians of what engines do: 20 % over the bound of weights, products at half of peak, 20 us a layer
PRIOR_MEANS: Final[Mapping[str, float]] = {
    "weights": 0.2,
    "experts": 0.25,
    "cache": 0.4,
    "products": 0.7,
    "expert_products": 1.0,
    "attention": 1.0,
    "threads": 1.0,
    "layers": 3.0,
    "expert_layers": 2.0,
    "step": -2.0,
    "all_reduce": 1.0,
    "link": 0.5,
    "sequences": 1.0,
    "batched_experts": -1.6,
    "interference": 0.0,
    "own_prompt": 0.0,
    "burst": -3.0,
    "first_step": 0.0,
    "wait": -4.0,
}
SCALE: Final = {"alone": 0.084, "serving": 0.165}  # of residuals that count as ordinary
NORM: Final = {"alone": 2.04, "serving": 2.35}  # how memory and compute overlap
WEIGHT_POWER: Final = {"alone": 0.5, "serving": 1}  # a group of n like rows counts as n^(1 - power)
SMALLEST_KEPT: Final = 0.005  # effects below half a percent do not ship

_ALONE: Final[Mapping[str, Mapping[str, float]]] = {
    "weights": {"base": 4.0},
    "experts": {"base": 0.083, "engine": 0.3},
    "cache": {"base": 0.7, "engine": 0.097, "latent": 0.6},
    "products": {"base": 1.0},
    "expert_products": {"base": 0.35, "engine": 0.21},
    "attention": {"base": 1.0, "engine": 0.6, "latent": 0.6},
    "threads": {"base": 1.0, "phase": 3.0, "engine": 1.5, "engine+label": 0.59, "format": 0.84, "chip": 0.15},
    "layers": {"base": 1.0},
    "expert_layers": {"base": 1.0, "engine": 0.7},
    "step": {"base": 0.33},
    "all_reduce": {"base": 1.0},
    "link": {"base": 1.0},
    "sequences": {"base": 0.5, "phase": 0.5, "pool": 1.0, "engine": 0.7, "engine+pool": 0.3, "early": 0.3},
    "batched_experts": {"base": 0.7, "engine": 0.5},
    "bandwidth": {
        "pool": 0.6,
        "engine": 0.069,
        "format": 0.032,
        "engine+pool": 0.2,
        "engine+format": 0.28,
        "engine+label": 0.1,
        "chip": 0.45,
        "split": 0.9,
    },
    "compute-prefill": {
        "phase": 2.2,
        "pool": 0.7,
        "engine": 0.35,
        "format": 0.6,
        "engine+pool": 0.3,
        "engine+format": 0.3,
        "chip": 0.3,
        "engine+label": 0.45,
        "split": 0.054,
    },
    "compute-decode": {
        "phase": 0.8,
        "pool": 0.045,
        "engine": 0.35,
        "format": 0.3,
        "engine+pool": 0.045,
        "engine+format": 0.3,
        "chip": 0.03,
        "engine+label": 0.1,
        "split": 0.15,
    },
    "communication": {"pool": 0.28, "engine": 0.69, "phase": 0.56, "chip": 0.9, "pcie": 0.5},
    "overhead": {"phase": 0.25, "pool": 1.5, "engine": 0.23, "engine+pool": 0.3, "early": 0.3},
}
_SERVING: Final[Mapping[str, Mapping[str, float]]] = {
    "weights": {"base": 0.03},
    "experts": {"base": 0.082, "engine": 0.011},
    "cache": {"base": 2.3, "engine": 0.9, "latent": 0.6},
    "products": {"base": 0.03},
    "expert_products": {"base": 0.7, "engine": 0.052},
    "attention": {"base": 0.65, "engine": 0.42, "latent": 0.6},
    "threads": {"base": 1.0, "phase": 0.5, "engine": 0.5, "engine+label": 0.3, "format": 0.3, "chip": 0.3},
    "layers": {"base": 5.0},
    "expert_layers": {"base": 0.65, "engine": 0.015},
    "step": {"base": 2.8},
    "all_reduce": {"base": 1.4},
    "link": {"base": 0.15},
    "sequences": {"base": 0.3, "phase": 1.5, "pool": 2.0, "engine": 0.7, "engine+pool": 0.1, "early": 0.009},
    "batched_experts": {"base": 0.24, "engine": 0.5},
    "bandwidth": {
        "pool": 0.6,
        "engine": 0.21,
        "format": 0.035,
        "engine+pool": 0.2,
        "engine+format": 0.28,
        "engine+label": 0.15,
        "chip": 0.016,
        "split": 1.5,
    },
    "compute-prefill": {
        "phase": 0.52,
        "pool": 0.084,
        "engine": 1.0,
        "format": 0.033,
        "engine+pool": 0.032,
        "engine+format": 0.45,
        "chip": 3.0,
        "engine+label": 0.0045,
        "split": 0.65,
    },
    "compute-decode": {
        "phase": 0.4,
        "pool": 0.16,
        "engine": 0.35,
        "format": 1.8,
        "engine+pool": 0.15,
        "engine+format": 0.3,
        "chip": 0.26,
        "engine+label": 0.069,
        "split": 0.069,
    },
    "communication": {"pool": 0.84, "engine": 0.12, "phase": 4.0, "chip": 0.9, "pcie": 2.4},
    "overhead": {"phase": 2.2, "pool": 0.23, "engine": 0.028, "engine+pool": 1.6, "early": 3.0},
    "interference": {"base": 0.98, "engine": 0.14, "experts": 2.7},
    "own_prompt": {"base": 0.37, "engine": 2.8},
    "burst": {"base": 1.5, "engine": 1.8, "experts": 0.42},
    "first_step": {"base": 1.0, "engine": 0.25},
    "wait": {"base": 0.16, "version": 2.0},
}


def spread_of(name: str, *, is_serving: bool) -> float:
    """The prior standard deviation of an effect.

    >>> spread_of("bandwidth|engine:vllm", is_serving=False) > spread_of("bandwidth|chip:nvidia-hbm/hopper", is_serving=False)
    True
    """
    head, _, rest = name.partition("|")
    return (_SERVING if is_serving else _ALONE)[head][rest.partition(":")[0]]
