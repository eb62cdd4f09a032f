"""What a server delivered at each level of a sweep, as JSON with stable keys and as a table for a terminal.

In:   SweepRun
Out:  a dict ready for JSON or a text of at most 100 columns
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Final

from inference_bench.arrival_proof import Verdict
from inference_bench.measure.prompt_checks import judge_documents
from inference_bench.report.load_report import (
    FEW,
    arrival_json,
    metrics_json,
    run_json,
    server_json,
    server_lines,
    window_json,
)
from inference_bench.report.proof_report import proof_json
from inference_bench.report.referee_report import referee_json
from inference_bench.report.text import printable, table, wrap
from inference_bench.stats import Interval
from inference_bench.units import NOT_AVAILABLE, format_number, format_seconds

if TYPE_CHECKING:
    from inference_bench.loadtest.sweep import SweepPoint, SweepRun

_SCOPE: Final = (
    "client side, clock from the planned send; points[].window: rates of the steady or measured window, by which saturation is "
    "judged; other rates of points[]: over all measured requests, build-up and drain included"
)


def sweep_json(result: SweepRun) -> dict[str, Any]:
    """The stable keys of `load --json` for a sweep."""
    return {
        "schema": "inference-bench/load-sweep/1",
        **run_json(result),
        "sweep": {"by": result.plan.axis.value, "levels": [point.level for point in result.points]},
        "saturated_level": result.saturated_level,
        "scope": _SCOPE,
        "points": [_point_json(point) for point in result.points],
        "client": {"floor": dataclasses.asdict(result.floor)},
        "notes": [*result.notes, *result.remarks],
        "server": server_json(result.server),
        "objective": dataclasses.asdict(result.objective),
        "is_interrupted": result.is_interrupted,
    }


def _point_json(point: SweepPoint) -> dict[str, Any]:
    return {
        "level": point.level,
        "group": point.group,
        "is_judged": point.is_judged,
        "is_complete": point.is_complete,
        "arrival": arrival_json(point.workload.arrival),
        **metrics_json(point.metrics),
        "window": window_json(point.window),
        "client": dict(point.client),
        "arrivals_proof": proof_json(point.arrivals),
        "prompts_check": None if point.prompts is None else dataclasses.asdict(point.prompts),
        "cache_check": None if point.cache is None else dataclasses.asdict(point.cache),
        "documents": None if (found := judge_documents(point.records)) is None else dataclasses.asdict(found),
        "referee": None if point.refereed is None else referee_json(point.refereed),
    }


def sweep_text(result: SweepRun) -> str:
    """The same for a terminal: a line a level, and where the server was saturated."""
    axis = result.plan.axis.value
    head = f"{result.target}, serving {printable(result.model or 'a model it does not name')}: a sweep over {axis}"
    points = sorted(result.points, key=lambda point: point.level)
    doubts = dict.fromkeys(doubt for point in points for doubt in _doubts(point))
    letters = dict(zip(doubts, ascii_lowercase, strict=False))
    columns = (
        axis,
        "n",
        "tokens/s",
        "requests/s",
        "good/s",
        "in flight",
        "TTFT p50",
        "TTFT p99",
        "ITL p99",
        "failed",
    )
    rows = [_row(point, "".join(letters.get(doubt, "*") for doubt in _doubts(point))) for point in points]
    lines = [wrap(head), "\n".join([table(columns, rows, "r" * len(columns)), *_footnotes(points, letters)])]
    lines.append(wrap(_saturation_said(result)))
    lines += [wrap(f"{point.group}: {said.remark}") for point in points if (said := judge_documents(point.records))]
    lines += map(wrap, server_lines(result.server))
    lines += [wrap(f"{point.group}: {reason}") for point in points for reason in point.arrivals.reasons]
    lines += [wrap(printable(note)) for note in (*result.notes, *result.remarks)]
    return "\n\n".join([*lines, f"raw samples: {result.run_dir}"])


def _saturation_said(result: SweepRun) -> str:
    axis, level = result.plan.axis.value, result.saturated_level
    if level is not None and all(p.client.get("invalid_because") for p in result.points if p.level >= level):
        return (
            f"the throughput grew no more from {axis} {level:g} on, but from there on this client did not keep up: it may be the "
            f"client that was saturated"
        )
    if level is not None:
        return f"saturated at {axis} {level:g}: no higher one gave 5 % more"
    if sum(point.is_judged for point in result.points) < 2:
        return "whether the server was saturated is not decided: too few levels can be judged"
    return f"the throughput still grew at the highest {axis} that can be judged"


def _doubts(point: SweepPoint) -> list[str]:
    """What the figures of a level must not be read without."""
    found = []
    if not point.is_complete:
        found.append("(cut short) what was measured by then")
    if invalid := point.client.get("invalid_because"):
        found.append(str(invalid))
    if point.arrivals.verdict is Verdict.BROKEN:
        found.append("requests did not arrive as asked")
    if point.arrivals.verdict is Verdict.NOT_REACHED:
        found.append("fewer in flight than asked")
    if point.window is None:
        found.append("too short for a steady window: no rates of one")
    return found


def _footnotes(points: Sequence[SweepPoint], letters: Mapping[str, str]) -> list[str]:
    """What the marks in the table mean, and what its figures are of."""
    lines = [f"{letter} {doubt}" for doubt, letter in letters.items()]
    if any(FEW in cell for point in points for cell in _times(point)):
        lines.append(f"{FEW} too few samples for a 95 % interval: the percentile is little more than one of them")
    cancelled = [f"{number} at {p.level:g}" for p in points if (number := p.metrics.requests.cancelled)]
    if cancelled:
        lines.append(f"cancelled by this client, and so neither good nor failed: {', '.join(cancelled)}")
    lines.append(
        f"rates, in flight and ITL are of the steady or measured window, n and TTFT of all measured requests; good: "
        f"{points[0].metrics.goodput_rule}"
    )
    return [wrap(line) for line in lines]


def _row(point: SweepPoint, marks: str) -> tuple[str, ...]:
    window, requests = point.window, point.metrics.requests
    rates = (window.output_tokens_per_s, window.requests_per_s, window.good_requests_per_s) if window else (None,) * 3
    return (
        f"{point.level:g}" + (f" {marks}" if marks else ""),
        str(requests.sent),
        *map(format_number, rates),
        format_number(window.mean_concurrency) if window else NOT_AVAILABLE,
        *_times(point),
        str(requests.sent - requests.completed - requests.cancelled),
    )


def _times(point: SweepPoint) -> tuple[str, str, str]:
    """TTFT p50 and p99, and ITL p99, marked where there are too few samples."""
    window, ttft = point.window, point.metrics.ttft_s
    itl = (window.itl_s or window.chunk_gap_s) if window else None
    return (
        _marked(ttft.p50, ttft.p50_interval) if ttft else NOT_AVAILABLE,
        _marked(ttft.p99, ttft.p99_interval) if ttft else NOT_AVAILABLE,
        _marked(itl.p99, itl.p99_interval) if itl else NOT_AVAILABLE,
    )


def _marked(value_s: float, interval: Interval | None) -> str:
    return format_seconds(value_s) + ("" if interval else FEW)
