"""A real engine's log beside its simulation as one page that needs nothing else.

In:   LoggedServer, LogComparison, Calibration, the simulated run, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic and the words of its tables (against_tables), drawing (render)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from inference_bench.calibrate import Calibration, LogComparison, LoggedServer
from inference_bench.charts.simulation_runs import against_chart
from inference_bench.origin import Origin
from inference_bench.report import against_tables as tables
from inference_bench.report import html_pieces as pieces
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    assumptions_part,
    charts_part,
    reading_part,
    repeat_part,
    report_page,
    value_and_unit,
)
from inference_bench.report.simulate_html import settings, timeline
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.served import Contender
from inference_bench.units import format_seconds

_BESIDE: Final = (
    "Simulated over measured",
    "Quantiles of both: on the diagonal they are the same, below it the simulation is faster than the engine was.",
)
_SHOWN: Final = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "makespan")


def against_html(
    server: LoggedServer,
    found: LogComparison,
    fitted: Calibration | None,
    outcome: Outcome,
    made: Provenance,
    draw: Draw | None,
) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts.

    Where:  outcome is the simulated run, after fitting where something was fitted
    """
    last = found if fitted is None else fitted.after
    drawings = [Drawing(*_BESIDE, partial(against_chart, server.log, outcome)), timeline(outcome, server.setup)]
    errors = pieces.table(tables.errors_table(found, fitted), has_heading=False)
    parts = (
        reading_part((tables.preemptions_words(last),)),
        charts_part(drawings, draw),
        Part(
            "errors",
            "Errors",
            "Measured beside simulated",
            pieces.origins((Origin.SIMULATED, Origin.MEASURED)) + errors,
        ),
        Part("fitted", "Fitted", "What was fitted", pieces.table(tables.fitted_table(fitted), has_heading=False)),
        Part("setup", "Setup", "The server that is simulated", settings((Contender(server.engine, server.setup),))),
        assumptions_part(tables.all_notes(server, last, fitted)),
        repeat_part(made),
    )
    head = Head("How near is the simulation to the engine's log?", _place(server, last))
    return report_page(head, made, tuple(_key_figures(last, fitted is not None)), (), parts)


def _place(server: LoggedServer, last: LogComparison) -> str:
    return f"{tables.log_words(server, last)}: {tables.server_words(server)}"


def _key_figures(last: LogComparison, is_fitted: bool) -> Iterator[KeyFigure]:
    """The error of what people quote, beside both values."""
    how = ", after the fit" if is_fitted else ""
    for name in _SHOWN:
        value, unit = value_and_unit(tables.error_words(last.errors[name]))
        simulated, measured = (format_seconds(side.values[name]) for side in (last.simulated, last.measured))
        detail = f"{measured} measured{how}"
        yield KeyFigure(
            f"error of {tables.statistic_name(name)}", value, unit, Origin.SIMULATED, f"{simulated} simulated", detail
        )
