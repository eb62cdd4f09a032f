"""The first layers of a network as a network of its own, with the same norm and head; no weight is copied.

In:   one of Transformers' causal language models
Out:  another, which shares its modules
Leaves out: heads trained for it: the last norm and head have never seen what an earlier layer says
Read next by: drafts.
"""

from __future__ import annotations

import copy
from typing import Any

from inference_bench.errors import RequestError


def default_exit_layer(num_layers: int) -> int:
    """Two thirds of the layers, at least one.

    >>> default_exit_layer(30), default_exit_layer(1)
    (20, 1)
    """
    return max(1, num_layers * 2 // 3)


def first_layers(network: Any, num_layers: int) -> Any:
    """The network as it would be with only so many layers.

    Raises:  RequestError for more layers than there are, or a network whose layers are not found
    """
    inner = network.base_model
    layers = getattr(inner, "layers", None)
    if layers is None or inner is network:
        raise RequestError(
            f"the layers of a {type(network).__name__} are not where an early exit looks for them; ask for another draft"
        )
    if not 1 <= num_layers <= len(layers):
        raise RequestError(
            f"the model has {len(layers)} layers, so a draft cannot stop after {num_layers}; give 1 to {len(layers)}"
        )
    config = copy.deepcopy(network.config)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:num_layers]
    config.num_hidden_layers = num_layers
    shorter, outer = _same_modules(inner), _same_modules(network)
    shorter.layers = layers[:num_layers]
    shorter.config = outer.config = config
    setattr(outer, network.base_model_prefix, shorter)
    return outer


def _same_modules(module: Any) -> Any:
    """Another module that holds the same modules and weights, of which each can be replaced on its own."""
    other = module.__class__.__new__(module.__class__)
    other.__dict__ = {**module.__dict__, "_modules": dict(module._modules), "_parameters": dict(module._parameters)}
    return other
