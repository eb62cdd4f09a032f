"""Which figures stand behind the result? Every table of it, as texts with the origin of each column.

In:   VerifyResult
Out:  Tables: columns and rows of texts, written by `units`
Leaves out: how a table looks on a page or in a terminal
Read next by: verify_html, text_result.
"""

from __future__ import annotations

from inference_bench.accounting.cache import CacheCount, count_cache
from inference_bench.charts import group_labels
from inference_bench.compare import ComparedPoint, Phase, Verdict
from inference_bench.metrics import Percentiles
from inference_bench.origin import Origin
from inference_bench.predict.fit import cache_format
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import clean
from inference_bench.report.wording import ESTIMATE, FITTED, REPORTED, interval_text, tokens_per_s, yes_or_no
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_bytes_binary,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)
from inference_bench.verify.identity import engine_cache_format
from inference_bench.verify.result import GroupMetrics, VerifyResult

MANY_POINTS = 12  # beyond which a picture or a screen shows a few
_FEW = "†"
_PHASE_NOTE = "Decode: one step of the whole batch. Prefill: the time to the first token of one prompt, HTTP included."
_TIMES = (
    ("ttft_s", "TTFT", "first token"),
    ("tpot_s", "TPOT", "per output token"),
    ("itl_s", "ITL", "between tokens"),
    ("chunk_gap_s", "chunk gap", "between chunks"),
    ("e2e_s", "E2E", "last token"),
)


def few_points(points: tuple[ComparedPoint, ...]) -> tuple[ComparedPoint, ...]:
    """All of a few points; of many the smallest and the largest batch of each context, the shortest and longest prompt, and any finding."""
    if len(points) <= MANY_POINTS:
        return points
    groups: dict[tuple[Phase, int | None], list[int]] = {}
    for index, point in enumerate(points):
        measured = point.measured
        context = measured.nominal_context_tokens if measured.phase is Phase.DECODE else None
        groups.setdefault((measured.phase, context), []).append(index)
    ends = {index for indexes in groups.values() for index in (indexes[0], indexes[-1])}
    return tuple(point for index, point in enumerate(points) if index in ends or point.verdict is Verdict.ABOVE)


def points_table(result: VerifyResult) -> Table:
    """Every measured point beside its bound."""
    columns = (
        Column("phase", "l", note=_PHASE_NOTE),
        Column("batch"),
        Column("context"),
        Column("time", origin=Origin.MEASURED),
        Column("95 % interval", note="Time: the median over waves; interval: of that median, n/a below six waves."),
        Column("waves"),
        Column("bound", origin=Origin.BOUND),
        Column("share", note="Share: bound over time, so the rate as a share of its ceiling."),
        Column("limited by", "l"),
        Column("tokens/s", origin=Origin.MEASURED),
        Column("mean time", origin=Origin.MEASURED, note="Mean time: over all samples, disturbed ones included."),
        Column("engine's own", origin=REPORTED, note="Engine's own: its mean for the same time, where it gives one."),
        Column("at ceiling", origin=Origin.BOUND),
        Column("verdict", "l"),
        Column(
            "MBU", origin=ESTIMATE, note="MBU, MFU: counted bytes and FLOPs over the time, as shares of the ceilings."
        ),
        Column("MFU", origin=ESTIMATE),
        Column("counted at", origin=Origin.COUNTED, note="Counted at: the positions the bound is computed for."),
        Column("spread", note="Spread: half the interquartile range over the median, between waves."),
        Column("samples"),
    )
    marked = frozenset(index for index, point in enumerate(result.points) if point.verdict is Verdict.ABOVE)
    return Table("Points", columns, tuple(map(_point_cells, result.points)), marked=marked)


def _point_cells(point: ComparedPoint) -> Cells:
    measured = point.measured
    return (
        str(measured.phase),
        format_count(measured.batch),
        format_count(measured.nominal_context_tokens),
        format_seconds(measured.seconds),
        interval_text(measured.interval, format_seconds),
        format_count(measured.num_waves),
        format_seconds(point.bound.seconds),
        format_fraction(point.fraction_of_bound),
        str(point.bound.limited_by),
        tokens_per_s(point.measured_tokens_per_s),
        format_seconds(measured.mean_s),
        format_seconds(measured.engine_s),
        tokens_per_s(point.bound_tokens_per_s),
        str(point.verdict),
        format_fraction(point.mbu),
        format_fraction(point.mfu),
        format_count(measured.context_tokens),
        format_fraction(measured.relative_spread),
        format_count(measured.num_samples),
    )


