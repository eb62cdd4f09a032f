"""A result of the cache lab made by hand, for what reads one."""

from __future__ import annotations

from inference_bench.labs.cache.faults import Fault
from inference_bench.labs.cache.result import (
    CONCATENATING,
    MODEL,
    PREALLOCATED,
    TOY,
    BoundaryCase,
    Branch,
    CacheBytes,
    CacheResult,
    LengthPoint,
    PathComparison,
    PrefixReuse,
    StorePoint,
    StoreRun,
    TimedRun,
)
from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead

TOLERANCE = 2e-4
EMITTED = 24


def comparison(
    fault: Fault | None = None,
    *,
    subject: str = MODEL,
    prompt: str = "numbers",
    equal: int = EMITTED,
    error: float = 5e-5,
    over: int | None = None,
    gap: float | None = None,
) -> PathComparison:
    compared = min(equal + 1, EMITTED)
    return PathComparison(
        subject, prompt, CONCATENATING, fault, 26, EMITTED, compared, equal, gap, error, over, (error,) * compared
    )


def planted(subject: str = MODEL) -> tuple[PathComparison, ...]:
    """Two faults on two prompts each: one that no token shows on either, one that tokens show late and at once."""
    return (
        comparison(Fault.POSITION_OFF_BY_ONE, subject=subject, prompt="question", error=9.5, over=1),
        comparison(Fault.POSITION_OFF_BY_ONE, subject=subject, error=2.2, over=1),
        comparison(Fault.POSITION_FROZEN, subject=subject, prompt="question", equal=6, error=14.0, over=2, gap=0.3),
        comparison(Fault.KV_HEADS_TILED, subject=subject, equal=0, error=24.0, over=0, gap=2.2),
    )


def sizes() -> tuple[CacheBytes, ...]:
    return (
        CacheBytes(TOY, 16, 256, 271, 555_008, 555_008, 2048),
        CacheBytes(MODEL, 26, 24, 49, 2_257_920, 2_257_920, 46_080),
    )


def length_points() -> tuple[LengthPoint, ...]:
    return tuple(
        LengthPoint(length, length + 15, 0.04, seconds / length, 0.04 * length, seconds, seconds / (0.04 * length), 10**9 * length,
                    10**8 * length * length, length / 10)
        for length, seconds in ((32, 4.0), (128, 40.0), (512, 500.0))
    )  # fmt: skip


def store_points() -> tuple[StorePoint, ...]:
    return tuple(
        StorePoint(length, length * 4e-6, 3e-4, length * 46_080, 46_080, length * 46_080 + 24_576, length * 46_080)
        for length in (32, 128, 512)
    )


def branches() -> tuple[Branch, ...]:
    return (
        Branch("first suffix, from a copy", False, 128, 128, 0.0, 8, 8),
        Branch("second suffix, into the same cache", True, 128, 151, 14.5, 8, 3),
    )


def boundaries() -> tuple[BoundaryCase, ...]:
    return (
        BoundaryCase("The capital of France is", " Paris, and", 5, 8, 8, 5, None, 2e-5, True, 2e-5),
        BoundaryCase("The capital of France is ", "Paris, and", 6, 9, 8, 5, 5, 2.0, True, 3e-5),
    )


def sample_result() -> CacheResult:
    head = LabHead(
        "cache", "What does a cache save?", "2026-11-30T12:00:00+00:00", 40.0, 10**9, "a machine, 2 core(s)", 2, 0.1, None, {}, 0,
        True, ("long runs",), ("a rule",),
    )  # fmt: skip
    return CacheResult(
        head=head,
        checks=(Check("bytes", True, "1 B", "1 B"),),
        logit_tolerance=TOLERANCE,
        sizes=sizes(),
        comparisons=(comparison(subject=TOY), comparison(), *planted(TOY), *planted()),
        stores=(
            StoreRun(CONCATENATING, 271, 0.3, 75_235_328, 75_235_328, 624_128),
            StoreRun(PREALLOCATED, 271, 0.25, 555_008, 555_008, 555_008),
        ),
        store_points=store_points(),
        lengths=length_points(),
        timed_run=TimedRun(37, 24, 1.2, 5.8, 1.3, 5.7),
        reuse=PrefixReuse(128, 16, 0.55, 0.12, 0.002, 5_898_240, 1e-5),
        branches=branches(),
        boundaries=boundaries(),
    )
