"""The tables of the cache lab.

In:   CacheResult
Out:  Tables: those that are printed, and those that stand folded on the page
Leaves out: sentences (lab_cache)
Read next by: lab_cache.
"""

from __future__ import annotations

from inference_bench.labs.cache.faults import WHAT_IT_IS
from inference_bench.labs.cache.result import CacheResult, PathComparison
from inference_bench.report.table import Cells, Column, Table
from inference_bench.units import format_bytes, format_count, format_number, format_seconds


def printed_tables(result: CacheResult) -> tuple[Table, ...]:
    """Faults, times, stores, prefixes."""
    return (
        _paths(result),
        _lengths(result),
        _stores(result),
        _branches(result),
        _boundaries(result),
    )


def detail_tables(result: CacheResult) -> tuple[Table, ...]:
    """Every run, what each fault is, every size."""
    faults = Table(
        "What each planted fault is",
        (Column("fault", "l"), Column("what it does", "l")),
        tuple((str(fault), said) for fault, said in WHAT_IT_IS.items()),
    )
    sizes = Table(
        "Bytes of a cache",
        (
            Column("in", "l"),
            Column("prompt"),
            Column("emitted"),
            Column("positions", origin="measured"),
            Column("bytes", origin="measured"),
            Column("by the formula", origin="counted"),
        ),
        tuple(
            (
                each.subject,
                format_count(each.num_prompt_tokens),
                format_count(each.num_emitted),
                format_count(each.num_positions),
                format_count(each.measured_bytes),
                format_count(each.formula_bytes),
            )
            for each in result.sizes
        ),
    )
    runs = Table(
        "A whole generation by the toy, both ways to keep its cache",
        (
            Column("store", "l"),
            Column("positions"),
            Column("time", origin="measured"),
            Column("bytes written", origin="measured"),
            Column("by the formula", origin="counted"),
            Column("held at most", origin="measured"),
        ),
        tuple(
            (
                run.store,
                format_count(run.num_positions),
                format_seconds(run.elapsed_s),
                format_count(run.copied_bytes),
                format_count(run.formula_copied_bytes),
                format_count(run.peak_bytes),
            )
            for run in result.stores
        ),
    )
    return (_every_path(result), faults, sizes, runs)


def _paths(result: CacheResult) -> Table:
    """One row for each path through the toy and through the real model, over all its prompts."""
    columns = (
        Column("cached path", "l"),
        Column("in", "l"),
        Column("runs"),
        Column("same text", origin="measured"),
        Column("parts at", origin="measured"),
        Column("wrong from", origin="measured"),
        Column("off by", origin="measured"),
    )
    groups: dict[tuple[str, str], list[PathComparison]] = {}
    for each in result.comparisons:
        groups.setdefault((_path_name(each), each.subject), []).append(each)
    rows = tuple(_path_row(name, subject, group) for (name, subject), group in groups.items())
    marked = frozenset(
        i
        for i, group in enumerate(groups.values())
        if any(each.fault and each.is_seen_by_logits_alone for each in group)
    )
    note = (
        "Same text: runs of which every token is right. Parts at: the first token that differs. Wrong from: the first token whose logits "
        "are off by more than is allowed. Off by: the largest difference of a logit, up to where the text parts, since after that the two "
        "paths answer different texts. Marked: faults that no token shows on some prompt."
    )
    return Table("The cached path against full recomputation", columns, rows, note, marked)


def _path_name(each: PathComparison) -> str:
    return "as it should be" if each.fault is None else str(each.fault)


def _path_row(name: str, subject: str, group: list[PathComparison]) -> Cells:
    wrong = [each.first_over_tolerance + 1 for each in group if each.first_over_tolerance is not None]
    errors = [each.max_logit_error for each in group]
    return (
        name,
        subject,
        format_count(len(group)),
        format_count(sum(not each.tokens_part for each in group)),
        _span([format_count(each.num_equal_tokens + 1) for each in sorted(group, key=_parts_at) if each.tokens_part]),
        _span([format_count(place) for place in sorted(wrong)]),
        _span([format_number(error, 2) for error in sorted(errors)]),
    )


def _parts_at(each: PathComparison) -> int:
    return each.num_equal_tokens


def _span(ordered: list[str]) -> str:
    """The least and the most, once where they are the same."""
    if not ordered:
        return "never"
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def _every_path(result: CacheResult) -> Table:
    columns = (
        Column("cached path", "l"),
        Column("in", "l"),
        Column("prompt", "l"),
        Column("equal tokens", origin="measured"),
        Column("wrong from"),
        Column("off by", origin="measured"),
        Column("seen by", "l"),
    )
    rows = tuple(_fault_row(each) for each in result.comparisons)
    marked = frozenset(
        i for i, each in enumerate(result.comparisons) if each.fault is not None and each.is_seen_by_logits_alone
    )
    return Table("Every run of the cached path against full recomputation", columns, rows, marked=marked)


