"""The parts of a step's time before any efficiency: bytes over bandwidth, FLOPs over peak, counts of overheads.

In:   Setting, what each sequence brings to a step
Out:  StepTerms: one number a term, in seconds (overheads in units of a microsecond a layer, a message, a sequence)
Leaves out: how far engines fall short of each (effects, parameters)
Read next by: expectation, score.fitting.

Work is divided over the devices as engines divide it: weights and heads by the tensor ranks, key-value heads by at most
as many ranks as there are heads, latents by none, experts by all devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.cache import count_cache
from inference_bench.accounting.communication import count_all_reduce_bytes, count_all_reduces
from inference_bench.accounting.experts import expect_expert_fraction
from inference_bench.accounting.work import Operation, SequenceStep
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.efficiency.setting import (
    LLAMA_CPP_FAMILY,
    DeviceSplit,
    Setting,
    has_latent_attention,
)

MEMORY_TERMS: Final = ("weights", "experts", "cache")
COMPUTE_TERMS: Final = ("products", "expert_products", "attention", "threads")
OVERHEAD_TERMS: Final = ("layers", "expert_layers", "step", "all_reduce", "link", "sequences", "batched_experts")
TERMS: Final = MEMORY_TERMS + COMPUTE_TERMS + OVERHEAD_TERMS
PCIE_BYTES_PER_S: Final = 25e9  # what a PCIe 4.0 x16 link reaches in one direction; taken where no link is known
FAST_LINK_BYTES_PER_S: Final = 100e9  # above it a link is more than PCIe
_MICROSECOND: Final = 1e-6
_MILLISECOND: Final = 1e-3
_MEMORY_SHARE: Final = 0.92  # of a device's memory that servers take for weights and cache
_RUNTIME_BYTES: Final = 1.5e9
_LEAST_CACHE_SHARE: Final = 0.08  # a server that started has at least this much left for its cache


@dataclass(frozen=True, slots=True)
class StepTerms:
    """One step, term by term in the order of TERMS; `is_decode` says which of the two kinds of step it is."""

    values: tuple[float, ...]
    is_decode: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """What one device does at best.

    Where:  link is one direction of the connection between devices; is_pcie where that is no faster than PCIe
    Unit:   per second
    """

    bandwidth: float
    peak_16bit: float
    peak: float
    link: float
    is_pcie: bool


def rates(setting: Setting) -> Rates | None:
    """The rates of the machine for this engine and these weights; None where bandwidth or every peak is unknown.

    Where:   16-bit products of GeForce cards are taken at the faster rate that accumulates in 16 bits, as most engines
             do; llama.cpp computes in 16 bits or 8-bit integers whatever the file holds
    """
    machine = setting.machine
    sixteen = _peak_16bit(machine)
    if machine.bandwidth_bytes_per_s is None or sixteen is None:
        return None
    both = machine.interconnect_bytes_per_s
    link = both / 2 if both else PCIE_BYTES_PER_S
    return Rates(
        machine.bandwidth_bytes_per_s, sixteen, _peak(setting, sixteen), link, is_pcie=link < FAST_LINK_BYTES_PER_S
    )


def _peak_16bit(machine: HardwareSpec) -> float | None:
    found = [machine.peak_flops_per_s.get(name) for name in ("fp16", "bf16", "fp32", "int8")]
    with_16bit_sums = (machine.acc16_flops_per_s or {}).get("fp16")
    return next((rate for rate in (with_16bit_sums, *found) if rate), None)


def _peak(setting: Setting, sixteen: float) -> float:
    peaks, group = setting.machine.peak_flops_per_s, setting.format_group
    if setting.engine in LLAMA_CPP_FAMILY:
        return sixteen
    if setting.activations_8bit:
        return peaks.get("int8") or peaks.get("fp8") or sixteen
    if group == "fp8":
        return peaks.get("fp8") or sixteen
    if group == "fp4":
        return peaks.get("fp4") or sixteen
    return sixteen


def step_terms(setting: Setting, limits: Rates, sequences: Sequence[SequenceStep], *, is_decode: bool) -> StepTerms:
    """The terms of one step over all replicas.

    Formula:  bytes / BW, FLOPs / P, layers · 1 us, messages · log2(ranks) · 1 us, bytes sent / link, sequences · 1 us;
              the experts' bytes once more where several sequences decode: their kernels do worse than those of one
    Unit:     seconds
    Raises:   RequestError as count_step_work
    """
    mine = tuple(_share(step, setting.replicas) for step in sequences)
    work = setting.served.work(mine)
    operations = {operation.name: operation for operation in work.operations}
    tensor = setting.tensor
    dense = [item for name, item in operations.items() if name != "experts"]
    products = sum(item.flops for item in dense if item.name != "attention") / tensor
    expert_flops, expert_bytes = _experts(setting, operations.get("experts"), sequences)
    attention = operations.get("attention")
    model = setting.served.model
    layers = model.num_hidden_layers * _MICROSECOND
    sent = count_all_reduce_bytes(model, work.num_positions, tensor) if tensor > 1 else 0
    values = (
        sum(item.weight_bytes for item in dense) * setting.weight_scale / tensor / limits.bandwidth,
        expert_bytes / limits.bandwidth,
        _cache_bytes(setting, operations) / limits.bandwidth,
        products / limits.peak,
        expert_flops / limits.peak,
        (attention.flops if attention else 0) / tensor / limits.peak_16bit,
        (products + expert_flops) / limits.peak / setting.threads_fraction if setting.pool == "cpu" else 0.0,
        layers,
        layers * (expert_flops > 0),
        _MILLISECOND,
        count_all_reduces(model) * _MICROSECOND * math.log2(tensor) if tensor > 1 else 0.0,
        sent / limits.link,
        work.num_sequences * _MICROSECOND,
        expert_bytes / limits.bandwidth if is_decode and sum(step.count for step in sequences) > 1 else 0.0,
    )
    return StepTerms(values, is_decode)


def _share(step: SequenceStep, replicas: int) -> SequenceStep:
    """What one replica has of so many like sequences: at least one."""
    return SequenceStep(step.num_cached, step.num_new, max(1, -(-step.count // replicas)))


def _experts(setting: Setting, operation: Operation | None, sequences: Sequence[SequenceStep]) -> tuple[float, float]:
    """FLOPs and bytes of the experts on one device: tokens of all replicas meet there."""
    if operation is None:
        return 0.0, 0.0
    served, ranks = setting.served, _expert_ranks(setting)
    tokens = max(1, sum(step.num_new * step.count for step in sequences))
    share = expect_expert_fraction(served.model, tokens, served.expert_correlation)
    flops = operation.flops * setting.replicas / ranks
    return flops, served.weights.experts * share * setting.weight_scale / ranks


def _expert_ranks(setting: Setting) -> int:
    return 1 if setting.split is DeviceSplit.LAYER else setting.devices


def _cache_bytes(setting: Setting, operations: dict[str, Operation]) -> float:
    """Bytes of cache and recurrent state that one device moves."""
    attention, state = operations.get("attention"), operations.get("recurrent state")
    moved = (attention.cache_read_bytes + attention.cache_write_bytes) / _cache_ranks(setting) if attention else 0.0
    return moved + (state.num_bytes / setting.tensor if state else 0.0)


def _cache_ranks(setting: Setting) -> int:
    """Over how many devices the cache of one sequence is divided."""
    model = setting.served.model
    if has_latent_attention(model):
        return 1
    heads = next((attention.num_key_value_heads for attention, _ in model.attention_groups()), 1)
    return min(setting.tensor, heads)


def room_for_sequences(setting: Setting, context_tokens: int) -> float | None:
    """Sequences of a context that one replica's cache holds beside the weights; None where memory is unknown.

    Formula:  (0.92 · memory · devices - weights - 1.5 GB · devices) / (cache of one · copies), at least 8 % of memory
    Unit:     sequences, not whole
    Ignores:  an engine's own pages; used only to see when a published concurrency cannot all run at once
    """
    memory = setting.machine.memory_bytes
    if memory is None or context_tokens < 1:
        return None
    everything = memory * setting.devices
    weights = setting.served.weights.total * setting.weight_scale
    free = _MEMORY_SHARE * everything - weights - _RUNTIME_BYTES * setting.devices
    free = max(free, _LEAST_CACHE_SHARE * everything)
    one = count_cache(setting.served.model, setting.served.cache_format, context_tokens, 1).total_bytes
    copies = setting.tensor / _cache_ranks(setting)
    return max(1.0, free / (one * copies) / setting.replicas) if one else None


__all__ = ["TERMS", "Rates", "StepTerms", "rates", "room_for_sequences", "step_terms"]
