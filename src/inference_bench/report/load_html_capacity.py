"""The search for a server's capacity as one page that needs nothing else: `load --find-capacity`.

In:   CapacityRun, Provenance, and what draws a chart specification as SVG
Out:  HTML text
Leaves out: the sentences and the table, which the terminal shows too (capacity_load_report)
Read next by: load_page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from inference_bench.charts.load_capacity import capacity_trials_chart
from inference_bench.loadtest.capacity_search import Answer
from inference_bench.origin import Origin
from inference_bench.report import html_pieces as pieces
from inference_bench.report.capacity_load_report import answer_words, doubts_of, method_words, tried_table
from inference_bench.report.html_pieces import Draw, Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.load_html_rows import machine_rows, workload_kind
from inference_bench.report.load_page_pieces import folded
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    assumptions_part,
    reading_part,
    repeat_part,
    report_page,
    sentence,
)
from inference_bench.report.text import clean, shorten
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

if TYPE_CHECKING:
    from inference_bench.loadtest.capacity_run import CapacityRun

TRIALS: Final = (
    "Every rate that was tried",
    "Above, the share of requests within all objectives; below, the rest on a log scale, where rates near the promise can be "
    "told apart: one without a miss stands at the lower edge. The grey band is the interval. A rate at which ever more "
    "requests wait breaks the promise whatever it has answered so far.",
)
_NAME_CHARS: Final = 120
_DIGITS: Final = 4
_ASSUMED: Final = (
    "Times run from the planned send, so that a client that is late counts as waiting.",
    "Requests come on a schedule of their own, and do not wait for answers: a server that is too slow is asked all the same.",
    "The confidence is of the whole search, however often a rate was looked at: docs/capacity.md has the tests.",
)


def capacity_html(result: CapacityRun, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    found, plan = result.found, result.found.plan
    name, where = (shorten(clean(text), _NAME_CHARS) for text in (result.model or "the model", result.target))
    chart = partial(capacity_trials_chart, found.trials, plan.share, (found.low_rate, found.high_rate))
    conditions = folded("server, workload, machine and raw samples", pieces.facts(_condition_rows(result)))
    parts = (
        reading_part([answer_words(found, result.limits), method_words(found)]),
        Part("charts", "Charts", "Charts", pieces.charts((Drawing(*TRIALS, chart),) if draw else (), draw)),
        Part("rates", "Rates", "Every rate", pieces.table(tried_table(found), has_heading=False)),
        Part("conditions", "Conditions", "Under which conditions", conditions),
        assumptions_part((*_ASSUMED, *result.workload.notes)),
        repeat_part(replace(made, versions={**made.versions, **_versions(result)}), [plan.seed]),
    )
    question = f"How many requests a second does {name} at {where} take?"
    odd = (("Doubts", tuple(map(sentence, doubts_of(found)))),)
    return report_page(Head(question, _asked(result)), made, tuple(_key_figures(result)), odd, parts)


def _asked(result: CapacityRun) -> str:
    return f"{_asked_share(result)}; {workload_kind(result.workload)}"


def _asked_share(result: CapacityRun) -> str:
    share = format_fraction(result.found.plan.share, 2)
    return f"{share} of the requests within {result.limits.text.replace('p99 ', '')}"


def _versions(result: CapacityRun) -> dict[str, str]:
    return {name: said for name, said in result.versions.items() if name != "system"}


def _key_figures(result: CapacityRun) -> Iterator[KeyFigure]:
    found, plan = result.found, result.found.plan
    low, high = (
        NOT_AVAILABLE if rate is None else format_number(rate, _DIGITS) for rate in (found.low_rate, found.high_rate)
    )
    value = {Answer.INTERVAL: f"{low} – {high}", Answer.ALL_PASS: f"≥ {low}", Answer.NONE_PASSES: f"< {high}"}
    is_known = found.answer is not Answer.UNKNOWN
    sure = f"{format_fraction(plan.confidence, 2)} confidence" if is_known else "not found"
    yield KeyFigure(
        "capacity", value.get(found.answer, NOT_AVAILABLE), "requests/s", Origin.MEASURED, sure,
        _asked_share(result), is_finding=found.low_rate is None,
    )  # fmt: skip
    width = found.half_width
    yield KeyFigure(
        "half of the interval",
        NOT_AVAILABLE if width is None else f"± {format_fraction(width, 2).removesuffix(' %')}",
        "" if width is None else "%",
        "",
        f"± {format_fraction(plan.half_width, 2)} asked for",
        "of its middle",
    )
    yield KeyFigure(
        "rates tried", format_count(len(found.trials)), "", "", f"{format_count(found.num_sent)} requests sent",
        f"{format_count(sum(each.num_requests for each in found.trials))} of them judged",
    )  # fmt: skip


def _condition_rows(result: CapacityRun) -> Iterator[tuple[str, str]]:
    yield "server", result.target
    yield "model it names", result.model or NOT_AVAILABLE
    yield "route", result.endpoint
    yield "workload", f"{result.workload.name}: {workload_kind(result.workload)}"
    yield from machine_rows(result.client)
    yield "floor of TTFT, against a server that does nothing", format_seconds(result.floor.ttft_s)
    if result.dropped_fields:
        yield "request fields that the server refused", ", ".join(result.dropped_fields)
    yield "raw samples", str(result.run_dir)