def _fault_row(each: PathComparison) -> Cells:
    return (
        f"as it should be, {each.store}" if each.fault is None else str(each.fault),
        each.subject,
        each.prompt,
        f"{format_count(each.num_equal_tokens)} of {format_count(each.num_emitted)}",
        "never" if each.first_over_tolerance is None else format_count(each.first_over_tolerance + 1),
        format_number(each.max_logit_error, 2),
        _seen_by(each),
    )


def _seen_by(each: PathComparison) -> str:
    if each.fault is None:
        return "nothing to see" if each.first_over_tolerance is None and not each.tokens_part else "a difference"
    if each.first_over_tolerance is None:
        return "tokens alone" if each.tokens_part else "NOT SEEN"
    return "logits and tokens" if each.tokens_part else "logits alone"


def _lengths(result: CacheResult) -> Table:
    columns = (
        Column("tokens"),
        Column("cached step", origin="measured"),
        Column("forward", origin="measured"),
        Column("with cache", origin="measured"),
        Column("without", origin="measured"),
        Column("times longer"),
        Column("times the FLOPs", origin="counted"),
    )
    rows = tuple(
        (
            format_count(each.num_emitted),
            format_seconds(each.step_s),
            format_seconds(each.forward_s),
            format_seconds(each.cached_s),
            format_seconds(each.uncached_s),
            format_number(each.speedup, 3),
            format_number(each.flops_ratio, 3),
        )
        for each in result.lengths
    )
    note = "A cached step and a forward are measured at the last context of each length; the totals are sums by the rule below."
    return Table("Time to generate, with a cache and without", columns, rows, note)


def _stores(result: CacheResult) -> Table:
    columns = (
        Column("positions"),
        Column("joining", origin="measured"),
        Column("in place", origin="measured"),
        Column("joining writes", origin="measured"),
        Column("in place writes", origin="measured"),
        Column("joining holds"),
        Column("in place holds"),
    )
    rows = tuple(
        (
            format_count(each.num_positions),
            format_seconds(each.concatenating_s),
            format_seconds(each.preallocated_s),
            format_bytes(each.concatenating_copied_bytes),
            format_bytes(each.preallocated_copied_bytes),
            format_bytes(each.concatenating_peak_bytes),
            format_bytes(each.preallocated_peak_bytes),
        )
        for each in result.store_points
    )
    note = (
        "One token added to every layer of a cache in the real model's shape. Holds: the most bytes at one moment; room in place is set "
        "aside for these positions, and would be larger for a longer limit."
    )
    return Table("Adding one token: joined to a longer tensor, or written in place", columns, rows, note)


def _branches(result: CacheResult) -> Table:
    columns = (
        Column("continued", "l"),
        Column("prefix"),
        Column("cached before"),
        Column("logits off by", origin="measured"),
        Column("equal tokens after", origin="measured"),
    )
    rows = tuple(
        (
            each.name,
            format_count(each.num_prefix_tokens),
            format_count(each.num_cached_before),
            format_number(each.max_logit_error, 2),
            f"{format_count(each.num_equal_tokens)} of {format_count(each.num_emitted)}",
        )
        for each in result.branches
    )
    marked = frozenset(i for i, each in enumerate(result.branches) if each.is_shared)
    return Table(
        "Two suffixes from one cached prefix, against the same ids computed whole", columns, rows, marked=marked
    )


def _boundaries(result: CacheResult) -> Table:
    columns = (
        Column("prefix│suffix", "l"),
        Column("apart"),
        Column("whole"),
        Column("other at"),
        Column("reusable"),
        Column("off by", origin="measured"),
        Column("reused off by", origin="measured"),
    )
    rows = tuple(
        (
            f"{case.prefix}│{case.suffix}",
            format_count(case.num_apart_tokens),
            format_count(case.num_whole_tokens),
            "none" if case.first_difference is None else format_count(case.first_difference + 1),
            f"{format_count(case.num_reusable_tokens)} of {format_count(case.num_prefix_tokens)}",
            format_number(case.apart_logit_change, 2),
            format_number(case.reused_logit_error, 2),
        )
        for case in result.boundaries
    )
    marked = frozenset(i for i, case in enumerate(result.boundaries) if case.first_difference is not None)
    note = (
        "Tokens of prefix and suffix tokenised apart, and of the whole text; the first that differs, from 1. Off by: the last logits "
        "when the pieces are joined as they are; reused: when the common tokens alone come from the cache."
    )
    return Table("What merges across the boundary of prefix and suffix", columns, rows, note, marked)
