"""Do the failure paths work? A drill as text for a terminal, as JSON with stable keys, and as a page.

In:   DrillResult; for the page Provenance, and what draws a chart specification as SVG
Out:  text of at most 100 columns; a dict ready for JSON; HTML
Leaves out: judging; every scenario was judged before
Read next by: cli.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from inference_bench.charts.drill import drill_chart, soak_chart
from inference_bench.operate.drill.results import (
    ENDS,
    MUST_BE_NONE,
    DrillResult,
    Requests,
    ScenarioResult,
    SoakResult,
    Tally,
)
from inference_bench.origin import Origin
from inference_bench.report.html_pieces import Draw, Drawing, bullets, origins
from inference_bench.report.html_pieces import table as html_table
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import (
    Head,
    Part,
    Provenance,
    assumptions_part,
    charts_part,
    repeat_part,
    report_page,
)
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import clean, table_text, wrap
from inference_bench.units import format_count, format_seconds

SCHEMA: Final = "inference-bench/drill/1"
_WORDS: Final = {
    "lost": "without an account, or hanging",
    "duplicated": "answered more than once, or with a text that repeats",
    "wrong": "with a text that no server said",
    "over_budget": "over the time they had been given",
    "early": "attempts before the time that a server had asked for",
}
_MEANING: Final = (
    "sent = completed + failed + interrupted + lost. failed: an error that says why, and no text; interrupted: the text so far and the "
    "cause. lost, duplicated, wrong, over budget and early must be none; they are counted from two books kept apart, the client's answers "
    "and what the proxies handed on."
)
_TIMES: Final = (
    "detected: from the begin of the fault to the end of the first attempt that it spoiled; breaker: until requests stay away; recovered: "
    "from the end of the fault to the first whole answer of the server that had failed."
)
_READ: Final = (
    "Measured. Each bar is a request, from when it was sent to when its caller had an answer or an error, in the lane of the server that "
    "answered; nobody did in the lowest. Requests under way together lie above one another. A bar without a mark was completed; a mark at "
    "its end says how another ended."
)
_SCENARIOS_READ: Final = (
    "Shaded: from the begin of the fault to its end. Detected: the end of the first attempt that the fault spoiled. Breaker opened: from "
    "then on requests stay away. Recovered: the first whole answer of the server that had failed. All panels have the same time scale."
)
_SOAK_READ: Final = "Shaded: from a kill of the first server until it answered again; the fallback answers meanwhile."
_COUNTS: Final = ("sent", "completed", "failed", "interrupted", *MUST_BE_NONE)


def drill_json(found: DrillResult) -> dict[str, Any]:
    """The stable keys of `drill --json`."""
    return {
        "schema": SCHEMA,
        "passed": found.has_passed,
        "is_interrupted": found.is_interrupted,
        "servers": dict(found.servers),
        "measured": None if found.measured is None else asdict(found.measured),
        "scenarios": [_scenario_json(each) for each in found.scenarios],
        "soak": None if found.soak is None else _soak_json(found.soak),
        "cache_isolation": None,
        "seed": found.seed,
        "unrecorded": found.unrecorded,
        "unrecorded_why": found.unrecorded_why,
    }


def _scenario_json(each: ScenarioResult) -> dict[str, Any]:
    is_played = each.skipped is None
    return {
        "name": each.name,
        "question": each.question,
        "passed": each.has_passed if is_played else None,
        "skipped": each.skipped,
        **asdict(each.tally),
        "detected_s": each.detected_s,
        "breaker_s": each.breaker_s,
        "recovered_s": each.recovered_s,
        "fault_s": each.fault_s,
        "problems": list(each.problems),
        "notes": list(each.notes),
        "fault": None if each.fault is None else {**asdict(each.fault), "moments_s": each.moments_s},
        **_requests_json(each.requests),
    }


def _requests_json(requests: Requests) -> dict[str, Any]:
    listed = [asdict(each) for each in requests.listed]
    return {"requests": listed, "completed_every": requests.every, "left_out": dict(requests.left_out)}


def _soak_json(soak: SoakResult) -> dict[str, Any]:
    return {
        "passed": soak.has_passed,
        "is_interrupted": soak.is_interrupted,
        "kills": soak.kills,
        "restarts": soak.restarts,
        "duration_s": soak.duration_s,
        "down_s": soak.down_s,
        "seed": soak.seed,
        **asdict(soak.tally),
        "problems": list(soak.problems),
        "down": [asdict(each) for each in soak.down],
        **_requests_json(soak.requests),
    }


def drill_text(found: DrillResult) -> str:
    """What was played, the tables, what is wrong."""
    said = [
        "\n".join(map(wrap, _verdicts(found))),
        "\n".join(wrap(f"{name}: {clean(what)}", "  ") for name, what in found.servers.items()),
        *(table_text(each) for each in _tables(found)),
        "\n".join(wrap(line, "- ") for line in _findings(found)),
        "\n".join(wrap(line, "  ") for line in _remarks(found)),
    ]
    return "\n\n".join(each for each in said if each)


def _verdicts(found: DrillResult) -> list[str]:
    played = found.played
    if not played and found.soak is None:
        return ["nothing was played to its end"]
    passed = sum(1 for each in played if each.has_passed)
    said = [f"{passed} of {len(played)} scenarios went as they must"] if played else []
    return said if found.soak is None else [*said, _soak_said(found.soak)]


def _verdict_table(found: DrillResult) -> Table | None:
    """Each scenario's question and its answer; for the page, where there is room."""
    rows = [
        (each.name, each.question, "not played" if each.skipped else "yes" if each.has_passed else "NO")
        for each in found.scenarios
    ]
    marked = frozenset(place for place, row in enumerate(rows) if row[-1] == "NO")
    columns = (Column("scenario", "l"), Column("question", "l"), Column("answer", "l"))
    return Table("Verdicts", columns, tuple(rows), "", marked) if rows else None