def batch_table(result: VerifyResult) -> Table:
    """A decode step as a fixed part and a part for each sequence, where the step times lie on a line."""
    columns = (
        Column("context", "r"),
        Column("fixed", origin=FITTED),
        Column("one read of the weights", origin=Origin.BOUND),
        Column("per sequence", origin=FITTED),
        Column("per sequence", origin=Origin.BOUND),
    )
    rows = tuple(
        (
            format_count(line.context_tokens),
            format_seconds(line.fixed_s),
            format_seconds(line.bound_fixed_s),
            format_seconds(line.per_sequence_s),
            format_seconds(line.bound_per_sequence_s),
        )
        for line in result.batch_lines
        if line.is_telling
    )
    return Table(
        "A decode step over the batch", columns, rows, "Least squares of step time = fixed + batch · per sequence."
    )


# ── requests ───────────────────────────────────────────────────────────────────────────────────────


def requests_table(result: VerifyResult, *, is_short: bool = False) -> Table:
    """How the requests of each part of the run ended."""
    endings = ("sent", "completed", "failed", "rejected", "timed out", "truncated", "cancelled")
    columns = (
        Column("requests", "l"),
        *(Column(name) for name in endings),
        Column("output tokens/s", origin=Origin.MEASURED),
    )
    labels = group_labels(result.groups, is_short)
    rows = tuple(_ending_cells(label, group) for label, group in zip(labels, result.groups, strict=True))
    counts = [group.metrics.requests for group in result.groups]
    marked = frozenset(index for index, count in enumerate(counts) if count.completed < count.sent)
    return Table("How requests ended", columns, rows, "", marked)


def _ending_cells(label: str, group: GroupMetrics) -> Cells:
    counts = group.metrics.requests
    endings = (
        counts.sent,
        counts.completed,
        counts.failed,
        counts.rejected,
        counts.timed_out,
        counts.truncated,
        counts.cancelled,
    )
    return (label, *map(format_count, endings), tokens_per_s(group.metrics.output_tokens_per_s))


def latency_table(result: VerifyResult, *, is_short: bool = False) -> Table:
    """The percentiles of every time, with how many samples each has."""
    columns = (
        Column("requests", "l"),
        Column("time", "l"),
        Column("p50", origin=Origin.MEASURED),
        Column("p90"),
        Column(
            "p99", note=f"{_FEW} Too few samples for a 95 % interval: the percentile is little more than one of them."
        ),
        Column("samples"),
        Column("95 % interval of p50"),
    )
    labels = group_labels(result.groups, is_short)
    rows = tuple(
        (label, short if is_short else f"{short} ({what})", *_percentile_cells(getattr(group.metrics, field)))
        for label, group in zip(labels, result.groups, strict=True)
        for field, short, what in _TIMES
        if field != "chunk_gap_s" or group.metrics.itl_s is None
    )
    note = (
        "From pooled raw samples of completed requests, clocks started when the request was due. ITL only where one "
        "chunk is one token; otherwise the gaps between chunks are shown."
    )
    return Table("Latency", columns, rows, note)


def _percentile_cells(values: Percentiles | None) -> Cells:
    if values is None:
        return (NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, "0", NOT_AVAILABLE)
    pairs = (
        (values.p50, values.p50_interval),
        (values.p90, values.p90_interval),
        (values.p99, values.p99_interval),
    )
    shown = (f"{format_seconds(value)}{'' if interval else _FEW}" for value, interval in pairs)
    return (*shown, format_count(values.count), interval_text(values.p50_interval, format_seconds))


# ── cache ──────────────────────────────────────────────────────────────────────────────────────────


