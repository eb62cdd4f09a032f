"""Measured against ceiling: how much of what physics allows did the server reach, and where does the rest go.

In:   MeasuredPoint (a time on a real server) and the StepWork it corresponds to, under a Roof
Out:  ComparedPoint with its verdict; BatchLine, a two-number summary of how step time grows with the batch; and a
      plain-language reading
Leaves out: fitted efficiency models
Read next by: verify, charts, report.

MBU and MFU here are estimates: the bytes and FLOPs are counted from the model's shape, no hardware counter is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_bench.accounting.work import StepWork
from inference_bench.roofline import Bound, Roof, bound, bound_step
from inference_bench.stats import Interval
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

NEAR_CEILING_FRACTION: Final = 0.7
MAX_MISFIT_FRACTION: Final = 0.15
_ROUNDING: Final = 1e-9


class Phase(StrEnum):
    """Which part of serving a point measures."""

    PREFILL = "prefill"
    DECODE = "decode"


class Verdict(StrEnum):
    """How a measurement stands to its ceiling; above it is a finding, never clamped."""

    ABOVE = "above ceiling"
    NEAR = "near ceiling"
    BELOW = "below ceiling"
    UNKNOWN = "no ceiling known"


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One time measured on a server, pooled over its samples.

    Where:  decode: seconds of one step of `batch` sequences that each attend about `context_tokens` positions;
            prefill: seconds to the first token of one prompt of `context_tokens`; engine_s is the engine's own figure
            for the same thing where it reports one
    Unit:   seconds; the median over waves of each wave's median, and the plain mean over all raw values: the mean is
            what was delivered, the median what an undisturbed step takes
    """

    phase: Phase
    batch: int
    context_tokens: int
    nominal_context_tokens: int
    seconds: float
    num_samples: int
    interval: Interval | None
    relative_spread: float | None
    engine_s: float | None = None
    mean_s: float | None = None
    num_waves: int = 1


@dataclass(frozen=True, slots=True)
class ComparedPoint:
    """A measured point beside its bound.

    Formula:  fraction_of_bound = bound ÷ measured time, which is measured rate ÷ ceiling rate;
              mbu = counted bytes ÷ measured time ÷ BW; mfu = counted FLOPs ÷ measured time ÷ P_peak
    Where:    None where the ceiling is not known
    """

    measured: MeasuredPoint
    bound: Bound
    tokens_per_step: int
    fraction_of_bound: float | None
    mbu: float | None
    mfu: float | None
    verdict: Verdict

    @property
    def measured_tokens_per_s(self) -> float:
        """Tokens a second over the whole batch (prompt tokens in prefill)."""
        return self.tokens_per_step / self.measured.seconds

    @property
    def bound_tokens_per_s(self) -> float | None:
        """The same at the ceiling."""
        return self.tokens_per_step / self.bound.seconds if self.bound.seconds else None


def compare_point(measured: MeasuredPoint, work: StepWork, ceiling: Roof) -> ComparedPoint:
    """One measured point against the bound of the work it did."""
    limit = bound_step(measured.phase.value, work, ceiling)
    fraction = None if limit.seconds is None else limit.seconds / measured.seconds
    bandwidth, peak = ceiling.bandwidth_bytes_per_s, ceiling.peak_flops_per_s
    return ComparedPoint(
        measured=measured,
        bound=limit,
        tokens_per_step=work.num_positions,
        fraction_of_bound=fraction,
        mbu=work.num_bytes / measured.seconds / bandwidth if bandwidth else None,
        mfu=work.flops / measured.seconds / peak if peak else None,
        verdict=_verdict(fraction),
    )


def _verdict(fraction: float | None) -> Verdict:
    if fraction is None:
        return Verdict.UNKNOWN
    if fraction > 1.0:
        return Verdict.ABOVE
    return Verdict.NEAR if fraction >= NEAR_CEILING_FRACTION else Verdict.BELOW


