"""Does it fit, how fast could it be, and what would the usual formula have said: the answer to `fit`.

In:   LoadedModel, optionally HardwareSpec, formats, context, sequences, engine, overhead
Out:  FitAnswer
Leaves out: what devices send one another (of bounds); what engines reach (see expected_speeds)
Read next by: report, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import (
    MAX_CONTEXT_TOKENS,
    MAX_SEQUENCES,
    STATE_FORMATS,
    CacheCount,
    CacheFormat,
    count_cache,
)
from inference_bench.accounting.experts import UNIFORM_ROUTING
from inference_bench.accounting.params import ParameterCount, count_params
from inference_bench.accounting.weights import WeightCount, count_loaded_weights
from inference_bench.accounting.work import decode_batch, prompt
from inference_bench.errors import RequestError
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.origin import Origin
from inference_bench.predict.capacity import largest_that_fits
from inference_bench.predict.engine_choice import NO_ENGINE, no_rule
from inference_bench.predict.expected_speeds import (
    NO_SPEEDS,
    EngineAsked,
    ExpectedSpeeds,
    below_bound,
    engine_speeds,
    no_rates,
    not_before_memory,
    planning_speeds,
)
from inference_bench.predict.latency import Range
from inference_bench.predict.placement import Placement, Placer, Split, one_device
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import Bound, LimitedBy, Roof, bound_step, roof

if TYPE_CHECKING:
    from inference_bench.accounting.allocation import EngineAllocation
    from inference_bench.accounting.layer_split import Offload
    from inference_bench.predict.efficiency import OwnMeasurements
    from inference_bench.predict.fitted_cost import FittedSteps

DEFAULT_CONTEXT_TOKENS: Final = 4096
DEFAULT_OVERHEAD_BYTES: Final = 2_500_000_000
BEYOND_LIMIT: Final = "this model says it can attend"


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What was asked. None takes the default: the file's own weights, a 16-bit cache, the model's context or 4096.

    Where:  engine is one whose rule counts the cache; served_by is the family of engines that speeds are expected from,
            by default the same (see engine_choice); own are measurements that correct them; fitted are step times fitted to a
            server, which take the place of both
    """

    weights: str | None = None
    cache: str | None = None
    context_tokens: int | None = None
    sequences: int = 1
    engine: str = "none"
    overhead_bytes: int | None = None
    compute_format: str | None = None
    devices: int = 1
    split: Split = Split.TENSOR
    expert_correlation: float = UNIFORM_ROUTING
    served_by: str | None = None
    own: OwnMeasurements | None = None
    fitted: FittedSteps | None = None

    @property
    def family(self) -> str | None:
        """The engine whose efficiencies are expected; None for no engine."""
        return self.served_by or (None if self.engine == NO_ENGINE else self.engine)


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """Everything `fit` says. Fields that need a machine are None when none was named.

    Where:  needed_bytes, headroom and the verdict are those of the fullest device; offload is what llama.cpp could keep on the
            device when not everything fits there; the expected middle values are None for planning factors, and
            expected_from is the engine whose fitted efficiencies they are from, about_range what the expected ranges are
    """

    model: ModelSpec
    params: ParameterCount
    weights: WeightCount
    cache: CacheCount
    placement: Placement
    machine: HardwareSpec | None
    overhead_bytes: int
    needed_bytes: int
    naive_needed_bytes: int | None
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
    offload: Offload | None = None
    decode_middle_s: float | None = None
    prefill_middle_s: float | None = None
    expected_from: str | None = None
    ceiling: Roof | None = None
    about_range: str = ""

    @property
    def allocation(self) -> EngineAllocation | None:
        """The engine's own layout of the fullest device's cache."""
        return self.placement.allocation


