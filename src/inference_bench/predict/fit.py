"""Does it fit, how fast could it be, and what would the usual formula have said: the answer to `fit`.

In:   LoadedModel, optionally HardwareSpec, formats, context, sequences, engine, overhead
Out:  FitAnswer
Leaves out: several machines, offload, and what real engines reach beyond the planning factors
Read next by: report, cli.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.allocation import EngineAllocation, llama_cpp_allocation, vllm_allocation
from inference_bench.accounting.cache import CacheCount, CacheFormat, count_cache
from inference_bench.accounting.params import ParameterCount, count_params
from inference_bench.accounting.weights import WeightCount, count_stored_weights, count_weights, weight_plan
from inference_bench.accounting.work import HeadPositions, count_step_work, decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.origin import Origin
from inference_bench.predict.capacity import largest_that_fits
from inference_bench.predict.latency import PLANNING_ASSUMPTION, Range, predict_seconds
from inference_bench.roofline import Bound, Roof, bound_step, roof

DEFAULT_CONTEXT_TOKENS: Final = 4096
DEFAULT_OVERHEAD_BYTES: Final = 2_500_000_000
ENGINES: Final = ("none", "llama.cpp", "vllm")
_LONGEST_CONTEXT: Final = 1 << 40
_MOST_SEQUENCES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What was asked. None takes the default: the file's own weights, a 16-bit cache, the model's context or 4096."""

    weights: str | None = None
    cache: str | None = None
    context_tokens: int | None = None
    sequences: int = 1
    engine: str = "none"
    overhead_bytes: int | None = None
    compute_format: str | None = None


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """Everything `fit` says. Fields that need a machine are None when none was named."""

    model: ModelSpec
    params: ParameterCount
    weights: WeightCount
    cache: CacheCount
    allocation: EngineAllocation | None
    machine: HardwareSpec | None
    overhead_bytes: int
    needed_bytes: int
    naive_needed_bytes: int
    fits: bool | None
    naive_fits: bool | None
    headroom_bytes: int | None
    max_context_tokens: int | None
    max_sequences: int | None
    decode: Bound | None
    decode_expected_s: Range | None
    prefill: Bound | None
    prefill_expected_s: Range | None
    assumptions: tuple[str, ...]


def loaded_weights(model: LoadedModel, plan: str | None) -> WeightCount:
    """The weights of a model: a stated format, or the file's own tensor table, or the format its config names.

    Raises:  UnknownNameError, RequestError
    """
    if plan is not None:
        return count_weights(model.spec, weight_plan(plan))
    if model.tensors is not None:
        return count_stored_weights(model.tensors, model.spec.tie_word_embeddings)
    return count_weights(model.spec, weight_plan((model.spec.stored_format or number_format("bf16")).name))


def cache_format(text: str | None) -> CacheFormat:
    """A cache format by name, or keys and values apart as "q8_0/fp16"; 16 bits by default.

    Raises:  UnknownNameError
    """
    keys, _, values = (text or "fp16").partition("/")
    return CacheFormat(number_format(keys), number_format(values or keys))


def fit(model: LoadedModel, machine: HardwareSpec | None = None, request: FitRequest | None = None) -> FitAnswer:
    """Whether a model fits a machine, and how fast it could be there.

    Raises:  RequestError, UnknownNameError
    """
    request = request or FitRequest()
    weights, fmt = loaded_weights(model, request.weights), cache_format(request.cache)
    context = _context(model.spec, request)
    if request.sequences < 1:
        raise RequestError(f"sequences is {request.sequences}; at least 1 is needed")
    cache = count_cache(model.spec, fmt, context, request.sequences)
    allocation = _allocation(model.spec, fmt, context, request.sequences, request.engine)
    overhead = DEFAULT_OVERHEAD_BYTES if request.overhead_bytes is None else request.overhead_bytes
    fixed = weights.total + overhead
    needed = fixed + (allocation.num_bytes if allocation else cache.num_bytes + cache.state_bytes)
    memory = machine.memory_bytes if machine else None
    space = _Space(model.spec, fmt, request, fixed, memory)
    ceiling = roof(machine, weights.linear_format, request.compute_format) if machine else None
    speeds = _speeds(model.spec, weights, fmt, ceiling, context, request) if ceiling else (None, None)
    return FitAnswer(
        model=model.spec,
        params=count_params(model.spec),
        weights=weights,
        cache=cache,
        allocation=allocation,
        machine=machine,
        overhead_bytes=overhead,
        needed_bytes=needed,
        naive_needed_bytes=fixed + cache.naive_bytes,
        fits=None if memory is None else needed <= memory,
        naive_fits=None if memory is None else fixed + cache.naive_bytes <= memory,
        headroom_bytes=None if memory is None else memory - needed,
        max_context_tokens=space.max_context_tokens(),
        max_sequences=space.max_sequences(context),
        decode=speeds[0],
        decode_expected_s=predict_seconds(speeds[0], ceiling) if speeds[0] and ceiling else None,
        prefill=speeds[1],
        prefill_expected_s=predict_seconds(speeds[1], ceiling) if speeds[1] and ceiling else None,
        assumptions=_assumptions(model.spec, weights, request, machine),
    )


