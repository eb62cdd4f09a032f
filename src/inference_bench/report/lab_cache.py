"""What does the cache lab say?

In:   CacheResult
Out:  LabPage
Leaves out: the tables (lab_cache_tables)
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from inference_bench.charts.lab_cache import append_chart, time_chart, unseen_chart
from inference_bench.labs.cache.result import (
    CONCATENATING,
    MODEL,
    PREALLOCATED,
    TOY,
    CacheResult,
    PathComparison,
    PrefixReuse,
)
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_cache_tables import detail_tables, printed_tables
from inference_bench.report.lab_page import LabPage
from inference_bench.report.report_html import value_and_unit
from inference_bench.units import format_bytes, format_count, format_fraction, format_number, format_seconds


def lab_page(result: CacheResult) -> LabPage:
    """Its figures, its sentences, its charts."""
    return LabPage(
        head=result.head,
        checks=result.checks,
        figures=tuple(_figures(result)),
        reading=tuple(_reading(result)),
        tables=printed_tables(result),
        drawings=_drawings(result),
        details=detail_tables(result),
    )


def _of(result: CacheResult, subject: str, *, planted: bool) -> list[PathComparison]:
    return [each for each in result.comparisons if each.subject == subject and (each.fault is not None) is planted]


def _figures(result: CacheResult) -> Iterator[KeyFigure]:
    sound, planted = _of(result, MODEL, planted=False), _of(result, MODEL, planted=True)
    alone = sum(each.is_seen_by_logits_alone for each in planted)
    seen = sum(each.first_over_tolerance is not None for each in planted)
    by_logits = f"logits show {'all' if seen == len(planted) else seen}"
    yield KeyFigure(
        "Cached against recomputed", format_number(_worst(sound), 2), "", "measured",
        f"{format_number(result.logit_tolerance, 2)} allowed", "largest difference of a logit, float32",
    )  # fmt: skip
    yield KeyFigure(
        "Faults that no token shows", f"{alone} of {len(planted)}", "", "measured", by_logits,
        "faults planted in the cached path, each on each prompt", is_finding=alone > 0,
    )  # fmt: skip
    size = next(each for each in result.sizes if each.subject == MODEL)
    yield KeyFigure(
        "Cache a position", format_count(size.measured_bytes // size.num_positions), "B", "measured",
        f"{format_count(size.formula_bytes_per_position)} B by the formula", f"at {format_count(size.num_positions)} positions",
    )  # fmt: skip
    if result.lengths:
        last = result.lengths[-1]
        yield KeyFigure(
            "Without a cache", f"× {format_number(last.speedup, 2)}", "the time", "measured",
            f"× {format_number(last.flops_ratio, 3)} the FLOPs", f"{format_count(last.num_emitted)} tokens, summed by a rule",
        )  # fmt: skip
    reuse = result.reuse
    value, unit = value_and_unit(format_seconds(reuse.warm_s))
    yield KeyFigure(
        "First token, prefix cached", value, unit, "measured", f"{format_seconds(reuse.cold_s)} without",
        f"{format_count(reuse.num_prefix_tokens)} cached tokens, {format_count(reuse.num_suffix_tokens)} new",
    )  # fmt: skip


# ── sentences ──────────────────────────────────────────────────────────────────────────────────────


def _reading(result: CacheResult) -> Iterator[str]:
    yield _sound_sentence(result)
    yield from _fault_sentences(result)
    yield _size_sentence(result)
    yield from _time_sentences(result)
    yield from _store_sentences(result)
    yield _reuse_sentence(result.reuse)
    yield from _shared_sentences(result)
    yield from _boundary_sentences(result)


def _sound_sentence(result: CacheResult) -> str:
    sound = _of(result, MODEL, planted=False)
    equal, emitted = sum(each.num_equal_tokens for each in sound), sum(each.num_emitted for each in sound)
    verb = "agrees" if _worst(sound) <= result.logit_tolerance else "DISAGREES"
    said = (
        f"The cached path {verb} with full recomputation: logits lie within {_digits(_worst(sound))} of it "
        f"({_digits(result.logit_tolerance)} allowed), and {format_count(equal)} of {format_count(emitted)} tokens are equal"
    )
    for each in sound:
        if each.tokens_part:
            said += (
                f"; on the prompt “{each.prompt}” they part after {format_count(each.num_equal_tokens)} tokens, where the two best "
                f"logits lie {format_number(each.top_two_gap, 2)} apart, and nothing later is compared"
            )
    return said


def _fault_sentences(result: CacheResult) -> Iterator[str]:
    planted = _of(result, MODEL, planted=True)
    alone = [each for each in planted if each.is_seen_by_logits_alone]
    emitted = format_count(max((each.num_emitted for each in planted), default=0))
    if alone:
        counts = Counter(str(each.fault) for each in alone)
        named = ", ".join(f"{fault} ({count})" for fault, count in counts.items())
        least = min(each.max_logit_error for each in alone)
        yield (
            f"Comparing tokens misses {len(alone)} of {len(planted)} faulty runs: {named} change none of {emitted} tokens, while logits "
            f"are off by {_digits(least)} to {_digits(_worst(alone))}"
        )
    else:
        yield f"Comparing tokens finds all {len(planted)} faulty runs within {emitted} tokens on these prompts"
    late = [
        each.num_equal_tokens - each.first_over_tolerance
        for each in planted
        if each.tokens_part and each.first_over_tolerance is not None
    ]
    if max(late, default=0) > 0:
        yield (
            f"Where tokens do part, logits were wrong up to {format_count(max(late))} token{'s' * (max(late) > 1)} before: a shorter "
            "answer looks right"
        )


def _size_sentence(result: CacheResult) -> str:
    model = next(each for each in result.sizes if each.subject == MODEL)
    toy = next(each for each in result.sizes if each.subject == TOY)
    same = all(each.measured_bytes == each.formula_bytes for each in result.sizes)
    return (
        f"The cache is {'exactly the formula' if same else 'NOT what the formula says'}: {format_count(model.measured_bytes)} B of "
        f"tensors at {format_count(model.num_positions)} positions, {format_count(model.formula_bytes_per_position)} B each, and "
        f"{format_count(toy.measured_bytes)} B at {format_count(toy.num_positions)} in the toy; positions are prompt + emitted − 1, "
        "since the last token is never fed"
    )


def _time_sentences(result: CacheResult) -> Iterator[str]:
    if result.lengths:
        first, last = result.lengths[0], result.lengths[-1]
        yield (
            f"Without a cache {format_count(last.num_emitted)} tokens take {_digits(last.speedup)} times as long "
            f"({format_seconds(last.uncached_s)} against {format_seconds(last.cached_s)}), {format_count(first.num_emitted)} tokens "
            f"{_digits(first.speedup)} times, summed from measured steps and forwards; in FLOPs it is "
            f"{format_number(last.flops_ratio)} and {format_number(first.flops_ratio)} times: a step "
            "of one token reads every weight for little arithmetic, so saved FLOPs are not saved time one for one"
        )
    run = result.timed_run
    yield (
        f"The rule behind these sums, beside a run of {format_count(run.num_emitted)} tokens timed whole: with a cache "
        f"{format_seconds(run.cached_by_rule_s)} by the rule, {format_seconds(run.cached_s)} in the run; without "
        f"{format_seconds(run.uncached_by_rule_s)} and {format_seconds(run.uncached_s)}"
    )


def _store_sentences(result: CacheResult) -> Iterator[str]:
    joined = next((run for run in result.stores if run.store == CONCATENATING), None)
    placed = next((run for run in result.stores if run.store == PREALLOCATED), None)
    if joined is not None and placed is not None:
        yield (
            f"To build the toy's cache of {format_count(joined.num_positions)} positions joining writes "
            f"{format_bytes(joined.copied_bytes)}, writing in place {format_bytes(placed.copied_bytes)}; at most the one holds "
            f"{format_bytes(joined.peak_bytes)}, the other {format_bytes(placed.peak_bytes)} from the start"
        )
    if result.store_points and result.lengths:
        point, step_s = result.store_points[-1], result.lengths[-1].step_s
        yield (
            f"At {format_count(point.num_positions)} positions of the real model's shape joining one token takes "
            f"{format_seconds(point.concatenating_s)} and writing it in place {format_seconds(point.preallocated_s)}: "
            f"{format_fraction(point.concatenating_s / step_s, 2)} and {format_fraction(point.preallocated_s / step_s, 2)} of a cached "
            f"step of {format_seconds(step_s)}"
        )


def _reuse_sentence(reuse: PrefixReuse) -> str:
    return (
        f"A cached prefix of {format_count(reuse.num_prefix_tokens)} tokens brings the first token after "
        f"{format_seconds(reuse.warm_s)}, not {format_seconds(reuse.cold_s)}, besides a copy of {format_bytes(reuse.copied_bytes)} that "
        f"takes {format_seconds(reuse.copy_s)}; its logits are {_off(reuse.max_logit_error)}"
    )


def _shared_sentences(result: CacheResult) -> Iterator[str]:
    own = max((branch.max_logit_error for branch in result.branches if not branch.is_shared), default=0.0)
    for branch in result.branches:
        if branch.is_shared:
            spoilt = branch.max_logit_error > result.logit_tolerance
            same = "all" if branch.num_equal_tokens == branch.num_emitted else format_count(branch.num_equal_tokens)
            yield (
                f"Two suffixes written into one cache {'spoil each other' if spoilt else 'did no harm here'}: the second finds "
                f"{format_count(branch.num_cached_before)} positions, not {format_count(branch.num_prefix_tokens)}; its logits are off "
                f"by {_digits(branch.max_logit_error)}, and {same} of {format_count(branch.num_emitted)} tokens after it are equal; from "
                f"copies, or with the rest taken back first, logits are {_off(own)}"
            )


def _boundary_sentences(result: CacheResult) -> Iterator[str]:
    merged = [case for case in result.boundaries if case.first_difference is not None]
    if merged:
        worst = max(case.apart_logit_change for case in merged)
        yield (
            f"Warning: tokenised apart, {len(merged)} of {len(result.boundaries)} pairs of prefix and suffix are not the tokens of the "
            f"whole text, which moves logits by up to {_digits(worst)}; with the common tokens alone reused they agree within "
            f"{_digits(max(case.reused_logit_error for case in merged))}"
        )


def _off(error: float) -> str:
    return f"off by {_digits(error)} at most" if error > 0 else "the same to the last bit"


def _digits(value: float) -> str:
    return format_number(value, 2)


# ── drawings ───────────────────────────────────────────────────────────────────────────────────────


def _drawings(result: CacheResult) -> tuple[Drawing, ...]:
    return (
        Drawing(
            "Faults that the text does not show",
            "A line for each prompt: from the first token whose logits are wrong to the first token that differs. A line without a square "
            "ends with the run: every token was right, and no comparison of texts would have found the fault.",
            lambda width: unseen_chart(result.comparisons, width),
        ),
        Drawing(
            "With and without a cache",
            "Seconds for so many tokens after a short prompt; the label is how many times longer it takes without.",
            lambda width: time_chart(result.lengths, width),
        ),
        Drawing(
            "Adding one token to a cache",
            "Keys and values of every layer, in the real model's shape: joined to a longer tensor, or written into room set aside.",
            lambda width: append_chart(result.store_points, width),
        ),
    )


def _worst(comparisons: list[PathComparison]) -> float:
    return max((each.max_logit_error for each in comparisons), default=0.0)
