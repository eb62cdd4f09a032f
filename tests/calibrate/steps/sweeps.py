"""Sweeps of steps: made ones whose formula is known, and recorded ones."""

from __future__ import annotations

import random
from functools import cache
from typing import NamedTuple

from inference_bench.calibrate.steps.fitting import fit_steps
from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.facts.hardware import HardwareSpec, hardware, hardware_from_description
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_sources import Shares, step_time_of
from inference_bench.simulate.step_time import StepPart
from simulate.served_models import served_model

Parts = tuple[StepPart, ...]


def cpu(gflops: int = 150) -> HardwareSpec:
    """A machine of two cores, as it was measured: its bandwidth by a matrix-vector product."""
    peak = {"fp32": f"{gflops} GFLOPS"}
    return hardware_from_description(
        {"name": "this CPU", "memory": "8 GB", "bandwidth": "20.6 GB/s", "peak": peak}, "a test"
    )


def smol(weights: str = "q4_1") -> ServedModel:
    """SmolLM2-135M; its Q4_1 file reads 96,576,768 bytes a step."""
    return served_model("SmolLM2-135M", weights)


def decode(batch: int, context: int, seconds: float, is_held_out: bool = False) -> StepObservation:
    """A decode step of some sequences, all after as many positions."""
    return StepObservation(
        StepKind.DECODE, f"{batch} × {context}", (decoding(batch, context),), seconds, 8, is_held_out=is_held_out
    )


def prefill(tokens: int, seconds: float, is_held_out: bool = False) -> StepObservation:
    """A prompt alone."""
    return StepObservation(
        StepKind.PREFILL, f"prompt of {tokens}", ((StepPart(0, tokens, False),),), seconds, 8, is_held_out=is_held_out
    )


def decoding(batch: int, context: int) -> Parts:
    return tuple(StepPart(context, 1, True) for _ in range(batch))


class Made(NamedTuple):
    """A machine whose steps follow a formula."""

    served: ServedModel
    machine: HardwareSpec
    shares: Shares
    request_s: float = 0.0

    def sweep(self, noise: float = 0.0, seed: int = 0) -> list[StepObservation]:
        """35 steps of all kinds, every third one held out."""
        step_time, rng, found = step_time_of(self.served, self.machine, self.shares), random.Random(seed), []
        for index, (kind, setting, batches) in enumerate(_settings()):
            has_request = kind is not StepKind.DECODE
            seconds = sum(map(step_time.step_s, batches)) + (self.request_s if has_request else 0.0)
            found.append(
                StepObservation(
                    kind=kind,
                    setting=setting,
                    batches=batches,
                    seconds=seconds * (1 + noise * rng.gauss(0, 1)),
                    num_waves=8,
                    includes_request=has_request,
                    is_held_out=index % 3 == 1,
                )
            )
        return found

    def fit(self, observations: list[StepObservation]) -> StepCalibration:
        return fit_steps(
            observations, self.served, self.machine, engine="an engine", source="a sweep", as_of="2026-11-30"
        )


def _settings() -> list[tuple[StepKind, str, tuple[Parts, ...]]]:
    found = [
        (StepKind.DECODE, f"{batch} × {context}", (decoding(batch, context),))
        for context in (64, 512, 1500)
        for batch in (1, 2, 3, 4, 6, 8, 12, 16)
    ]
    # slots that are no neighbours: one read of the weights for each group
    found.append((StepKind.DECODE, "3 + 1 × 64", (decoding(3, 64), decoding(1, 64))))
    found += [(StepKind.PREFILL, f"prompt of {new}", ((StepPart(0, new, False),),)) for new in (32, 96, 256, 512, 1024)]
    found += [
        (StepKind.CACHED_PREFILL, f"{new} after {cached}", ((StepPart(cached, new, False),),))
        for cached, new in ((256, 64), (1024, 128), (512, 16))
    ]
    found += [
        (StepKind.MIXED, f"{new} beside {batch}", ((*decoding(batch, 300), StepPart(0, new, False)),))
        for batch, new in ((2, 128), (4, 64))
    ]
    return found


MACHINES = {
    "a CPU that adds up": Made(smol(), cpu(), Shares(bandwidth=0.75, compute=0.6, serial=1, cache=0.25), 0.004),
    "a CPU with wide weights": Made(smol("f32"), cpu(), Shares(bandwidth=0.9, compute=0.3, serial=1, sequence_s=1e-3)),
    "a GPU that overlaps": Made(
        served_model("Llama-3.1-8B"), hardware("H100"), Shares(bandwidth=0.8, compute=0.5, serial=0), 0.004
    ),
    "a GPU with a slow cache": Made(
        served_model("Qwen3-32B"), hardware("RTX PRO 6000"), Shares(bandwidth=0.7, compute=0.6, cache=0.4), 0.01
    ),
    "a CPU with a vector kernel": Made(
        smol(), cpu(), Shares(bandwidth=0.5, compute=0.7, serial=1, cache=0.22, vector=0.77, attention=0.4), 0.003
    ),
    "Q8_0 with a vector kernel": Made(
        smol("q8_0"), cpu(), Shares(bandwidth=0.35, compute=0.5, serial=1, cache=0.5, vector=0.9), 0.003
    ),
    "a vector kernel beside what overlaps": Made(smol("f16"), cpu(), Shares(bandwidth=0.4, compute=0.4, vector=0.9)),
}


@cache
def fit_of(name: str, noise: float = 0.0, seed: int = 0) -> StepCalibration:
    """A machine's sweep, fitted once for all tests."""
    return MACHINES[name].fit(MACHINES[name].sweep(noise, seed))


# llama.cpp with SmolLM2-135M Q4_1 on two cores, 2 threads, 2026-11-30: medians of waves, (sequences, context, seconds)
TWO_THREADS_DECODE = (
    *((1, 42, 0.0062), (2, 42, 0.0125), (3, 42, 0.0166), (4, 42, 0.0179), (6, 42, 0.0224), (8, 42, 0.0261)),
    *((1, 266, 0.0089), (2, 266, 0.0152), (3, 266, 0.0206), (4, 266, 0.024), (6, 266, 0.0305), (8, 266, 0.035)),
    *((1, 778, 0.0116), (2, 778, 0.0203), (3, 778, 0.0293), (6, 778, 0.0477), (8, 778, 0.053)),
)
TWO_THREADS_PREFILL = ((32, 0.069), (256, 0.516), (768, 1.640))
# the same day with 1 thread; prompts at 4.0 ms a token
ONE_THREAD_DECODE = ((1, 42, 0.0065), (2, 42, 0.0175), (3, 42, 0.026), (4, 42, 0.0288), (8, 42, 0.046))
ONE_THREAD_PREFILL = ((32, 0.128), (256, 1.024), (768, 3.072))
# CPU time of a decode step with 1 thread on a busy machine, autumn 2026: seconds at 1, 4 and 16 sequences
BY_FORMAT = {
    "q4_1": (0.0154, 0.0575, 0.200),
    "q8_0": (0.0208, 0.0575, 0.165),
    "f16": (0.0208, 0.066, 0.211),
    "f32": (0.0379, 0.086, 0.231),
}
