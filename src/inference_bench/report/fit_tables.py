"""Which figures stand behind an answer of `fit`? Its sentences and tables, as a terminal and a page both show them.

In:   FitAnswer, Suggestions
Out:  sentences, and Tables of texts
Leaves out: how they look (fit_report, fit_html); every number was computed before
Read next by: fit_report, fit_html.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import CacheCount
from inference_bench.predict.engine_choice import engine_title
from inference_bench.predict.fit import BEYOND_LIMIT, FitAnswer
from inference_bench.predict.latency import Range
from inference_bench.report.table import Column, Table
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)

if TYPE_CHECKING:
    from inference_bench.accounting.allocation import BlockPool
    from inference_bench.accounting.layer_split import Offload
    from inference_bench.predict.suggest import Suggestion
    from inference_bench.roofline import Bound

NOT_COUNTED: Final = "not counted: "
NOTHING_FITS: Final = "Nothing in the formats known here fits."


def verdict(answer: FitAnswer) -> tuple[str, ...]:
    """The verdict and its reason, then what else must be known with it, a sentence each."""
    cache, placement = answer.cache, answer.placement
    what = (
        f"{answer.model.name}: {_parameters(answer)}, {cache.sequences} sequence(s) of "
        f"{format_count(cache.context_tokens)} tokens"
    )
    if answer.machine is None:
        return (f"{what} need {_both(answer.needed_bytes)}; name a machine to see whether it fits.",)
    where = answer.machine.name if placement.devices == 1 else f"{placement.devices} of {answer.machine.name}"
    if answer.fits is None:
        return (f"{what} need {_both(answer.needed_bytes)}; how much memory {answer.machine.name} has is not known.",)
    word = "fits" if answer.fits else "does not fit"
    spare = f"{_both(abs(answer.headroom_bytes or 0))} {'to spare' if answer.fits else 'too much'}"
    each = " on the fullest device" if placement.devices > 1 else ""
    return (f"{what}: {word} {where}, {spare}{each}. {_reason(answer)}", *_beside_verdict(answer))


def _beside_verdict(answer: FitAnswer) -> list[str]:
    lines = []
    if answer.naive_fits is not None and answer.naive_fits != answer.fits:
        lines.append(
            "The usual formula, which charges every layer for the whole context, would have said the opposite."
        )
    said = [line for line in answer.assumptions if line.startswith(NOT_COUNTED) or line.endswith(BEYOND_LIMIT)]
    lines += [f"{line[0].upper()}{line[1:]}." for line in said]
    if answer.offload is not None:
        lines.append(_offload(answer.offload, answer.model.num_hidden_layers))
    return lines


def _parameters(answer: FitAnswer) -> str:
    params = answer.params
    total = f"{format_count(params.total)} parameters"
    return total if params.active == params.total else f"{total} ({format_count(params.active)} active a token)"


def _reason(answer: FitAnswer) -> str:
    """What takes most of the memory."""
    placement = answer.placement
    parts = {"weights": placement.weight_bytes, "cache": placement.cache_bytes, "overhead": answer.overhead_bytes}
    largest = max(parts, key=lambda name: parts[name])
    return f"Most of it is {largest}: {format_fraction(parts[largest] / answer.needed_bytes)} of {format_bytes(answer.needed_bytes)}."


def _offload(split: Offload, num_layers: int) -> str:
    if split.gpu_layers == 0:
        return "Not even one layer fits beside the overhead."
    layers = len(split.gpu.layers)
    return (
        f"llama.cpp could keep {layers} of {num_layers} layers there ({format_bytes(split.gpu.total)}) and leave "
        f"{format_bytes(split.cpu.total)} in main memory, at main memory's speed."
    )


def _both(num_bytes: int | None) -> str:
    return f"{format_bytes(num_bytes)} ({format_bytes_binary(num_bytes)})"


def memory_table(answer: FitAnswer) -> Table:
    """What is in memory, to the byte, and what the usual formula says beside it."""
    rows: list[tuple[str, int | None, str]] = [
        (f"weights, {answer.weights.format_name}", answer.weights.total, "counted"),
        (f"cache, {answer.cache.number_format}, true", answer.cache.num_bytes, "counted"),
        ("recurrent state", answer.cache.state_bytes, "counted, at any length"),
        ("cross-attention cache", answer.cache.cross_attention_bytes, "counted, at any length"),
    ]
    rows = [row for row in rows if row[1] or row[0].startswith(("weights", "cache"))]
    rows.append(("cache by the usual formula", answer.cache.naive_bytes, _factor(answer.cache.naive_factor)))
    if answer.allocation:
        rows.append(
            (
                f"cache as {engine_title(answer.allocation.engine)} allocates it",
                answer.allocation.num_bytes,
                "counted, its rule",
            )
        )
    if answer.placement.devices > 1:
        rows.append(("weights on the fullest device", answer.placement.weight_bytes, f"{answer.placement.split} split"))
        rows.append(("cache on the fullest device", answer.placement.cache_bytes, f"{answer.placement.split} split"))
    rows.append(("runtime overhead", answer.overhead_bytes, "assumed"))
    rows.append(("needed", answer.needed_bytes, "weights + cache + overhead"))
    if answer.machine and answer.machine.memory_bytes:
        rows.append((f"memory of {answer.machine.name}", answer.machine.memory_bytes, str(answer.machine.origin)))
    columns = (Column("memory", "l"), Column("bytes"), Column("decimal"), Column("binary"), Column("", "l"))
    cells = [
        (name, format_count(size), format_bytes(size), format_bytes_binary(size), note) for name, size, note in rows
    ]
    return Table("Memory", columns, tuple(cells))


def _factor(factor: float | None) -> str:
    return NOT_AVAILABLE if factor is None else f"{format_number(factor)} times the true cache"


def cache_table(answer: FitAnswer) -> Table:
    """What each type of layer keeps."""
    rows = [
        (
            str(layer.layer_type),
            str(layer.count),
            format_count(layer.sliding_window) if layer.sliding_window else "all",
            format_count(layer.positions),
            format_count(layer.bytes_per_position),
            format_bytes(layer.num_bytes + layer.cross_attention_bytes),
            format_bytes(layer.state_bytes) if layer.state_bytes else "",
        )
        for layer in answer.cache.layers
    ]
    columns = (
        Column("cache by layer type", "l"),
        Column("layers"),
        Column("window"),
        Column("rows kept"),
        Column("bytes each"),
        Column("total"),
        Column("fixed state"),
    )
    return Table("Cache by layer type", columns, tuple(rows))


def cache_notes(answer: FitAnswer) -> tuple[str, ...]:
    """What one more token adds, and what an engine's blocks mean for one request."""
    pool = answer.allocation.pool if answer.allocation is not None else None
    return (_slope(answer.cache), *([] if pool is None else [_pool(pool)]))


