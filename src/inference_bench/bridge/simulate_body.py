"""A simulation on the page: the figures of its best run, what is odd, the runs, what they rest on.

In:   StudyReport, and where drawings go
Out:  HTML text
Leaves out: words and tables that the reports share (simulate_tables); drawing
Read next by: simulate_view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report import simulate_tables as tables
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.table import Table
from inference_bench.simulate.study import StudyReport, StudyRow
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

_MOST_GOOD: Final = "most good requests"


def simulate_html(report: StudyReport, notes: Sequence[str], *, drawings: str = "") -> str:
    """The whole answer; drawings is HTML that stands below the figures."""
    study, best = report.study, _best(report)
    asked = f"{tables.asked(report)}; {tables.server_words(study.served)}"
    return "\n".join(
        [
            f'<div class="verdict"><p class="first">{pieces.say(asked)}.</p></div>',
            pieces.key_figures([] if best is None else _figures(report, best)),
            pieces.findings(_findings(report)),
            drawings,
            pieces.section("runs", "Every run", pieces.table(every_run(report), has_heading=False), _checks(report)),
            pieces.section(
                "setup",
                "What was asked of what",
                *map(pieces.table, (tables.arrivals_table(report), _settings(report))),
            ),
            pieces.section(
                "assumptions",
                "Assumptions",
                pieces.bullets((*tables.assumed(study.served, study.assumptions), *notes)),
            ),
        ]
    )


def simulate_status(report: StudyReport) -> str:
    """The answer in so few words that they can be read out."""
    best = _best(report)
    if best is None or best.row is None:
        return f"{format_count(len(report.rows))} runs"
    good = format_number(best.row.goodput_requests_per_s)
    return f"{format_count(len(report.rows))} runs; {_MOST_GOOD}: {good} a second, {tables.run_name(best)}"


def _best(report: StudyReport) -> StudyRow | None:
    """The run with the most good requests; of those alike, with the most output."""
    rows = tables.ran(report)
    return max(rows, key=_good) if rows else None


def _good(each: StudyRow) -> tuple[float, float]:
    return (0.0, 0.0) if each.row is None else (each.row.goodput_requests_per_s, each.row.output_tokens_per_s)


def _figures(report: StudyReport, best: StudyRow) -> Iterator[KeyFigure]:
    row, which = best.row, tables.run_name(best)
    if row is None:
        return
    share = f"{format_fraction(row.goodput_fraction)} of them; {tables.promise_words(report.study.objective)}"
    yield _figure(_MOST_GOOD, f"{format_number(row.goodput_requests_per_s)} requests/s", which, share)
    yield _figure("TTFT, p99", format_seconds(row.ttft_p99_s), f"median {format_seconds(row.ttft_p50_s)}", which)
    longest = f"longest pause {format_seconds(row.itl_max_s)}"
    yield _figure("ITL, p99", format_seconds(row.itl_p99_s), longest, which)
    pace = f"TPOT {format_seconds(row.tpot_p50_s)}, median"
    yield _figure("output rate", f"{format_number(row.output_tokens_per_s)} tokens/s", pace, which)
    if best.usd_per_million_output_tokens is not None:
        usd = f"{format_number(best.usd_per_million_output_tokens)} USD"
        yield _figure("a million output tokens", usd, "as busy as this", which)


def _figure(name: str, said: str, beside: str, detail: str) -> KeyFigure:
    value, _, unit = said.partition(" ")
    return KeyFigure(name, value, unit, Origin.SIMULATED, beside, detail)


def _findings(report: StudyReport) -> list[str]:
    """Runs that are missing, overloaded, or whose books do not balance."""
    said = [*tables.reasons(report), tables.overloaded_words(tables.ran(report))]
    said += [tables.checks_words(report)] if tables.unbalanced(report) else []
    return [line for line in said if line]


def every_run(report: StudyReport) -> Table | None:
    """Every percentile of one run, or a row for each of several."""
    only = tables.the_only_run(report)
    return tables.runs_table(report) if only is None or only.row is None else tables.latency_table(only.row, only.name)


def _checks(report: StudyReport) -> str:
    only = tables.the_only_run(report)
    said = () if only is None else tables.run_words(only, report.study.objective)
    return pieces.bullets([*said, tables.checks_words(report)])


def _settings(report: StudyReport) -> Table | None:
    return tables.settings_table(report.study.served.contenders)
