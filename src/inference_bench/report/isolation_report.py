"""Does one tenant's prefix speed up another's? The probe's answer as text, JSON and a page.

In:   IsolationResult
Out:  text of at most 100 columns; a dict ready for JSON; HTML
Leaves out: judging
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from inference_bench.operate.drill.isolation import Arm, Gain, IsolationResult, Verdict
from inference_bench.origin import Origin
from inference_bench.report.drill_report import SCHEMA
from inference_bench.report.html_pieces import bullets
from inference_bench.report.html_pieces import table as html_table
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    assumptions_part,
    repeat_part,
    report_page,
    value_and_unit,
)
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.stats import Interval
from inference_bench.units import NOT_AVAILABLE, format_count, format_number, format_seconds

_SAID: Final = {
    Verdict.SHARED: "one tenant's prefix speeds up another's: whoever can time answers can find out what others asked",
    Verdict.NOT_SEEN: "the cache works within a tenant, and no gain across tenants was seen",
    Verdict.NO_CACHE: "no gain was seen, not even within a tenant: no cache is used, or the prefix is too short for it to show",
    Verdict.REFUSED: "the server does not take this field",
}
_NOTE: Final = (
    "gain: how much sooner the first token came with a known prefix than with a new one, the median of the pairs; interval: 95 %, free of "
    "any assumption on the distribution; chance: how often signs drawn at random give as much; cached: the server's own count of cached "
    "prompt tokens, known and new."
)


def isolation_json(found: IsolationResult) -> dict[str, Any]:
    """The stable keys of `drill --cache-isolation --json`."""
    return {
        "schema": SCHEMA,
        "passed": found.is_isolated,
        "is_interrupted": found.is_interrupted,
        "scenarios": [],
        "soak": None,
        "cache_isolation": {
            "server": found.server,
            "engine": found.engine,
            "option": found.option,
            "words": found.words,
            "seed": found.seed,
            "arms": [_arm_json(arm) for arm in found.arms],
            "notes": list(found.notes),
        },
    }


def _arm_json(arm: Arm) -> dict[str, Any]:
    return {
        "name": arm.name,
        "what": arm.what,
        "verdict": str(arm.verdict),
        "other_tenant": None if arm.other is None else asdict(arm.other),
        "same_tenant": None if arm.own is None else asdict(arm.own),
        "error": arm.error,
    }


def isolation_text(found: IsolationResult) -> str:
    """The answer for each way of asking, then the figures."""
    engine = found.engine or "an engine that is not known"
    said = [
        wrap(f"{found.server}: {clean(engine)}; prefixes of {format_count(found.words)} random words"),
        "\n".join(wrap(line, "- ") for line in _answers(found)) or "no way of asking was finished",
        table_text(_table(found)),
        "\n".join(wrap(note, "  ") for note in found.notes),
    ]
    return "\n\n".join(each for each in said if each)


def _answers(found: IsolationResult) -> Iterator[str]:
    for arm in found.arms:
        why = "" if arm.error is None else f" ({clean(arm.error)})"
        yield f"{arm.name} ({arm.what}): {_SAID[arm.verdict]}{why}"


def _table(found: IsolationResult) -> Table:
    columns = (
        Column("asked", "l"),
        Column("tenant", "l"),
        Column("pairs"),
        Column("known"),
        Column("new"),
        Column("gain"),
        Column("interval"),
        Column("chance"),
        Column("cached"),
    )
    rows = [
        _cells(arm.name, who, gain)
        for arm in found.arms
        for who, gain in (("other", arm.other), ("same", arm.own))
        if gain is not None
    ]
    return Table("Time to the first token", columns, tuple(rows), _NOTE if rows else "")


def _cells(name: str, who: str, gain: Gain) -> Cells:
    cached = (gain.known_cached_tokens, gain.new_cached_tokens)
    return (
        name,
        who,
        format_count(gain.num_pairs),
        format_seconds(gain.known_ttft_s),
        format_seconds(gain.new_ttft_s),
        format_seconds(gain.median_s),
        _interval(gain.interval),
        format_number(gain.chance, 2),
        " / ".join(NOT_AVAILABLE if each is None else format_count(each) for each in cached),
    )


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return NOT_AVAILABLE
    return f"{format_seconds(interval.low)} to {format_seconds(interval.high)}"


def isolation_html(found: IsolationResult, made: Provenance) -> str:
    """The whole page."""
    head = Head("Does one tenant's prefix speed up another's?", found.server)
    evidence = bullets(list(_answers(found))) + html_table(_table(found), has_heading=False)
    parts = (
        Part("evidence", "Evidence", "What the times say", evidence),
        assumptions_part((), found.notes),
        repeat_part(made, (found.seed,)),
    )
    return report_page(head, made, [_figure(arm) for arm in found.arms], (), parts)


def _figure(arm: Arm) -> KeyFigure:
    """What another tenant's prefix gained, and whether that is more than chance."""
    gain = arm.other
    is_shared = arm.verdict is Verdict.SHARED
    within = "" if gain is None or is_shared else f"no gain was seen: {_interval(gain.interval)}"
    return KeyFigure(
        arm.name,
        *value_and_unit(format_seconds(None if gain is None else gain.median_s)),
        Origin.MEASURED,
        "sooner with another tenant's prefix" if is_shared else within,
        _SAID[arm.verdict],
        None,
        is_shared,
    )
