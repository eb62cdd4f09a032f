"""`drill`: do the failure paths work, is every request accounted for, and are tenants kept apart?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from inference_bench.cli.api_key import api_key
from inference_bench.cli.given import refuse
from inference_bench.cli.main import INTERRUPTED
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.errors import RequestError, StorageError
from inference_bench.files import require_writable_place
from inference_bench.operate.drill.flow import DrillRequest, check_drill, check_place, run_drill
from inference_bench.operate.drill.isolation import IsolationRequest, IsolationResult, probe_isolation
from inference_bench.operate.drill.results import DrillResult
from inference_bench.operate.drill.scenarios import scenarios_named
from inference_bench.report.drill_report import drill_html, drill_json, drill_text
from inference_bench.report.isolation_report import isolation_html, isolation_json, isolation_text
from inference_bench.units import parse_count, parse_seconds

if TYPE_CHECKING:
    from inference_bench.report.html_pieces import Draw
    from inference_bench.report.report_html import Provenance

    Page = Callable[[Provenance, Draw | None], str]

_WORDS: Final = 150
_EMBEDDED_WORDS: Final = 40  # of an engine that is slow enough for few to show


def run(options: argparse.Namespace) -> int:
    """Play and print; exit 1 when a request was lost, repeated, wrong or too late, or a tenant's prefix speeds up another's."""
    _require_places(options)
    return _run_isolation(options) if options.cache_isolation else _run_drill(options)


def _require_places(options: argparse.Namespace) -> None:
    """A page and a picture can be written once the drill is over, which is a minute from now.

    Raises:  RequestError
    """
    if options.report is not None:
        require_report_file(options.report, (options.record, options.chart))
        require_writable_place(options.report, "report file")
    if options.chart is not None:
        from inference_bench.cli.picture import require_chart_file  # late: charts load much

        require_chart_file(options.chart)
        require_writable_place(options.chart, "chart file")


def _run_drill(options: argparse.Namespace) -> int:
    if options.other_key_env is not None:
        raise RequestError("a second tenant's key is for the probe of the cache alone")
    with _record(options.record) as record:
        request = DrillRequest(
            scenarios_named(options.scenario),
            options.url,
            options.fallback,
            parse_count(options.requests, "number of requests"),
            max_tokens=_at_least(options.max_tokens, "longest answer", 4),
            allows_remote=options.allow_remote,
            api_key=api_key(options.api_key_env),
            model=options.served_model,
            soak_s=None if options.soak is None else _time(options.soak, "time of the soak"),
            kill_every_s=_time(options.kill_every, "time between kills"),
            seed=options.seed,
            record=record,
        )
        check_drill(request)
        progress = ProgressLine()
        try:
            found = run_drill(request, progress)
        finally:
            progress.done()
    _say(options, drill_json(found), drill_text(found), partial(drill_html, found))
    _draw(options.chart, found)
    if found.unrecorded:
        raise StorageError(f"{found.unrecorded} answers could not be recorded: {found.unrecorded_why}")
    return _code(found.is_interrupted, found.has_passed)


def _run_isolation(options: argparse.Namespace) -> int:
    refuse(options, ("scenario", "fallback", "soak", "record", "chart"), "the probe of the cache takes no such option")
    rounds = parse_count(options.pairs, "number of pairs")
    usual = _EMBEDDED_WORDS if options.url is None else _WORDS
    words = usual if options.words is None else parse_count(options.words, "number of words")
    progress = ProgressLine()
    try:
        with _served(options.url, progress) as url:
            check_place(url, options.allow_remote, f"some {16 * rounds} prompts of {words} random words")
            request = IsolationRequest(
                url,
                rounds,
                words,
                options.served_model,
                api_key(options.api_key_env),
                api_key(options.other_key_env),
                options.seed,
            )
            found: IsolationResult = probe_isolation(request, progress)
    finally:
        progress.done()
    _say(options, isolation_json(found), isolation_text(found), lambda made, _: isolation_html(found, made))
    return _code(found.is_interrupted, found.is_isolated)


@contextmanager
def _served(url: str | None, progress: ProgressLine) -> Iterator[str]:
    """The server that was named, or an embedded one with its prefix cache on."""
    if url is not None:
        yield url
        return
    from tempfile import TemporaryDirectory

    from inference_bench.engines.embedded_model import ensure_embedded_model
    from inference_bench.operate.drill.servers import embedded

    model = ensure_embedded_model(progress)
    with (
        TemporaryDirectory(prefix="inference-bench-drill-") as folder,
        embedded(model, Path(folder) / "engine.log", caches=True) as server,
    ):
        yield server.base_url


@contextmanager
def _record(name: str | None) -> Iterator[TextIO | None]:
    if name is None:
        yield None
        return
    require_writable_place(name, "record of the answers")
    file = Path(name).open("w", encoding="utf-8")  # noqa: SIM115  # closing it may fail where the disk is full
    try:
        yield file
    finally:
        with suppress(OSError):  # what could not be written was counted when it was
            file.close()


def _say(options: argparse.Namespace, found: dict[str, Any], text: str, page: Page) -> None:
    """Print first: what was found out is seen even where the page cannot be written."""
    if options.json:
        print_json(found)
    else:
        print(text)
    if options.report is not None:
        made = provenance(options)
        write_report(options.report, lambda draw: page(made, draw))
        say_where(options)


def _draw(file: str | None, found: DrillResult) -> None:
    """The chart as a file of its own; a drill that was ended before it sent anything has none, which is no failure of its own."""
    if file is None:
        return
    from inference_bench.charts.drill import drill_chart, soak_chart
    from inference_bench.cli.picture import write_chart

    spec = drill_chart(found) if found.soak is None else soak_chart(found.soak)
    if spec is None:
        print("inference-bench: no request was sent, so there is nothing to draw", file=sys.stderr)
    else:
        write_chart(spec, file)


def _code(is_interrupted: bool, has_passed: bool) -> int:
    if is_interrupted:
        print("inference-bench: interrupted; this is what was found out by then", file=sys.stderr)
        return INTERRUPTED
    return 0 if has_passed else 1


def _time(text: str, what: str) -> float:
    seconds = parse_seconds(text, what)
    if seconds <= 0:
        raise RequestError(f"the {what} is {text}; it must be above 0")
    return seconds


def _at_least(text: str, what: str, least: int) -> int:
    count = parse_count(text, what)
    if count < least:
        raise RequestError(f"the {what} is {count}; give at least {least}")
    return count
