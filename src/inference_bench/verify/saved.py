"""Keeping a finished verification beside its raw samples, and finding it again.

In:   the JSON and the HTML of a result, and its run folder
Out:  result.json, report.html and report.txt there; the JSON and the text back
Leaves out: the raw samples, which were written while they were measured
Read next by: cli.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RunFolderError
from inference_bench.files import shown_name, write_whole
from inference_bench.measure.store import read_json_object
from inference_bench.units import MEBI

RESULT_FILE: Final = "result.json"
REPORT_FILE: Final = "report.html"
TEXT_FILE: Final = "report.txt"

_MAX_TEXT_BYTES: Final = 16 * MEBI


def save_page(run_dir: Path, page: str) -> Path:
    """Write the page beside the JSON, whole or not at all; returns its path.

    Raises:  StorageError
    """
    write_whole(run_dir / REPORT_FILE, page)
    return run_dir / REPORT_FILE


def save_json(run_dir: Path, result: Mapping[str, Any]) -> None:
    """Write a run's result, whole or not at all.

    Raises:  StorageError
    """
    write_whole(run_dir / RESULT_FILE, json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def save_text(run_dir: Path, text: str) -> None:
    """Write what was printed of a run, whole or not at all.

    Raises:  StorageError
    """
    write_whole(run_dir / TEXT_FILE, text + "\n")


def read_text(run_dir: Path) -> str | None:
    """What was printed of a run; None where that is not there, or is no text of ours."""
    path = run_dir / TEXT_FILE
    if not path.is_file() or path.stat().st_size > _MAX_TEXT_BYTES:
        return None
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, ValueError):
        return None


def holds_result(run_dir: Path) -> bool:
    """Whether something lies where a finished run's JSON does, be it what it may: reading says what is wrong with it.

    Raises:  RunFolderError for a folder that cannot be looked at
    """
    path = run_dir / RESULT_FILE
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise RunFolderError(f"{shown_name(run_dir)} cannot be read as a run folder: {said}") from None
    return True


def read_result(run_dir: Path) -> dict[str, Any]:
    """The JSON of a finished run.

    Raises:  RunFolderError when the folder holds none
    """
    return read_json_object(run_dir / RESULT_FILE)
