"""A simulation as one page that needs nothing else: no script, no font, no picture from anywhere.

In:   StudyReport, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: every number's arithmetic and the words of its tables (simulate_tables), drawing (render)
Read next by: cli, bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from inference_bench.charts import Spec
from inference_bench.charts.simulation import rate_chart
from inference_bench.charts.simulation_runs import latency_cdf_chart, timeline_chart
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report import simulate_tables as tables
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import (
    Body,
    Head,
    Part,
    Provenance,
    all_tables,
    assumptions_part,
    charts_part,
    quiet,
    reading_part,
    repeat_part,
    report_page,
    sentence,
    value_and_unit,
)
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.served import Contender, Served
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.study import Spread, StudyReport, StudyRow
from inference_bench.simulate.summary import SimulatedRow
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

RATES: Final = (
    "Latency and goodput over the rate",
    "Each mark is a run, or the median of its seeds with a stroke from the lowest to the highest. Dashed lines are the "
    "objectives that goodput counts by; the thin line is where goodput would lie if every request were good.",
)
SHARES: Final = (
    "How long requests took",
    "The share of requests that took at most so long. The further left a line, the less users wait; where it bends to "
    "the right at the top, a few wait much longer than the others.",
)
TIMELINE: Final = (
    "Requests that have begun to answer, and requests without a token yet, queued or with their prompt being read; the cache "
    "in use under its budget. If those without a token still pile up when arrivals end, the server is overloaded: then "
    "latencies say how long the run was."
)


def study_html(report: StudyReport, made: Provenance, draw: Draw | None, notes: Sequence[str] = ()) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    study, only, body = report.study, tables.the_only_run(report), study_body(report, notes)
    parts = (
        reading_part(() if only is None else tables.run_words(only, study.objective)),
        charts_part(_drawings(report), draw),
        *body.parts,
        repeat_part(made, sorted({draw.seed for draw in study.draws})),
    )
    return report_page(Head(_question(report), body.said), made, body.figures, body.odd, parts)


def study_body(report: StudyReport, notes: Sequence[str] = ()) -> Body:
    """From what was asked to what it rests on; notes are what there is to know besides."""
    study = report.study
    servers = (tables.fleets_table(report), tables.replicas_table(report))
    setup = pieces.table(tables.arrivals_table(report)) + settings(study.served.contenders)
    parts = (
        _runs(report, tables.the_only_run(report)),
        Part("servers", "Servers", "What each server did", all_tables(servers)),
        Part("setup", "Setup", "What was asked of what", setup),
        assumptions_part(tables.assumed(study.served, study.assumptions), notes),
    )
    said = f"{tables.asked(report)}; {tables.server_words(study.served)}"
    return Body(said, _key_figures(report), (("Findings", _findings(report)),), parts)


def study_status(report: StudyReport) -> str:
    """The answer in so few words that they can be read out."""
    rows = tables.ran(report)
    best = max(rows, key=_good) if rows else None
    if best is None or best.row is None:
        return f"{format_count(len(report.rows))} runs"
    good = format_number(best.row.goodput_requests_per_s)
    return f"{format_count(len(report.rows))} runs; most good requests: {good} a second, {tables.run_name(best)}"


def _question(report: StudyReport) -> str:
    names = [each.name for each in report.study.served.contenders]
    who = f"{names[0]} do" if len(names) == 1 else f"{format_count(len(names))} schedulers do, side by side,"
    rates = sorted({draw.rate for draw in report.study.draws if draw.rate is not None})
    if not rates:
        return f"What would {who.rstrip(',')}?"
    if len(rates) == 1:
        return f"What would {who} at {tables.rate_words(rates[0])} requests/s?"
    return f"What would {who} from {tables.rate_words(rates[0])} to {tables.rate_words(rates[-1])} requests/s?"


def _findings(report: StudyReport) -> list[str]:
    """Runs that are missing, overloaded, or whose books do not balance."""
    said = [
        sentence(tables.interrupted_words(report)),
        *tables.reasons(report),
        tables.overloaded_words(tables.ran(report)),
    ]
    said += [sentence(tables.checks_words(report))] if tables.unbalanced(report) else []
    return [line for line in said if line]


def _runs(report: StudyReport, only: StudyRow | None) -> Part:
    """Every percentile of one run, or a row for each of several."""
    if only is not None and only.row is not None:
        link, title = "Latency", "What users waited for"
        shown = pieces.table(tables.latency_table(only.row, f"{only.name}, simulated"), has_heading=False)
    else:
        link, title = "Runs", "Every run"
        shown = pieces.table(tables.runs_table(report), has_heading=False)
        shown += pieces.table(tables.spreads_table(report.spreads))
    checks = quiet(tables.checks_words(report))
    return Part("runs", link, title, f"{origins_of(report.study.served)}{shown}{checks}" if shown else "")


def origins_of(served: Served) -> str:
    """What the tags of simulated figures and of the step times behind them mean."""
    return pieces.origins(dict.fromkeys((Origin.SIMULATED, served.step_time.origin)))


def settings(contenders: Sequence[Contender]) -> str:
    """What each scheduler may do: side by side where there are several."""
    shown = tables.settings_table(contenders)
    if len(contenders) > 1:
        return pieces.table(shown)
    return f"<h3>{pieces.say(f'Scheduler: {contenders[0].name}')}</h3>\n{pieces.facts((name, value) for name, value in shown.rows)}"


# ── key figures ────────────────────────────────────────────────────────────────────────────────────


def _key_figures(report: StudyReport) -> tuple[KeyFigure, ...]:
    """What the run with the most good requests gave, and which runs fell behind."""
    rows, spreads = tables.ran(report), report.spreads
    if not rows:
        missing = f"0 of {format_count(report.study.num_runs)}"
        return (KeyFigure("runs with figures", missing, "", "", "nothing ran", "", is_finding=True),)
    chosen = _of_seeds(max(spreads, key=_least_good), report) if spreads else _of_run(max(rows, key=_good), report)
    return (*chosen, *_behind(rows))


def _good(each: StudyRow) -> tuple[float, float]:
    return (0.0, 0.0) if each.row is None else (each.row.goodput_requests_per_s, each.row.output_tokens_per_s)


def _least_good(each: Spread) -> float:
    ends = each.values["goodput_requests_per_s"]
    return 0.0 if ends is None else ends[0]


def _of_run(each: StudyRow, report: StudyReport) -> Iterator[KeyFigure]:
    """Of the only run, or of the best one, which is then named under each figure."""
    if each.row is None:
        return
    row, is_only = each.row, len(report.rows) == 1
    share = f"{format_fraction(row.goodput_fraction)} of {format_count(row.num_requests)} requests"
    which, rule = tables.run_name(each), tables.promise_words(report.study.objective)
    yield KeyFigure(
        "good requests" if is_only else "most good requests",
        format_number(row.goodput_requests_per_s),
        "requests/s",
        Origin.SIMULATED,
        share if is_only else which,
        rule if is_only else f"{share}; {rule}",
    )
    said = "" if is_only else which
    yield from _waits(row, said)
    yield from delivered_figures(row, said, each.usd_per_million_output_tokens)


def _waits(row: SimulatedRow, which: str) -> Iterator[KeyFigure]:
    for name, said, beside in (
        ("TTFT, p99", row.ttft_p99_s, f"median {format_seconds(row.ttft_p50_s)}"),
        ("ITL, p99", row.itl_p99_s, f"longest pause {format_seconds(row.itl_max_s)}"),
    ):
        yield KeyFigure(name, *value_and_unit(format_seconds(said)), Origin.SIMULATED, beside, which)


def delivered_figures(row: SimulatedRow, which: str, usd: float | None) -> Iterator[KeyFigure]:
    """What a run delivers, and what that costs.

    Where:  which names the run where there are several
    """
    pace = f"TPOT {format_seconds(row.tpot_p50_s)}, median"
    yield KeyFigure("output rate", format_number(row.output_tokens_per_s), "tokens/s", Origin.SIMULATED, pace, which)
    if usd is not None:
        yield KeyFigure(
            "a million output tokens", format_number(usd), "USD", Origin.SIMULATED, "as busy as this", which
        )


# the name of a figure, its field, and its unit where it is a plain number
_OF_SEEDS: Final = (
    ("most good requests", "goodput_requests_per_s", "requests/s"),
    ("TTFT, p99", "ttft_p99_s", ""),
    ("ITL, p99", "itl_p99_s", ""),
    ("output rate", "output_tokens_per_s", "tokens/s"),
)


def _of_seeds(each: Spread, report: StudyReport) -> Iterator[KeyFigure]:
    """Lowest and highest over seeds, of the scheduler and rate whose worst seed is best."""
    which = each.name if each.rate is None else f"{each.name} at {tables.rate_words(each.rate)}"
    over = f"lowest to highest of {format_count(each.num_seeds)} seeds"
    for name, field, unit in _OF_SEEDS:
        said = tables.spread_words(each, field)
        value, its_unit = (said, unit) if unit else value_and_unit(said)
        rule = f"; {tables.promise_words(report.study.objective)}" if name == _OF_SEEDS[0][0] else ""
        yield KeyFigure(name, value, its_unit, Origin.SIMULATED, which, f"{over}{rule}")


def _behind(rows: Sequence[StudyRow]) -> Iterator[KeyFigure]:
    """How many runs the server fell behind in, where any did."""
    behind = [each for each in rows if each.row is not None and each.row.queue_grew]
    if behind:
        said = f"{format_count(len(behind))} of {format_count(len(rows))}"
        unit = "run" if len(rows) == 1 else "runs"
        yield KeyFigure(
            "overloaded",
            said,
            unit,
            Origin.SIMULATED,
            "first tokens fell behind",
            "as arrivals went on",
            is_finding=True,
        )


# ── charts ─────────────────────────────────────────────────────────────────────────────────────────


def _drawings(report: StudyReport) -> list[Drawing]:
    """Latency over rates and seeds; or how long requests took in each run, and what each server did meanwhile."""
    rows, fleet = tables.ran(report), report.study.fleet
    if not rows:
        return []
    if len(report.study.draws) > 1:
        return [Drawing(*RATES, partial(rate_chart, [each.result for each in rows]))]
    kept = {each.name: each.result.outcome for each in rows if each.result.outcome is not None}
    servers = 1 if fleet is None else fleet.num_servers
    setups = {each.name: each.result.case.setup for each in rows}
    return [
        Drawing(*SHARES, partial(latency_cdf_chart, kept)),
        *(timeline(kept[name], setups[name], servers, shown, said) for name, shown, said in _named(list(kept))),
    ]


def _named(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each scheduler, as its chart names it, and what to read in that; explained once."""
    for index, name in enumerate(names):
        yield name, name if len(names) > 1 else "", f"The same, of {name}." if index else TIMELINE


def timeline(
    outcome: Outcome, setup: ServerSetup, num_servers: int = 1, name: str = "", caption: str = TIMELINE
) -> Drawing:
    """What the server did over the time of a run; with the scheduler's name where there are several."""

    def make(width_px: int) -> Spec | None:
        return timeline_chart(outcome, setup, width_px, num_servers)

    return Drawing(f"{name}: the server over time" if name else "The server over time", caption, make)
