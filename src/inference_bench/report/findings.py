"""What must a reader not miss? What is odd about a verification, as sentences.

In:   VerifyResult
Out:  findings; none of a run in which nothing is odd
Leaves out: figures that are as they should be (key_figures), the verdict (closed_loop_answers)
Read next by: verify_html, text_result.
"""

from __future__ import annotations

from collections.abc import Iterator

from inference_bench.charts import group_labels, point_name
from inference_bench.compare import Verdict
from inference_bench.report.closed_loop_tables import capacity_rows, load_rows
from inference_bench.report.closed_loop_words import load_name
from inference_bench.units import format_count, format_fraction
from inference_bench.verify.result import VerifyResult


def findings(result: VerifyResult) -> tuple[str, ...]:
    """Points above their ceiling, requests that did not complete, memory that differs from the count."""
    found = [*_disturbed(result), *_ended(result), *(f"{doubt}." for doubt in result.count_doubts)]
    found += [
        f"{point_name(point)} tokens reached {format_fraction(point.fraction_of_bound)} of its ceiling. A measurement "
        "above the ceiling means that the counted traffic or the measured ceiling is too strict there."
        for point in result.points
        if point.verdict is Verdict.ABOVE
    ]
    found += _unsteady(result)
    found += _incomplete(result)
    found += _unfinished_loads(result)
    if result.cache_check is not None and not result.cache_check.agrees:
        found.append(
            f"The engine says its KV cache takes {result.cache_check.printed}; counted were "
            f"{format_count(result.cache_check.predicted_bytes)} bytes ({result.cache_check.rule})."
        )
    found += _other_memory(result)
    return tuple(f"{text[0].upper()}{text[1:]}" for text in found)


def _disturbed(result: VerifyResult) -> list[str]:
    if not result.disturbances:
        return []
    return [f"This run was disturbed: {'; '.join(result.disturbances)}; do not judge the engine by it."]


def _ended(result: VerifyResult) -> list[str]:
    return [f"The run did not come to its end: {result.trouble}."] if result.trouble else []


def _unsteady(result: VerifyResult) -> list[str]:
    """How many points are unsteady; which they are stands in a note."""
    odd, total = len(result.unsteady_points), len(result.points)
    return [f"{odd} of {total} points are unsteady: their mean time is far above their median."] if odd else []


def _incomplete(result: VerifyResult) -> list[str]:
    labels = group_labels(result.groups)
    lines = []
    for label, group in zip(labels, result.groups, strict=True):
        counts = group.metrics.requests
        if counts.completed < counts.sent:
            lines.append(f"{label}: {counts.sent - counts.completed} of {counts.sent} requests did not complete.")
    return lines


def _unfinished_loads(result: VerifyResult) -> Iterator[str]:
    rows = (*load_rows(result.load), *(() if result.capacity is None else capacity_rows(result.capacity)))
    for row in rows:
        if row.num_completed < row.num_requests:
            lost = row.num_requests - row.num_completed
            yield f"Load {load_name(row)}: {lost} of {row.num_requests} requests did not complete."


def _other_memory(result: VerifyResult) -> Iterator[str]:
    for row in result.memory:
        if row.difference is not None and not row.agrees:
            yield (
                f"Memory of {row.engine}, {row.setting}: {row.what} is {row.reported} by the engine and "
                f"{format_count(row.predicted)} {row.unit} by our count ({row.rule})."
            )
