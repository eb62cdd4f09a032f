"""A report as one file: named before anything runs, drawn where charts can be, there whole or not at all.

In:   the file that `--report` names, and what makes the page
Out:  the file; where it is, on stdout after the text
Leaves out: what the page says (report)
Read next by: simulate, against, capacity, plan, verify.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_bench.cli.output import one_line
from inference_bench.errors import RequestError
from inference_bench.files import require_output_place, require_writable_name, shown_name, write_whole

if TYPE_CHECKING:
    from inference_bench.report.html_pieces import Draw
    from inference_bench.report.report_html import Provenance

SUFFIX: Final = ".html"
_PACKAGES: Final = ("numba", "vl-convert-python")  # beside this one: what computes faster, and what draws


def add_report_option(parser: argparse._ActionsContainer) -> None:
    """The option that asks for a report."""
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="write charts, tables, assumptions and how to repeat it as one page that needs no network",
    )


def require_report_file(file: str, others: Iterable[str | None] = ()) -> None:
    """A name that a page may have, and that no other output has, where it can be written; asked before anything that takes long.

    Raises:  RequestError
    """
    if Path(file).suffix != SUFFIX or file.endswith(("/", os.sep)):
        raise RequestError(f"report file {shown_name(file)!r} is of no known kind; end it in {SUFFIX}")
    require_writable_name(file, "report file")
    if os.path.realpath(file) in {os.path.realpath(other) for other in others if other}:
        raise RequestError(
            f"the report and another output would be written to {shown_name(file)!r}; give each a file of its own"
        )
    require_output_place(file, "report file")


def write_report(file: str, make: Callable[[Draw | None], str]) -> None:
    """Make the page and write it.

    Raises:  StorageError
    """
    write_whole(Path(file), drawn_page(make))


def drawn_page(make: Callable[[Draw | None], str]) -> str:
    """The page; without its charts, and saying so, where they cannot be drawn."""
    from inference_bench.render import svg_or_none

    draw = svg_or_none()
    if draw is None:
        return make(None)
    try:
        return make(draw)
    except Exception as error:  # the drawing library raises whatever its own parts raise
        print(f"inference-bench: the plots could not be drawn: {one_line(str(error))[:200]}", file=sys.stderr)
        return make(None)


def provenance(options: argparse.Namespace) -> Provenance:
    """The command as it was typed, the time, and what took part."""
    import shlex
    from datetime import UTC, datetime

    from inference_bench.report.report_html import Provenance

    line = shlex.join(("inference-bench", *options.typed))
    made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Provenance(options.command, line, made_at, _versions())


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from inference_bench import __version__

    found = {"inference-bench": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def say_where(options: argparse.Namespace) -> None:
    """Where the report is, below the text; nothing beside JSON, which stands alone."""
    if options.report is not None and not options.json:
        print(f"\nreport: {one_line(shown_name(options.report))}")
