"""Which experts a step reads: a mixture keeps all of them resident and touches only those its tokens choose.

In:   experts, experts a token, tokens in the step, how alike their choices are
Out:  the expected number of distinct experts, and the bytes of them
Leaves out: which experts a real router prefers; uniform routing is an assumption, stated wherever a figure rests on it
Read next by: work.
"""

from __future__ import annotations

from typing import Final

from inference_bench.accounting.params import expert_weights, kept_by_identity
from inference_bench.errors import RequestError
from inference_bench.facts.models import MixtureOfExperts, ModelSpec, TensorRole

UNIFORM_ROUTING: Final = 0.0


def expect_distinct_experts(
    num_experts: int, experts_per_token: int, num_tokens: int, correlation: float = UNIFORM_ROUTING
) -> float:
    """Distinct experts that so many tokens choose, in expectation.

    Formula:  (1 - c)·E·(1 - (1 - k/E)^B) + c·k
    Where:    E num_experts, k experts_per_token, B num_tokens; correlation c is the share of steps in which all tokens
              choose alike, 0 being independent uniform choices
    Unit:     experts
    Raises:   RequestError for a correlation outside 0..1 or a k outside 1..E

    >>> expect_distinct_experts(8, 2, 1), expect_distinct_experts(8, 2, 2), expect_distinct_experts(8, 2, 64, 1.0)
    (2.0, 3.5, 2.0)
    """
    if not 0 <= correlation <= 1:
        raise RequestError(f"the correlation of expert choices is {correlation}; it must lie in 0..1")
    if not 0 < experts_per_token <= num_experts or num_tokens < 0:
        raise RequestError(f"{experts_per_token} of {num_experts} experts for {num_tokens} tokens cannot be chosen")
    independent = num_experts * (1 - (1 - experts_per_token / num_experts) ** num_tokens)
    alike = experts_per_token if num_tokens else 0
    return (1 - correlation) * independent + correlation * alike


def expect_expert_fraction(model: ModelSpec, num_tokens: int, correlation: float = UNIFORM_ROUTING) -> float:
    """Share of the routed experts' parameters that a step of so many tokens reads, over all layers.

    Formula:  Σ layers (distinct / E)·routed / Σ layers routed; 1 for a model without experts
    """
    read, total = 0.0, 0
    for block, routed in _routed_params(model):
        distinct = expect_distinct_experts(block.num_experts, block.experts_per_token, num_tokens, correlation)
        read, total = read + routed * distinct / block.num_experts, total + routed
    return read / total if total else 1.0


@kept_by_identity
def _routed_params(model: ModelSpec) -> tuple[tuple[MixtureOfExperts, int], ...]:
    """Each distinct layer's mixture, with the parameters of its routed experts in all such layers."""
    found = []
    for layer, count in model.layer_groups():
        block = layer.feed_forward
        if isinstance(block, MixtureOfExperts):
            shapes = expert_weights(block, model.hidden_size)
            routed = count * sum(shape.num_params for shape in shapes if shape.role is TensorRole.EXPERT)
            found.append((block, routed))
    return tuple(found)


def count_expected_expert_bytes(
    model: ModelSpec, expert_bytes: int, num_tokens: int, correlation: float = UNIFORM_ROUTING
) -> int:
    """Bytes of routed experts one step reads, of all that are resident.

    Formula:  resident bytes · expected share, to the nearest byte
    Unit:     bytes, an expectation
    """
    if not expert_bytes:
        return 0
    return round(expert_bytes * expect_expert_fraction(model, num_tokens, correlation))
