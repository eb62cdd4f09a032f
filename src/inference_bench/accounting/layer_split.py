"""A model cut between layers: pipeline stages over devices, or some layers on a GPU and the rest in main memory.

In:   ModelSpec with a plan for its weights or the tensor table of its file, and what counts the cache of a model
Out:  LayerWeights and the cache of each layer; DeviceShare: what each part of a cut holds
Leaves out: activations that pass between the parts, and compute buffers
Read next by: predict.fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.accounting.named_weights import Weight, name_layer_weights
from inference_bench.accounting.weight_plan import WeightPlan
from inference_bench.accounting.weights import count_weights
from inference_bench.errors import RequestError
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.models import Layer, MixtureOfExperts, ModelSpec, StoredTensor, TensorRole

_LAYER_OF: Final = re.compile(r"(?:^|\.)(?:blk|layers|h|block|blocks)\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Where the weights of a model lie.

    Where:  layers is one number a layer; embedding is the input table; output the final norm and a head of its own (a
            tied head reads the input table); other belongs to no layer, such as a tower
    Unit:   bytes, exact
    """

    layers: tuple[int, ...]
    embedding: int
    output: int
    other: int
    tied: bool

    @property
    def total(self) -> int:
        """Every weight once."""
        return sum(self.layers) + self.embedding + self.output + self.other


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """What one device holds of a model that was cut: a run of layers, the last one not included.

    Unit:   bytes
    """

    layers: range
    weight_bytes: int
    cache_bytes: int

    @property
    def total(self) -> int:
        """Weights and cache."""
        return self.weight_bytes + self.cache_bytes


@dataclass(frozen=True, slots=True)
class Offload:
    """A model split between a GPU and main memory.

    Where:  gpu_layers is the number that is asked of the engine, the output counted as one layer more;
            duplicated_bytes are those of an input table that the GPU holds a second time as the output head
    """

    gpu_layers: int
    gpu: DeviceShare
    cpu: DeviceShare
    output_on_gpu: bool
    duplicated_bytes: int


def planned_layer_weights(model: ModelSpec, plan: WeightPlan) -> LayerWeights:
    """The weights of each layer stored by a plan.

    Formula:  a layer's tensors in their formats; table and output by the same count; the rest is other
    """
    count = count_weights(model, plan)
    layers = tuple(_planned_layers(model, plan))
    output = count.head + plan.part_format("norm").count_bytes(model.final_norm_params)
    other = count.total - sum(layers) - count.embedding - output
    return LayerWeights(layers, count.embedding, output, other, model.tie_word_embeddings)


def _planned_layers(model: ModelSpec, plan: WeightPlan) -> Iterable[int]:
    if plan.file_type is not None:
        yield from _mixed_layers(model, plan)
        return
    is_sparse = any(isinstance(layer.feed_forward, MixtureOfExperts) for layer, _ in model.layer_groups())
    named = {layer: name_layer_weights(layer, model.hidden_size) for layer, _ in model.layer_groups()}
    for index, layer in enumerate(model.layers):
        yield sum(_tensor_bytes(weight, plan.layer_format(weight, index, is_sparse)) for weight in named[layer])


def _mixed_layers(model: ModelSpec, plan: WeightPlan) -> Iterable[int]:
    """Layers of a llama.cpp file type, which gives each tensor a format; its tensors come layer by layer."""
    from inference_bench.accounting.gguf_layout import layer_formats

    lengths: dict[Layer, int] = {}
    for layer, _ in model.layer_groups():
        lengths[layer] = sum(1 for _ in layer_formats(replace(model, layers=(layer,)), plan))
    rows = iter(layer_formats(model, plan))
    for layer in model.layers:
        yield sum(_tensor_bytes(weight, chosen) for weight, chosen, _ in (next(rows) for _ in range(lengths[layer])))


def _tensor_bytes(weight: Weight, chosen: NumberFormat) -> int:
    if weight.is_vector:
        return weight.copies * chosen.count_bytes(weight.columns)
    return weight.copies * chosen.count_matrix_bytes(weight.rows, weight.columns)


