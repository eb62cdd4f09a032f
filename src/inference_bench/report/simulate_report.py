"""A simulation as text for a terminal; simulate_json holds the same for programs, simulate_html for a browser.

In:   StudyReport
Out:  text of at most 100 columns
Leaves out: what is said (simulate_tables)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inference_bench.report import simulate_tables as tables
from inference_bench.report.text import printable, table_text, wrap
from inference_bench.simulate.study import StudyReport


def study_text(report: StudyReport, notes: Sequence[str] = ()) -> str:
    """What was asked of what, the rows, how far seeds are apart, fleets, checks, assumptions."""
    study = report.study
    sections = [
        wrap(f"{tables.asked(report)}; {tables.server_words(study.served)}: simulated"),
        tables.interrupted_words(report),
        *_figures(report),
        listed("did not run", tables.reasons(report)),
        table_text(tables.arrivals_table(report)),
        table_text(tables.spreads_table(report.spreads)),
        table_text(tables.fleets_table(report)),
        table_text(tables.replicas_table(report)),
        wrap(tables.checks_words(report)),
        listed("assumptions", tables.assumed(study.served, study.assumptions)),
        listed("notes", notes),
    ]
    return "\n\n".join(section for section in sections if section)


def _figures(report: StudyReport) -> Iterator[str]:
    """One run in full, or a row for each of several."""
    only = tables.the_only_run(report)
    if only is None or only.row is None:
        yield table_text(tables.runs_table(report))
        return
    yield table_text(tables.latency_table(only.row, f"{only.name}, simulated"))
    yield from map(wrap, tables.run_words(only, report.study.objective))


def listed(title: str, lines: Sequence[str] | Iterator[str]) -> str:
    """A list under its title; nothing where it is empty."""
    shown = [wrap(printable(line), indent="  - ") for line in lines]
    return "\n".join([title, *shown]) if shown else ""
