"""A calibration as a short sweep of the embedded engine gives it, built without one: SmolLM2-135M Q4_1 on two cores.

The formula's numbers are chosen, near those that were measured once; the observations are the formula's own times, each off by
a known share.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, pairwise

from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.calibrate.steps.forms import (
    FittedObservation,
    StepCalibration,
    StepCandidate,
    StepForm,
    StepParameter,
)
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import known_model
from inference_bench.facts.models import LoadedModel, ModelSpec
from inference_bench.facts.source import Source
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_sources import Shares, step_time_of
from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import Interval, median
from shapes import cache_in

BANDWIDTH = 20.6e9
PEAK = 174e9
VECTOR_SHARES = Shares(
    bandwidth=0.48, compute=0.76, fixed_s=2e-4, sequence_s=1e-4, serial=1.0, cache=0.243, attention=0.88, vector=0.785
)
MAXIMUM_SHARES = Shares(bandwidth=0.82, compute=0.55, fixed_s=3e-4, sequence_s=5e-5, serial=0.0)
REQUEST_S = 0.003
ERRORS = (0.0, 0.02, -0.03, 0.01, 0.04, -0.01)  # measured over the formula's, less one
CONTEXTS = (42, 266, 778)
BATCHES = (1, 2, 4, 8)
PROMPTS = (32, 256, 768)
_MICRO_BATCH = 512


def machine(bandwidth: float = BANDWIDTH, peak: float = PEAK) -> HardwareSpec:
    """Two cores, as they were measured."""
    rates = {"fp32": peak}
    return HardwareSpec("two cores", 24_000_000_000, bandwidth, rates, Source("a test", "2026-11-30"), Origin.MEASURED)


def smollm2() -> ModelSpec:
    """The embedded model's shape."""
    found = known_model("SmolLM2-135M")
    return found.spec if isinstance(found, LoadedModel) else found


def served(weights: str = "q4_1", cache: str = "fp16") -> ServedModel:
    """The embedded model in some formats."""
    return ServedModel(smollm2(), count_weights(smollm2(), weight_plan(weights)), cache_in(cache))


def decode_step(
    batch: int, context: int, seconds: float = 1.0, *, cuts: Sequence[int] = (), held: bool = False
) -> StepObservation:
    """One token of each of some sequences, which attend so many positions; cuts are the sizes of its batches, all in one without."""
    batches = tuple((StepPart(context - 1, 1, True),) * size for size in cuts or (batch,))
    setting = f"batch {batch} at {context}"
    return StepObservation(StepKind.DECODE, setting, batches, seconds, 12, is_held_out=held)


def prompt_step(tokens: int, seconds: float = 1.0, *, cached: int = 0, held: bool = False) -> StepObservation:
    """A prompt alone, some of it cached, in micro-batches of 512, with its request's handling."""
    ends = [*range(cached, tokens, _MICRO_BATCH), tokens]
    batches = tuple((StepPart(low, high - low, False),) for low, high in pairwise(ends))
    kind = StepKind.CACHED_PREFILL if cached else StepKind.PREFILL
    return StepObservation(kind, f"prompt {tokens}", batches, seconds, 12, includes_request=True, is_held_out=held)


def mixed_step(tokens: int, decoding: int, context: int, *, held: bool = False) -> StepObservation:
    """A prompt beside sequences that decode: one position of each in a first batch, the rest of the prompt in a second."""
    first = (*(StepPart(context - 1, 1, True) for _ in range(decoding)), StepPart(0, 1, False))
    batches = (first, (StepPart(1, tokens - 1, False),))
    return StepObservation(
        StepKind.MIXED, f"prompt {tokens} beside {decoding}", batches, 1.0, 8, includes_request=True, is_held_out=held
    )


def settings() -> list[StepObservation]:
    """The steps of a short sweep; those at the middle context and the middle prompt are held out."""
    decodes = [decode_step(batch, context, held=context == CONTEXTS[1]) for context in CONTEXTS for batch in BATCHES]
    cut = decode_step(4, 266, cuts=(2, 2))
    prompts = [prompt_step(tokens, held=tokens == PROMPTS[1]) for tokens in PROMPTS]
    return [*decodes, cut, *prompts, prompt_step(600, cached=512), mixed_step(100, 3, 266, held=True)]


def sample_calibration(
    shares: Shares = VECTOR_SHARES,
    model: ServedModel | None = None,
    steps: Sequence[StepObservation] | None = None,
    errors: Sequence[float] = ERRORS,
    request_s: float = REQUEST_S,
) -> StepCalibration:
    """A calibration with these shares, whose steps took what the formula says, each but for its error."""
    model = model or served()
    step_time = step_time_of(model, machine(), shares, compute_format="fp32")
    fitted = []
    for seen, error in zip(settings() if steps is None else steps, cycle(errors), strict=False):
        predicted = sum(step_time.step_s(batch) for batch in seen.batches) + request_s * seen.includes_request
        measured = predicted * (1 + error)
        about = Interval(measured * 0.99, measured * 1.01, 0.95)
        taken = StepObservation(
            seen.kind, seen.setting, seen.batches, measured, seen.num_waves, about, 0.03,
            seen.includes_request, seen.is_held_out,
        )  # fmt: skip
        fitted.append(FittedObservation(taken, predicted))
    return StepCalibration(
        served=model,
        form=_form(shares),
        shares=shares,
        request_s=request_s,
        parameters=_parameters(shares),
        candidates=_candidates(shares),
        observations=tuple(fitted),
        step_time=step_time,
        bandwidth_bytes_per_s=BANDWIDTH,
        compute_flops_per_s=PEAK,
        held_out_error=_median_error(each for each in fitted if each.observation.is_held_out),
        error_by_kind={
            kind: error
            for kind in StepKind
            if (error := _median_error(each for each in fitted if each.observation.kind is kind)) is not None
        },
        reading=(),
        notes=(),
        profile=StepProfile(shares, "two cores", "llama.cpp", model.model.name, "a test", "2026-11-30"),
    )


def _form(shares: Shares) -> StepForm:
    if shares.serial:
        return StepForm.ADDITIVE_VECTOR if shares.vector else StepForm.ADDITIVE
    return StepForm.MAXIMUM_VECTOR if shares.vector else StepForm.MAXIMUM


def _candidates(shares: Shares) -> tuple[StepCandidate, ...]:
    """The chosen formula, and a plain one that is further off."""
    free = tuple(parameter.name for parameter in _parameters(shares))
    return (
        StepCandidate(_form(shares), free, 0.02, 0.025, 0.05, 0.06, 0.03),
        StepCandidate(StepForm.ADDITIVE, ("bandwidth", "compute"), 0.2, 0.3, 0.5, 0.6, 0.35),
    )


def _parameters(shares: Shares) -> tuple[StepParameter, ...]:
    found = [
        (name, value)
        for name in ("bandwidth", "compute", "vector", "cache", "attention", "sequence_s", "fixed_s")
        if (value := getattr(shares, name))
    ]
    return tuple(StepParameter(name, value, Interval(value * 0.97, value * 1.03, 0.95)) for name, value in found)


def _median_error(fitted: object) -> float | None:
    errors = [abs(each.error) for each in fitted]  # type: ignore[attr-defined]
    return median(errors) if errors else None
