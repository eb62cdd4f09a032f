"""What should be seen in five seconds? The few figures that answer the question.

In:   VerifyResult
Out:  KeyFigures with their origin
Leaves out: everything behind them (result_tables, closed_loop_tables), what is odd about the run (findings)
Read next by: verify_html, text_result.
"""

from __future__ import annotations

from typing import Final

from inference_bench.calibrate.steps.forms import StepCalibration
from inference_bench.charts import point_name
from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.origin import Origin
from inference_bench.report.closed_loop_words import short_objective, too_few_words
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import value_and_unit
from inference_bench.report.text import clean, shorten
from inference_bench.report.wording import REPORTED, tokens_per_s
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_si,
)
from inference_bench.verify.closed_loop import CapacityCheck, MemoryRow
from inference_bench.verify.result import VerifyResult

_DETAIL_CHARS: Final = 80


def key_figures(result: VerifyResult) -> tuple[KeyFigure, ...]:
    """Decode alone and at its best, prefill, the capacity, how right the formula is, memory, and both ceilings.

    Where:  a run that was not calibrated has none of the closed loop's
    """
    decode = [point for point in result.points if point.measured.phase is Phase.DECODE]
    prefill = [point for point in result.points if point.measured.phase is Phase.PREFILL]
    alone = [point for point in decode if point.measured.batch == 1]
    speeds = (
        _speed("decode, batch 1", alone),
        _speed("decode, best batch", decode),
        _speed("prefill, best", prefill),
    )
    ceilings = (_bandwidth(result), _peak(result))
    if result.calibration is None:
        return (*speeds, *ceilings, _cache(result))
    memory = _memory(result.memory) if result.memory else _cache(result)
    return (*speeds, _capacity(result.capacity), _step_error(result.calibration), memory, *ceilings)


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


def _capacity(check: CapacityCheck | None) -> KeyFigure:
    """The predicted capacity beside what the runs say of it."""
    if check is None:
        return _missing("capacity", "not predicted in this run")
    objective = shorten(clean(short_objective(check)), _DETAIL_CHARS)
    if check.predicted_rate is None:
        return KeyFigure("capacity", "none", "", Origin.SIMULATED, "no rate keeps the objective", objective)
    said = {True: "confirmed by two runs", False: "not confirmed", None: "not settled by its runs"}[check.is_confirmed]
    if check.contradiction is not None:
        said = "undecided: its runs contradict each other"
    return KeyFigure(
        "capacity",
        format_number(check.predicted_rate),
        "requests/s",
        Origin.SIMULATED,
        said,
        objective,
        is_finding=check.is_confirmed is False,
    )


def _step_error(found: StepCalibration) -> KeyFigure:
    """How far the formula is off on steps that were kept from the fit."""
    if found.held_out_error is None:
        return _missing("error of a step", too_few_words(found))
    value, unit = value_and_unit(format_fraction(found.held_out_error))
    detail = (
        f"{format_count(found.num_held_out)} of {format_count(len(found.observations))} steps were kept from the fit"
    )
    return KeyFigure("error of a step", value, unit, Origin.PREDICTED, "median, of steps not fitted to", detail)


def _memory(rows: tuple[MemoryRow, ...]) -> KeyFigure:
    """How many of the engine's own figures are what was counted."""
    stated = [row for row in rows if row.difference is not None]
    if not stated:
        return _missing("memory", "the server does not say")
    agreeing = sum(row.agrees for row in stated)
    is_exact = agreeing == len(stated)
    beside = "as counted, exactly" if is_exact else "not all as counted"
    first = stated[0]
    detail = f"figures of the engine's own, such as {first.what}: {first.reported}"
    value = f"{agreeing} of {len(stated)}"
    return KeyFigure(
        "memory",
        value,
        "figures",
        REPORTED,
        beside,
        shorten(clean(detail), _DETAIL_CHARS),
        agreeing / len(stated),
        not is_exact,
    )
