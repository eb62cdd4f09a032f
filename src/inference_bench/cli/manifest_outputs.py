"""`manifest outputs`: what each output of a run came from and how it went, without a word of what was said."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.errors import RequestError, RunFolderError
from inference_bench.files import require_file_name, require_writable_place, shown_name, write_whole
from inference_bench.manifest.outputs import Kind, OutputProvenance, OutputRecords, output_of_entry, records_of_run
from inference_bench.measure.store import LINES_FILE
from inference_bench.operate.ledger.entry import Entry
from inference_bench.operate.ledger.lines import FILES, FileTrouble, read_lines, record_files
from inference_bench.operate.ledger.repeats import SeenRecords
from inference_bench.operate.ledger.run_folders import is_run_folder
from inference_bench.report.outputs_report import outputs_json, outputs_lines, outputs_text
from inference_bench.units import format_count

_EVERY: Final = 10_000  # records, after which progress is told


def run(options: argparse.Namespace) -> int:
    """Read, write the lines where that is asked for, and print."""
    path = Path(require_file_name(options.run, "run"))
    out = None if options.out is None else Path(require_writable_place(options.out, "file of outputs"))
    _require_another_file(path, out)
    progress = ProgressLine()
    try:
        progress(f"reading {path.name}")
        found = records_of_run(path) if is_run_folder(path) else _of_recorders(path, progress)
    finally:
        progress.done()
    if out is not None:
        write_whole(out, outputs_lines(found))
    if options.json:
        print_json(outputs_json(found, options.run, out))
    else:
        print(outputs_text(found, options.run, out))
    return 0


def _require_another_file(path: Path, out: Path | None) -> None:
    """Refuse to write over what is read: any file of the place but lines of outputs that were written there before.

    Raises:   RequestError
    """
    if out is None or not out.exists():
        return
    is_inside = path.is_dir() and out.resolve().is_relative_to(path.resolve())
    is_theirs = is_inside and (out.suffix != ".jsonl" or out.name == LINES_FILE)
    if is_theirs or any(out.samefile(each) for each in record_files(path) if each.exists()):
        raise RequestError(f"{shown_name(out)} is a file of what is read; write the outputs to another")


def _of_recorders(path: Path, progress: Callable[[str], None]) -> OutputRecords:
    """What recorders wrote down.

    Raises:   RunFolderError for a place that is neither theirs nor a run's
    """
    if not path.exists():
        raise RunFolderError(
            f"{shown_name(path)} is not there; give a run folder, or the folder that a recorder writes to"
        )
    trouble = FileTrouble()
    outputs = tuple(_counted(read_lines(path, SeenRecords(), trouble), progress))
    if not trouble.num_files or (trouble.num_broken and not outputs and not trouble.num_lost):
        raise RunFolderError(
            f"{shown_name(path)} holds no outputs: neither the meta.json of a run nor records in {FILES}; give a run folder, the "
            "folder that a recorder writes to, or one of its files"
        )
    digests = {each.manifest_sha256 for each in outputs if each.answered_by is not None}
    digest = digests.pop() if len(digests) == 1 else None
    return OutputRecords(Kind.RECORDS, outputs, digest, tuple(_trouble_words(trouble)))


def _counted(entries: Iterator[Entry], progress: Callable[[str], None]) -> Iterator[OutputProvenance]:
    for number, entry in enumerate(entries, start=1):
        yield output_of_entry(entry)
        if number % _EVERY == 0:
            progress(f"{format_count(number)} records read")


def _trouble_words(trouble: FileTrouble) -> Iterator[str]:
    for count, words in (
        (trouble.num_torn, "lines that were cut off when they were written, and are left out"),
        (trouble.num_broken, f"lines that are no records, and are left out, first {trouble.first_broken}"),
        (trouble.num_lost, "records that were lost when they should have been written, as their files say"),
        (trouble.num_again, "lines that stand there twice, and count once"),
    ):
        if count:
            yield f"{words}: {format_count(count)}"