def _soak_said(soak: SoakResult) -> str:
    times = "kill" if soak.kills == 1 else "kills"
    whether = "every request is accounted for" if soak.has_passed else "it did not go as it must"
    return f"{format_count(soak.kills)} {times} in {format_seconds(soak.duration_s)}, {format_count(soak.tally.sent)} requests: {whether}"


def _tables(found: DrillResult) -> Iterator[Table]:
    played = found.played
    rows = [(each.name, each.tally) for each in played]
    if found.soak is not None:
        rows.append(("soak", found.soak.tally))
    marked = frozenset(place for place, (_, tally) in enumerate(rows) if tally.broken)
    columns = (Column("scenario", "l"), *(Column(name.replace("_", " "), "r") for name in _COUNTS))
    yield Table("Requests", columns, tuple(_count_cells(*row) for row in rows), _MEANING if rows else "", marked)
    if played:
        yield _times_table(played)
    yield _ends_table(rows)
    if found.soak is not None:
        yield _soak_table(found.soak)


def _count_cells(name: str, tally: Tally) -> Cells:
    return (name, *(format_count(getattr(tally, each)) for each in _COUNTS))


def _times_table(played: Sequence[ScenarioResult]) -> Table:
    columns = (
        Column("scenario", "l"),
        Column("fault lasted"),
        Column("detected"),
        Column("breaker"),
        Column("recovered"),
        Column("longest"),
        Column("answered by", "l"),
    )
    rows = [
        (
            each.name,
            *map(format_seconds, (each.fault_s, each.detected_s, each.breaker_s, each.recovered_s)),
            format_seconds(each.tally.longest_s),
            _named(each.tally.answered_by),
        )
        for each in played
    ]
    budget_s = max((each.tally.budget_s or 0.0 for each in played), default=0.0)
    return Table(
        "Times", columns, tuple(rows), f"{_TIMES} longest: of a request, which had {format_seconds(budget_s)}."
    )


def _ends_table(rows: Iterable[tuple[str, Tally]]) -> Table:
    columns = (
        Column("scenario", "l"),
        Column("attempts that were not whole", "l"),
        Column("requests that were not whole", "l"),
    )
    cells = [
        (
            name,
            _named({end: count for end, count in tally.attempt_ends.items() if end != "completed"}),
            _named(tally.reasons),
        )
        for name, tally in rows
    ]
    return Table("Attempts", columns, tuple(cells))


