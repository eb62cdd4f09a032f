"""How long did requests take under load, those that failed included? Shares that came in time, a panel for each time.

In:   RequestRecords, by the name of the run or of a point of a sweep
Out:  the panels as a Spec, None where no request completed; `description` says in words what they show
Leaves out: percentiles with their intervals, which tables have
Read next by: report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import sub
from typing import Final

from inference_bench.charts.grammar import LIGHT, WIDE_PX, Row, Spec, is_narrow, layer, place_legends, spoken
from inference_bench.charts.panels import (
    DASHED,
    TITLE_PX,
    Panel,
    Scale,
    empty_frame,
    fraction_tick,
    label,
    on_paper,
    panels_chart,
    rule,
    rules,
    seconds_tick,
    series_encodings,
)
from inference_bench.metrics import e2e_s, has_one_token_per_chunk, tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.stats import sorted_quantile
from inference_bench.units import format_count, format_fraction, format_seconds

MOST_LINES: Final = 6
_PANEL: Final[Spec] = {"field": "panel", "type": "nominal"}
_LOG_RATIO: Final = 10
_MOST_GAPS: Final = 200_000  # of which a line is drawn
_SHARES: Final = tuple(sorted({*(rank / 150 for rank in range(150)), *((980 + rank) / 1000 for rank in range(21))}))
_NAMED: Final = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))
_HIGH_PX, _LOW_PX, _GAP_PX, _FOOT_PX, _LEFT_PX = 170, 130, 6, 46, 62


@dataclass(frozen=True, slots=True)
class Pool:
    """Times of one run in order of size, and how many there would be if none had failed.

    Unit:  seconds
    """

    times_s: Sequence[float]
    count: int

    @property
    def share_that_came(self) -> float:
        """What the line reaches in the end."""
        return len(self.times_s) / self.count

    def quantile(self, share_of_all: float) -> float | None:
        """The time within which such a share of all requests had it; None where fewer ever did."""
        inside = share_of_all / self.share_that_came
        return sorted_quantile(self.times_s, inside) if inside <= 1 else None


Pools = Mapping[str, Mapping[str, Pool]]  # by the name of a run, then by the title of a panel


def latency_pools(runs: Mapping[str, Sequence[RequestRecord]]) -> Pools:
    """What is drawn of each run: made once, for drawings of any width.

    Where:  of more than six runs the first and last and some between are kept
    """
    return {name: _pools(runs[name]) for name in _spread_out(list(runs))}


def load_cdf_chart(pools: Pools, width_px: int = WIDE_PX) -> Spec | None:
    """Which share of all measured requests had their first token, their last, and so on, within how long.

    Where:  requests that failed or timed out never come, and hold the line down; those this program cancelled are left out.
            The pauses are those of completed requests, a token each where every chunk was one token
    Unit:   seconds; shares of the requests
    """
    chosen = list(pools)
    titles = [title for title in _titles(pools) if any(title in each for each in pools.values())]
    if not titles:
        return None
    colour, _, dash = series_encodings(chosen)
    frame = empty_frame(width_px)
    if len(chosen) > 1:
        frame, (colour,) = place_legends(frame, {**colour, "legend": {"symbolType": "stroke", "symbolSize": 300}})
    else:
        colour = {**colour, "legend": None}
    panels = _grid(frame.plot_width, is_narrow(width_px), titles, pools)
    lines = [row for name, each in pools.items() for row in _lines(name, each, titles, panels)]
    order: Spec = {"field": "order", "type": "quantitative"}
    dot: Spec = {"type": "point", "filled": True, "size": 34}
    marks = [row for name, each in pools.items() for row in _named(name, each, titles, panels)]
    return panels_chart(
        frame,
        _words(pools, titles),
        panels,
        [
            *_never(pools, titles, panels),
            layer(
                {"type": "line"},
                lines,
                color=colour,
                strokeDash={**dash, "legend": colour["legend"]},
                detail=_PANEL,
                order=order,
            ),
            spoken(dot, marks, color={**colour, "legend": None}),
        ],
    )


def _spread_out(names: Sequence[str]) -> list[str]:
    """All names, or some of them evenly apart, ends included."""
    if len(names) <= MOST_LINES:
        return list(names)
    return [names[round(index * (len(names) - 1) / (MOST_LINES - 1))] for index in range(MOST_LINES)]


def _pools(records: Sequence[RequestRecord]) -> dict[str, Pool]:
    """The times of each panel that has any."""
    measured = [r for r in records if r.stage is Stage.MEASURE and r.status is not RequestStatus.CANCELLED]
    completed = [r for r in measured if r.status is RequestStatus.COMPLETED]
    num_lost = len(measured) - len(completed)
    found = {}
    for title, of in (("TTFT", ttft_s), ("TPOT", tpot_s), ("E2E", e2e_s)):
        times_s = sorted(time_s for r in completed if (time_s := of(r)) is not None)
        if times_s:
            found[title] = Pool(times_s, len(times_s) + num_lost)
    gaps_s = _gaps(completed)
    if gaps_s:
        title = "ITL" if all(map(has_one_token_per_chunk, completed)) else "chunk gap"
        found[title] = Pool(gaps_s, len(gaps_s))
    return found


def _gaps(completed: Sequence[RequestRecord]) -> list[float]:
    """The pauses in order of size, every n-th of very many."""
    total = sum(max(0, len(record.chunk_times_s) - 1) for record in completed)
    step = max(1, math.ceil(total / _MOST_GAPS))
    pauses = chain.from_iterable(map(sub, record.chunk_times_s[1:], record.chunk_times_s) for record in completed)
    return sorted(islice(pauses, 0, None, step))


def _titles(pools: Pools) -> list[str]:
    """The panels in order: one of pauses, called ITL only where that is true of every run."""
    known = {title for each in pools.values() for title in each}
    return [title for title in ("TTFT", "TPOT", "ITL", "chunk gap", "E2E") if title in known]


def _grid(plot_width: int, narrow: bool, titles: Sequence[str], pools: Pools) -> list[Panel]:
    """Two panels beside one another, or one below the other on a small screen."""
    columns = 1 if narrow else min(2, len(titles))
    width = (plot_width - _LEFT_PX * (columns - 1)) / columns
    height = _LOW_PX if narrow else _HIGH_PX
    panels = []
    for index, title in enumerate(titles):
        down, across = divmod(index, columns)
        every = [time_s for each in pools.values() if title in each for time_s in each[title].times_s]
        x = Scale.over(every, _LOG_RATIO) if max(every) > 0 else Scale(0.0, 1e-3)
        panels.append(
            Panel(
                across * (width + _LEFT_PX),
                TITLE_PX + down * (height + TITLE_PX + _GAP_PX + _FOOT_PX),
                width,
                height,
                x,
                Scale(0.0, 1.0),
                f"{title}, {'pauses' if title in {'ITL', 'chunk gap'} else 'requests'}",
                "took at most",
                seconds_tick,
                fraction_tick,
            )
        )
    return panels


def _lines(name: str, pools: Mapping[str, Pool], titles: Sequence[str], panels: Sequence[Panel]) -> Iterator[Row]:
    for title, panel in zip(titles, panels, strict=True):
        if title not in pools:
            continue
        pool = pools[title]
        for order, share in enumerate(_SHARES):
            time_s = sorted_quantile(pool.times_s, share)
            place = panel.place(time_s, share * pool.share_that_came)
            yield {**place, "series": name, "panel": title, "order": order}


def _named(name: str, pools: Mapping[str, Pool], titles: Sequence[str], panels: Sequence[Panel]) -> Iterator[Row]:
    """The percentiles that everyone quotes, over all requests, each as a dot that says what it is."""
    for title, panel in zip(titles, panels, strict=True):
        for share, point in _NAMED:
            time_s = pools[title].quantile(share) if title in pools else None
            if time_s is not None:
                said = f"{name}: {point} {title} {format_seconds(time_s)}"
                yield {**panel.place(time_s, share), "series": name, "panel": title, "said": said}


def _never(pools: Pools, titles: Sequence[str], panels: Sequence[Panel]) -> Iterator[Spec]:
    """A dashed line at what was reached where some never came, with their share; only of a run that is alone."""
    if len(pools) != 1:
        return
    (each,) = pools.values()
    for title, panel in zip(titles, panels, strict=True):
        pool = each[title]
        if pool.share_that_came < 1:
            y = panel.at_y(pool.share_that_came)
            lost = pool.count - len(pool.times_s)
            said = f"{format_fraction(lost / pool.count, 2)} never came"
            is_low = y - panel.top >= 15
            yield rules(
                [rule(panel.left, y, panel.left + panel.width, y)],
                stroke=LIGHT["finding"],
                strokeDash=DASHED,
                strokeWidth=1,
            )
            place = label(said, panel.left + 5, y - 3 if is_low else y + 4)
            yield from on_paper([place], align="left", baseline="bottom" if is_low else "top", color=LIGHT["finding"])


def _words(pools: Pools, titles: Sequence[str]) -> str:
    medians = "; ".join(
        f"{name}: " + ", ".join(_median_words(title, each[title]) for title in titles if title in each)
        for name, each in pools.items()
        if each
    )
    return f"Cumulative distributions of {', '.join(titles)} over all requests. {medians}."


def _median_words(title: str, pool: Pool) -> str:
    lost = pool.count - len(pool.times_s)
    never = f" ({format_count(lost)} of {format_count(pool.count)} never came)" if lost else ""
    middle_s = pool.quantile(0.5)
    return f"median {title} {'never' if middle_s is None else format_seconds(middle_s)}{never}"
