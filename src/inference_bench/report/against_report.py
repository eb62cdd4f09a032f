"""A real engine's log beside its simulation, as JSON with stable keys and as text for a terminal.

In:   LoggedServer, LogComparison, Calibration
Out:  a dict ready for JSON or a text of at most 100 columns
Leaves out: what the text says (against_tables)
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from inference_bench.calibrate import Calibration, FittedNumber, LogComparison, LoggedServer
from inference_bench.report import against_tables as tables
from inference_bench.report.simulate_json import memory_json
from inference_bench.report.simulate_report import listed
from inference_bench.report.text import printable, table_text, wrap

SCHEMA: Final = "inference-bench/simulate-against/1"
Json = dict[str, Any]


def against_json(server: LoggedServer, found: LogComparison, fitted: Calibration | None = None) -> Json:
    """The stable keys of `simulate --against --json`.

    Where:  errors are those after fitting where a fit was asked for; uncalibrated_errors are those of what is expected of the
            engine, bound_errors those at both peaks of the machine
    """
    last = found if fitted is None else fitted.after
    return {
        "schema": SCHEMA,
        "origin": "simulated",
        "log": server.log.name,
        "requests": last.num_requests,
        "model": server.served.model.name,
        "machine": server.machine.name,
        "devices": server.devices,
        "engine": server.engine,
        "memory": memory_json(server.setup.memory),
        "max_running": server.setup.scheduler.max_running,
        "token_budget": server.setup.scheduler.token_budget,
        "measured": last.measured.values,
        "simulated": last.simulated.values,
        "errors": last.errors,
        "uncalibrated_errors": None if fitted is None else found.errors,
        "bound_errors": None if fitted is None else fitted.before.errors,
        "preemptions": dataclasses.asdict(last.preemptions),
        "fitted": None if fitted is None else {str(each.name): _fitted_json(each) for each in fitted.fitted},
        "runs": None if fitted is None else fitted.num_runs,
        "notes": [*last.notes, *(fitted.notes if fitted is not None else ())],
    }


def _fitted_json(each: FittedNumber) -> Json:
    return {"value": each.value, "interval": None if each.interval is None else dataclasses.asdict(each.interval)}


def against_text(server: LoggedServer, found: LogComparison, fitted: Calibration | None = None) -> str:
    """Measured beside simulated, what was fitted, and what both rest on."""
    last = found if fitted is None else fitted.after
    head = f"{tables.log_words(server, last)}: {tables.server_words(server)}, measured and simulated"
    sections = [
        wrap(printable(head)),
        table_text(tables.errors_table(found, fitted)),
        wrap(tables.preemptions_words(last)),
        table_text(tables.fitted_table(fitted)),
        listed("assumptions and notes", tables.all_notes(server, last, fitted)),
    ]
    return "\n\n".join(section for section in sections if section)
