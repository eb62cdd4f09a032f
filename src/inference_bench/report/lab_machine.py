"""What does the machine lab say?

In:   MachineResult
Out:  LabPage
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from inference_bench.charts.lab_machine import machine_chart
from inference_bench.labs.machine.result import Agreement, LabCeilings, LabProduct, Library, MachineResult
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_page import LabPage
from inference_bench.report.report_html import value_and_unit
from inference_bench.report.table import Column, Table
from inference_bench.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)

_MEASURED = "measured"
_WHOLE = 0.95


def lab_page(result: MachineResult) -> LabPage:
    """Its figures, its sentences, its chart."""
    return LabPage(
        head=result.head,
        checks=result.checks,
        figures=tuple(_figures(result)),
        reading=tuple(_reading(result)),
        tables=(_ceilings(result), _pairs(result), _bfloat16(result)),
        drawings=(_drawing(result),),
        details=(_products(result), _one_thread(result), _reads(result), _libraries(result)),
    )


def _figures(result: MachineResult) -> Iterator[KeyFigure]:
    best = result.ceilings
    for name, value, unit in (
        ("memory bandwidth", best.bandwidth_bytes_per_s, "B/s"),
        ("float32 peak", best.peak_flops_per_s, "FLOP/s"),
    ):
        said = value_and_unit(format_si(value, unit))
        yield KeyFigure(name, *said, _MEASURED, "the fastest of both libraries and the probe", best.source)
    ridge = format_number(best.roof.ridge_flops_per_byte)
    yield KeyFigure("ridge", ridge, "FLOP/byte", _MEASURED, "peak over bandwidth", "where memory stops being the limit")
    for each in result.agreements:
        yield KeyFigure(
            f"PyTorch over NumPy, {each.name}", format_number(each.torch_over_numpy), "", _MEASURED,
            "agree" if each.is_within else "differ, reasons below",
            f"called equal within {format_fraction(each.allowed_fraction)}",
        )  # fmt: skip


def _reading(result: MachineResult) -> Iterator[str]:
    best = result.ceilings
    ridge = best.roof.ridge_flops_per_byte
    yield (
        f"This machine reads memory at {format_si(best.bandwidth_bytes_per_s, 'B/s')} and multiplies float32 matrices at "
        f"{format_si(best.peak_flops_per_s, 'FLOP/s')}: below {format_number(ridge)} FLOP/byte memory is the limit"
    )
    for each in result.agreements:
        yield from _agreement(each)
    yield _better(result)
    if result.bfloat16_products:
        yield _in_bfloat16(result)
    above = [each for each in result.products if each.is_above_by_more_than_spread]
    if above:
        worst = max(above, key=lambda each: each.above_roof_fraction or 0.0)
        yield (
            f"{format_count(len(above))} of {format_count(len(result.products))} rows lie above the probe's roof by more than they spread, "
            f"{worst.library} {worst.orientation} at B = {worst.row.batch} the most, by {format_fraction(worst.above_roof_fraction)}: "
            "the probe alone would set this machine's ceilings too low"
        )


def _agreement(each: Agreement) -> Iterator[str]:
    unit = "B/s" if each.name == "bandwidth" else "FLOP/s"
    values = (
        f"{format_si(each.torch_value, unit)} by PyTorch, {format_si(each.numpy_value, unit)} by NumPy in turns with it, "
        f"{format_si(each.probe_value, unit)} by the probe"
    )
    allowed = format_fraction(each.allowed_fraction)
    if each.is_within:
        yield f"PyTorch, NumPy and the probe agree on {each.name} within {allowed}: {values}"
        return
    yield f"PyTorch, NumPy and the probe differ on {each.name} by more than {allowed}: {values}"
    yield f"Why {each.name} differs: {'; '.join(each.reasons)}"


def _better(result: MachineResult) -> str:
    """Which ceiling the other labs take, and what PyTorch reaches of it."""
    best, own = result.ceilings, result.torch_ceilings
    read = own.bandwidth_bytes_per_s / best.bandwidth_bytes_per_s
    peak = own.peak_flops_per_s / best.peak_flops_per_s
    missing = (
        "" if min(read, peak) >= _WHOLE else "; what is missing is the library's, or other work's, not the machine's"
    )
    return (
        f"The highest is the ceiling that other labs are held to, measured again in their own run: PyTorch, which they compute with, "
        f"reaches {format_fraction(read)} of this bandwidth and {format_fraction(peak)} of this peak{missing}"
    )


def _in_bfloat16(result: MachineResult) -> str:
    last = result.bfloat16_products[-1]
    same = [each for each in result.products if each.library is Library.PYTORCH and each.row.batch == last.row.batch]
    ratio = min(each.row.seconds for each in same) / last.row.seconds
    units = [name for name in ("avx512_bf16", "amx_bf16") if result.cpu_features.get(name)]
    has = f"this processor has units for it ({', '.join(units)})" if units else "this processor names no unit for it"
    return (
        f"In bfloat16 PyTorch's product at B = {last.row.batch} takes {format_seconds(last.row.seconds)}, "
        f"{format_number(ratio)} times as fast as float32: {has}"
    )


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────


def _ceilings(result: MachineResult) -> Table:
    columns = (Column("ceilings by", "l"), Column("bandwidth"), Column("peak"), Column("ridge FLOP/byte"))
    named: Sequence[tuple[str, LabCeilings]] = (
        ("PyTorch", result.torch_ceilings),
        ("NumPy, in turns with it", result.numpy_ceilings),
        ("the probe, in its own turn", result.probe_ceilings),
        ("highest", result.ceilings),
    )
    rows = tuple(
        (
            name,
            format_si(each.bandwidth_bytes_per_s, "B/s"),
            format_si(each.peak_flops_per_s, "FLOP/s"),
            format_number(each.roof.ridge_flops_per_byte),
        )
        for name, each in named
    )
    note = "Of each row its fastest value, which other work disturbed least; the rows below are medians."
    return Table("Ceilings", columns, rows, note)


def _pairs(result: MachineResult) -> Table:
    columns = (
        Column("B"), Column("PyTorch"), Column("NumPy"), Column("probe"), Column("PyTorch rate"), Column("NumPy rate"),
        Column("ratio"), Column("spread"), Column("within", "l"),
    )  # fmt: skip
    rows = tuple(
        (
            format_count(each.batch),
            format_seconds(each.torch_s),
            format_seconds(each.numpy_s),
            format_seconds(each.probe_s),
            format_si(each.torch_flops_per_s, "FLOP/s"),
            format_si(each.numpy_flops_per_s, "FLOP/s"),
            format_number(each.torch_over_numpy),
            format_fraction(each.noise_fraction),
            f"{format_fraction(each.allowed_fraction)}: {'yes' if each.is_within else 'no'}",
        )
        for each in result.pairs
    )
    size = f"{result.matrix_size} × {result.matrix_size}"
    note = (
        f"A matrix of {format_bytes(result.matrix_bytes)}, last-level cache {format_bytes(result.last_level_cache_bytes)}. "
        "Times are medians, the ratio is PyTorch's rate over NumPy's, and the spread is that of both added."
    )
    marked = frozenset(i for i, each in enumerate(result.pairs) if not each.is_within)
    return Table(f"{size} times B columns, each library's faster orientation", columns, rows, note, marked)


_PRODUCT_COLUMNS = (
    Column("product", "l"), Column("B"), Column("median"), Column("rate"), Column("traffic"), Column("FLOP/byte"), Column("spread"),
)  # fmt: skip


def _product_row(each: LabProduct) -> tuple[str, ...]:
    row = each.row
    return (
        f"{each.library} {each.orientation}",
        format_count(row.batch),
        format_seconds(row.seconds),
        format_si(row.flops_per_s, "FLOP/s"),
        format_si(row.bytes_per_s, "B/s"),
        format_number(row.intensity_flops_per_byte),
        format_fraction(row.spread_fraction),
    )


def _bfloat16(result: MachineResult) -> Table:
    return Table("In bfloat16", _PRODUCT_COLUMNS, tuple(map(_product_row, result.bfloat16_products)))


def _products(result: MachineResult) -> Table:
    marked = frozenset(i for i, each in enumerate(result.products) if each.is_above_by_more_than_spread)
    title = f"Every float32 row, {format_count(result.num_rounds)} rounds"
    return Table(title, _PRODUCT_COLUMNS, tuple(map(_product_row, result.products)), marked=marked)


def _one_thread(result: MachineResult) -> Table:
    return Table("With one thread", _PRODUCT_COLUMNS, tuple(map(_product_row, result.one_thread_products)))


def _reads(result: MachineResult) -> Table:
    columns = (Column("the probe's ways to move data", "l"), Column("bytes"), Column("rate"), Column("spread"))
    rows = tuple(
        (
            f"{each.description} (round {each.round_index})",
            format_bytes(each.counted_bytes),
            format_si(each.bytes_per_s, "B/s"),
            format_fraction(each.spread_fraction),
        )
        for each in result.probe_bandwidth_rows
    )
    return Table("Memory, by the probe", columns, rows)


def _libraries(result: MachineResult) -> Table:
    columns = (Column("library", "l"), Column("version", "l"), Column("multiplies with", "l"), Column("kernels", "l"))
    rows = tuple(
        (each.library, each.version, each.matrix_library, each.kernels or "unnamed") for each in result.libraries
    )
    features = ", ".join(name for name, has in result.cpu_features.items() if has) or "none named"
    return Table("Libraries", columns, rows, f"Units for products: {features}.")


def _drawing(result: MachineResult) -> Drawing:
    return Drawing(
        "Products under the roof",
        "Each point is one product. The roof is the highest of both libraries; the dashed line is PyTorch's own.",
        partial(machine_chart, result),
    )