def _context(model: ModelSpec, request: FitRequest) -> int:
    context = request.context_tokens
    if context is None:
        context = min(model.max_position_embeddings or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)
    if context < 1:
        raise RequestError(f"context is {context} tokens; at least 1 is needed")
    return context


def _allocation(
    model: ModelSpec, fmt: CacheFormat, context: int, sequences: int, engine: str
) -> EngineAllocation | None:
    if engine == "llama.cpp":
        return llama_cpp_allocation(model, fmt, context * sequences, sequences)
    if engine == "vllm":
        return vllm_allocation(model, fmt, context, sequences)
    if engine != "none":
        raise RequestError(f"engine {engine!r} is not known; known: {', '.join(ENGINES)}")
    return None


@dataclass(frozen=True, slots=True)
class _Space:
    """What fits in the memory left beside weights and overhead, by the same count as the answer itself."""

    model: ModelSpec
    fmt: CacheFormat
    request: FitRequest
    fixed_bytes: int
    memory_bytes: int | None

    def _fits(self, context: int, sequences: int) -> bool:
        if self.memory_bytes is None:
            return False
        allocation = _allocation(self.model, self.fmt, context, sequences, self.request.engine) if context else None
        cache = allocation.num_bytes if allocation else count_cache(self.model, self.fmt, context, sequences).num_bytes
        return self.fixed_bytes + cache <= self.memory_bytes

    def max_context_tokens(self) -> int | None:
        """The longest context for the sequences asked for, within what the model was trained for."""
        limit = self.model.max_position_embeddings or _LONGEST_CONTEXT
        if self.memory_bytes is None:
            return None
        return largest_that_fits(lambda context: self._fits(context, self.request.sequences), limit)

    def max_sequences(self, context: int) -> int | None:
        """The most sequences of the context asked for."""
        if self.memory_bytes is None:
            return None
        return largest_that_fits(lambda count: count == 0 or self._fits(context, count), _MOST_SEQUENCES)


def _speeds(
    model: ModelSpec, weights: WeightCount, fmt: CacheFormat, ceiling: Roof, context: int, request: FitRequest
) -> tuple[Bound, Bound]:
    decode = count_step_work(model, weights, fmt, decode_batch(context, request.sequences))
    prefill = count_step_work(model, weights, fmt, prompt(context), HeadPositions.LAST)
    return bound_step("decode", decode, ceiling), bound_step("prefill", prefill, ceiling)


def _assumptions(
    model: ModelSpec, weights: WeightCount, request: FitRequest, machine: HardwareSpec | None
) -> tuple[str, ...]:
    lines = [f"weights stored as {weights.format_name}, {weights.bits_per_weight:.4g} bits a weight, scales included"]
    if request.overhead_bytes is None:
        lines.append("overhead of the runtime taken as 2.5 GB; give the real one when it is known")
    if request.cache is None:
        lines.append("cache stored in 16 bits")
    if request.context_tokens is None:
        lines.append("context not given: taken as 4096 tokens, or the model's own limit where that is shorter")
    if machine is not None:
        compute = request.compute_format or machine.compute_format(weights.linear_format)
        lines.append(f"speeds against {machine.name}: {compute or 'unknown'} dense peak; source {machine.source}")
        if machine.note and machine.origin is Origin.MEASURED:
            lines.append(f"when {machine.name} was measured: {machine.note}")
        lines.append("prefill is one prompt of the whole context, with the output head for its last position only")
        lines.append(PLANNING_ASSUMPTION)
    return (*lines, *model.assumptions)