def loaded_weights(model: LoadedModel, plan: str | None) -> WeightCount:
    """The weights of a model: a stated format, or the file's own tensor table, or the format its config names.

    Raises:  UnknownNameError, RequestError
    """
    return count_loaded_weights(model, plan)


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
    placer = Placer(model, weights, request.weights, fmt, request.engine, request.devices, request.split, machine)
    placement = placer.place(context, request.sequences)
    cache = count_cache(model.spec, fmt, context, request.sequences, STATE_FORMATS[request.engine])
    overhead = DEFAULT_OVERHEAD_BYTES if request.overhead_bytes is None else request.overhead_bytes
    needed = placement.total + overhead
    naive = None if cache.naive_bytes is None else _naive_needed(placement, cache, overhead)
    memory = machine.memory_bytes if machine else None
    space = _Space(placer, request, overhead, memory)
    ceiling = roof(machine, weights.linear_format, request.compute_format) if machine else None
    served = ServedModel(model.spec, weights, fmt, expert_correlation=request.expert_correlation)
    bounds = _bounds(served, ceiling, context, request) if ceiling else None
    expected = _expected(served, machine, ceiling, bounds, context, request)
    fits = None if memory is None else needed <= memory
    return FitAnswer(
        model=model.spec,
        params=count_params(model.spec),
        weights=weights,
        cache=cache,
        placement=placement,
        machine=machine,
        overhead_bytes=overhead,
        needed_bytes=needed,
        naive_needed_bytes=naive,
        fits=fits,
        naive_fits=None if memory is None or naive is None else naive <= memory,
        headroom_bytes=None if memory is None else memory - needed,
        max_context_tokens=space.max_context_tokens(),
        max_sequences=space.max_sequences(context),
        decode=bounds[0] if bounds else None,
        decode_expected_s=expected.decode_s,
        prefill=bounds[1] if bounds else None,
        prefill_expected_s=expected.prefill_s,
        assumptions=_assumptions(model.spec, weights, request, machine, placement, cache, expected.lines),
        offload=_offload(placer, request, context, overhead, memory) if fits is False else None,
        decode_middle_s=expected.decode_middle_s,
        prefill_middle_s=expected.prefill_middle_s,
        expected_from=_expected_from(request) if expected.decode_middle_s is not None else None,
        ceiling=ceiling,
        about_range=expected.about_range,
    )


def _naive_needed(placement: Placement, cache: CacheCount, overhead: int) -> int:
    """What the fullest device would need by the usual formula: its share of the cache, scaled by the naive factor."""
    share = placement.cache_bytes / cache.total_bytes if cache.total_bytes and placement.devices > 1 else 1.0
    return placement.weight_bytes + overhead + round(share * (cache.naive_bytes or 0))


def _offload(placer: Placer, request: FitRequest, context: int, overhead: int, memory: int | None) -> Offload | None:
    """What would still go on the device, layer by layer, for the engine that can leave the rest in main memory."""
    if request.engine != "llama.cpp" or request.devices != 1 or memory is None:
        return None
    return placer.largest_offload(context, request.sequences, memory - overhead)


def _context(model: ModelSpec, request: FitRequest) -> int:
    context = request.context_tokens
    if context is None:
        context = min(model.max_position_embeddings or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)
    if context < 1:
        raise RequestError(f"context is {context} tokens; at least 1 is needed")
    return context


@dataclass(frozen=True, slots=True)
class _Space:
    """What fits in the memory of a device, by the same count as the answer itself."""

    placer: Placer
    request: FitRequest
    overhead_bytes: int
    memory_bytes: int | None

    def _fits(self, context: int, sequences: int) -> bool:
        if self.memory_bytes is None:
            return False
        return self.placer.place(context, sequences).total + self.overhead_bytes <= self.memory_bytes

    def max_context_tokens(self) -> int | None:
        """The longest context for the sequences asked for, within what the model was trained for."""
        limit = self.placer.model.spec.max_position_embeddings or MAX_CONTEXT_TOKENS
        if self.memory_bytes is None:
            return None
        return largest_that_fits(lambda context: self._fits(context, self.request.sequences), limit)

    def max_sequences(self, context: int) -> int | None:
        """The most sequences of the context asked for."""
        if self.memory_bytes is None:
            return None
        return largest_that_fits(lambda count: count == 0 or self._fits(context, count), MAX_SEQUENCES)


def _bounds(served: ServedModel, ceiling: Roof, context: int, request: FitRequest) -> tuple[Bound, Bound]:
    """Decode and prefill on what each device does of a step; what devices send one another only adds to it."""
    device = one_device(served, request.devices, request.split)
    works = {"decode": device.work(decode_batch(context, request.sequences)), "prefill": device.work(prompt(context))}
    decode, prefill = (bound_step(name, work, ceiling) for name, work in works.items())
    if ceiling.peak_flops_per_s is None:  # long prompts are limited by compute: memory alone would be no answer
        prefill = replace(prefill, seconds=None, limited_by=LimitedBy.UNKNOWN)
    return decode, prefill


def _expected(
    served: ServedModel,
    machine: HardwareSpec | None,
    ceiling: Roof | None,
    bounds: tuple[Bound, Bound] | None,
    context: int,
    request: FitRequest,
) -> ExpectedSpeeds:
    """By the named engine's efficiencies; by planning factors where none is named or the machine's rates are not enough."""
    if machine is None or ceiling is None or bounds is None:
        return NO_SPEEDS
    if request.fitted is not None:
        return _fitted(request.fitted, served, machine, bounds, context, request)
    if request.family is None:
        return planning_speeds(*bounds, ceiling)
    asked = EngineAsked(
        request.family, served, machine, request.devices, request.split, context, request.sequences, request.own
    )
    found = engine_speeds(asked)
    if found is None:
        return planning_speeds(*bounds, ceiling, no_rates(request.family, machine))
    decode, prefill = bounds
    found = not_before_memory(found, decode)
    beside = {
        "decode": (found.decode_middle_s, decode.seconds),
        "prefill": (found.prefill_middle_s, prefill.seconds),
    }
    return replace(found, lines=(*found.lines, *below_bound(beside, machine)))


