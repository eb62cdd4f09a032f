"""The page of a load run: what it needs beside the result, and where it is written.

In:   LoadRun, SweepRun or CapacityRun, the options of `load`
Out:  report.html in the run folder, or the file that `--report` names
Leaves out: what the page says (report)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_bench.cli.report_page import drawn_page, provenance, require_report_file
from inference_bench.errors import RequestError
from inference_bench.files import write_whole
from inference_bench.loadtest.capacity_run import CapacityRun
from inference_bench.loadtest.flow import LoadRun
from inference_bench.loadtest.sweep import SweepRun
from inference_bench.verify.saved import REPORT_FILE

if TYPE_CHECKING:
    from inference_bench.report.html_pieces import Draw

_HEADER: Final = "--header"
_HIDDEN: Final = "(hidden)"
_SHORTEST: Final = len("--hea")


def require_page_name(options: argparse.Namespace) -> None:
    """The page can be written where it is wanted, and is wanted; asked before anything runs.

    Raises:  RequestError
    """
    if options.report is None:
        return
    if options.no_report:
        raise RequestError("a page is asked for and refused; ask for one of them")
    require_report_file(options.report)


def write_load_page(options: argparse.Namespace, result: LoadRun | SweepRun | CapacityRun) -> Path | None:
    """Draw and write the page; None where none is wanted.

    Raises:  StorageError
    """
    if options.no_report:
        return None
    from inference_bench.report.load_page import capacity_page, load_page, sweep_page  # late: charts load much

    file = Path(options.report) if options.report else result.run_dir / REPORT_FILE
    options.typed = without_header_values(options.typed)
    made = provenance(options)

    def page(draw: Draw | None) -> str:
        if isinstance(result, LoadRun):
            return load_page(result, made, draw)
        if isinstance(result, SweepRun):
            return sweep_page(result, made, draw)
        return capacity_page(result, made, draw)

    write_whole(file, drawn_page(page))
    return file


def without_header_values(typed: tuple[str, ...]) -> tuple[str, ...]:
    """The command as it was typed, but for what headers hold: a key may be among them."""
    kept: list[str] = []
    is_value = False
    for word in typed:
        option, equals, value = word.partition("=")
        is_header = len(option) >= _SHORTEST and _HEADER.startswith(option)  # argparse takes its beginning too
        if is_value:
            kept.append(_without_value(word))
        elif is_header and equals:
            kept.append(f"{option}={_without_value(value)}")
        else:
            kept.append(word)
        is_value = is_header and not equals and not is_value
    return tuple(kept)


def _without_value(header: str) -> str:
    return f"{header.partition(':')[0]}: {_HIDDEN}"
