"""A verification with its whole closed loop, built without one: every prediction and every measurement is chosen.

Steps are measured as a known formula says, times a known factor; loads are predicted with known errors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inference_bench.accounting.work import HeadPositions
from inference_bench.calibrate.steps.forms import (
    FittedObservation,
    StepCalibration,
    StepCandidate,
    StepForm,
    StepParameter,
)
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.gap.parts import Cause, Change, GapPart, GapReading, StepGap
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_sources import Shares, step_time_of
from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import Interval
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck, LoadRow, MemoryRow
from inference_bench.verify.result import CpuShares, VerifyResult
from report.sample import (
    CHINESE,
    ESCAPE,
    FP16,
    LONG,
    QUOTES,
    SCRIPT,
    bare_result,
    hostile_result,
    sample_result,
    smollm2,
    weights,
)

SHARES = Shares(bandwidth=0.62, compute=0.55, fixed_s=0.0004, sequence_s=0.0001, serial=1.0)
HELD_OUT_ERROR = 0.042
OFF = (1.04, 0.97, 1.02, 0.95, 1.0, 1.03)  # measured over the formula, in turn
TARGETS = {"ttft_p50_s": 0.15, "ttft_p99_s": 0.25, "tpot_p50_s": 0.10, "output_tokens_per_s": 0.05}
MEASURED = {
    "ttft_p50_s": 0.212,
    "ttft_p90_s": 0.391,
    "ttft_p99_s": 0.640,
    "tpot_p50_s": 0.0192,
    "itl_p99_s": 0.0441,
    "e2e_p50_s": 0.611,
    "output_tokens_per_s": 41.7,
}
ERRORS = {  # predicted over measured, less one, of each load
    "below": (0.061, 0.08, -0.112, 0.023, -0.05, 0.031, -0.008),
    "near": (0.094, -0.02, -0.31, 0.044, 0.12, 0.052, -0.013),
    "past": (0.142, 0.11, 0.09, 0.071, 0.2, 0.1, -0.021),
}
RATES = {"below": 1.2, "near": 2.04, "past": 3.0}
OBJECTIVE = "TTFT p99 ≤ 0.85 s, gap p99 ≤ 0.11 s: 4 times the first token of a lone request and 3 times a step"


def batches(kind: StepKind, sequences: int, context: int, prompt: int) -> tuple[tuple[StepPart, ...], ...]:
    decoding = (StepPart(context, 1, True),) * sequences
    if kind is StepKind.DECODE:
        return (decoding,)
    reading = (StepPart(context if kind is StepKind.CACHED_PREFILL else 0, prompt, False),)
    return ((*decoding, *reading),) if kind is StepKind.MIXED else (reading,)


def calibration() -> StepCalibration:
    """Eighteen steps, every third kept from the fit."""
    result = sample_result()
    served = ServedModel(smollm2(), weights(), FP16, HeadPositions.LAST)
    step_time = step_time_of(served, result.machine, SHARES)
    settings = [(StepKind.DECODE, batch, context, 0) for context in (42, 266, 778) for batch in (1, 2, 4, 8)]
    settings += [(StepKind.PREFILL, 0, 0, tokens) for tokens in (32, 256, 768)]
    settings += [(StepKind.CACHED_PREFILL, 0, 256, 128), (StepKind.MIXED, 3, 266, 100), (StepKind.MIXED, 6, 42, 200)]
    observations = []
    for index, (kind, sequences, context, prompt) in enumerate(settings):
        parts = batches(kind, sequences, context, prompt)
        predicted_s = sum(step_time.step_s(batch) for batch in parts)
        seconds = predicted_s * OFF[index % len(OFF)]
        observations.append(
            FittedObservation(
                StepObservation(
                    kind=kind,
                    setting=f"{kind} {sequences}×{context}+{prompt}",
                    batches=parts,
                    seconds=seconds,
                    num_waves=8,
                    interval=Interval(seconds * 0.98, seconds * 1.03, 0.95) if index % 4 else None,
                    relative_spread=0.02,
                    includes_request=kind is not StepKind.DECODE,
                    is_held_out=index % 3 == 2,
                    cpu_s=seconds * 1.9,
                    engine_s=seconds * 0.98 if kind is StepKind.PREFILL else None,
                ),
                predicted_s,
            )
        )
    return StepCalibration(
        served=served,
        form=StepForm.ADDITIVE_VECTOR,
        shares=SHARES,
        request_s=0.0021,
        parameters=(
            StepParameter("bandwidth", SHARES.bandwidth, Interval(0.58, 0.66, 0.95)),
            StepParameter("compute", SHARES.compute, Interval(0.53, 0.57, 0.95)),
            StepParameter("cache", 0.24, Interval(0.21, 0.28, 0.95)),
            StepParameter("fixed_s", SHARES.fixed_s, None, "not told apart from request_s"),
            StepParameter("sequence_s", SHARES.sequence_s, Interval(0.00007, 0.00013, 0.95)),
            StepParameter("request_s", 0.0021, Interval(0.0014, 0.0028, 0.95)),
        ),
        candidates=(
            StepCandidate(StepForm.ADDITIVE, ("bandwidth", "compute"), 0.081, 0.094, 0.21, 0.33),
            StepCandidate(StepForm.MAXIMUM, ("bandwidth", "compute", "fixed_s"), 0.112, 0.131, 0.27, 0.41),
            StepCandidate(
                StepForm.ADDITIVE_VECTOR,
                ("bandwidth", "compute", "cache", "fixed_s", "sequence_s", "request_s"),
                0.028,
                HELD_OUT_ERROR,
                0.088,
                0.13,
            ),
            StepCandidate(StepForm.MAXIMUM_VECTOR, ("bandwidth",), 0.3, None, None, None),
        ),
        observations=tuple(observations),
        step_time=step_time,
        bandwidth_bytes_per_s=result.ceiling.bandwidth_bytes_per_s or 0.0,
        compute_flops_per_s=result.ceiling.peak_flops_per_s or 0.0,
        held_out_error=HELD_OUT_ERROR,
        error_by_kind={StepKind.DECODE: 0.038, StepKind.PREFILL: 0.021, StepKind.MIXED: 0.067},
        reading=("A step takes its bytes' time and its FLOPs' time one after the other.",),
        notes=("two settings were measured fewer than six times",),
        profile=StepProfile(SHARES, "AMD EPYC 7B13, 2 cores", "llama.cpp", "SmolLM2-135M", "made", "2026-11-30"),
        held_out_p90=0.091,
        worst_held_out=0.14,
    )


def step_gap(title: str, measured_s: float, shares: dict[Cause, float]) -> StepGap:
    """A step whose parts are these shares of it; the rest is unexplained."""
    shares = {**shares, Cause.UNEXPLAINED: 1 - sum(shares.values())}
    parts = tuple(
        GapPart(cause, measured_s * share, share, f"what {cause} takes of {title}") for cause, share in shares.items()
    )
    return StepGap(title, measured_s, measured_s * 0.3, measured_s * (1 - shares[Cause.UNEXPLAINED]), parts)


def gap_reading() -> GapReading:
    one = {Cause.WEIGHTS: 0.52, Cause.CACHE: 0.03, Cause.BANDWIDTH_LOST: 0.31, Cause.FIXED: 0.06}
    many = {
        Cause.WEIGHTS: 0.14,
        Cause.CACHE: 0.05,
        Cause.COMPUTE: 0.21,
        Cause.COMPUTE_LOST: 0.34,
        Cause.CACHE_LOST: 0.17,
        Cause.FIXED: 0.02,
    }
    long = {Cause.COMPUTE: 0.58, Cause.COMPUTE_LOST: 0.45}  # more than was measured: unexplained is below zero
    return GapReading(
        steps=(
            step_gap("decode, batch 1 at 266 tokens", 0.0089, one),
            step_gap("decode, batch 8 at 266 tokens", 0.035, many),
            step_gap("prefill of 768 tokens", 1.64, long),
        ),
        changes=(
            Change(
                *("8 sequences a step in place of 4", "decode, batch 8 at 266 tokens", 0.024, 0.035, 0.37, 0.71, False),
                "one read of the weights serves twice the sequences",
            ),
            Change(
                *("a draft of 4 tokens", "decode, batch 1 at 266 tokens", 0.0089, 0.021, 0.28, 0.9, True),
                "an acceptance of 0.7 is assumed",
            ),
            Change(
                *("cache in q8_0", "decode, batch 8 at 266 tokens", 0.035, 0.034, 0.03, 0.05, False),
                "half the bytes of the cache, which is a small part of this step",
            ),
            Change(
                *("weights in f16", "decode, batch 1 at 266 tokens", 0.0089, 0.02, -0.55, -0.65, False),
                "three times the bytes to read",
            ),
            Change(
                *("all of the bandwidth", "decode, batch 8 at 266 tokens", 0.035, 0.016, 1.18, 0.0, False),
                "as by a perfect kernel",
                is_choice=False,
            ),
        ),
        sentences=("Most of a step of 8 sequences is compute below its peak rate.",),
    )


def load_row(place: str, rate: float, errors: tuple[float, ...], num_failed: int = 0) -> LoadRow:
    """A load whose figures were predicted with these errors."""
    figures = tuple(
        Figure(name, value * (1 + error), value, 60 - num_failed, TARGETS.get(name) if place != "past" else None)
        for (name, value), error in zip(MEASURED.items(), errors, strict=True)
    )
    predicted = tuple(0.1 + 0.005 * (index * 37 % 60) for index in range(60))
    measured = tuple(
        None if index < num_failed else value * (1 + errors[0] * (index % 5) / 5)
        for index, value in enumerate(predicted)
    )
    return LoadRow(
        place=place,
        rate=rate,
        realised_rate=rate * 0.98,
        num_requests=60,
        num_completed=60 - num_failed,
        figures=figures,
        predicted_ttft_s=predicted,
        measured_ttft_s=measured,
        predicted_e2e_s=tuple(value + 0.4 for value in predicted),
        measured_e2e_s=tuple(None if value is None else value + 0.41 for value in measured),
        notes=("a p99 of 60 requests is little more than the longest of them",),
    )


def load_check() -> LoadCheck:
    return LoadCheck(
        workload="60 requests a load, prompts of 32 to 160 tokens, answers of 8 to 40, Poisson arrivals, seed 0",
        saturation_rate=2.4,
        rules=("4 slots", "a step reads up to 2,048 tokens of prompts", "a request waits while no slot is idle"),
        rows=tuple(load_row(place, rate, ERRORS[place]) for place, rate in RATES.items()),
        notes=("the predictions were written to predictions.json before the first request was sent",),
    )


def capacity_check() -> CapacityCheck:
    return CapacityCheck(
        objective=OBJECTIVE,
        ttft_s=0.85,
        gap_s=0.11,
        predicted_rate=2.11,
        interval=Interval(1.94, 2.2, 0.9375),
        at_rate=load_row("capacity", 2.11, ERRORS["near"]),
        above_rate=load_row("above", 2.43, ERRORS["past"]),
        is_confirmed=True,
        measured_rate=2.11,
        reading="The run at 2.11 requests/s keeps the objectives, and the one at 2.43 does not.",
        crossing_rate=2.23,
    )


def memory_rows() -> tuple[MemoryRow, ...]:
    mib = 1 << 20
    setting = "context 4,096, 4 slots, f16"
    return (
        MemoryRow("llama.cpp", setting, "cache", "bytes", 90 * mib, "90.00 MiB", 0, "cells up to a multiple of 256"),
        MemoryRow("llama.cpp", setting, "cells", "cells", 4096, "4096", 0, "4 streams of 1,024"),
        MemoryRow("llama.cpp", "the same, unified", "cache", "bytes", 90 * mib, "90.00 MiB", 0, "one stream of 4,096"),
        MemoryRow(
            "llama.cpp", "the same, q8_0", "cache", "bytes", 50_135_040, "47.81 MiB", 0, "34 bytes for 32 values"
        ),
        MemoryRow("llama.cpp", setting, "weights", "bytes", 96_576_768, "not stated", None, "each tensor once"),
    )


def whole_loop() -> VerifyResult:
    """Everything was run, and went as it should."""
    result = sample_result()
    return replace(
        result,
        client=replace(result.client, cpu=CpuShares(180.0, 2, 6.2, 301.0)),
        calibration=calibration(),
        gap=gap_reading(),
        load=load_check(),
        capacity=capacity_check(),
        memory=memory_rows(),
        profile_path=Path("/home/ada/runs/2026-11-29-210411/profile.json"),
    )


def troubled_loop() -> VerifyResult:
    """Requests that failed, targets that were missed, a capacity that is not confirmed, memory that differs, no change that helps."""
    result, rows = whole_loop(), memory_rows()
    load, capacity = load_check(), capacity_check()
    past = load_row("past", 3.0, ERRORS["past"], num_failed=7)
    gap = gap_reading()
    return replace(
        result,
        load=replace(load, rows=(*load.rows[:2], past)),
        capacity=replace(capacity, is_confirmed=False, measured_rate=1.7, crossing_rate=1.72, reading="It is missed."),
        gap=replace(gap, changes=gap.changes[3:4]),
        memory=(replace(rows[0], reported="94.00 MiB", difference=-4_194_304), *rows[1:]),
    )


def nothing_came_of_it() -> VerifyResult:
    """Each part was begun, and none gave a figure: no held-out step, no completed request, no rate, no memory."""
    result, fitted, load = whole_loop(), calibration(), load_check()
    rows = tuple(
        replace(
            row,
            realised_rate=None,
            num_completed=0,
            figures=tuple(replace(figure, measured=None, count=None) for figure in row.figures),
            measured_ttft_s=(None,) * 60,
            measured_e2e_s=(None,) * 60,
        )
        for row in load.rows
    )
    none = CapacityCheck(OBJECTIVE, None, None, None, None, None, None, None, None, "No rate keeps it.")
    unstated = tuple(replace(row, reported="not stated", difference=None) for row in memory_rows())
    return replace(
        result,
        calibration=replace(
            fitted,
            held_out_error=None,
            error_by_kind={},
            candidates=(),
            parameters=(StepParameter("bandwidth", 0.62, None, "one context only"),),
            observations=fitted.observations[:1],
        ),
        gap=GapReading((), (), ()),
        load=replace(load, rows=rows, notes=()),
        capacity=none,
        memory=unstated,
        profile_path=None,
    )


def unsettled_loop() -> VerifyResult:
    """A foreign server: loads, but no figures of its memory; a capacity whose runs failed."""
    whole = whole_loop()
    capacity = replace(
        capacity_check(), at_rate=None, above_rate=None, is_confirmed=None, measured_rate=None, crossing_rate=None
    )
    return replace(bare_result(), calibration=whole.calibration, gap=None, load=whole.load, capacity=capacity)


def hostile_loop() -> VerifyResult:
    """Every text that comes from outside tries to break out of its place."""
    evil = f"{SCRIPT}{CHINESE}{LONG}"
    fitted, gap, load = calibration(), gap_reading(), load_check()
    observations = tuple(
        replace(item, observation=replace(item.observation, setting=evil)) for item in fitted.observations
    )
    step = replace(
        gap.steps[0], title=f"{SCRIPT} step", parts=tuple(replace(part, words=QUOTES) for part in gap.steps[0].parts)
    )
    change = replace(gap.changes[0], name=evil, at=step.title, words=QUOTES)
    return replace(
        hostile_result(),
        calibration=replace(
            fitted,
            observations=observations,
            reading=(SCRIPT,),
            notes=(f"{ESCAPE} in /home/ada/.cache/x",),
            parameters=(replace(fitted.parameters[0], name=SCRIPT, note=QUOTES), *fitted.parameters[1:]),
        ),
        gap=GapReading((step, *gap.steps[1:]), (change, *gap.changes[1:]), (SCRIPT,)),
        load=replace(
            load,
            workload=evil,
            rules=(SCRIPT, ESCAPE),
            notes=(QUOTES,),
            rows=tuple(replace(row, notes=(evil,)) for row in load.rows),
        ),
        capacity=replace(capacity_check(), objective=evil, reading=SCRIPT),
        memory=tuple(
            replace(row, engine=SCRIPT, setting=evil, what=QUOTES, reported=ESCAPE, rule=SCRIPT)
            for row in memory_rows()
        ),
        profile_path=Path(f"/home/ada/{SCRIPT}.json"),
    )


LOOPS = (whole_loop, troubled_loop, nothing_came_of_it, unsettled_loop, hostile_loop)