def _fitted(
    fitted: FittedSteps,
    served: ServedModel,
    machine: HardwareSpec,
    bounds: tuple[Bound, Bound],
    context: int,
    request: FitRequest,
) -> ExpectedSpeeds:
    """By step times that were fitted to a server on this machine.

    Raises:  RequestError for another machine, or devices that hold layers apart
    """
    from inference_bench.predict.fitted_cost import fitted_speeds

    if request.devices > 1 and request.split is not Split.TENSOR:
        raise RequestError("fitted step times are of devices that share each layer; split it so, or take one device")
    found = fitted_speeds(fitted.cost(served, machine, request.devices), context, request.sequences)
    decode, prefill = bounds
    beside = {
        "decode": (found.decode_middle_s, decode.seconds),
        "prefill": (found.prefill_middle_s, prefill.seconds),
    }
    return replace(found, lines=(*found.lines, *below_bound(beside, machine)))


def _expected_from(request: FitRequest) -> str | None:
    return request.family if request.fitted is None else f"{request.fitted.engine} as fitted"


def _assumptions(
    model: ModelSpec,
    weights: WeightCount,
    request: FitRequest,
    machine: HardwareSpec | None,
    placement: Placement,
    cache: CacheCount,
    expected: tuple[str, ...],
) -> tuple[str, ...]:
    """Everything the answer rests on that the request did not say: counts first, then speeds, then the model's own."""
    lines = [f"weights stored as {weights.format_name}, {weights.bits_per_weight:.4g} bits a weight, scales included"]
    lines += [*weights.notes, *_defaults(request)]
    lines += _memory_assumptions(model, cache, placement, request.engine, machine)
    if request.engine == NO_ENGINE and request.family is not None:
        lines.append(no_rule(request.family))
    if request.compute_format is not None and request.family is not None:
        lines.append("the compute format asked for sets the bounds alone: engines were measured in their own")
    if machine is not None:
        lines += [*_speed_assumptions(model, weights, request, machine, placement), *expected]
    return (*lines, *model.assumptions)


def _defaults(request: FitRequest) -> list[str]:
    lines = {
        "overhead of the runtime taken as 2.5 GB; give the real one when it is known": request.overhead_bytes,
        "cache stored in 16 bits": request.cache,
        "context not given: taken as 4096 tokens, or the model's own limit where that is shorter": request.context_tokens,
    }
    return [line for line, given in lines.items() if given is None]


def _memory_assumptions(
    model: ModelSpec, cache: CacheCount, placement: Placement, engine: str, machine: HardwareSpec | None
) -> list[str]:
    lines, longest = [], model.max_position_embeddings
    if longest is not None and cache.context_tokens > longest:
        lines.append(f"{cache.context_tokens:,} tokens are more than the {longest:,} {BEYOND_LIMIT}")
    if cache.state_bytes:
        lines.append(f"recurrent states stored as: {cache.state_format}")
    if engine == "vllm":
        from inference_bench.accounting.allocation.vllm_limits import in_flight_words

        lines += in_flight_words(model, machine)
    if placement.rule is not None:
        lines.append(f"{placement.devices} devices, {placement.split} split: {placement.rule}")
        lines.append("overhead is taken on each device; bounds leave out what devices send one another")
    return lines


def _speed_assumptions(
    model: ModelSpec, weights: WeightCount, request: FitRequest, machine: HardwareSpec, placement: Placement
) -> list[str]:
    compute, params = request.compute_format or machine.compute_format(weights.linear_format), count_params(model)
    lines = [f"speeds against {machine.name}: {compute or 'unknown'} dense peak; source {machine.source}"]
    if machine.note and machine.origin is Origin.MEASURED:
        lines.append(f"when {machine.name} was measured: {machine.note}")
    if compute is None:
        lines.append(
            f"the compute rate of {machine.name} is not known: no prefill time, and decode counts memory alone"
        )
    if machine.is_unified:
        lines.append(f"the memory of {machine.name} is shared with the operating system, which needs some of it")
    if machine.memory_bytes is not None and placement.total > machine.memory_bytes:
        lines.append("speeds are as if everything were in this memory, which it is not")
    if params.active != params.total:
        lines.append(
            "experts read in a step: those expected when tokens choose uniformly, "
            f"with a correlation of {request.expert_correlation:g} between tokens"
        )
    lines.append("prefill is one prompt of the whole context, with the output head for its last position only")
    return lines