@dataclass(frozen=True, slots=True)
class BatchLine:
    """How the measured decode step grows with the batch at one prompt length, beside what the ceilings allow.

    Formula:  least squares of seconds = fixed + per_sequence · B, over the measured batches;
              misfit_fraction = largest |measured - line| / measured;
              bound_fixed = weight bytes / BW, what one read of the weights takes;
              bound_per_sequence = max(cache bytes / BW, FLOPs / P_peak) of one sequence
    Unit:     seconds
    """

    context_tokens: int
    fixed_s: float
    per_sequence_s: float
    bound_fixed_s: float | None
    bound_per_sequence_s: float | None
    misfit_fraction: float

    @property
    def is_telling(self) -> bool:
        """Whether the step times really lie on a rising line, so that its two parts mean something."""
        return self.misfit_fraction <= MAX_MISFIT_FRACTION and self.per_sequence_s > 0


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope of the least-squares line through at least two distinct points; rounding counts as 0."""
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)
    intercept = mean_y - slope * mean_x
    return (0.0 if abs(intercept) < _ROUNDING * max(map(abs, ys)) else intercept), slope


def batch_lines(points: Sequence[ComparedPoint], ceiling: Roof) -> tuple[BatchLine, ...]:
    """One line for each nominal context that was measured at two batches or more."""
    lines = []
    for context in sorted({point.measured.nominal_context_tokens for point in points}):
        decode = [
            point
            for point in points
            if point.measured.phase is Phase.DECODE and point.measured.nominal_context_tokens == context
        ]
        if len({point.measured.batch for point in decode}) >= 2:
            lines.append(_batch_line(context, decode, ceiling))
    return tuple(lines)


def _batch_line(context: int, decode: Sequence[ComparedPoint], ceiling: Roof) -> BatchLine:
    batches = [float(point.measured.batch) for point in decode]
    steps_s = [point.measured.seconds for point in decode]
    fixed_s, per_sequence_s = fit_line(batches, steps_s)
    misfits = [abs(fixed_s + per_sequence_s * b - s) / s for b, s in zip(batches, steps_s, strict=True)]
    weight_bytes, sequence_bytes = fit_line(batches, [float(point.bound.num_bytes) for point in decode])
    _, sequence_flops = fit_line(batches, [float(point.bound.flops) for point in decode])
    bound_fixed = bound("one read of the weights", 0, round(weight_bytes), ceiling).seconds
    bound_each = bound("one sequence", round(sequence_flops), round(sequence_bytes), ceiling).seconds
    return BatchLine(context, fixed_s, per_sequence_s, bound_fixed, bound_each, max(misfits))


def read_gap(points: Sequence[ComparedPoint], ceiling: Roof) -> tuple[str, ...]:
    """What the points say, in sentences a person can check against the table."""
    sentences: list[str] = []
    for phase in (Phase.DECODE, Phase.PREFILL):
        sentences += _phase_sentences(phase, [point for point in points if point.measured.phase is phase])
    sentences += [_line_sentence(line) for line in batch_lines(points, ceiling)]
    return tuple(sentences)


def _phase_sentences(phase: Phase, points: Sequence[ComparedPoint]) -> list[str]:
    known = [point for point in points if point.fraction_of_bound is not None]
    if not known:
        return [f"No ceiling is known for {phase}, so no gap can be stated."] if points else []
    best = max(known, key=lambda point: point.fraction_of_bound or 0)
    worst = min(known, key=lambda point: point.fraction_of_bound or 0)
    limits = _limits(known)
    reached = f"{format_fraction(best.fraction_of_bound)} ({_where(best)})"
    if worst is not best:
        reached = f"between {format_fraction(worst.fraction_of_bound)} ({_where(worst)}) and {reached}"
    sentences = [f"{phase.capitalize()} is limited in theory by {limits}, and reached {reached} of that ceiling."]
    above = [point for point in known if point.verdict is Verdict.ABOVE]
    if above:
        sentences.append(
            f"{len(above)} {phase} point(s) lie above the ceiling: the counted traffic or the measured ceiling is too "
            "strict there (caches, or kernels in a narrower format than the ceiling was measured in)."
        )
    return sentences


def _limits(points: Sequence[ComparedPoint]) -> str:
    """What limits the points: one resource, or each with the batches it limits."""
    by_resource: dict[str, list[int]] = {}
    for point in points:
        by_resource.setdefault(str(point.bound.limited_by), []).append(point.measured.batch)
    if len(by_resource) == 1:
        return next(iter(by_resource))
    parts = [f"{name} at batch {', '.join(map(str, sorted(set(batches))))}" for name, batches in by_resource.items()]
    return " and by ".join(parts)


def _where(point: ComparedPoint) -> str:
    measured = point.measured
    return f"batch {measured.batch}, {format_count(measured.context_tokens)} tokens"


def _line_sentence(line: BatchLine) -> str:
    at = f"At {format_count(line.context_tokens)} prompt tokens"
    if not line.is_telling:
        return (
            f"{at} the step times of the batches do not lie on a rising line within "
            f"{format_fraction(MAX_MISFIT_FRACTION)}, so shared and per-sequence time cannot be told apart there."
        )
    each, shared = line.bound_per_sequence_s, line.bound_fixed_s
    ratio = line.per_sequence_s / each if each else None
    times = f", {format_number(ratio)} times the {format_seconds(each)} the ceilings allow" if ratio else ""
    fixed = f"{format_seconds(line.fixed_s)} that all sequences share" if line.fixed_s > 0 else "no time that all share"
    read = f" (one read of the weights at the bandwidth ceiling takes {format_seconds(shared)})" if shared else ""
    return (
        f"{at} a line through the batches gives a decode step {fixed}{read}, and each further sequence adds "
        f"{format_seconds(line.per_sequence_s)}{times}. {_line_meaning(line)}"
    )


def _line_meaning(line: BatchLine) -> str:
    if line.fixed_s >= 2 * line.per_sequence_s:
        return "Batching is close to free there."
    if line.per_sequence_s >= 2 * line.fixed_s:
        return "Batching buys little there."
    return "Shared and per-sequence time are of the same size there."
