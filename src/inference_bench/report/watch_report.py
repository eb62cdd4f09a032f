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
from inference_bench.report.text import clean, shorten, table_text, wrap
from inference_bench.units import NOT_AVAILABLE, format_count, format_fraction, format_number, format_seconds

SCHEMA: Final = "inference-bench/watch/1"
_BARS: Final = "▁▂▃▄▅▆▇█"
_BAR_COLUMNS: Final = 10
_NAME_COLUMNS: Final = 22
_COLUMNS: Final = (
    Column("server", "l"),
    Column("alive", "l"),
    Column("ready", "l"),
    Column("capacity", "l"),
    Column("run"),
    Column("wait"),
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


def is_well(view: View) -> bool:
    """Whether nothing has to be said of it."""
    return view.alive is Alive.YES and view.ready is Ready.YES and view.room in (Room.ROOM, Room.UNKNOWN)


def watch_text(found: Round, most_rows: int | None = None) -> str:
    """The round: how many are what, the table, and why.

    Where:    of more servers than `most_rows` those that are well are left out first, and counted
    """
    shown = _shown(found.views, most_rows)
    left_out = len(found.views) - len(shown)
    blocks = [_headline(found), table_text(_table(shown))]
    if left_out:
        blocks.append(f"and {format_count(left_out)} more that fit no row here; all of them are in the JSON")
    notes = [wrap(f"{clean(view.name)}: {'; '.join(map(clean, said))}", "- ") for view, said in _said(shown)]
    if most_rows is not None:
        notes = notes[: max(1, most_rows - len(shown))]
    return "\n".join([*blocks, *notes])


def _shown(views: Sequence[View], most_rows: int | None) -> Sequence[View]:
    if most_rows is None or len(views) <= most_rows:
        return views
    chosen = {id(view) for view in sorted(views, key=is_well)[:most_rows]}
    return [view for view in views if id(view) in chosen]


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


def _said(views: Sequence[View]) -> Iterator[tuple[View, tuple[str, ...]]]:
    for view in views:
        if said := (*view.events, *view.reasons):
            yield view, said


def _table(views: Sequence[View]) -> Table:
    return Table("servers", _COLUMNS, tuple(_row(view) for view in views))


def _row(view: View) -> Cells:
    figures = view.figures
    number = (None,) * 5
    if figures is not None:
        number = (
            figures.running,
            figures.waiting,
            figures.cache_used_fraction,
            figures.output_tokens_per_s,
            figures.ttft_mean_s,
        )
    running, waiting, cache, tokens, ttft = number
    return (
        shorten(clean(view.name), _NAME_COLUMNS),
        view.alive.value,
        view.ready.value,
        view.room.value,
        _whole(running),
        _whole(waiting),
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
    _, alive, ready, room, *numbers = _row(view)[:9]
    figures = " ".join(
        f"{name}={value}" for name, value in zip(("run", "wait", "cache", "tokens/s", "TTFT"), numbers, strict=True)
    )
    said = "; ".join(map(clean, (*view.events, *view.reasons)))
    return f"{at} {clean(view.name)}: {alive}, {ready}, {room}; {figures}{f'; {said}' if said else ''}"


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
    return {"schema": f"{SCHEMA.removesuffix('/1')}-summary/1", "servers": [asdict(tally) for tally in tallies]}
