"""The answers to `fit` as text for a terminal; fit_json holds the same for programs.

In:   FitAnswer, Suggestions, MachineRows, NaiveRows
Out:  text of at most 100 columns
Leaves out: arithmetic; every number was computed before
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from inference_bench.accounting.cache import CacheCount
from inference_bench.predict.fit import FitAnswer
from inference_bench.predict.latency import Range
from inference_bench.report.text import MAX_COLUMNS, table, wrap
from inference_bench.units import (
    KIBI,
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
    from inference_bench.predict.engine_command import EngineCommand
    from inference_bench.predict.naive_error import NaiveRow
    from inference_bench.predict.suggest import MachineRow, Suggestion
    from inference_bench.roofline import Bound

NOT_COUNTED: Final = "not counted: "
_OPTION_ROOM: Final = 20  # for the value of an option and the mark that the line goes on


def fit_text(
    answer: FitAnswer, commands: Sequence[EngineCommand] = (), suggestions: Sequence[Suggestion] | None = None
) -> str:
    """The verdict first, then where it comes from, what would fit, and how to run it."""
    sections = [_verdict(answer), _memory_table(answer), _cache_table(answer), _speed_text(answer)]
    sections.append("" if suggestions is None else _suggestions(suggestions))
    sections.append(_commands(commands))
    sections.append("\n".join(["assumptions", *(wrap(line, indent="  - ") for line in answer.assumptions)]))
    return "\n\n".join(section for section in sections if section)


def _verdict(answer: FitAnswer) -> str:
    cache, placement = answer.cache, answer.placement
    what = (
        f"{answer.model.name}: {_parameters(answer)}, {cache.sequences} sequence(s) of "
        f"{format_count(cache.context_tokens)} tokens"
    )
    if answer.machine is None:
        return wrap(f"{what} need {_both(answer.needed_bytes)}; name a machine to see whether it fits.")
    where = answer.machine.name if placement.devices == 1 else f"{placement.devices} of {answer.machine.name}"
    if answer.fits is None:
        return wrap(
            f"{what} need {_both(answer.needed_bytes)}; how much memory {answer.machine.name} has is not known."
        )
    word = "fits" if answer.fits else "does not fit"
    spare = f"{_both(abs(answer.headroom_bytes or 0))} {'to spare' if answer.fits else 'too much'}"
    each = " on the fullest device" if placement.devices > 1 else ""
    lines = [wrap(f"{what}: {word} {where}, {spare}{each}. {_reason(answer)}")]
    if answer.naive_fits is not None and answer.naive_fits != answer.fits:
        lines.append(
            wrap("The usual formula, which charges every layer for the whole context, would have said the opposite.")
        )
    lines += [wrap(f"{line[0].upper()}{line[1:]}.") for line in answer.assumptions if line.startswith(NOT_COUNTED)]
    if answer.offload is not None:
        lines.append(wrap(_offload(answer.offload, answer.model.num_hidden_layers)))
    return "\n".join(lines)


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


def _suggestions(suggestions: Sequence[Suggestion]) -> str:
    if not suggestions:
        return "Nothing in the formats known here fits."
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
    headers = ("what fits: weights", "bits", "cache", "context", "needed", "saved", "bound tokens/s", "speed")
    return f"{table(headers, rows, 'lrlrrrrr')}\nBest first: the context asked for, then bits a weight, then bits a cached value."


def _commands(commands: Sequence[EngineCommand]) -> str:
    lines = [
        wrap(f"{item.engine}: no; {item.note}", indent="  ")
        if item.command is None
        else f"  {item.engine}, which {item.note}\n{_continued(item.command)}"
        for item in commands
    ]
    return "\n".join(["to run it", *lines]) if lines else ""


def _continued(command: str) -> str:
    """A command over several lines that a shell reads as one; it breaks before an option."""
    lines = [""]
    for index, word in enumerate(command.split(" ")):
        if word.startswith("-") and index and len(lines[-1]) + len(word) + _OPTION_ROOM > MAX_COLUMNS:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else f"    {word}"
    return " \\\n  ".join(lines)


def _both(num_bytes: int | None) -> str:
    return f"{format_bytes(num_bytes)} ({format_bytes_binary(num_bytes)})"


def _memory_table(answer: FitAnswer) -> str:
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
            (f"cache as {answer.allocation.engine} allocates it", answer.allocation.num_bytes, "counted, its rule")
        )
    if answer.placement.devices > 1:
        rows.append(("weights on the fullest device", answer.placement.weight_bytes, f"{answer.placement.split} split"))
        rows.append(("cache on the fullest device", answer.placement.cache_bytes, f"{answer.placement.split} split"))
    rows.append(("runtime overhead", answer.overhead_bytes, "assumed"))
    rows.append(("needed", answer.needed_bytes, "weights + cache + overhead"))
    if answer.machine and answer.machine.memory_bytes:
        rows.append((f"memory of {answer.machine.name}", answer.machine.memory_bytes, str(answer.machine.origin)))
    return table(
        ("memory", "bytes", "decimal", "binary", ""),
        [(name, format_count(size), format_bytes(size), format_bytes_binary(size), note) for name, size, note in rows],
        "lrrrl",
    )


def _factor(factor: float | None) -> str:
    return NOT_AVAILABLE if factor is None else f"{format_number(factor)} times the true cache"


def _cache_table(answer: FitAnswer) -> str:
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
    headers = ("cache by layer type", "layers", "window", "rows kept", "bytes each", "total", "fixed state")
    text = table(headers, rows, "lrrrrrr")
    lines = [text, wrap(_slope(answer.cache))]
    if answer.allocation is not None and answer.allocation.pool is not None:
        lines.append(wrap(_pool(answer.allocation.pool)))
    return "\n".join(lines)


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


def _speed_text(answer: FitAnswer) -> str:
    if answer.machine is None or answer.decode is None or answer.prefill is None:
        return ""
    batch = answer.cache.sequences
    context = answer.cache.context_tokens
    rows = [
        _speed_row(f"decode step, batch {batch}", answer.decode, answer.decode_expected_s, batch),
        _speed_row(f"prefill, {format_count(context)} tokens", answer.prefill, answer.prefill_expected_s, context),
    ]
    headers = ("speed", "bound", "at the bound", "expected", "limited by", "of peak compute")
    text = "\n".join(filter(None, [table(headers, rows, "lrrrlr"), _middle(answer, batch, context)]))
    limits = (
        f"longest context for {format_count(batch)} sequence(s): {format_count(answer.max_context_tokens)} tokens; "
        f"most sequences of {format_count(answer.cache.context_tokens)} tokens: {format_count(answer.max_sequences)}"
    )
    return f"{text}\n{wrap(limits)}"


def _middle(answer: FitAnswer, batch: int, context: int) -> str:
    """The middle of what is expected of an engine."""
    decode, prefill = answer.decode_middle_s, answer.prefill_middle_s
    if decode is None or prefill is None:
        return ""
    return wrap(
        f"expected of {answer.expected_from}: {format_number(batch / decode)} tokens/s in decode "
        f"({format_seconds(decode)} a step), {format_number(context / prefill)} tokens/s in prefill "
        f"({format_seconds(prefill)}); the ranges above hold 4 of 5 measurements"
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


def ranking_text(rows: Sequence[MachineRow]) -> str:
    """One model on every machine: those it fits first, the fastest first among them."""
    words = {True: "yes", False: "no", None: NOT_AVAILABLE}
    cells = [
        (
            row.answer.machine.name if row.answer.machine else NOT_AVAILABLE,
            words[row.answer.fits],
            _signed(row.answer.headroom_bytes),
            format_count(row.answer.max_context_tokens),
            format_count(row.answer.max_sequences),
            format_number(row.decode_bound_tokens_per_s),
            format_seconds(row.answer.prefill.seconds if row.answer.prefill else None),
        )
        for row in rows
    ]
    headers = ("machine", "fits", "to spare", "longest context", "most sequences", "decode tokens/s", "prefill")
    return f"{table(headers, cells, 'llrrrrr')}\nSpeeds are bounds."


def _signed(num_bytes: int | None) -> str:
    if num_bytes is None or num_bytes >= 0:
        return format_bytes(num_bytes)
    return f"-{format_bytes(-num_bytes)}"


def naive_error_text(rows: Sequence[NaiveRow], median: float | None) -> str:
    """The same table as Markdown, which also reads in a terminal."""
    contexts = [f"{count.context_tokens // KIBI}k" for count in rows[0].counts] if rows else []
    lines = [
        "| model | layers | " + " | ".join(f"usual, true at {name} | factor" for name in contexts) + " |",
        "|---|---|" + "---:|---:|" * len(contexts),
    ]
    for row in rows:
        cells = [
            f"{format_bytes_binary(count.naive_bytes)}, {format_bytes_binary(count.total_bytes)} | {format_number(count.naive_factor)}"
            for count in row.counts
        ]
        lines.append(f"| {row.model} | {row.layer_types} | {' | '.join(cells)} |")
    wrong = sum(not row.is_uniform for row in rows)
    lines.append(
        f"\nThe usual formula charges every layer for the whole context. It is right on {len(rows) - wrong} of {len(rows)} models "
        f"and wrong on {wrong}, by a median factor of {format_number(median)} at the longest context."
    )
    return "\n".join(lines)
