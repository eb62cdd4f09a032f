"""Where a model lies: on one device, split over several alike, or partly in main memory.

In:   LoadedModel, its weights, cache format, context, sequences, the engine whose rounding counts, how it is split
Out:  Placement: what the fullest device holds; Offload for llama.cpp's split by layers
Leaves out: what devices send one another, and the memory that takes
Read next by: fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, count_cache
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.predict.step_cost import ServedModel

if TYPE_CHECKING:
    from inference_bench.accounting.allocation import EngineAllocation
    from inference_bench.accounting.layer_split import LayerWeights, Offload

ENGINES: Final = ("none", "llama.cpp", "vllm")


class Split(StrEnum):
    """How several devices share one model."""

    TENSOR = "tensor"  # every layer is cut; devices work together on each step
    PIPELINE = "pipeline"  # layers are dealt out; one sequence's step runs through the devices in turn


@dataclass(frozen=True, slots=True)
class Placement:
    """What the fullest device holds.

    Where:  allocation is the engine's own layout of that device's cache, None without an engine
    Unit:   bytes
    """

    devices: int
    split: Split | None
    weight_bytes: int
    cache_bytes: int
    allocation: EngineAllocation | None
    rule: str | None

    @property
    def total(self) -> int:
        """Weights and cache."""
        return self.weight_bytes + self.cache_bytes


def one_device(served: ServedModel, devices: int, split: Split) -> ServedModel:
    """What one device does of a step, as RankBound counts it: what ranks hold alike, each of them reads.

    Where:   a pipeline's stages run in turn, so its step has the whole
    Raises:  RequestError for a design that cannot be split so
    """
    if devices == 1 or split is Split.PIPELINE:
        return served
    from inference_bench.accounting.parallel import rank_model, rank_weights

    weights = rank_weights(served.model, served.weights, devices)
    return replace(served, model=rank_model(served.model, devices), weights=weights)


def allocate(
    model: ModelSpec,
    fmt: CacheFormat,
    context: int,
    sequences: int,
    engine: str,
    machine: HardwareSpec | None = None,
) -> EngineAllocation | None:
    """The cache as an engine lays it out; None for no engine, whose logical count has no rounding.

    Where:   vLLM's tokens in flight are those its server takes on the machine
    Raises:  RequestError for an engine that is not known
    """
    if engine == "llama.cpp":
        from inference_bench.accounting.allocation.llama_cpp import llama_cpp_allocation

        return llama_cpp_allocation(model, fmt, context * sequences, sequences)
    if engine == "vllm":
        from inference_bench.accounting.allocation.vllm import VllmSettings, vllm_allocation
        from inference_bench.accounting.allocation.vllm_limits import vllm_limits

        settings = VllmSettings(in_flight_tokens=vllm_limits(machine).batched_tokens)
        return vllm_allocation(model, fmt, context, sequences, settings)
    if engine != "none":
        raise RequestError(f"engine {engine!r} is not known; known: {', '.join(ENGINES)}")
    return None


@dataclass(frozen=True, slots=True)
class Placer:
    """One model in one set of formats, ready to be placed at any context and number of sequences.

    Where:  machine says what vLLM's server takes in one step; placed are the placements that were asked for before:
            searches come back to the same ones; counted are the layers' weights, once they were
    """

    model: LoadedModel
    weights: WeightCount
    plan: str | None
    fmt: CacheFormat
    engine: str
    devices: int = 1
    split: Split = Split.TENSOR
    machine: HardwareSpec | None = None
    placed: dict[tuple[int, int], Placement] = field(init=False, default_factory=dict, compare=False, repr=False)
    counted: list[LayerWeights] = field(init=False, default_factory=list, compare=False, repr=False)

    def place(self, context: int, sequences: int) -> Placement:
        """What the fullest device holds at this context and number of sequences.

        Raises:  RequestError for a design that cannot be split so
        """
        found = self.placed.get((context, sequences))
        if found is None:
            found = self.placed[context, sequences] = self._place(context, sequences)
        return found

    def _place(self, context: int, sequences: int) -> Placement:
        if self.devices < 1:
            raise RequestError(f"devices is {self.devices}; at least 1 is needed")
        if self.devices == 1:
            allocation, cache = self._cache(self.model.spec, context, sequences)
            return Placement(1, None, self.weights.total, cache, allocation, None)
        if self.split is Split.PIPELINE:
            return self._pipeline(context, sequences)
        return self._tensor(context, sequences)

    def _cache(self, model: ModelSpec, context: int, sequences: int) -> tuple[EngineAllocation | None, int]:
        """The cache of a model as the engine lays it out, and its bytes; nothing at no context."""
        if not context:
            return None, 0
        allocation = allocate(model, self.fmt, context, sequences, self.engine, self.machine)
        if allocation is not None:
            return allocation, allocation.num_bytes
        return None, count_cache(model, self.fmt, context, sequences, STATE_FORMATS[self.engine]).total_bytes

    def _tensor(self, context: int, sequences: int) -> Placement:
        from inference_bench.accounting.parallel import rank_model, tensor_parallel_share

        spec = self.model.spec
        share = tensor_parallel_share(
            spec, self.weights, self.fmt, max(context, 1), sequences, self.devices, STATE_FORMATS[self.engine]
        )
        rank = rank_model(spec, self.devices)
        allocation, cache = self._cache(rank, context, sequences)
        rule = (
            f"{share.rule}; the group holds each weight {share.weight_replication:.3g} times and each cached value "
            f"{share.cache_replication:.3g} times"
        )
        return Placement(self.devices, Split.TENSOR, share.weight_bytes, cache, allocation, rule)

    def _pipeline(self, context: int, sequences: int) -> Placement:
        from inference_bench.accounting.layer_split import pipeline_stages

        caches = self._layer_caches(context, sequences) if context else (0,) * self.model.spec.num_hidden_layers
        stages = pipeline_stages(self.layer_weights(), caches, self.devices)
        fullest = max(stages, key=lambda stage: stage.total)
        rule = (
            f"{len(fullest.layers)} of {self.model.spec.num_hidden_layers} layers on the fullest device; "
            "a step runs through all devices in turn"
        )
        return Placement(self.devices, Split.PIPELINE, fullest.weight_bytes, fullest.cache_bytes, None, rule)

    def _layer_caches(self, context: int, sequences: int) -> tuple[int, ...]:
        from inference_bench.accounting.layer_split import layer_caches

        return layer_caches(self.model.spec, lambda model: self._cache(model, context, sequences)[1])

    def layer_weights(self) -> LayerWeights:
        """The bytes of each layer, from the file's tensors or from the stated format."""
        if not self.counted:
            self.counted.append(self._count_layers())
        return self.counted[0]

    def _count_layers(self) -> LayerWeights:
        from inference_bench.accounting.layer_split import planned_layer_weights, stored_layer_weights
        from inference_bench.accounting.weights import loaded_plan

        if self.plan is None and self.model.tensors is not None:
            return stored_layer_weights(self.model.spec, self.model.tensors)
        return planned_layer_weights(self.model.spec, loaded_plan(self.model, self.plan))

    def largest_offload(self, context: int, sequences: int, free_bytes: int) -> Offload:
        """The most layers that llama.cpp can keep on a GPU with so much free memory, the rest in main memory."""
        from inference_bench.accounting.layer_split import largest_offload

        return largest_offload(self.layer_weights(), self._layer_caches(context, sequences), free_bytes)
