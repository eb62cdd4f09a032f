"""What happened in a run? The server over time, how long requests took, and a simulation beside what was measured.

In:   Outcomes, ServerSetup, RequestLog
Out:  Specs, or None where nothing can be drawn; `description` says in words what each shows
Leaves out: many rates (simulation)
Read next by: cli.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.calibrate.log import RequestLog
from inference_bench.charts.callouts import Box
from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, layer, nominal, place_legends, spoken, text_px
from inference_bench.charts.panels import (
    Panel,
    Scale,
    Shown,
    bytes_tick,
    empty_frame,
    fraction_tick,
    label,
    limit_layers,
    number_tick,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
    series_encodings,
    side_by_side,
    stacked,
)
from inference_bench.simulate.outcome import Outcome
from inference_bench.simulate.settings import ServerSetup
from inference_bench.stats import sorted_quantile
from inference_bench.units import format_bytes, format_count, format_seconds

_PANEL: Final[Spec] = {"field": "panel", "type": "nominal"}
_NUM_MOMENTS: Final = 40
_STRIP: Final[Spec] = {"type": "rect", "color": LIGHT["paper"], "opacity": 0}
_NAMES: Final = ("TTFT", "TPOT", "E2E")
_ANSWERING: Final = "answering"
_NO_TOKEN: Final = "no token yet"
_CDF_POINTS: Final = 150
_CDF_LOG_RATIO: Final = 10
_QUANTILES: Final = tuple(rank / 50 for rank in range(1, 50))
_NAMED_QUANTILES: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))


# ── a run over time ────────────────────────────────────────────────────────────────────────────────


def timeline_chart(outcome: Outcome, setup: ServerSetup, width_px: int = WIDE_PX, num_servers: int = 1) -> Spec | None:
    """Requests that have begun to answer and those without a token, and the cache beside its budget, over the time of a run.

    Where: a request without a token waits in the queue or has its prompt read; several servers are added up; who fails is left
           out
    Unit:  seconds; requests; bytes
    """
    seen = outcome.timeline
    if len(seen.time_s) < 2:
        return None
    present = Present.of(outcome)
    colours = {_ANSWERING: LIGHT["decode"], _NO_TOKEN: LIGHT["prefill"], "cache": LIGHT["c1"]}
    frame, (colour,) = place_legends(
        empty_frame(width_px),
        nominal("series", list(colours), list(colours.values()), symbolType="stroke", symbolSize=300),
    )
    budget = setup.memory.budget_bytes * num_servers
    requests = Scale.from_zero((*present.answering, *present.no_token))
    memory = Scale.from_zero((*seen.used_bytes, budget))
    above, below = stacked(
        frame,
        [
            Shown("requests with and without a first token", requests, number_tick),
            Shown("cache in use", memory, bytes_tick),
        ],
        Scale.from_zero(seen.time_s),
        "time since the workload began",
        seconds_tick,
    )
    rows = [
        *_steps(above, _ANSWERING, seen.time_s, present.answering),
        *_steps(above, _NO_TOKEN, seen.time_s, present.no_token),
        *_steps(below, "cache", seen.time_s, seen.used_bytes),
    ]
    order: Spec = {"field": "order", "type": "quantitative"}
    return panels_chart(
        frame,
        _timeline_words(outcome, present, budget),
        [above, below],
        [
            layer({"type": "line", "strokeWidth": 1.25, "interpolate": "step-after"}, rows, color=colour, order=order),
            *limit_layers(below, budget, f"budget {bytes_tick(budget)}"),
            spoken(_STRIP, list(_moments(outcome, present, above, below)), x2={"field": "x2"}, y2={"field": "y2"}),
        ],
    )


@dataclass(frozen=True, slots=True)
class Present:
    """Requests that are there at each moment of a timeline: those that have begun to answer, and those without a token."""

    answering: Sequence[int]
    no_token: Sequence[int]

    @classmethod
    def of(cls, outcome: Outcome) -> Present:
        """Counted from when each came, and its first and its last token: the same under every policy."""
        failed = frozenset(outcome.failed)
        kept = [index for index in range(len(outcome.arrival_s)) if index not in failed]
        came, first, last = (
            sorted(column[index] for index in kept)
            for column in (outcome.arrival_s, outcome.first_token_s, outcome.last_token_s)
        )
        counts = [
            tuple(bisect_right(each, time_s) for each in (came, first, last)) for time_s in outcome.timeline.time_s
        ]
        return cls([begun - done for _, begun, done in counts], [here - begun for here, begun, _ in counts])


def _moments(outcome: Outcome, present: Present, above: Panel, below: Panel) -> Iterator[Row]:
    """Upright strips over both panels that cannot be seen, each of which says what the server did in its middle."""
    seen, scale = outcome.timeline, above.x
    width = max(seen.time_s) / _NUM_MOMENTS
    for index in range(_NUM_MOMENTS):
        middle = (index + 0.5) * width
        at = max(0, bisect_right(seen.time_s, middle) - 1)
        start, end = above.at_x(index * width), above.at_x(min((index + 1) * width, scale.high))
        yield {
            **rule(start, above.top, end, below.bottom),
            "said": f"at {format_seconds(middle)}: {format_count(present.answering[at])} answer, "
            f"{format_count(present.no_token[at])} have no token yet, cache {format_bytes(seen.used_bytes[at])}",
        }


def _steps(panel: Panel, name: str, times_s: Sequence[float], values: Sequence[float]) -> Iterator[Row]:
    for order, (time_s, value) in enumerate(zip(times_s, values, strict=True)):
        yield {**panel.place(time_s, value), "series": name, "order": order}


def _timeline_words(outcome: Outcome, present: Present, budget: int) -> str:
    answer, wait = max(present.answering), max(present.no_token)
    return (
        f"{outcome.policy}: up to {format_count(answer)} requests have begun to answer and up to {format_count(wait)} wait for "
        f"their first token, queued or read; the cache takes up to {format_bytes(outcome.peak_bytes)} of {format_bytes(budget)}; "
        f"{format_count(outcome.num_preemptions)} preemptions."
    )


# ── how long requests took ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Latencies:
    """Times of the requests of a run, each in order of size, by the name of its panel.

    Unit:  seconds
    """

    values: Mapping[str, Sequence[float]]

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> _Latencies:
        """The requests that were answered."""
        failed, counts = frozenset(outcome.failed), outcome.workload.requests.output_tokens
        kept = [index for index in range(len(counts)) if index not in failed]
        return cls.of(
            [outcome.arrival_s[index] for index in kept],
            [outcome.first_token_s[index] for index in kept],
            [outcome.last_token_s[index] for index in kept],
            [counts[index] for index in kept],
        )

    @classmethod
    def of_log(cls, log: RequestLog) -> _Latencies:
        """The requests of a log."""
        return cls.of(log.queued_s, log.first_token_s, log.last_token_s, log.output_tokens)

    @classmethod
    def of(
        cls, came_s: Sequence[float], first_s: Sequence[float], last_s: Sequence[float], counts: Sequence[int]
    ) -> _Latencies:
        """From when each came, and its first and its last token."""
        times = list(zip(came_s, first_s, last_s, counts, strict=True))
        found = {
            "TTFT": sorted(first - came for came, first, _, _ in times),
            "TPOT": sorted((last - first) / (count - 1) for _, first, last, count in times if count > 1),
            "E2E": sorted(last - came for came, _, last, _ in times),
        }
        return cls({name: values for name, values in found.items() if values})

    def quantile(self, name: str, q: float) -> float:
        """A quantile of one of them."""
        return sorted_quantile(self.values[name], q)


def latency_cdf_chart(outcomes_by_label: Mapping[str, Outcome], width_px: int = WIDE_PX) -> Spec | None:
    """Which share of the requests took at most how long: TTFT, TPOT and E2E, a line for each label.

    Unit:  seconds; fractions of the requests that were answered
    """
    found = {name: _Latencies.of_outcome(outcome) for name, outcome in outcomes_by_label.items()}
    shown = [panel for panel in _NAMES if any(panel in each.values for each in found.values())]
    if not shown:
        return None
    colour, _, dash = series_encodings(list(found))
    frame, (colour,) = place_legends(
        empty_frame(width_px), {**colour, "legend": {"symbolType": "stroke", "symbolSize": 300}}
    )
    colour_of_line = {**dash, "legend": colour["legend"]}
    scales = [
        Scale.over((value for each in found.values() for value in each.values.get(panel, ())), _CDF_LOG_RATIO)
        for panel in shown
    ]
    share = Scale(0.0, 1.0)
    panels = side_by_side(
        frame,
        [
            (Shown(f"{name}, share of requests", share, fraction_tick), scale)
            for name, scale in zip(shown, scales, strict=True)
        ],
        "took at most",
        shares_y=True,
    )
    rows = [
        {**row, "series": name, "panel": panel_name}
        for name, each in found.items()
        for panel_name, panel in zip(shown, panels, strict=True)
        if panel_name in each.values
        for row in _cdf(panel, panel_name, each)
    ]
    order: Spec = {"field": "order", "type": "quantitative"}
    return panels_chart(
        frame,
        _cdf_words(found, shown),
        panels,
        [layer({"type": "line"}, rows, color=colour, strokeDash=colour_of_line, detail=_PANEL, order=order)],
    )


def _cdf(panel: Panel, name: str, found: _Latencies) -> Iterator[Row]:
    """Even steps in share, and finer ones over the longest fiftieth."""
    shares = {*(rank / _CDF_POINTS for rank in range(_CDF_POINTS)), *((980 + rank) / 1000 for rank in range(21))}
    for order, q in enumerate(sorted(shares)):
        yield {**panel.place(found.quantile(name, q), q), "order": order}


def _cdf_words(found: Mapping[str, _Latencies], shown: Sequence[str]) -> str:
    medians = "; ".join(
        f"{name}: "
        + ", ".join(
            f"median {panel} {format_seconds(each.quantile(panel, 0.5))}" for panel in shown if panel in each.values
        )
        for name, each in found.items()
    )
    return f"Cumulative distributions of {', '.join(shown)}. {medians}."


# ── beside what was measured ───────────────────────────────────────────────────────────────────────


def against_chart(measured: RequestLog, simulated: Outcome, width_px: int = WIDE_PX) -> Spec | None:
    """Quantiles of TTFT, TPOT and E2E, simulated over measured: on the diagonal both are the same.

    Unit:  seconds
    """
    log, run = _Latencies.of_log(measured), _Latencies.of_outcome(simulated)
    names = [name for name in _NAMES if name in log.values and name in run.values]
    if not names:
        return None
    frame = empty_frame(width_px)
    scales = [Scale.over((*log.values[name], *run.values[name]), _CDF_LOG_RATIO) for name in names]
    panels = side_by_side(
        frame,
        [(Shown(f"{name}, simulated", scale), scale) for name, scale in zip(names, scales, strict=True)],
        "measured",
        shares_y=False,
    )
    points = [
        {**panel.place(log.quantile(name, q), run.quantile(name, q)), "panel": name, "quantile": q, "order": q}
        for name, panel in zip(names, panels, strict=True)
        for q in _QUANTILES
    ]
    diagonals = [
        rule(panel.at_x(panel.x.low), panel.at_y(panel.y.low), panel.at_x(panel.x.high), panel.at_y(panel.y.high))
        for panel in panels
    ]
    order: Spec = {"field": "order", "type": "quantitative"}
    return panels_chart(
        frame,
        _against_words(log, run, names),
        panels,
        [
            rules(diagonals, stroke=LIGHT["muted"]),
            layer({"type": "line", "stroke": LIGHT["decode"]}, points, detail=_PANEL, order=order),
            *_named_points(log, run, names, panels),
        ],
    )


def _named_points(log: _Latencies, run: _Latencies, names: Sequence[str], panels: Sequence[Panel]) -> list[Spec]:
    """The quantiles that everyone quotes, each with its name."""
    dots: list[Row] = []
    labels: list[Row] = []
    for name, panel in zip(names, panels, strict=True):
        rows = [
            {
                **panel.place(log.quantile(name, q), run.quantile(name, q)),
                "panel": name,
                "quantile": q,
                "measured_s": log.quantile(name, q),
                "simulated_s": run.quantile(name, q),
            }
            for q, _ in _NAMED_QUANTILES
        ]
        dots += rows
        labels += _placed(
            panel, [(row["x"], row["y"], said) for row, (_, said) in zip(rows, _NAMED_QUANTILES, strict=True)]
        )
    dot: Spec = {"type": "point", "filled": True, "size": 60, "color": LIGHT["decode"]}
    return [layer(dot, dots), *on_paper(labels, align="center", baseline="middle")]


def _placed(panel: Panel, points: Sequence[tuple[float, float, str]]) -> Iterator[Row]:
    """Names right of their points, below or left of them, where they touch no other; one without room is left out."""
    taken: list[Box] = []
    for x, y, said in reversed(points):
        half = text_px(said) / 2
        for across, up in ((x + half + 9, y + 6), (x, y + 16), (x - half - 9, y - 6)):
            box = Box(across - half, up - 7, across + half, up + 7)
            if box.right <= panel.left + panel.width and not any(box.meets(other) for other in taken):
                taken.append(box)
                yield label(said, across, up)
                break


def _against_words(log: _Latencies, run: _Latencies, names: Sequence[str]) -> str:
    said = ", ".join(
        f"p99 {name} {format_seconds(run.quantile(name, 0.99))} for {format_seconds(log.quantile(name, 0.99))}"
        for name in names
    )
    return f"Simulated over measured quantiles; simulated for measured: {said}."
