"""The tables of the batch lab.

In:   BatchResult and its parts
Out:  Tables
Read next by: lab_batch.
"""

from __future__ import annotations

from inference_bench.labs.batch.result import BatchAgreement, BatchResult, DtypeRun, StepBreakdown, StepPart
from inference_bench.report.table import Column, Table
from inference_bench.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)


def speed_table(run: DtypeRun, has_note: bool = True) -> Table:
    """Every batch: first token, step, rates, each beside its bound."""
    columns = (
        Column("B"), Column("TTFT"), Column("of its bound"), Column("step"), Column("spread"), Column("bound"), Column("of bound"),
        Column("limit", "l"), Column("tokens/s"), Column("per seq."), Column("padded"),
    )  # fmt: skip
    rows = tuple(
        (
            format_count(point.batch),
            format_seconds(point.ttft_s),
            format_fraction(point.ttft_fraction_of_bound),
            format_seconds(point.step_s),
            format_fraction(point.step_spread_fraction),
            format_seconds(point.step_bound_s),
            format_fraction(point.step_fraction_of_bound),
            point.step_limited_by,
            format_number(point.tokens_per_s),
            format_number(point.tokens_per_s_per_sequence),
            format_fraction(point.padded_fraction),
        )
        for point in run.points
    )
    note = (
        "Medians. TTFT is the prefill of the padded batch; bounds count the real tokens; padded is the share of the prefill's rectangle "
        "that is padding."
    )
    return Table(f"Speed in {run.dtype}", columns, rows, note if has_note else "")


def breakdown_table(dtype: str, found: StepBreakdown) -> Table:
    """One step: where its time goes, beside the least each part takes."""
    columns = (
        Column("part", "l"),
        Column("calls"),
        Column("time"),
        Column("of the step"),
        Column("bound"),
        Column("times bound"),
    )
    rows = tuple(
        (
            part.name,
            format_count(part.num_calls),
            *_time_of(part),
            format_seconds(part.bound_s),
            format_number(part.taken_s / part.bound_s if part.bound_s else None),
        )
        for part in found.parts
    )
    whole = (
        "the step", format_count(found.num_calls), format_seconds(found.step_s), format_fraction(1.0),
        format_seconds(found.bound_s), format_number(found.step_s / found.bound_s if found.bound_s else None),
    )  # fmt: skip
    note = (
        f"The linear layers alone, {format_count(found.num_linears)} of them with {format_bytes(found.linear_weight_bytes)} of weights: "
        f"{format_seconds(found.linears_alone_s)}. Copied to lengthen the cache: {format_bytes(found.copied_cache_bytes)}. Each time is "
        "of the fastest step."
    )
    return Table(f"A step at B = {found.batch} in {dtype}", columns, (*rows, whole), note)


def _time_of(part: StepPart) -> tuple[str, str]:
    """Time and share; what is left over can come out below nothing where other work slowed the steps it is taken from."""
    if part.taken_s < 0:
        return "lost in noise", "n/a"
    return format_seconds(part.taken_s), format_fraction(part.fraction_of_step)


def agreement_table(result: BatchResult) -> Table:
    """Alone against in a batch, a row for each run."""
    columns = (
        Column("format", "l"), Column("B"), Column("tokens"), Column("alone", "l"), Column("largest difference"),
        Column("allowed"), Column("least gap"), Column("differ"), Column("first at"),
    )  # fmt: skip
    rows = tuple(_agreement_row(each) for run in result.runs for each in run.agreements)
    note = (
        "Differences and gaps are of logits; the gap is between the two best tokens of the run alone; differ counts the prompts whose "
        "greedy tokens are not those of the run alone. What bfloat16 is allowed is not checked."
    )
    return Table("Alone against in a batch", columns, rows, note)


def _agreement_row(each: BatchAgreement) -> tuple[str, ...]:
    steps = [found.step + 1 for found in each.divergences]
    return (
        each.dtype,
        format_count(each.batch),
        format_count(each.num_tokens),
        each.alone.partition(",")[0].partition(" over")[0],
        format_number(each.max_difference),
        format_number(each.allowed_difference),
        format_number(min(prompt.least_top_two_gap for prompt in each.prompts)),
        format_count(len(steps)),
        format_count(min(steps) if steps else None),
    )


def prompt_table(agreement: BatchAgreement) -> Table:
    """Every prompt of one run."""
    columns = (
        Column("prompt"), Column("tokens"), Column("pads"), Column("steps"), Column("at the prompt"), Column("largest"),
        Column("median gap"), Column("least gap"), Column("first other token", "l"),
    )  # fmt: skip
    rows = tuple(
        (
            format_count(each.prompt_index + 1),
            format_count(each.num_prompt_tokens),
            format_count(each.num_pad_tokens),
            format_count(each.num_steps_compared),
            format_number(each.prompt_difference),
            format_number(each.max_difference),
            format_number(each.median_top_two_gap),
            format_number(each.least_top_two_gap),
            "none"
            if (found := each.divergence) is None
            else f"step {format_count(found.step + 1)}, gap {format_number(found.top_two_gap)}",
        )
        for each in agreement.prompts
    )
    return Table(
        f"Each prompt in {agreement.dtype}, {format_count(agreement.num_tokens)} tokens ({agreement.alone})",
        columns,
        rows,
    )


def pad_table(result: BatchResult) -> Table:
    """One prompt behind more and more padding."""
    columns = (Column("pads"), Column("steps"), Column("largest difference"), Column("other tokens"))
    rows = tuple(
        (format_count(row.num_pad_tokens), format_count(row.num_steps), format_number(row.max_difference),
         format_count(row.num_changed_tokens))
        for row in result.pads
    )  # fmt: skip
    return Table("One prompt behind padding", columns, rows)


def fault_table(result: BatchResult) -> Table:
    """Every planted fault, and what shows it."""
    columns = (
        Column("planted fault", "l"), Column("largest difference"), Column("other tokens"), Column("by logits", "l"),
        Column("by tokens", "l"),
    )  # fmt: skip
    rows = tuple(
        (
            row.name,
            format_number(row.max_difference),
            f"{format_count(row.num_changed_tokens)} of {format_count(row.num_tokens)}",
            "caught" if row.is_caught_by_logits else ("missed" if row.is_expected else "no fault here"),
            "caught" if row.is_caught_by_tokens else ("missed" if row.is_expected else "no fault here"),
        )
        for row in result.faults
    )
    marked = frozenset(i for i, row in enumerate(result.faults) if row.is_caught_by_logits != row.is_expected)
    return Table("Planted faults", columns, rows, marked=marked)


def ceiling_table(result: BatchResult) -> Table:
    """The ceilings that the bounds stand on."""
    columns = (Column("format", "l"), Column("bandwidth"), Column("peak"), Column("by", "l"))
    rows = tuple(
        (
            run.dtype,
            format_si(run.ceilings.bandwidth_bytes_per_s, "B/s"),
            format_si(run.ceilings.peak_flops_per_s, "FLOP/s"),
            run.ceilings.source,
        )
        for run in result.runs
    )
    return Table("Ceilings of this run", columns, rows)
