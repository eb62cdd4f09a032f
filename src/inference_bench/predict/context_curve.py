"""How do the cache and the pace of decoding change with the context, and what does the usual formula say of it?

In:   LoadedModel, optionally HardwareSpec, FitRequest
Out:  ContextCurve: a few dozen exact counts and bounds, quick enough for a page that asks at every keystroke
Leaves out: what engines allocate and reach (see fit)
Read next by: charts.context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from inference_bench.accounting.cache import LOGICAL_STATE, STATE_FORMATS, CacheFormat, StateFormat, count_cache
from inference_bench.accounting.weights import WeightCount
from inference_bench.accounting.work import decode_batch
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.predict.engine_choice import NO_ENGINE
from inference_bench.predict.fit import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_OVERHEAD_BYTES,
    FitRequest,
    cache_format,
    loaded_weights,
)
from inference_bench.predict.placement import Placer, Split, one_device
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import Roof, bound_step, roof
from inference_bench.units import MEBI

_FIRST_CONTEXT: Final = 1024
_LAST_CONTEXT: Final = MEBI  # of a curve: beyond it only what was asked for
_FEWEST_POWERS: Final = 4


@dataclass(frozen=True, slots=True)
class ContextPoint:
    """One context.

    Where:  the bytes are of all sequences on the fullest device: the true cache, and the one by the usual formula (None
            where that has nothing to multiply); the rate is what each sequence gets at best, None where none is known
    Unit:   tokens, bytes, tokens/s
    """

    context_tokens: int
    cache_bytes: int
    usual_bytes: int | None
    sequence_tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class ContextCurve:
    """The cache and the bound of decoding over the context.

    Where:  every figure is of the fullest device at the context asked for; memory_bytes is None without a machine, or
            where its memory is not known; longest_tokens is what the model says it can attend
    Unit:   bytes, tokens
    """

    model: str
    machine: str | None
    devices: int
    sequences: int
    context_tokens: int
    longest_tokens: int | None
    points: tuple[ContextPoint, ...]
    weight_bytes: int
    overhead_bytes: int
    memory_bytes: int | None

    @property
    def free_bytes(self) -> int | None:
        """What the cache may take: memory less weights and overhead; less than 0 where they alone do not fit."""
        if self.memory_bytes is None:
            return None
        return self.memory_bytes - self.weight_bytes - self.overhead_bytes

    @property
    def asked(self) -> ContextPoint:
        """The point of the context that was asked for."""
        return next(point for point in self.points if point.context_tokens == self.context_tokens)


def context_curve(
    model: LoadedModel,
    machine: HardwareSpec | None = None,
    request: FitRequest | None = None,
    weights: WeightCount | None = None,
) -> ContextCurve:
    """The cache and the bound of decoding at powers of two up to what the model can attend, and at the context asked for.

    Formula:  cache as `count_cache`, one device's share of it; 1 / max(bytes / BW, FLOPs / P_peak) of a decode step
    Where:    weights are the request's, counted before; None counts them
    Unit:     bytes, exact; tokens/s a sequence
    Ignores:  what an engine allocates on top; what devices send one another
    Raises:   RequestError, UnknownNameError, as fit
    """
    request = request or FitRequest()
    weights, fmt = weights or loaded_weights(model, request.weights), cache_format(request.cache)
    asked = _asked_context(model.spec, request)
    served = ServedModel(model.spec, weights, fmt, expert_correlation=request.expert_correlation)
    share = _device(model, served, request, asked)
    ceiling = roof(machine, weights.linear_format, request.compute_format) if machine else None
    longest = model.spec.max_position_embeddings
    return ContextCurve(
        model=model.spec.name,
        machine=machine.name if machine else None,
        devices=request.devices,
        sequences=request.sequences,
        context_tokens=asked,
        longest_tokens=longest,
        points=tuple(_point(share, ceiling, context, request) for context in _contexts(longest, asked)),
        weight_bytes=share.weight_bytes,
        overhead_bytes=DEFAULT_OVERHEAD_BYTES if request.overhead_bytes is None else request.overhead_bytes,
        memory_bytes=machine.memory_bytes if machine else None,
    )


def _asked_context(model: ModelSpec, request: FitRequest) -> int:
    """The context asked for, or the one that fit takes by default."""
    context = request.context_tokens
    if context is None:
        context = min(model.max_position_embeddings or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)
    if context < 1 or request.sequences < 1:
        raise RequestError(f"context is {context} and sequences {request.sequences}; at least 1 of each is needed")
    return context


def _contexts(longest: int | None, asked: int) -> list[int]:
    """Powers of two from 1024, or from less for a model that cannot attend much more, up to its limit, and the one asked for."""
    last = min(longest or _LAST_CONTEXT, _LAST_CONTEXT)
    first = min(_FIRST_CONTEXT, 1 << max(0, last.bit_length() - 1 - _FEWEST_POWERS))
    powers = [1 << power for power in range(first.bit_length() - 1, last.bit_length())]
    return sorted({*powers, last, asked})


@dataclass(frozen=True, slots=True)
class _Device:
    """The part of the model that one device holds the cache of, and what it does of a step.

    Unit:  bytes
    """

    whole: ModelSpec
    part: ModelSpec
    fmt: CacheFormat
    states: StateFormat
    weight_bytes: int
    served: ServedModel

    def cache_bytes(self, context: int, sequences: int) -> tuple[int, int | None]:
        """The true cache of the part, and that of the usual formula, of which it has the same share.

        Formula:  usual cache of the whole · cache of the part / cache of the whole
        """
        whole = count_cache(self.whole, self.fmt, context, sequences, self.states)
        if self.part is self.whole:
            return whole.total_bytes, whole.naive_bytes
        held = count_cache(self.part, self.fmt, context, sequences, self.states).total_bytes
        if whole.naive_bytes is None or not whole.total_bytes:
            return held, whole.naive_bytes
        return held, round(held / whole.total_bytes * whole.naive_bytes)


def _device(model: LoadedModel, served: ServedModel, request: FitRequest, context: int) -> _Device:
    """The fullest device, as fit places the model at the context asked for."""
    spec, weights, fmt = model.spec, served.weights, served.cache_format
    states = STATE_FORMATS.get(request.engine, LOGICAL_STATE)
    if request.devices == 1:
        return _Device(spec, spec, fmt, states, weights.total, served)
    placer = Placer(model, weights, request.weights, fmt, NO_ENGINE, request.devices, request.split)
    if request.split is Split.PIPELINE:
        return _stage(placer, served, states, context, request.sequences)
    placed, rank = placer.place(context, request.sequences), one_device(served, request.devices, request.split)
    return _Device(spec, rank.model, fmt, states, placed.weight_bytes, rank)


def _stage(placer: Placer, served: ServedModel, states: StateFormat, context: int, sequences: int) -> _Device:
    """The fullest stage of a pipeline: its layers as a model of their own; a step runs through all stages."""
    from inference_bench.accounting.layer_split import layer_caches, pipeline_stages

    spec = placer.model.spec
    caches = layer_caches(spec, lambda one: count_cache(one, placer.fmt, context, sequences, states).total_bytes)
    fullest = max(pipeline_stages(placer.layer_weights(), caches, placer.devices), key=lambda stage: stage.total)
    part = replace(spec, layers=tuple(spec.layers[index] for index in fullest.layers))
    return _Device(spec, part, placer.fmt, states, fullest.weight_bytes, served)


def _point(device: _Device, ceiling: Roof | None, context: int, request: FitRequest) -> ContextPoint:
    held, usual = device.cache_bytes(context, request.sequences)
    rate = None
    if ceiling is not None:
        work = device.served.work(decode_batch(context, request.sequences))
        seconds = bound_step("decode", work, ceiling).seconds
        rate = 1 / seconds if seconds else None
    return ContextPoint(context, held, usual, rate)