def _pool(pool: BlockPool) -> str:
    """What vLLM's blocks mean for one request."""
    return (
        f"vLLM: blocks of {format_count(pool.bytes_per_block)} bytes over {sum(g.num_groups for g in pool.groups)} group(s); "
        f"one request may hold {format_count(pool.admission_blocks)} while its prompt is read "
        f"({format_bytes_binary(pool.admission_bytes)}, which is what it must have to be admitted), "
        f"{format_count(pool.steady_blocks)} afterwards ({format_bytes_binary(pool.steady_bytes)}), and "
        f"{format_count(pool.first_token_blocks)} from its first token on ({format_bytes_binary(pool.first_token_bytes)})"
    )


def _slope(cache: CacheCount) -> str:
    """Slope, intercept, and where the slope changes."""
    said = f"one more token adds {format_count(cache.next_token_bytes)} bytes to a sequence at this length"
    if cache.fixed_bytes_per_sequence:
        said += f"; {format_count(cache.fixed_bytes_per_sequence)} bytes a sequence are fixed"
    if cache.slope_changes:
        said += f"; the slope drops at {', '.join(map(format_count, cache.slope_changes))} tokens"
    return said


def speed_table(answer: FitAnswer) -> Table | None:
    """Bounds and expected times of a decode step and of a prompt; None without a machine."""
    if answer.machine is None or answer.decode is None or answer.prefill is None:
        return None
    batch, context = answer.cache.sequences, answer.cache.context_tokens
    rows = (
        _speed_row(f"decode step, batch {batch}", answer.decode, answer.decode_expected_s, batch),
        _speed_row(f"prefill, {format_count(context)} tokens", answer.prefill, answer.prefill_expected_s, context),
    )
    columns = (
        Column("speed", "l"),
        Column("bound"),
        Column("at the bound"),
        Column("expected"),
        Column("limited by", "l"),
        Column("of peak compute"),
    )
    return Table("Speed", columns, rows)


def speed_notes(answer: FitAnswer) -> tuple[str, ...]:
    """What is expected of the engine, and how far memory reaches; nothing without a machine."""
    if speed_table(answer) is None:
        return ()
    batch, context = answer.cache.sequences, answer.cache.context_tokens
    limits = (
        f"longest context for {format_count(batch)} sequence(s): {format_count(answer.max_context_tokens)} tokens; "
        f"most sequences of {format_count(context)} tokens: {format_count(answer.max_sequences)}"
    )
    return (*filter(None, [_middle(answer, batch, context)]), limits)


def _middle(answer: FitAnswer, batch: int, context: int) -> str:
    """The middle of what is expected of an engine."""
    decode, prefill = answer.decode_middle_s, answer.prefill_middle_s
    if decode is None or prefill is None:
        return ""
    return (
        f"expected of {answer.expected_from}: {format_number(batch / decode)} tokens/s in decode "
        f"({format_seconds(decode)} a step), {format_number(context / prefill)} tokens/s in prefill "
        f"({format_seconds(prefill)}); {answer.about_range}"
    )


def _speed_row(name: str, limit: Bound, expected: Range | None, tokens: int) -> tuple[str, ...]:
    return (
        name,
        format_seconds(limit.seconds),
        f"{format_number(tokens / limit.seconds)} tokens/s" if limit.seconds else NOT_AVAILABLE,
        _range(expected),
        str(limit.limited_by),
        format_fraction(limit.fraction_of_peak),
    )


def _range(seconds: Range | None) -> str:
    return NOT_AVAILABLE if seconds is None else f"{format_seconds(seconds.low)} - {format_seconds(seconds.high)}"


def suggestion_table(suggestions: Sequence[Suggestion]) -> Table:
    """Ways to fit, best first."""
    rows = [
        (
            item.answer.weights.format_name,
            format_number(item.bits_per_weight),
            item.answer.cache.number_format,
            format_count(item.answer.cache.context_tokens),
            format_bytes(item.answer.needed_bytes),
            format_bytes(item.saved_bytes),
            format_number(item.decode_bound_tokens_per_s),
            NOT_AVAILABLE if item.speed_up is None else f"{format_number(item.speed_up)}x",
        )
        for item in suggestions
    ]
    columns = (
        Column("what fits: weights", "l"),
        Column("bits"),
        Column("cache", "l"),
        Column("context"),
        Column("needed"),
        Column("saved"),
        Column("bound tokens/s"),
        Column("speed"),
    )
    note = "Best first: the context asked for, then bits a weight, then bits a cached value."
    return Table("What would fit", columns, tuple(rows), note)
