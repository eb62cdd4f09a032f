"""Keeping a finished verification beside its raw samples, and finding it again.

In:   the JSON and the HTML of a result, and its run folder
Out:  result.json and report.html there; the JSON back
Leaves out: the raw samples, which were written while they were measured
Read next by: cli.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RunFolderError, StorageError

RESULT_FILE: Final = "result.json"
REPORT_FILE: Final = "report.html"


def save_result(run_dir: Path, result: Mapping[str, Any], page: str) -> Path:
    """Write both files, each whole or not at all; returns the page's path.

    Raises:  StorageError
    """
    _write_whole(run_dir / RESULT_FILE, json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    _write_whole(run_dir / REPORT_FILE, page)
    return run_dir / REPORT_FILE


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StorageError(f"could not write {path}: {(error.strerror or type(error).__name__).lower()}") from None


def read_result(run_dir: Path) -> dict[str, Any]:
    """The JSON of a finished run.

    Raises:  RunFolderError when the folder holds none
    """
    path = run_dir / RESULT_FILE
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise RunFolderError(f"{run_dir} holds no finished run: {RESULT_FILE}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise RunFolderError(f"{path} is not JSON") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{path} is not a JSON object")
    return value