def _soak_table(soak: SoakResult) -> Table:
    rows = (
        ("load for", format_seconds(soak.duration_s)),
        ("kill -9", format_count(soak.kills)),
        ("started again", format_count(soak.restarts)),
        ("the killed server was down for", format_seconds(soak.down_s)),
        ("answered by", _named(soak.tally.answered_by)),
        ("longest request", format_seconds(soak.tally.longest_s)),
        ("budget of a request", format_seconds(soak.tally.budget_s)),
    )
    return Table("Soak", (Column("soak", "l"), Column("value", "l")), rows)


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {format_count(count)}" for name, count in counts.items()) or "nothing"


def _findings(found: DrillResult) -> Iterator[str]:
    tallies = [(each.name, each.tally, each.problems) for each in found.scenarios]
    if found.soak is not None:
        tallies.append(("soak", found.soak.tally, found.soak.problems))
    for name, tally, problems in tallies:
        for kind in tally.broken:
            yield f"{name}: {format_count(getattr(tally, kind))} {_WORDS[kind]}"
        for problem in problems:
            yield f"{name}: {clean(problem)}"


def _remarks(found: DrillResult) -> Iterator[str]:
    for each in found.scenarios:
        if each.skipped is not None:
            yield f"{each.name} was not played: {each.skipped}"
        for note in each.notes:
            yield f"{each.name}: {clean(note)}"
        if each.tally.differs:
            yield (
                f"{each.name}: {format_count(each.tally.differs)} texts differ from what the server said undisturbed; the server itself "
                "said them so, and is not deterministic under load"
            )
        if each.tally.computed_twice:
            count = format_count(each.tally.computed_twice)
            yield f"{each.name}: {count} requests had tokens of more than one attempt, of which the caller saw one"
    if found.unrecorded:
        yield f"{format_count(found.unrecorded)} answers could not be recorded: {found.unrecorded_why}"


def _drawings(found: DrillResult) -> Iterator[Drawing]:
    """The chart of the scenarios, and that of the soak: those that have data."""
    if any(each.requests.listed for each in found.scenarios):
        read = f"{_READ} {_SCENARIOS_READ}{_thinned(each.requests for each in found.scenarios)}"
        yield Drawing("What became of each request", read, partial(drill_chart, found))
    if found.soak is not None and found.soak.requests.listed:
        read = f"{_READ} {_SOAK_READ}{_thinned([found.soak.requests])}"
        yield Drawing("What became of each request, kill by kill", read, partial(soak_chart, found.soak))


def _thinned(requests: Iterable[Requests]) -> str:
    """What is not drawn, of each way to end, over all panels."""
    drawn, left_out = Counter[str](), Counter[str]()
    for each in requests:
        drawn += Counter(one.outcome for one in each.listed)
        left_out += Counter(each.left_out)
    said = [
        f"of {format_count(drawn[end] + left_out[end])} {end} requests {format_count(drawn[end])}"
        for end in ENDS
        if left_out[end]
    ]
    return f" Drawn are {', '.join(said)}, and all others." if said else ""


def drill_html(found: DrillResult, made: Provenance, draw: Draw | None) -> str:
    """The whole page; without `draw` it has every table and says why there are no charts."""
    tallies = [each.tally for each in found.scenarios] + ([] if found.soak is None else [found.soak.tally])
    figures = [
        KeyFigure("requests", format_count(sum(each.sent for each in tallies)), "", Origin.MEASURED, "", "sent in all"),
        *(
            KeyFigure(
                name.replace("_", " "),
                format_count(count),
                "",
                Origin.MEASURED,
                "must be none",
                _WORDS[name],
                None,
                count > 0,
            )
            for name in MUST_BE_NONE
            for count in (sum(getattr(each, name) for each in tallies),)
        ),
    ]
    tables = origins((Origin.MEASURED,)) + "".join(map(html_table, _tables(found)))
    servers = [f"{name}: {what}" for name, what in found.servers.items()]
    verdict = bullets(_verdicts(found)) + html_table(_verdict_table(found), has_heading=False)
    parts = (
        Part("verdict", "Verdict", "Do they?", verdict),
        charts_part(list(_drawings(found)), draw),
        Part("evidence", "Evidence", "What was played, and what came of it", tables),
        assumptions_part(servers, list(_remarks(found))),
        repeat_part(made, (found.seed,)),
    )
    head = Head("Do the failure paths work?", ", ".join(found.servers))
    return report_page(head, made, figures, (("Findings", list(_findings(found))),), parts)
