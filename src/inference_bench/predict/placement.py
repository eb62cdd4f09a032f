"""Where a model lies: on one device, split over several alike, or partly in main memory.

In:   LoadedModel, its weights, cache format, context, sequences, the engine whose rounding counts, how it is split
Out:  Placement: what the fullest device holds; Offload for llama.cpp's split by layers
Leaves out: what devices send one another, and the memory that takes
Read next by: fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import STATE_FORMATS, CacheFormat, count_cache
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError
from inference_bench.facts.models import LoadedModel, ModelSpec

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

    Where:  allocation is the engine's own layout of that device's cache, None without an engine; flops_share and the
            byte shares are those of one device in one step: a pipeline's stages run in turn, so its step has the whole
    Unit:   bytes
    """

    devices: int
    split: Split | None
    weight_bytes: int
    cache_bytes: int
    allocation: EngineAllocation | None
    step_share: float
    rule: str | None

    @property
    def total(self) -> int:
        """Weights and cache."""
        return self.weight_bytes + self.cache_bytes


def allocate(model: ModelSpec, fmt: CacheFormat, context: int, sequences: int, engine: str) -> EngineAllocation | None:
    """The cache as an engine lays it out; None for no engine, whose logical count has no rounding.

    Raises:  RequestError for an engine that is not known
    """
    if engine == "llama.cpp":
        from inference_bench.accounting.allocation.llama_cpp import llama_cpp_allocation

        return llama_cpp_allocation(model, fmt, context * sequences, sequences)
    if engine == "vllm":
        from inference_bench.accounting.allocation.vllm import vllm_allocation

        return vllm_allocation(model, fmt, context, sequences)
    if engine != "none":
        raise RequestError(f"engine {engine!r} is not known; known: {', '.join(ENGINES)}")
    return None


def _cache_bytes(model: ModelSpec, fmt: CacheFormat, context: int, sequences: int, engine: str) -> int:
    if not context:
        return 0
    allocation = allocate(model, fmt, context, sequences, engine)
    if allocation is not None:
        return allocation.num_bytes
    return count_cache(model, fmt, context, sequences, STATE_FORMATS[engine]).total_bytes


@dataclass(frozen=True, slots=True)
class Placer:
    """One model in one set of formats, ready to be placed at any context and number of sequences.

    Where:  placed are the placements that were asked for before: searches come back to the same ones
    """

    model: LoadedModel
    weights: WeightCount
    plan: str | None
    fmt: CacheFormat
    engine: str
    devices: int = 1
    split: Split = Split.TENSOR
    placed: dict[tuple[int, int], Placement] = field(init=False, default_factory=dict, compare=False, repr=False)

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
            allocation = allocate(self.model.spec, self.fmt, context, sequences, self.engine) if context else None
            cache = _cache_bytes(self.model.spec, self.fmt, context, sequences, self.engine)
            return Placement(1, None, self.weights.total, cache, allocation, 1.0, None)
        if self.split is Split.PIPELINE:
            return self._pipeline(context, sequences)
        return self._tensor(context, sequences)

    def _tensor(self, context: int, sequences: int) -> Placement:
        from inference_bench.accounting.parallel import rank_model, tensor_parallel_share

        spec = self.model.spec
        share = tensor_parallel_share(
            spec, self.weights, self.fmt, max(context, 1), sequences, self.devices, STATE_FORMATS[self.engine]
        )
        rank = rank_model(spec, self.devices)
        allocation = allocate(rank, self.fmt, context, sequences, self.engine) if context else None
        cache = _cache_bytes(rank, self.fmt, context, sequences, self.engine)
        rule = (
            f"{share.rule}; the group holds each weight {share.weight_replication:.3g} times and each cached value "
            f"{share.cache_replication:.3g} times"
        )
        return Placement(self.devices, Split.TENSOR, share.weight_bytes, cache, allocation, 1.0 / self.devices, rule)

    def _pipeline(self, context: int, sequences: int) -> Placement:
        from inference_bench.accounting.layer_split import pipeline_stages

        caches = self._layer_caches(context, sequences) if context else (0,) * self.model.spec.num_hidden_layers
        stages = pipeline_stages(self.layer_weights(), caches, self.devices)
        fullest = max(stages, key=lambda stage: stage.total)
        rule = (
            f"{len(fullest.layers)} of {self.model.spec.num_hidden_layers} layers on the fullest device; "
            "a step runs through all devices in turn"
        )
        return Placement(self.devices, Split.PIPELINE, fullest.weight_bytes, fullest.cache_bytes, None, 1.0, rule)

    def _layer_caches(self, context: int, sequences: int) -> tuple[int, ...]:
        from inference_bench.accounting.layer_split import layer_caches

        return layer_caches(
            self.model.spec, lambda model: _cache_bytes(model, self.fmt, context, sequences, self.engine)
        )

    def layer_weights(self) -> LayerWeights:
        """The bytes of each layer, from the file's tensors or from the stated format."""
        from inference_bench.accounting.layer_split import planned_layer_weights, stored_layer_weights
        from inference_bench.accounting.weights import loaded_plan

        if self.plan is None and self.model.tensors is not None:
            return stored_layer_weights(self.model.spec, self.model.tensors)
        return planned_layer_weights(self.model.spec, loaded_plan(self.model, self.plan))

    def largest_offload(self, context: int, sequences: int, free_bytes: int) -> Offload:
        """The most layers that llama.cpp can keep on a GPU with so much free memory, the rest in main memory."""
        from inference_bench.accounting.layer_split import largest_offload

        return largest_offload(self.layer_weights(), self._layer_caches(context, sequences), free_bytes)
