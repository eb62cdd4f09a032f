"""What should be seen in five seconds? The few figures that answer the question, and what is odd about the run.

In:   VerifyResult
Out:  KeyFigures with their origin, and findings as sentences
Leaves out: everything behind them (result_tables)
Read next by: verify_html, text_result.
"""

from __future__ import annotations

from inference_bench.charts import group_labels, point_name
from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.origin import Origin
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.wording import REPORTED, tokens_per_s
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_si,
)
from inference_bench.verify.result import UNSTEADY, VerifyResult


def key_figures(result: VerifyResult) -> tuple[KeyFigure, ...]:
    """Decode alone and at its best, prefill, both ceilings, and whether the cache is what it should be."""
    decode = [point for point in result.points if point.measured.phase is Phase.DECODE]
    prefill = [point for point in result.points if point.measured.phase is Phase.PREFILL]
    alone = [point for point in decode if point.measured.batch == 1]
    return (
        _speed("decode, batch 1", alone),
        _speed("decode, best batch", decode),
        _speed("prefill, best", prefill),
        _bandwidth(result),
        _peak(result),
        _cache(result),
    )


def _missing(name: str, why: str) -> KeyFigure:
    return KeyFigure(name, NOT_AVAILABLE, "", "", why, "")


def _speed(name: str, points: list[ComparedPoint]) -> KeyFigure:
    """The fastest of these points, beside its ceiling."""
    if not points:
        return _missing(name, "not measured")
    best = max(points, key=lambda point: point.measured_tokens_per_s)
    where = f"{point_name(best).partition(', ')[2]} tokens"
    beside, detail = "no ceiling known", where
    if best.fraction_of_bound is not None:
        beside = f"{format_fraction(best.fraction_of_bound)} of the ceiling"
        detail = f"{tokens_per_s(best.bound_tokens_per_s)} tokens/s, limited by {best.bound.limited_by}; {where}"
    return KeyFigure(
        name,
        tokens_per_s(best.measured_tokens_per_s),
        "tokens/s",
        Origin.MEASURED,
        beside,
        detail,
        best.fraction_of_bound,
        best.verdict is Verdict.ABOVE,
    )


def _bandwidth(result: VerifyResult) -> KeyFigure:
    rate = result.ceiling.bandwidth_bytes_per_s
    how = str(result.machine.source)
    if result.probe:
        how = next(
            row.description for row in result.probe.bandwidth_rows if row.method == result.probe.bandwidth_method
        )
    return _ceiling_figure(result, "memory bandwidth", rate, "B/s", "ceiling of memory", how)


def _peak(result: VerifyResult) -> KeyFigure:
    rate, fmt, ridge = (
        result.ceiling.peak_flops_per_s,
        result.ceiling.compute_format,
        result.ceiling.ridge_flops_per_byte,
    )
    how = [f"{fmt or 'format unknown'}, dense"]
    how += [f"product at batch {format_count(result.probe.peak_batch)}"] if result.probe else []
    how += [f"ridge {format_number(ridge)} FLOP/byte"] if ridge is not None else []
    return _ceiling_figure(result, "compute peak", rate, "FLOP/s", "ceiling of compute", "; ".join(how))


def _ceiling_figure(
    result: VerifyResult, name: str, rate: float | None, unit: str, beside: str, detail: str
) -> KeyFigure:
    if rate is None:
        return _missing(name, "not known")
    value, _, prefixed = format_si(rate, unit).partition(" ")
    return KeyFigure(name, value, prefixed, str(result.machine.origin), beside, detail)


def _cache(result: VerifyResult) -> KeyFigure:
    check = result.cache_check
    if check is None:
        return _missing("KV cache, engine", "the server does not say")
    beside = "as counted, to its last digit" if check.agrees else "not what was counted"
    detail = f"counted {format_count(check.predicted_bytes)} bytes ({format_bytes_binary(check.predicted_bytes)})"
    value, _, unit = check.printed.partition(" ")
    return KeyFigure("KV cache, engine", value, unit, REPORTED, beside, detail, is_finding=not check.agrees)


def findings(result: VerifyResult) -> tuple[str, ...]:
    """What a reader must not miss: points above their ceiling, requests that did not complete, a cache that differs."""
    found = [
        f"{point_name(point)} tokens reached {format_fraction(point.fraction_of_bound)} of its ceiling. A measurement "
        "above the ceiling means that the counted traffic or the measured ceiling is too strict there."
        for point in result.points
        if point.verdict is Verdict.ABOVE
    ]
    found += [note for note in result.notes if note.startswith(UNSTEADY)]
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
