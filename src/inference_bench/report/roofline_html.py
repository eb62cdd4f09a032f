"""The roofline table on a page: the ceilings, the phases' figures, the tables.

In:   RooflineTable, and where drawings go
Out:  HTML text
Leaves out: words and tables that a terminal shares (roofline_tables); drawing
Read next by: bridge.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference_bench.origin import Origin
from inference_bench.predict.phases import RooflineTable
from inference_bench.report import html_pieces as pieces
from inference_bench.report import roofline_tables as tables
from inference_bench.report.key_figure import KeyFigure
from inference_bench.roofline import Bound
from inference_bench.units import format_count, format_fraction, format_number, format_seconds


def roofline_html(result: RooflineTable, *, drawings: str = "", notes: Sequence[str] = ()) -> str:
    """The whole answer; drawings is HTML that stands below the figures, and notes are what else was assumed."""
    curve = tables.curve_table(result)
    return "\n".join(
        [
            f'<div class="verdict"><p class="first">{pieces.say(tables.asked(result))}.</p></div>',
            pieces.key_figures(_figures(result)),
            drawings,
            pieces.section(
                "operations",
                "Phases and operations",
                pieces.table(tables.bounds_table(result), has_heading=False),
            ),
            pieces.section("batch", "Decode over the batch", pieces.table(curve, has_heading=False), _balance(result)),
            pieces.section(
                "intensities", "Intensities", pieces.table(tables.intensity_table(result), has_heading=False)
            ),
            pieces.section("assumptions", "Assumptions", pieces.bullets((*notes, *result.assumptions))),
        ]
    )


def roofline_status(result: RooflineTable) -> str:
    """The answer in so few words that they can be read out at every change."""
    phases = "; ".join(f"{item.name} limited by {item.limited_by}" for item in result.phases)
    return f"ridge {format_number(result.ceiling.ridge_flops_per_byte)} FLOP/byte; {phases}"


def _balance(result: RooflineTable) -> str:
    lines = tables.balance(result)
    return f"<h3>{pieces.say(tables.BALANCE)}</h3>{pieces.bullets(lines)}" if lines else ""


def _figures(result: RooflineTable) -> list[KeyFigure]:
    ceiling, balance = result.ceiling, result.balance
    turns = format_count(balance.step) if balance.step_turns else "never"
    return [
        KeyFigure(
            "ridge",
            format_number(ceiling.ridge_flops_per_byte),
            "FLOP/byte",
            Origin.PUBLISHED,
            f"{ceiling.compute_format or 'unknown'} dense peak",
            "peak over bandwidth",
        ),
        *(_phase(item) for item in result.phases),
        KeyFigure(
            "a decode step turns at",
            turns,
            "sequences" if balance.step_turns else "",
            Origin.BOUND,
            "from memory to compute",
            f"weight products alone: {format_number(balance.products)}",
        ),
        KeyFigure(
            "decode tends to",
            format_number(result.limits.tokens_per_s),
            "tokens/s",
            Origin.BOUND,
            "as the batch grows",
            f"at {format_count(result.context_tokens)} tokens each",
        ),
    ]


def _phase(item: Bound) -> KeyFigure:
    value, _, unit = format_seconds(item.seconds).partition(" ")
    return KeyFigure(
        f"{item.name}, at least",
        value,
        unit,
        Origin.BOUND,
        f"{format_number(item.intensity)} FLOP/byte",
        f"limited by {item.limited_by}, {format_fraction(item.fraction_of_peak)} of peak compute",
        item.fraction_of_peak,
    )
