"""`ledger RUN...`: what was paid for, computed, completed and of use; `ledger purge FOLDER...`: delete content that is too old."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Final

from inference_bench.cli.given import number, refuse
from inference_bench.cli.output import ProgressLine, one_line, print_json
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.errors import RequestError, StorageError
from inference_bench.files import shown_name
from inference_bench.operate.ledger.content_log import Purge, purge_content
from inference_bench.operate.ledger.export import LedgerExport
from inference_bench.operate.ledger.flow import Ledger, keep_ledger
from inference_bench.operate.ledger.money import Prices
from inference_bench.operate.ledger.run_folders import is_run_folder, output_tokens_per_s
from inference_bench.operate.ledger.totals import By
from inference_bench.predict.cost import HostedPrices
from inference_bench.report.ledger_report import ledger_html, ledger_json, ledger_text, purge_json, purge_text
from inference_bench.units import parse_count

_PURGE: Final = "purge"


def run(options: argparse.Namespace) -> int:
    """Read once, print, and write what was asked for."""
    if options.runs[0] == _PURGE:
        return _purge(options)
    if options.report is not None:
        require_report_file(options.report, (options.export,))
    prices = _prices(options)
    by = tuple(dict.fromkeys(map(By, options.by or (By.APPLICATION,))))
    export = None if options.export is None else LedgerExport(Path(options.export))
    try:
        ledger = _read(options, prices, by, export)
        if export is not None:
            export.finish()
    except BaseException:
        if export is not None:
            export.abandon()
        raise
    if options.report is not None:
        write_report(options.report, partial(ledger_html, ledger, provenance(options)))
    if options.json:
        print_json(ledger_json(ledger, None if export is None else export.path))
    else:
        print(ledger_text(ledger))
        if export is not None:
            print(f"\nexport: {one_line(shown_name(export.path))}, {export.num_rows:,} rows")
    say_where(options)
    return 0


def _read(options: argparse.Namespace, prices: Prices, by: tuple[By, ...], export: LedgerExport | None) -> Ledger:
    progress = ProgressLine()
    try:
        return keep_ledger([Path(each) for each in options.runs], prices, by, (export,) if export else (), progress)
    finally:
        progress.done()


def _prices(options: argparse.Namespace) -> Prices:
    """What was bought.

    Raises:   RequestError
    """
    hosted = (options.hosted_input, options.hosted_output)
    if (hosted[0] is None) is not (hosted[1] is None) or (options.hosted_cached is not None and None in hosted):
        raise RequestError("a hosted price needs that of input and that of output; give both")
    return Prices(
        usd_per_hour=_optional(options.usd_per_hour, "price an hour"),
        devices=parse_count(options.devices, "number of devices"),
        hours=_optional(options.hours, "number of hours"),
        capacity_tokens_per_s=_capacity(options.capacity),
        hosted=None
        if None in hosted
        else HostedPrices(
            number(hosted[0], "hosted price of input"),
            number(hosted[1], "hosted price of output"),
            _optional(options.hosted_cached, "hosted price of cached input"),
        ),
    )


def _optional(text: str | None, what: str) -> float | None:
    return None if text is None else number(text, what)


def _capacity(text: str | None) -> float | None:
    """A rate, or that of a load run.

    Raises:   RequestError
    """
    if text is None:
        return None
    if is_run_folder(folder := Path(text)):
        found = output_tokens_per_s(folder)
        if found is None:
            raise RequestError(
                f"{shown_name(folder)} holds no result of a load with output tokens a second; give a number"
            )
        return found
    return number(text, "capacity")


def _purge(options: argparse.Namespace) -> int:
    """Delete, and say what."""
    priced = (
        "by",
        "usd_per_hour",
        "hours",
        "capacity",
        "hosted_input",
        "hosted_output",
        "hosted_cached",
        "export",
        "report",
    )
    refuse(options, priced, "purge only deletes")
    if len(options.runs) == 1:
        raise RequestError("no folder is given to purge; give the folders of content logs")
    folders = [Path(each) for each in options.runs[1:]]
    found: list[tuple[Path, Purge]] = [(folder, purge_content(folder)) for folder in folders]
    print_json(purge_json(found)) if options.json else print(purge_text(found))
    if any(purge.num_failed for _, purge in found):
        raise StorageError("some files could not be deleted; what their retention time has ended for is still there")
    return 0
