"""What should be seen in five seconds? The few figures that answer the question, and what is odd about the run.

In:   VerifyResult
Out:  KeyFigures with their origin, and findings as sentences
Leaves out: everything behind them (result_tables)
Read next by: html, text_result.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.charts import group_labels, point_name
from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.origin import Origin
from inference_bench.report.wording import REPORTED
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_si,
)
from inference_bench.verify.result import VerifyResult


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One figure with its name, where it comes from, and what it should be compared with."""

    name: str
    value: str
    unit: str
    origin: str
    detail: str
    is_finding: bool = False


def key_figures(result: VerifyResult) -> tuple[KeyFigure, ...]:
    """Decode alone and at its best, prefill, both ceilings, and whether the cache is what it should be."""
    decode = [point for point in result.points if point.measured.phase is Phase.DECODE]
    prefill = [point for point in result.points if point.measured.phase is Phase.PREFILL]
    alone = [point for point in decode if point.measured.batch == 1]
    return (
        _speed("decode, one sequence", alone),
        _speed("decode, best aggregate", decode),
        _speed("prefill, best", prefill),
        _bandwidth(result),
        _peak(result),
        _cache(result),
    )


def _speed(name: str, points: list[ComparedPoint]) -> KeyFigure:
    """The fastest of these points, beside its ceiling."""
    if not points:
        return KeyFigure(name, NOT_AVAILABLE, "", "", "no such point was measured")
    best = max(points, key=lambda point: point.measured_tokens_per_s)
    ceiling = "no ceiling known"
    if best.fraction_of_bound is not None:
        ceiling = (
            f"{format_fraction(best.fraction_of_bound)} of the ceiling, {format_number(best.bound_tokens_per_s)} tokens/s, "
            f"limited by {best.bound.limited_by}"
        )
    where = point_name(best).partition(", ")[2]
    rate = format_number(best.measured_tokens_per_s)
    is_above = best.verdict is Verdict.ABOVE
    return KeyFigure(name, rate, "tokens/s", Origin.MEASURED, f"{where} tokens: {ceiling}", is_above)


def _bandwidth(result: VerifyResult) -> KeyFigure:
    rate = result.ceiling.bandwidth_bytes_per_s
    how = f"method: {result.probe.bandwidth_method}" if result.probe else str(result.machine.source)
    return _ceiling_figure(result, "memory bandwidth", rate, "B/s", how)


def _peak(result: VerifyResult) -> KeyFigure:
    rate, fmt = result.ceiling.peak_flops_per_s, result.ceiling.compute_format
    how = f"{fmt or 'format unknown'}, dense"
    if result.probe:
        how += f", best product at batch {format_count(result.probe.peak_batch)}"
    if result.ceiling.ridge_flops_per_byte is not None:
        how += f"; ridge {format_number(result.ceiling.ridge_flops_per_byte)} FLOP/byte"
    return _ceiling_figure(result, "compute peak", rate, "FLOP/s", how if rate is not None else "not known")


def _ceiling_figure(result: VerifyResult, name: str, rate: float | None, unit: str, how: str) -> KeyFigure:
    value, _, prefixed = format_si(rate, unit).partition(" ")
    return KeyFigure(name, value, prefixed, "" if rate is None else str(result.machine.origin), how)


def _cache(result: VerifyResult) -> KeyFigure:
    check = result.cache_check
    if check is None:
        return KeyFigure("KV cache, engine", NOT_AVAILABLE, "", "", "the server does not say what it allocated")
    verdict = "as counted to the last printed digit" if check.agrees else "which is not what was counted"
    detail = f"{verdict}: {format_count(check.predicted_bytes)} bytes ({format_bytes_binary(check.predicted_bytes)})"
    value, _, unit = check.printed.partition(" ")
    return KeyFigure("KV cache, engine", value, unit, REPORTED, detail, not check.agrees)


def findings(result: VerifyResult) -> tuple[str, ...]:
    """What a reader must not miss: points above their ceiling, requests that did not complete, a cache that differs."""
    found = [
        f"{point_name(point)} tokens reached {format_fraction(point.fraction_of_bound)} of its ceiling. A measurement above "
        "the ceiling means that the counted traffic or the measured ceiling is too strict there."
        for point in result.points
        if point.verdict is Verdict.ABOVE
    ]
    found += _incomplete(result)
    if result.cache_check is not None and not result.cache_check.agrees:
        found.append(
            f"The engine says its KV cache takes {result.cache_check.printed}; counted were "
            f"{format_count(result.cache_check.predicted_bytes)} bytes ({result.cache_check.rule})."
        )
    return tuple(f"{text[0].upper()}{text[1:]}" for text in found)


def _incomplete(result: VerifyResult) -> list[str]:
    labels = group_labels(result.groups)
    lines = []
    for label, group in zip(labels, result.groups, strict=True):
        counts = group.metrics.requests
        if counts.completed < counts.sent:
            lines.append(f"{label}: {counts.sent - counts.completed} of {counts.sent} requests did not complete.")
    return lines