def counted_cache(result: VerifyResult) -> CacheCount:
    """The cache of what the engine was set up for: its slots and context, or one sequence of the longest measured."""
    figures = result.figures
    total, slots = figures.context_tokens_total, figures.num_slots
    of_slot = figures.context_tokens_per_slot or figures.max_model_len
    fmt = engine_cache_format(figures) or cache_format(None)
    if total and slots:
        return count_cache(result.model.spec, fmt, total // slots, slots)
    if of_slot or total:
        return count_cache(result.model.spec, fmt, of_slot or total or 0, slots or 1)
    contexts = [point.measured.context_tokens for point in result.points]
    return count_cache(result.model.spec, fmt, max(contexts, default=0))


def cache_table(result: VerifyResult) -> Table:
    """The cache by layer type, its sum, and what the usual formula would say."""
    cache = counted_cache(result)
    columns = (
        Column("cache", "l"),
        Column("layers"),
        Column("window"),
        Column("positions kept"),
        Column("bytes a position"),
        Column("bytes", origin=Origin.COUNTED),
        Column("binary"),
        Column("factor"),
    )
    rows: list[Cells] = [
        (
            str(layer.layer_type).replace("_", " "),
            format_count(layer.count),
            "all" if layer.sliding_window is None else format_count(layer.sliding_window),
            format_count(layer.positions),
            format_count(layer.bytes_per_position),
            format_count(layer.num_bytes),
            format_bytes_binary(layer.num_bytes),
            "",
        )
        for layer in cache.layers
    ]
    layers = format_count(result.model.spec.num_hidden_layers)
    rows.append(_cache_sum("true, by layer type", layers, cache.num_bytes, "1"))
    rows.append(_cache_sum("usual formula", layers, cache.naive_bytes, format_number(cache.naive_factor)))
    note = (
        f"{format_count(cache.sequences)} sequence(s) of {format_count(cache.context_tokens)} tokens, stored as "
        f"{cache.number_format}. The usual formula charges every layer for the whole context."
    )
    return Table("KV cache", columns, tuple(rows), note)


def _cache_sum(name: str, layers: str, num_bytes: int | None, factor: str) -> Cells:
    return (name, layers, "", "", "", format_count(num_bytes), format_bytes_binary(num_bytes), factor)


def engine_cache_rows(result: VerifyResult) -> tuple[tuple[str, str, str], ...]:
    """(what, figure, origin): the engine's own cache figure beside ours, and the rule between them."""
    check = result.cache_check
    if check is None:
        return ()
    return (
        ("the engine prints", clean(check.printed), REPORTED),
        ("counted, with the engine's rounding", f"{format_count(check.predicted_bytes)} bytes", Origin.COUNTED),
        ("counted, before rounding", f"{format_count(check.logical_bytes)} bytes", Origin.COUNTED),
        (
            "cells, engine and counted",
            f"{format_count(check.printed_cells)} and {format_count(check.predicted_cells)}",
            "",
        ),
        ("would print the same", yes_or_no(check.agrees), ""),
        ("rule", clean(check.rule), ""),
    )


# ── machine ────────────────────────────────────────────────────────────────────────────────────────


def bandwidth_table(result: VerifyResult, *, is_short: bool = False) -> Table | None:
    """Every way of moving data that was timed, by its short name or its description; None without a probe."""
    if result.probe is None:
        return None
    probe = result.probe
    chosen = [row for row in probe.bandwidth_rows if row.method == probe.bandwidth_method]
    highest = max(chosen, key=lambda row: row.bytes_per_s, default=None)
    columns = (
        Column("data moved", "l"),
        Column("round"),
        Column("threads"),
        Column("bytes", origin=Origin.COUNTED),
        Column("of last cache"),
        Column("median", origin=Origin.MEASURED),
        Column("rate", origin=Origin.MEASURED),
        Column("spread"),
        Column("values"),
        Column("", "l"),
    )
    rows = tuple(
        (
            clean(row.method if is_short else row.description),
            format_count(row.round_index),
            format_count(row.num_threads),
            format_bytes(row.counted_bytes),
            NOT_AVAILABLE if row.array_over_cache is None else f"{format_number(row.array_over_cache)}×",
            format_seconds(row.seconds),
            format_si(row.bytes_per_s, "B/s"),
            format_fraction(row.spread_fraction),
            format_count(len(row.timing.values_s)),
            "the ceiling" if row is highest else "",
        )
        for row in probe.bandwidth_rows
    )
    return Table("Memory bandwidth", columns, rows)


def product_table(result: VerifyResult) -> Table | None:
    """Every matrix product that was timed; None without a probe."""
    if result.probe is None:
        return None
    size = format_count(result.probe.matrix_size)
    columns = (
        Column("batch"),
        Column("FLOPs", origin=Origin.COUNTED),
        Column("bytes", origin=Origin.COUNTED),
        Column("FLOP/byte", origin=Origin.COUNTED),
        Column("median", origin=Origin.MEASURED),
        Column("rate", origin=Origin.MEASURED),
        Column("traffic", origin=ESTIMATE),
        Column("spread"),
        Column("values"),
        Column("", "l"),
    )
    rows = tuple(
        (
            format_count(row.batch),
            format_si(row.counted_flops, ""),
            format_bytes(row.counted_bytes),
            format_number(row.intensity_flops_per_byte),
            format_seconds(row.seconds),
            format_si(row.flops_per_s, "FLOP/s"),
            format_si(row.bytes_per_s, "B/s"),
            format_fraction(row.spread_fraction),
            format_count(len(row.timing.values_s)),
            "the ceiling" if row.batch == result.probe.peak_batch else "",
        )
        for row in result.probe.rows
    )
    return Table(f"Matrix products, {size} × {size} times the batch, {result.probe.compute_format}", columns, rows)
