"""`report RUN`: look again at a run folder, or write its raw samples for another program."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inference_bench.cli.output import print_json
from inference_bench.errors import RequestError
from inference_bench.files import require_output_place
from inference_bench.report.exports import write_export
from inference_bench.report.exports_run import exported_run
from inference_bench.report.proof_report import DEFINITIONS_TITLE
from inference_bench.report.saved_load import saved_definitions, saved_json, saved_load, saved_text
from inference_bench.report.text import printable, wrap
from inference_bench.verify.saved import REPORT_FILE, holds_result, read_result, read_text

_VERIFY: Final = "inference-bench/verify/"
_INTERRUPTED: Final = "this run was interrupted: this is what was measured by then"


def run(options: argparse.Namespace) -> int:
    """A finished run prints its result; one that was cut short prints what its raw samples say."""
    folder = Path(options.run)
    if options.export is not None:
        return _export(options, folder)
    if options.out is not None:
        raise RequestError("a file to export to is given, and no form; say which, such as csv")
    if holds_result(folder):
        result = read_result(folder)
        if options.json:
            print_json(result)
            return 0
        if str(result.get("schema")).startswith(_VERIFY):
            print(_verified(result, folder))
            return 0
        if (text := read_text(folder)) is not None:
            print(_printed(text, result, folder, options.definitions))
            return 0
    saved = saved_load(folder)
    if options.json:
        print_json(saved_json(saved))
    else:
        print("\n".join([saved_text(saved, options.definitions), *_page_line(folder)]))
    return 0


def _export(options: argparse.Namespace, folder: Path) -> int:
    out = None if options.out is None else Path(require_output_place(options.out, "file to export to"))
    written = write_export(exported_run(folder), options.export, out)
    if options.json:
        print_json({"schema": "inference-bench/export/1", "form": options.export, "path": str(written)})
    else:
        print(f"{options.export}: {written}")
    return 0


def _verified(result: Mapping[str, Any], folder: Path) -> str:
    """What `verify` printed, and where its page is; of a folder without that text, the reading of its points."""
    text, reading = read_text(folder), result.get("reading")
    lines = text.split("\n") if text is not None else list(map(str, reading if isinstance(reading, list) else ()))
    page = _page_line(folder)
    return "\n".join(
        [
            *(wrap(printable(line)) if text is None else printable(line) for line in lines),
            *(["", *page] if page else []),
        ]
    )


def _printed(text: str, result: Mapping[str, Any], folder: Path, with_definitions: bool) -> str:
    """What `load` printed when the run had ended, and on demand what other tools would have printed of it."""
    blocks = ["\n".join(map(printable, text.split("\n")))]
    if result.get("is_interrupted") is True:
        blocks.insert(0, _INTERRUPTED)
    if with_definitions and DEFINITIONS_TITLE not in text:
        blocks.append(saved_definitions(saved_load(folder)))
    return "\n".join(["\n\n".join(blocks), *_page_line(folder)])


def _page_line(folder: Path) -> list[str]:
    page = folder / REPORT_FILE
    return [f"report: {page}"] if page.is_file() else []
