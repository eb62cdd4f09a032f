"""A shadow beside the run that it replays, and a suite of known answers: as text of at most 100 columns, as JSON with stable keys.

In:   ShadowComparison, SuiteOutcome
Out:  a text; a dict ready for JSON
Leaves out: every number's arithmetic (compare_runs, operate.rollout)
Read next by: cli.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from inference_bench.compare_runs.shadow import ShadowComparison
from inference_bench.files import shown_name
from inference_bench.metrics import Percentiles
from inference_bench.operate.rollout.suite_outcome import SuiteEnd, SuiteOutcome, outcome_json
from inference_bench.report.compare_runs_report import difference_json, figures_table
from inference_bench.report.load_report import load_json
from inference_bench.report.report_html import sentence
from inference_bench.report.table import Column, Table
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.units import format_count, format_seconds

SCHEMA: Final = "inference-bench/shadow/1"
_INTERVALS: Final = "an interval that leaves out 0 % is a clear difference; it is of one pair of runs"
_MOST_NAMED: Final = 20
_TIMES: Final = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("itl_s", "ITL"), ("e2e_s", "E2E"))


def shadow_text(found: ShadowComparison, suite: SuiteOutcome | None) -> str:
    """What was replayed where, how it ended, and beside what."""
    run, metrics = found.run, found.run.load.metrics
    counts = metrics.requests
    ended = {
        "completed": counts.completed,
        "failed": counts.failed,
        "rejected": counts.rejected,
        "timed out": counts.timed_out,
        "truncated": counts.truncated,
        "cancelled": counts.cancelled,
    }
    endings = ", ".join(f"{format_count(count)} {name}" for name, count in ended.items() if count)
    speed = "" if run.limits.speed == 1 else f" at {run.limits.speed:g} times the speed"
    lines = [
        wrap(
            f"{clean(run.replay.source)} replayed{speed} against {clean(run.load.target)}, serving "
            f"{clean(run.load.model or 'a model it does not name')}: {format_count(counts.sent)} requests, {endings}"
        ),
        *_beside(found),
        *([] if suite is None else [_suite_line(suite)]),
        *(wrap(f"note: {clean(note)}") for note in run.notes),
        wrap(f"raw samples: {shown_name(run.load.run_dir)}"),
    ]
    return "\n\n".join(lines)


def _beside(found: ShadowComparison) -> list[str]:
    if found.why_apart is not None:
        shown = table_text(_own_table(found))
        return [wrap(sentence(f"not compared with what was recorded: {found.why_apart}")), *([shown] if shown else [])]
    table = figures_table(
        f"Recorded and shadow: the same {format_count(found.num_requests)} requests at the same times",
        found.figures,
        "recorded",
        "shadow",
    )
    return [f"{table.title}\n{table_text(table)}", wrap(f"note: {_INTERVALS}")]


def _own_table(found: ShadowComparison) -> Table:
    """The shadow's own times, where there are none to hold them to."""
    metrics = found.run.load.metrics
    values: list[tuple[str, Percentiles | None]] = [(name, getattr(metrics, field)) for field, name in _TIMES]
    rows = tuple(
        (name, *map(format_seconds, (each.p50, each.p90, each.p99)), format_count(each.count))
        for name, each in values
        if each is not None
    )
    return Table("Times", (Column("time", "l"), Column("p50"), Column("p90"), Column("p99"), Column("samples")), rows)


def suite_text(found: SuiteOutcome, file: Path | None) -> str:
    """How many answers were as expected, and which were not, by their number in the file; file is None where it is not kept."""
    fine = (SuiteEnd.RIGHT, SuiteEnd.NOT_ASKED)
    wrong = [number for number, each in enumerate(found.answers, start=1) if each.end not in fine]
    named = ", ".join(map(str, wrong[:_MOST_NAMED])) + (", ..." if len(wrong) > _MOST_NAMED else "")
    lines = [
        _suite_line(found),
        *([wrap(f"not as expected, by their place in the file: {named}")] if wrong else []),
        *([] if file is None else [wrap(f"kept, as counts and hashes: {shown_name(file)}")]),
    ]
    return "\n".join(lines)


def _suite_line(found: SuiteOutcome) -> str:
    failed = f", {format_count(found.num_failed)} got no whole answer" if found.num_failed else ""
    cut = f", {format_count(found.num_not_asked)} were not asked, as it was interrupted" if found.is_interrupted else ""
    return wrap(
        f"suite {clean(found.name)}, {clean(found.model or 'a model that is not named')}: {format_count(found.num_right)} of "
        f"{format_count(len(found.answers))} answers are exactly as expected{failed}{cut}"
    )


def shadow_json(found: ShadowComparison, suite: SuiteOutcome | None) -> dict[str, Any]:
    """The stable keys of `shadow --json`."""
    run = found.run
    return {
        "schema": SCHEMA,
        "run_dir": str(run.load.run_dir),
        "recorded": run.replay.source,
        "recorded_target": run.replay.target,
        "target": run.load.target,
        "speed": run.limits.speed,
        "num_requests": len(run.replay.workload),
        "num_compared": found.num_requests,
        "why_not_compared": found.why_apart,
        "figures": {each.name: difference_json(each) for each in found.figures},
        "load": load_json(run.load),
        "suite": None if suite is None else outcome_json(suite),
        "notes": list(run.notes),
        "is_interrupted": run.load.is_interrupted,
    }
