"""A result with round numbers: what a page and a chart are made of, without a model."""

from __future__ import annotations

from inference_bench.labs.batch.result import (
    BatchAgreement,
    BatchResult,
    Divergence,
    DtypeRun,
    FaultRow,
    PadRow,
    PromptAgreement,
    SpeedPoint,
    StepBreakdown,
    StepPart,
)
from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead, SubjectIdentity
from inference_bench.labs.machine.result import LabCeilings

HEAD = LabHead(
    "batch", "What does a batch gain?", "2026-11-30T00:00:00+00:00", 40.0, 1 << 30, "A processor, 2 core(s)", 2, 0.1,
    SubjectIdentity("Small-135M", "a folder", None, "ab" * 32, 135_000_000, "float32"), {"torch": "2.13.0"}, 0, True,
    ("quick: less",), ("an end of text is not looked for",),
)  # fmt: skip


def point(batch: int, step_s: float, bound_s: float) -> SpeedPoint:
    return SpeedPoint(
        batch=batch, num_prompt_tokens=10 * batch, padded_length_tokens=20, padded_fraction=0.5, context_tokens=15.0,
        ttft_s=0.1 * batch, ttft_bound_s=0.05 * batch, ttft_limited_by="compute", ttft_fraction_of_bound=0.5, step_s=step_s,
        step_spread_fraction=0.02, step_bound_s=bound_s, step_limited_by="memory", step_flops=270_000_000 * batch,
        step_bytes=540_000_000, step_fraction_of_bound=bound_s / step_s, tokens_per_s=batch / step_s,
        tokens_per_s_per_sequence=1 / step_s, bound_tokens_per_s=batch / bound_s, step_values_s=(step_s,), ttft_values_s=(0.1 * batch,),
    )  # fmt: skip


def breakdown(batch: int, step_s: float) -> StepBreakdown:
    parts = (
        StepPart("matrix products", 211, 0.8 * step_s, 0.8, 0.01),
        StepPart("attention", 30, 0.05 * step_s, 0.05, 0.0001),
        StepPart("cache made longer by copying", 60, 0.02 * step_s, 0.02, None),
        StepPart("norms, activations, rotary, views", 1400, 0.08 * step_s, 0.08, None),
        StepPart("Python and dispatch", 1701, 0.05 * step_s, 0.05, None),
    )
    return StepBreakdown(batch, 15.0, step_s, 0.01, 1701, parts, 211, 0.75 * step_s, 538_000_000, 2_000_000, 1.2e-6)


def agreement(dtype: str, difference: float, divergence: Divergence | None = None, prompts: int = 4) -> BatchAgreement:
    rows = tuple(
        PromptAgreement(i, 5 + i, 8 - i, 16, difference / 2, difference, 1.5, 0.02, divergence if i == 0 else None)
        for i in range(prompts)
    )
    allowed = 2e-4 if dtype == "float32" else 1.0
    return BatchAgreement(dtype, prompts, 16, "token by token, with its own cache", allowed, rows)


def dtype_run(dtype: str, scale: float, divergence: Divergence | None = None) -> DtypeRun:
    steps = {1: 0.04, 2: 0.05, 4: 0.06, 8: 0.07, 16: 0.08}
    return DtypeRun(
        dtype,
        LabCeilings(50e9, 200e9, "fp32", "6144 × 6144, 2 thread(s)"),
        tuple(point(batch, step * scale, 0.01 * scale) for batch, step in steps.items()),
        (breakdown(1, 0.04 * scale), breakdown(16, 0.08 * scale)),
        (agreement(dtype, 5e-5 if dtype == "float32" else 0.5, divergence),),
    )


def sample_result() -> BatchResult:
    tie = Divergence(3, 17, 4, 0.0, 0.25, True)
    hidden = "all positions move alike"
    return BatchResult(
        HEAD,
        (Check("padding", True, "0.00003", "0.0002"),),
        16,
        tuple(range(1, 17)),
        2e-4,
        (dtype_run("float32", 1.0), dtype_run("bfloat16", 0.5, tie)),
        (PadRow(0, 4, 0.0, 0), PadRow(256, 4, 3e-5, 0)),
        (
            FaultRow("positions from the left edge", 4e-5, 0, 18, False, False, False, hidden),
            FaultRow("no mask", 20.0, 8, 18, True, True, True, "padding is read"),
            FaultRow("no mask after the prefill", 8.0, 0, 18, True, False, True, "padding is read"),
        ),
    )
