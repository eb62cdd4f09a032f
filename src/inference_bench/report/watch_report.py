"""Are the servers well? A round of a watch as a table for a terminal, as plain lines, and as JSON with stable keys.

In:   Round, Tally
Out:  text of at most 100 columns; dicts ready for JSON
Leaves out: how the screen is rewritten (cli.watch); figures over days, which Prometheus and its dashboard keep
Read next by: cli.

States are words, never a colour alone. A figure that a server does not give is n/a.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from inference_bench.operate.watch.states import Alive, Ready, Room, Round, Tally, View
from inference_bench.report.table import Cells, Column, Table
from inference_bench.report.text import MAX_COLUMNS, clean, shorten, table_text, wrap
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

SCHEMA: Final = "inference-bench/watch/1"
_SUMMARY_SCHEMA: Final = "inference-bench/watch-summary/1"
_BARS: Final = "▁▂▃▄▅▆▇█"
_BAR_COLUMNS: Final = 8
_NAME_COLUMNS: Final = 22
_HEAD_LINES: Final = 4  # the headline, the head of the table, and one that counts what was left out
_COLUMNS: Final = (
    Column("server", "l"),
    Column("alive", "l"),
    Column("ready", "l"),
    Column("capacity", "l"),
    Column("run"),
    Column("wait"),
    Column("free"),
    Column("cache"),
    Column("tokens/s"),
    Column("TTFT"),
    Column("queue", "l"),
)


def sparkline(values: Sequence[float], columns: int = _BAR_COLUMNS) -> str:
    """The last values as bars, of which the lowest is 0 and the highest the largest value shown.

    >>> sparkline((0, 2, 4, 8))
    '▁▂▄█'
    """
    shown = values[-columns:]
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    top = len(_BARS) - 1
    return "".join(_BARS[max(0, min(top, round(value / most * top)))] for value in shown)


def _concern(view: View) -> int:
    """How much somebody should look at it: what does not answer first, what is well last."""
    if view.alive is not Alive.YES:
        return 0
    if view.ready in (Ready.NO, Ready.LOADING):
        return 1
    if view.ready is not Ready.YES:
        return 2
    return {Room.SATURATED: 3, Room.FILLING: 4}.get(view.room, 5)


def watch_text(found: Round, most_lines: int | None = None, earlier: Sequence[str] | None = None) -> str:
    """The round: how many are what, the table, and why.

    Where:    of more servers than `most_lines` have room for, those that are well are left out first, and counted; `earlier` are
              lines of what happened of late, which stand below instead of this round's events
    """
    shown = (
        found.views if most_lines is None else _most_telling(found.views, max(2, 2 * (most_lines - _HEAD_LINES) // 3))
    )
    lines = [_headline(found), *table_text(_table(shown)).split("\n")]
    if left_out := len(found.views) - len(shown):
        lines.append(f"and {format_count(left_out)} more that fit no row here; all of them are in the JSON")
    notes = [line for view, said in _said(sorted(shown, key=_concern), earlier is None) for line in _note(view, said)]
    most_notes = len(notes) if most_lines is None else max(1, most_lines - len(lines) - len(earlier or ()))
    if len(notes) > most_notes:
        notes = [
            *notes[: most_notes - 1],
            f"and {format_count(len(notes) - most_notes + 1)} more lines; all of it is in the JSON",
        ]
    return "\n".join([*lines, *notes, *(earlier or ())])


def event_lines(found: Round) -> list[str]:
    """What happened since the round before, a line each, with the time of day."""
    at = found.at.partition("T")[2][:8]
    return [
        shorten(f"{at} {clean(view.name)}: {clean(event)}", MAX_COLUMNS)
        for view in found.views
        for event in view.events
    ]


def _most_telling(views: Sequence[View], most: int) -> Sequence[View]:
    if len(views) <= most:
        return views
    chosen = {id(view) for view in sorted(views, key=_concern)[:most]}
    return [view for view in views if id(view) in chosen]


def _note(view: View, said: tuple[str, ...]) -> list[str]:
    return wrap(f"{clean(view.name)}: {'; '.join(map(clean, said))}", "- ").split("\n")


def _headline(found: Round) -> str:
    views = found.views
    counts = (
        (sum(view.alive is Alive.YES for view in views), "alive"),
        (sum(view.ready is Ready.YES for view in views), "ready"),
        (sum(view.room is Room.SATURATED for view in views), "saturated"),
    )
    words = ", ".join(f"{format_count(count)} {word}" for count, word in counts)
    noun = "server" if len(views) == 1 else "servers"
    return f"{found.at}  round {format_count(found.number)}  {format_count(len(views))} {noun}: {words}"


def _said(views: Sequence[View], has_events: bool) -> Iterator[tuple[View, tuple[str, ...]]]:
    for view in views:
        if said := (*(view.events if has_events else ()), *view.reasons):
            yield view, said


def _table(views: Sequence[View]) -> Table:
    return Table("servers", _COLUMNS, tuple(_row(view) for view in views))


def _row(view: View) -> Cells:
    figures = view.figures
    number: tuple[float | None, ...] = (None,) * 6
    if figures is not None:
        number = (
            figures.running,
            figures.waiting,
            figures.free_requests,
            figures.cache_used_fraction,
            figures.output_tokens_per_s,
            figures.ttft_mean_s,
        )
    running, waiting, free, cache, tokens, ttft = number
    return (
        shorten(clean(view.name), _NAME_COLUMNS),
        view.alive.value,
        view.ready.value,
        view.room.value,
        _whole(running),
        _whole(waiting),
        _whole(free),
        format_fraction(cache, 2),
        format_number(tokens),
        format_seconds(ttft, 2),
        sparkline(view.queue),
    )


def _whole(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else format_count(round(value))


def watch_lines(found: Round) -> str:
    """A line a server, for files and pipes."""
    return "\n".join(_line(found.at, view) for view in found.views)


def _line(at: str, view: View) -> str:
    """Time, name, the three answers, figures by name, and why."""
    _, alive, ready, room, *numbers = _row(view)[:10]
    figures = " ".join(
        f"{name}={value.replace(' ', '')}"
        for name, value in zip(("run", "wait", "free", "cache", "tokens/s", "TTFT"), numbers, strict=True)
    )
    said = "; ".join(map(clean, (*view.events, *view.reasons)))
    second = f"{at[:19]}Z"  # of UTC
    return f"{second} {clean(view.name)}: {alive}, {ready}, {room}; {figures}{f'; {said}' if said else ''}"


def watch_summary(tallies: Sequence[Tally]) -> str:
    """What a whole watch saw, in shares of its rounds."""
    columns = (
        Column("server", "l"), Column("rounds"), Column("alive"), Column("ready"), Column("saturated"), Column("looks failed"),
        Column("late"), Column("probes failed"), Column("restarts"), Column("models"),
    )  # fmt: skip
    rows = tuple(_tally_row(tally) for tally in tallies)
    return table_text(
        Table("summary", columns, rows, note="Shares are of the rounds; models: how often the model changed.")
    )


def _tally_row(tally: Tally) -> Cells:
    counts, rounds = tally.counts, tally.num_rounds
    shares = (
        format_fraction(None if not rounds else num / rounds)
        for num in (tally.num_alive, tally.num_ready, tally.num_saturated)
    )
    return (
        shorten(clean(tally.name), _NAME_COLUMNS),
        format_count(rounds),
        *shares,
        f"{format_count(counts.num_scrape_failures)}/{format_count(counts.num_scrapes)}",
        format_count(counts.num_late),
        f"{format_count(counts.num_probe_failures)}/{format_count(counts.num_probes)}",
        format_count(counts.num_restarts),
        format_count(counts.num_model_changes),
    )


def watch_json(found: Round) -> dict[str, Any]:
    """The stable keys of `watch --json`, one object a round."""
    return {
        "schema": SCHEMA,
        "round": found.number,
        "at": found.at,
        "elapsed_s": found.elapsed_s,
        "all_alive": found.all_alive,
        "all_ready": found.all_ready(listed_is_enough=False),
        "servers": [_view_json(view) for view in found.views],
    }


def _view_json(view: View) -> dict[str, Any]:
    return {
        "name": view.name,
        "url": view.base_url,
        "alive": view.alive,
        "ready": view.ready,
        "capacity": view.room,
        "reasons": [clean(reason) for reason in view.reasons],
        "events": [clean(event) for event in view.events],
        "engine": view.engine,
        "version": None if view.version is None else clean(view.version),
        "model": None if view.model is None else clean(view.model),
        "figures": None if view.figures is None else asdict(view.figures),
        "probe": None if view.proof is None else asdict(view.proof),
        "last_token_age_s": view.token_age_s,
        "queue": list(view.queue),
        "counts": asdict(view.counts),
    }


def tally_json(tallies: Sequence[Tally]) -> dict[str, Any]:
    """The last line of `watch --json`: what the whole watch saw."""
    return {"schema": _SUMMARY_SCHEMA, "servers": [asdict(tally) for tally in tallies]}
