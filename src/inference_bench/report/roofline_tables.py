"""Which figures stand behind a roofline table? Its sentences and tables, as a terminal and a page both show them.

In:   RooflineTable
Out:  sentences, and Tables of texts
Leaves out: how they look (roofline_report, roofline_html)
Read next by: roofline_report, roofline_html.
"""

from __future__ import annotations

from typing import Final

from inference_bench.predict.phases import RooflineTable
from inference_bench.report.table import Column, Table
from inference_bench.roofline import Bound, LimitedBy
from inference_bench.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
    format_si,
)

_WIDE_INTENSITY: Final = 1_000_000
_SHOWN_BATCHES: Final = (1, 4, 16, 64, 256, 1024)
BALANCE: Final = "balance batch, from which decode is limited by compute and no longer by memory"


def asked(result: RooflineTable) -> str:
    """The machine's ceilings and what is held against them, in a sentence."""
    ceiling, devices = result.ceiling, result.devices
    link = f", sends {format_si(ceiling.link_bytes_per_s, 'B/s')}" if devices > 1 else ""
    machine = result.machine if devices == 1 else f"{format_count(devices)} × {result.machine}, each"
    hybrid = (
        "" if result.prefill_chunk is None else f"; both in one step, {format_count(result.prefill_chunk)} tokens of it"
    )
    return (
        f"{result.model} on {machine}: {format_si(ceiling.bandwidth_bytes_per_s, 'B/s')}, "
        f"{format_si(ceiling.peak_flops_per_s, 'FLOP/s')} {ceiling.compute_format or ''} dense, ridge "
        f"{format_number(ceiling.ridge_flops_per_byte)} FLOP/byte{link}; decode of {format_count(result.batch)} sequence(s) "
        f"at {format_count(result.context_tokens)} tokens, prefill of {format_count(result.prompt_tokens)} tokens{hybrid}"
    )


def bounds_table(result: RooflineTable) -> Table:
    """Each phase, and under it its operations."""
    rows = []
    for phase in result.phases:
        rows.append(_row(phase.name, phase))
        rows += [_row(f"  {item.name}", item) for name, item in result.operations if name == phase.name]
    columns = (
        Column("phase, operation", "l"),
        Column("FLOPs"),
        Column("bytes"),
        Column("FLOP/byte"),
        Column("bound"),
        Column("limited by", "l"),
        Column("of peak"),
    )
    return Table("Phases and operations", columns, tuple(rows))


def _row(name: str, item: Bound) -> tuple[str, ...]:
    return (
        name,
        format_si(item.flops, "", 3) if item.flops else "0",
        format_bytes(moved(item)),
        intensity_text(item.intensity),
        format_seconds(item.seconds),
        str(item.limited_by) if item.limited_by is not LimitedBy.UNKNOWN else NOT_AVAILABLE,
        format_fraction(item.fraction_of_peak),
    )


def moved(item: Bound) -> int:
    """Bytes of memory; of an operation that only sends, what it sends."""
    return item.num_bytes or item.link_bytes


def intensity_text(flops_per_byte: float | None) -> str:
    """In full as far as a column has room for it."""
    is_wide = flops_per_byte is not None and flops_per_byte >= _WIDE_INTENSITY
    return format_si(flops_per_byte, "") if is_wide else format_number(flops_per_byte)


def intensity_table(result: RooflineTable) -> Table:
    """FLOPs a byte of single products and of attention."""
    rows = tuple((row.name, format_number(row.flops_per_byte), row.detail) for row in result.intensities)
    columns = (Column("intensity of", "l"), Column("FLOP/byte"), Column("of what", "l"))
    return Table("Intensities", columns, rows)


def balance(result: RooflineTable) -> tuple[str, ...]:
    """From which batch on decode is limited by compute, by each measure of it; nothing where a rate is not known."""
    found, context = result.balance, f"at {format_count(result.context_tokens)} tokens"
    if found.products is None:
        return ()
    lines = [f"weight products alone: {format_number(found.products)} sequences"]
    if found.experts is not None:
        lines.append(f"routed experts alone: {format_number(found.experts)}, as each meets its share of the tokens")
    if found.step_turns:
        lines.append(f"a whole step {context}: {format_count(found.step)}")
    else:
        lines.append(f"a whole step {context}: never, as a larger batch makes the reading of caches no denser")
    return tuple(lines)


def curve_table(result: RooflineTable) -> Table | None:
    """Decode over the batch beside what it tends to; None where no rate is known."""
    if not result.curve:
        return None
    chosen = [row for row in result.curve if row.batch in _SHOWN_BATCHES or row.batch == result.batch]
    rows = tuple(
        (
            format_count(row.batch),
            format_seconds(row.step_s),
            format_number(row.sequence_tokens_per_s),
            format_number(row.tokens_per_s),
            format_fraction(row.tokens_per_s / result.limits.tokens_per_s)
            if result.limits.tokens_per_s
            else NOT_AVAILABLE,
        )
        for row in chosen
    )
    columns = (
        Column("decode batch"),
        Column("step"),
        Column("tokens/s each"),
        Column("tokens/s all"),
        Column("of limit"),
    )
    return Table("Decode over the batch", columns, rows, _limit_line(result))


def _limit_line(result: RooflineTable) -> str:
    limits = result.limits
    parts = {
        "reading caches": limits.memory_tokens_per_s,
        "computing": limits.compute_tokens_per_s,
        "sending": limits.interconnect_tokens_per_s,
    }
    alone = ", ".join(f"{name} alone {format_number(rate)}" for name, rate in parts.items() if rate is not None)
    return f"limit as the batch grows: {format_number(limits.tokens_per_s)} tokens/s ({alone or 'no rate is known'})"
