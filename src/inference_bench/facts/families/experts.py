"""Mixtures of experts: which fields say how many there are, and which layers have them.

In:   Fields, the width of the model
Out:  MixtureOfExperts, and for each layer whether it has one
Read next by: the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from inference_bench.facts.families.base import unknown_kind
from inference_bench.facts.fields import Fields
from inference_bench.facts.models import MixtureOfExperts

ExpertRule: TypeAlias = Callable[[Fields], MixtureOfExperts]
SparseRule: TypeAlias = Callable[[Fields, int], tuple[bool, ...]]

_NUM_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk", "num_experts_per_token", "top_k_experts")


def chosen(fields: Fields, num_experts: int, default: int | None = None) -> int:
    """k: experts a token uses, at most as many as there are."""
    per_token = fields.integer(*_PER_TOKEN, default=default)
    fields.mark(*_PER_TOKEN)
    if per_token > num_experts:
        raise fields.refuse(f"{per_token} experts a token of {num_experts} cannot be chosen")
    return per_token


def num_experts_of(fields: Fields, default: int | None = None) -> int:
    """E: routed experts."""
    fields.mark(*_NUM_EXPERTS)
    return fields.integer(*_NUM_EXPERTS, default=default)


def routed(fields: Fields, width_key: str = "moe_intermediate_size", gated: bool = True) -> MixtureOfExperts:
    """Routed experts alone."""
    num_experts = num_experts_of(fields)
    return MixtureOfExperts(num_experts, chosen(fields, num_experts), fields.integer(width_key), gated=gated)


def with_shared_count(fields: Fields, gated: bool = True) -> MixtureOfExperts:
    """Routed experts, and n_shared_experts built alike that every token uses (DeepSeek and its kin)."""
    num_experts, width = num_experts_of(fields), fields.integer("moe_intermediate_size")
    fields.mark("n_shared_experts", "num_shared_experts")
    shared = fields.integer("n_shared_experts", "num_shared_experts", default=0, minimum=0)
    return MixtureOfExperts(
        num_experts, chosen(fields, num_experts), width, gated=gated, shared_intermediate_size=shared * width
    )


def with_gated_shared_width(fields: Fields) -> MixtureOfExperts:
    """Routed experts, and one shared expert of its own width behind a learned gate (Qwen)."""
    num_experts = num_experts_of(fields)
    shared = fields.integer("shared_expert_intermediate_size", default=0, minimum=0)
    return MixtureOfExperts(
        num_experts,
        chosen(fields, num_experts),
        fields.integer("moe_intermediate_size"),
        shared_intermediate_size=shared,
        shared_gate=shared > 0,
    )


def every_layer(_fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """All layers have experts."""
    return (True,) * num_layers


def every_step_but_listed(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """Every decoder_sparse_step-th layer, but those in mlp_only_layers (Qwen)."""
    step = fields.integer("decoder_sparse_step", default=1)
    dense = set(fields.integers("mlp_only_layers") or ())
    return tuple(index not in dense and (index + 1) % step == 0 for index in range(num_layers))


def after_first_dense(default: int = 0) -> SparseRule:
    """All but the first first_k_dense_replace layers, or what mlp_layer_types or moe_layer_freq says (DeepSeek)."""

    def rule(fields: Fields, num_layers: int) -> tuple[bool, ...]:
        kinds = fields.per_layer("mlp_layer_types", num_layers)
        first = fields.integer("first_k_dense_replace", default=default, minimum=0)
        if kinds is not None:
            return sparse_kinds(fields, kinds)
        if isinstance(fields.values.get("moe_layer_freq"), list):
            return listed(fields, "moe_layer_freq", num_layers)
        period = fields.integer("moe_layer_freq", default=1)
        return tuple(index >= first and index % period == 0 for index in range(num_layers))

    return rule


def after_dense_layers(default: int) -> SparseRule:
    """All but the first num_dense_layers."""

    def rule(fields: Fields, num_layers: int) -> tuple[bool, ...]:
        first = fields.integer("num_dense_layers", default=default, minimum=0)
        return tuple(index >= first for index in range(num_layers))

    return rule


def sparse_kinds(fields: Fields, kinds: tuple[str, ...]) -> tuple[bool, ...]:
    """mlp_layer_types as true for experts."""
    for kind in kinds:
        if kind not in ("dense", "sparse"):
            raise unknown_kind(fields, "mlp_layer_types", kind, ("dense", "sparse"))
    return tuple(kind == "sparse" for kind in kinds)


def listed(fields: Fields, key: str, num_layers: int) -> tuple[bool, ...]:
    """A list of 0 and 1, one for each layer."""
    flags = fields.integers(key) or ()
    if len(flags) != num_layers:
        raise fields.refuse(f"{key} has {len(flags)} entries for num_hidden_layers {num_layers}")
    return tuple(bool(flag) for flag in flags)
