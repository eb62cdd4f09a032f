"""What does the batch lab say?

In:   BatchResult
Out:  LabPage
Leaves out: the tables (lab_batch_tables)
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from inference_bench.charts.lab_batch import batch_chart
from inference_bench.labs.batch.result import BatchAgreement, BatchResult, DtypeRun, StepBreakdown
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_batch_tables import (
    agreement_table,
    breakdown_table,
    ceiling_table,
    fault_table,
    pad_table,
    prompt_table,
    speed_table,
)
from inference_bench.report.lab_page import LabPage
from inference_bench.report.report_html import value_and_unit
from inference_bench.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)

_MEASURED: Final = "measured"


def lab_page(result: BatchResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    first, *others = result.runs
    tables = [
        speed_table(first),
        *map(partial(breakdown_table, first.dtype), first.breakdowns),
        *(speed_table(run, has_note=False) for run in others),
    ]
    further = [breakdown_table(run.dtype, each) for run in others for each in run.breakdowns]
    return LabPage(
        head=result.head,
        checks=result.checks,
        figures=tuple(_figures(result)),
        reading=tuple(_reading(result)),
        tables=(*tables, agreement_table(result), fault_table(result)),
        drawings=(_drawing(result),),
        details=(
            ceiling_table(result),
            pad_table(result),
            *further,
            *(prompt_table(each) for run in result.runs for each in run.agreements),
        ),
    )


def _figures(result: BatchResult) -> Iterator[KeyFigure]:
    run = result.runs[0]
    first, last = run.points[0], run.points[-1]
    if last is not first:
        yield KeyFigure(
            f"a batch of {format_count(last.batch)} over {format_count(first.batch)}",
            format_number(last.tokens_per_s / first.tokens_per_s), "times", _MEASURED, f"tokens/s, {run.dtype}",
            f"{format_number(last.tokens_per_s)} tokens/s against {format_number(first.tokens_per_s)}",
        )  # fmt: skip
    for point in (first, last) if last is not first else (first,):
        share, unit = value_and_unit(format_fraction(point.step_fraction_of_bound))
        yield KeyFigure(
            f"of the bound at batch {format_count(point.batch)}", share, unit, _MEASURED, f"limited by {point.step_limited_by}",
            f"a step takes {format_seconds(point.step_s)}, its work at least {format_seconds(point.step_bound_s)}",
            fraction=point.step_fraction_of_bound,
        )  # fmt: skip
    worst = max(run.agreements, key=lambda each: each.max_difference)
    yield KeyFigure(
        "alone against in a batch", format_number(worst.max_difference), "logits", _MEASURED,
        f"allowed {format_number(worst.allowed_difference)}", f"largest difference of any logit, {run.dtype}",
        is_finding=worst.max_difference > worst.allowed_difference,
    )  # fmt: skip


# ── sentences ──────────────────────────────────────────────────────────────────────────────────────


def _reading(result: BatchResult) -> Iterator[str]:
    first, *others = result.runs
    yield from _gain(first)
    yield from (_cost(first, each) for each in first.breakdowns)
    yield from (_agrees(each) for each in first.agreements)
    for run in others:
        yield from _beside(first, run)
    yield from (_beyond(run) for run in result.runs if _is_beyond(run))
    if result.pads:
        yield _pads(result)
    if result.faults:
        yield _faults(result)


def _is_beyond(run: DtypeRun) -> bool:
    """Whether anything was faster than the least it can take, which no work is."""
    fractions = [
        fraction for each in run.points for fraction in (each.step_fraction_of_bound, each.ttft_fraction_of_bound)
    ]
    fractions += [
        part.bound_s / part.taken_s
        for each in run.breakdowns
        for part in each.parts
        if part.bound_s and part.taken_s > 0
    ]
    return max(fractions) > 1


def _beyond(run: DtypeRun) -> str:
    return (
        f"In {run.dtype} something was faster than its bound: the ceilings came out too low, as they do where other work slows the machine "
        "while they are measured, so every share of a bound is too high here; run it again on a quiet machine"
    )


def _pads(result: BatchResult) -> str:
    worst = max(result.pads, key=lambda row: row.max_difference)
    pads = ", ".join(format_count(row.num_pad_tokens) for row in result.pads if row.num_pad_tokens)
    is_same = worst.max_difference <= result.allowed_difference
    return (
        f"Padding changes {'nothing' if is_same else 'the logits, which it must not'}: one prompt behind {pads} pads gets its logits "
        f"without any to within {format_number(worst.max_difference)}"
    )


def _gain(run: DtypeRun) -> Iterator[str]:
    first, last = run.points[0], run.points[-1]
    ceilings = (
        f"Under this machine's ceilings ({format_si(run.ceilings.bandwidth_bytes_per_s, 'B/s')}, "
        f"{format_si(run.ceilings.peak_flops_per_s, 'FLOP/s')}) the work of a step allows"
    )
    if first is last:
        yield (
            f"In {run.dtype} a batch of {format_count(first.batch)} decodes {format_number(first.tokens_per_s)} tokens/s, "
            f"{format_number(first.tokens_per_s_per_sequence)} for each sequence, {format_seconds(first.ttft_s)} after it was asked"
        )
        yield (
            f"{ceilings} {format_number(first.bound_tokens_per_s)} tokens/s: {format_fraction(first.step_fraction_of_bound)} of that are "
            f"reached; the limit is {first.step_limited_by}"
        )
        return
    yield (
        f"In {run.dtype} a batch of {format_count(last.batch)} decodes {format_number(last.tokens_per_s)} tokens/s, "
        f"{format_number(last.tokens_per_s / first.tokens_per_s)} times as many as a batch of {format_count(first.batch)}; each "
        f"sequence gets {format_number(last.tokens_per_s_per_sequence)} instead of {format_number(first.tokens_per_s_per_sequence)}, "
        f"and waits {format_seconds(last.ttft_s)} instead of {format_seconds(first.ttft_s)} for its first token"
    )
    yield (
        f"{ceilings} {format_number(first.bound_tokens_per_s)} and {format_number(last.bound_tokens_per_s)} tokens/s: "
        f"{format_fraction(first.step_fraction_of_bound)} and {format_fraction(last.step_fraction_of_bound)} of that are reached; the "
        f"limit is {first.step_limited_by} at {format_count(first.batch)} and {last.step_limited_by} at {format_count(last.batch)}"
    )


def _cost(run: DtypeRun, found: StepBreakdown) -> str:
    """Why a step takes longer than its bound, with the largest part first."""
    parts = sorted((part for part in found.parts if part.taken_s > 0), key=lambda part: -part.taken_s)
    products = next(part for part in found.parts if part.bound_s is not None)
    said = ", ".join(f"{format_fraction(part.fraction_of_step)} {part.name}" for part in parts)
    times = "" if not products.bound_s else f", {format_number(products.taken_s / products.bound_s)} times their bound"
    rate = format_si(found.linear_weight_bytes / found.linears_alone_s, "B/s")
    rest = (
        "; what Python and dispatch take is lost in the noise"
        if found.overhead_per_call_s is None
        else f"; Python and dispatch take {format_seconds(found.overhead_per_call_s)} for each of {format_count(found.num_calls)} calls"
    )
    return (
        f"At batch {format_count(found.batch)} in {run.dtype} the fastest step, {format_seconds(found.step_s)}, is {said}: the products "
        f"take {format_seconds(products.taken_s)}{times}; the {format_count(found.num_linears)} linear layers alone, without a model "
        f"around them, take {format_seconds(found.linears_alone_s)}, {rate} of weights; to lengthen the cache "
        f"{format_bytes(found.copied_cache_bytes)} are copied{rest}"
    )


def _agrees(each: BatchAgreement) -> str:
    said = (
        f"In {each.dtype} the logits of {format_count(len(each.prompts))} prompts in a batch are at most "
        f"{format_number(each.max_difference)} from those alone over {format_count(each.num_tokens)} tokens ({each.alone}), where the "
        f"two best tokens are at least {format_number(min(p.least_top_two_gap for p in each.prompts))} apart"
    )
    if not each.divergences:
        return f"{said}; no greedy token differs"
    first = min(each.divergences, key=lambda d: d.step)
    kind = "a near tie" if first.is_near_tie else "no near tie"
    return (
        f"{said}; {format_count(len(each.divergences))} of them take another token, the first at step {format_count(first.step + 1)}, "
        f"{kind}: the two best were {format_number(first.top_two_gap)} apart, the logits {format_number(first.logit_difference)}"
    )


def _beside(first: DtypeRun, run: DtypeRun) -> Iterator[str]:
    """A second number format beside the first: its steps at the same batches, and its agreement."""
    mine = {point.batch: point for point in first.points}
    said = "; ".join(
        f"{format_seconds(point.step_s)} at batch {format_count(point.batch)} against {format_seconds(mine[point.batch].step_s)}"
        for point in (run.points[0], run.points[-1])
        if point.batch in mine
    )
    yield f"In {run.dtype} a step takes {said} in {first.dtype}"
    yield from (_agrees(each) for each in run.agreements)


def _faults(result: BatchResult) -> str:
    caught = [row for row in result.faults if row.is_caught_by_logits]
    tokens = [row for row in caught if row.is_caught_by_tokens]
    silent = [row.name for row in caught if not row.is_caught_by_tokens]
    hidden = [row for row in result.faults if not row.is_expected]
    said = (
        f"Of {format_count(len(result.faults))} planted faults the logits show {format_count(len(caught))}, the least by "
        f"{format_number(min(row.max_difference for row in caught))}" if caught else "No planted fault shows in the logits"
    )  # fmt: skip
    said += f"; {format_count(len(tokens))} change a token too" if caught else ""
    said += f"; these change no token: {', '.join(silent)}" if silent else ""
    return said + "".join(f"; {row.name}: {row.why}" for row in hidden)


def _drawing(result: BatchResult) -> Drawing:
    return Drawing(
        "What a batch gains",
        "Decode rates of the whole batch and of each sequence; dashed is what the work allows under this run's ceilings.",
        partial(batch_chart, result),
    )
