"""`watch URL...`: which servers are alive, which are ready, which have room; again and again, or once."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import number, refuse
from inference_bench.cli.main import INTERRUPTED, WORLD_FAILED
from inference_bench.cli.output import one_line, print_json
from inference_bench.errors import RequestError
from inference_bench.files import shown_name
from inference_bench.operate.watch.exporter import Exporter
from inference_bench.operate.watch.flow import Watch
from inference_bench.operate.watch.observer import WatchOptions
from inference_bench.operate.watch.rule_files import write_rule_files
from inference_bench.operate.watch.states import Round
from inference_bench.operate.watch.targets import watched
from inference_bench.report.text import display_columns
from inference_bench.report.watch_report import (
    event_lines,
    tally_json,
    watch_json,
    watch_lines,
    watch_summary,
    watch_text,
)
from inference_bench.units import parse_seconds

_LEAST_LINES: Final = 12
_EVENTS_KEPT: Final = 4

Show = Callable[[Round], None]


def run(options: argparse.Namespace) -> int:
    """Watch and show; the exit code says how the last round was, 130 that somebody stopped it."""
    if options.write_rules is not None:
        _write_rules(options)
        if not options.servers:
            return 0
    wish = _wish(options)
    for_s = None if options.for_time is None else parse_seconds(options.for_time, "time of the watch")
    watch = Watch(watched(options.servers, options.model, api_key(options.api_key_env)), wish)
    if options.once:
        refuse(options, ("for_time", "export"), "one round is asked for")
        found = watch.once()
        print_json(watch_json(found)) if options.json else print(watch_text(found))
        return _code(found, wish)
    return _go_on(options, watch, wish, for_s)


def _go_on(options: argparse.Namespace, watch: Watch, wish: WatchOptions, for_s: float | None) -> int:
    """Rounds until the time is over or somebody stops it; the summary comes in either case."""
    shows: list[Show] = [_show(options)]
    try:
        with ExitStack() as stack:
            if options.export is not None:
                exporter = stack.enter_context(Exporter(_port(options.export)))
                print(f"inference-bench: metrics at {exporter.url}", file=sys.stderr, flush=True)
                shows.insert(0, exporter.take)
            last = watch.run(_all(shows), for_s)
    except KeyboardInterrupt:
        _summarise(options, watch)
        return INTERRUPTED
    _summarise(options, watch)
    return 0 if last is None else _code(last, wish)


def _all(shows: Sequence[Show]) -> Show:
    def show_all(found: Round) -> None:
        for show in shows:
            show(found)

    return show_all


def _code(found: Round, wish: WatchOptions) -> int:
    if not found.all_alive:
        return WORLD_FAILED
    return 0 if found.all_ready(listed_is_enough=not wish.is_probing) else 1


def _wish(options: argparse.Namespace) -> WatchOptions:
    return WatchOptions(
        interval_s=parse_seconds(options.interval, "interval"),
        timeout_s=parse_seconds(options.timeout, "time of a look"),
        probe_s=parse_seconds(options.probe_every, "pace of the probe"),
        probe_timeout_s=parse_seconds(options.probe_timeout, "time of a probe"),
        window_s=parse_seconds(options.window, "window"),
        is_probing=not options.no_probe,
        metrics_path=options.metrics_path,
    )


def _port(text: str) -> int:
    """A port.

    Raises:  RequestError
    """
    value = number(text, "port")
    if value != int(value):
        raise RequestError(f"the port is {text[:40]!r}; give a whole number, or 0 for one that is free")
    return int(value)


def _write_rules(options: argparse.Namespace) -> None:
    written = write_rule_files(Path(options.write_rules))
    if options.json and not options.servers:
        print_json({"schema": "inference-bench/watch-rules/1", "files": [str(path) for path in written]})
        return
    for path in written:
        print(f"written: {one_line(shown_name(path))}", file=sys.stderr if options.json else sys.stdout)


# ── showing ────────────────────────────────────────────────────────────────────────────────────────


def _show(options: argparse.Namespace) -> Show:
    if options.json:
        return lambda found: print(json.dumps(watch_json(found), allow_nan=False), flush=True)
    if sys.stdout.isatty():
        return _Screen()
    return lambda found: print(watch_lines(found), flush=True)


class _Screen:
    """One text that is written over by the next, from its own first line on; nothing above it is touched."""

    def __init__(self) -> None:
        self._num_lines = 0
        self._events: deque[str] = deque(maxlen=_EVENTS_KEPT)

    def __call__(self, found: Round) -> None:
        """Write the round over the one before."""
        columns, lines = shutil.get_terminal_size()
        self._events.extend(event_lines(found))
        text = watch_text(found, max(_LEAST_LINES, lines - 1), self._events)  # one line is for the cursor
        up = f"\x1b[{self._num_lines}A\r\x1b[J" if self._num_lines else ""
        print(f"{up}{text}", flush=True)
        self._num_lines = sum(max(1, -(-display_columns(line) // columns)) for line in text.split("\n"))


def _summarise(options: argparse.Namespace, watch: Watch) -> None:
    if options.json:
        print(json.dumps(tally_json(watch.tallies), allow_nan=False), flush=True)
    else:
        print(f"\n{watch_summary(watch.tallies)}", flush=True)
