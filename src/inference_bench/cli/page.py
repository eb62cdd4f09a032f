"""`page build` and `page serve`: the calculator in a browser."""

from __future__ import annotations

import argparse
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.errors import RequestError
from inference_bench.files import shown_name
from inference_bench.page.build import MANIFEST, BuiltPage, build_page
from inference_bench.page.serve import serve_page
from inference_bench.units import format_bytes, parse_count

_MAX_PORT: Final = 65_535
_LOOK_S: Final = 0.5


def run(options: argparse.Namespace) -> int:
    """Build the page, or serve it."""
    return _build_it(options) if options.page_command == "build" else _serve_it(options)


def _build_it(options: argparse.Namespace) -> int:
    built = _build(Path(options.out))
    if options.json:
        print_json(
            {
                "schema": "inference-bench/page-build/1",
                "folder": str(built.folder),
                "files": built.num_files,
                "bytes": built.num_bytes,
                "transfer_bytes": built.transfer_bytes,
            }
        )
    else:
        print(_said(built))
    return 0


def _serve_it(options: argparse.Namespace) -> int:
    port = parse_count(options.port, "port")
    if port > _MAX_PORT:
        raise RequestError(f"port is {port}; at most {_MAX_PORT} is possible, 0 takes a free one")
    folder = Path(options.out)
    if not (folder / MANIFEST).is_file():
        _build(folder)
    with suppress(KeyboardInterrupt), serve_page(folder, port) as address:
        if options.json:
            print_json({"schema": "inference-bench/page-serve/1", "address": address, "folder": str(folder)})
        else:
            print(f"the page is at {address} (Ctrl-C ends it)")
        sys.stdout.flush()
        while not threading.Event().wait(_LOOK_S):  # an endless wait may miss the signal that ends it
            pass
    return 0


def _build(folder: Path) -> BuiltPage:
    progress = ProgressLine()
    try:
        return build_page(folder, progress)
    finally:
        progress.done()


def _said(built: BuiltPage) -> str:
    return (
        f"{built.num_files} files, {format_bytes(built.num_bytes)}, in {shown_name(built.folder)}: put the folder on any static "
        f"host, under any path. A first visit loads {format_bytes(built.transfer_bytes)} where the host compresses."
    )