def stored_layer_weights(model: ModelSpec, tensors: Iterable[StoredTensor]) -> LayerWeights:
    """The weights of each layer of a file, from its tensor table.

    Raises:  RequestError for a tensor of a layer that the model does not have
    """
    layers = [0] * model.num_hidden_layers
    embedding = output = other = 0
    for tensor in tensors:
        found = _LAYER_OF.search(tensor.name)
        if found is not None and tensor.role not in (TensorRole.VISION, TensorRole.DRAFT):
            index = int(found[1])
            if index >= len(layers):
                raise RequestError(f"{model.name}: {tensor.name} is of layer {index}; there are {len(layers)} layers")
            layers[index] += tensor.num_bytes
        elif tensor.role is TensorRole.EMBEDDING:
            embedding += tensor.num_bytes
        elif tensor.role in (TensorRole.HEAD, TensorRole.NORM):
            output += tensor.num_bytes
        else:
            other += tensor.num_bytes
    return LayerWeights(tuple(layers), embedding, output, other, model.tie_word_embeddings)


def layer_caches(model: ModelSpec, count_cache: Callable[[ModelSpec], int]) -> tuple[int, ...]:
    """The cache of each layer, by any count of a whole model's cache: the logical one, or an engine's.

    Where:  layers that read another's cache keep none
    Unit:   bytes
    """
    each = {layer: count_cache(replace(model, layers=(layer,))) for layer, _ in model.layer_groups()}
    return tuple(each[layer] for layer in model.layers)


def split_layers(num_layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each pipeline stage: as even as can be, the ones left over from the last stage but one backwards.

    Raises:  RequestError for fewer layers than stages
    Source:  vLLM 0.32 vllm/distributed/utils.py, get_pp_indices
    """
    if not 1 <= stages <= num_layers:
        raise RequestError(f"{num_layers} layers cannot be cut into {stages} stages; 1 to {num_layers} can be")
    each, rest = divmod(num_layers, stages)
    sizes = [each] * stages
    for back in range(2, rest + 2):
        sizes[-back] += 1
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def pipeline_stages(weights: LayerWeights, caches: Sequence[int], stages: int) -> tuple[DeviceShare, ...]:
    """What each stage holds: the first the input table and what belongs to no layer, the last the output.

    Where:  a tied table is held by the first and the last stage
    Raises:  RequestError for fewer layers than stages
    """
    shares = []
    for stage, layers in enumerate(split_layers(len(weights.layers), stages)):
        held = sum(weights.layers[index] for index in layers)
        if stage == 0:
            held += weights.embedding + weights.other
        if stage == stages - 1:
            held += weights.output + (weights.embedding if weights.tied and stages > 1 else 0)
        shares.append(DeviceShare(layers, held, sum(caches[index] for index in layers)))
    return tuple(shares)


def offload_layers(weights: LayerWeights, caches: Sequence[int], gpu_layers: int) -> Offload:
    """What the GPU and main memory hold when so many layers are offloaded, as llama.cpp counts them.

    Formula:  the output is the first layer to go, then the last gpu_layers - 1 of the model; each takes its cache along
    Where:    the input table stays in main memory; a tied one is copied to the GPU to serve as the output head
    Unit:     bytes
    Source:   llama.cpp src/llama-model.cpp, load_tensors (i_gpu_start = n_layer + 1 - n_gpu_layers), 2026-10
    """
    if gpu_layers < 0:
        raise RequestError(f"{gpu_layers} layers on the GPU; at least 0 is needed")
    num_layers = len(weights.layers)
    first = max(num_layers + 1 - gpu_layers, 0)
    moved, kept = range(min(first, num_layers), num_layers), range(min(first, num_layers))
    output_on_gpu = gpu_layers > 0
    copied = weights.embedding if output_on_gpu and weights.tied else 0
    return Offload(
        gpu_layers=min(gpu_layers, num_layers + 1),
        gpu=DeviceShare(
            moved,
            sum(weights.layers[index] for index in moved) + (weights.output if output_on_gpu else 0) + copied,
            sum(caches[index] for index in moved),
        ),
        cpu=DeviceShare(
            kept,
            sum(weights.layers[index] for index in kept)
            + weights.embedding
            + weights.other
            + (0 if output_on_gpu else weights.output),
            sum(caches[index] for index in kept),
        ),
        output_on_gpu=output_on_gpu,
        duplicated_bytes=copied,
    )


def largest_offload(weights: LayerWeights, caches: Sequence[int], free_bytes: int) -> Offload:
    """The most layers whose weights and cache fit into the free memory of a GPU."""
    best = offload_layers(weights, caches, 0)
    for gpu_layers in range(1, len(weights.layers) + 2):
        split = offload_layers(weights, caches, gpu_layers)
        if split.gpu.total > free_bytes:
            break
        best = split
    return best
