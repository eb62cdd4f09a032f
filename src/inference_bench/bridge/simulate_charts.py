"""Which runs of a simulation are drawn, and where?

In:   Values, StudyReport
Out:  Shown: the run that is shown over time; Drawings by name
Leaves out: the charts themselves (charts.simulation, charts.simulation_runs)
Read next by: simulate_view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference_bench.bridge.fields import FieldError, Values, at
from inference_bench.bridge.simulate_fields import short_text
from inference_bench.charts.simulation import rate_chart
from inference_bench.charts.simulation_runs import latency_cdf_chart
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.simulate_html import RATES, SHARES, timeline
from inference_bench.report.simulate_tables import ran, rate_words, run_name
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.study import Study, StudyReport, StudyRow, parse_rates
from inference_bench.simulate.sweep import CaseResult


@dataclass(frozen=True, slots=True)
class Shown:
    """The run that is shown over time; beside it are the others at its rate."""

    policy: str
    rate: float


def shown_of(values: Values, study: Study) -> Shown:
    """The one that was asked for, else the first policy at the highest rate.

    Raises:  FieldError for a policy or a rate that is not simulated
    """
    return Shown(_policy(values, study), _rate(values, study))


def _policy(values: Values, study: Study) -> str:
    names = [each.name for each in study.served.contenders]
    name = short_text(values, "shown_policy").casefold() or names[0]
    if name not in names:
        raise FieldError(
            "shown_policy", f"{name[:40]!r} is none of the policies that are simulated; name one of: {', '.join(names)}"
        )
    return name


def _rate(values: Values, study: Study) -> float:
    rates = [draw.rate for draw in study.draws if draw.rate is not None]
    text = short_text(values, "shown_rate")
    if not text:
        return max(rates)
    with at("shown_rate"):
        found = parse_rates(text)
    if len(found) != 1 or found[0] not in rates:
        known = ", ".join(map(rate_words, rates))
        raise FieldError("shown_rate", f"{text[:40]!r} is none of the rates that are simulated; name one of: {known}")
    return found[0]


def drawings_of(report: StudyReport, shown: Shown) -> dict[str, Drawing]:
    """What there is to draw: policies over rates, and at the shown rate one run over time and all by how long they took."""
    rows = ran(report)
    kept = {each.name: each.result.outcome for each in rows if each.result.outcome is not None}
    found = {}
    if len(report.study.draws) > 1:
        found["rates"] = _over_rates([each.result for each in rows])
    for each in rows:
        if each.name == shown.policy and each.result.outcome is not None:
            found["time"] = _over_time(each, each.result.outcome)
    if kept:
        found["shares"] = _by_share(kept, shown)
    return found


def _over_rates(results: Sequence[CaseResult]) -> Drawing:
    return Drawing(*RATES, lambda width_px: rate_chart(results, width_px))


def _over_time(each: StudyRow, outcome: Outcome) -> Drawing:
    return timeline(outcome, each.result.case.setup, name=f"{run_name(each)} requests/s")


def _by_share(kept: Mapping[str, Outcome], shown: Shown) -> Drawing:
    title, caption = SHARES
    named = f"{title} at {rate_words(shown.rate)} requests/s"
    return Drawing(named, caption, lambda width_px: latency_cdf_chart(kept, width_px))
