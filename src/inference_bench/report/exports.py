"""A run's raw samples for other programs: which forms there are, and the file that each becomes.

In:   the records of a run folder and what its meta says
Out:  one file: CSV, Parquet, or the result file of another tool
Leaves out: text that was sent or generated, which no record holds: other tools' fields for it are empty
Read next by: cli.

In order: `exports_rows` (CSV and Parquet), `exports_vllm`, `exports_guidellm` (with `exports_guidellm_request`, one
request, and `exports_summary`, its statistics).
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import MissingExtraError, RequestError, StorageError
from inference_bench.files import shown_name, write_whole
from inference_bench.report.exports_guidellm import guidellm_json
from inference_bench.report.exports_rows import chunks_csv, requests_columns, requests_csv
from inference_bench.report.exports_run import ExportedRun
from inference_bench.report.exports_vllm import vllm_json


def _vllm_text(run: ExportedRun) -> str:
    """One object a line, one for each part of the run, as `vllm bench serve` appends them."""
    lines = [json.dumps(part, allow_nan=False) for part in vllm_json(run)]
    return "\n".join(lines) + "\n"


def _guidellm_text(run: ExportedRun) -> str:
    return json.dumps(guidellm_json(run), allow_nan=False) + "\n"


# how a person names a form → the file's usual name and what makes its text; Parquet is not text
_TEXTS: Final[Mapping[str, tuple[str, Callable[[ExportedRun], str]]]] = {
    "csv": ("requests.csv", lambda run: requests_csv(run.records)),
    "csv-chunks": ("chunks.csv", lambda run: chunks_csv(run.records)),
    "vllm": ("vllm.json", _vllm_text),
    "guidellm": ("guidellm.json", _guidellm_text),
}
_PARQUET: Final = "parquet"
EXPORT_FORMS: Final = (*_TEXTS, _PARQUET)


def write_export(run: ExportedRun, form: str, out: Path | None = None) -> Path:
    """Write one form of a run, whole or not at all; into its folder where no file is named.

    Raises:   RequestError for a form that is not known, MissingExtraError for Parquet without its package,
              TooFewSamplesError where another tool's file needs a measured request, StorageError
    """
    if form == _PARQUET:
        path = out or run.path / "requests.parquet"
        _write_parquet(requests_columns(run.records), path)
        return path
    if form not in _TEXTS:
        raise RequestError(f"no export is called {form[:40]!r}; write one of {', '.join(EXPORT_FORMS)}")
    name, text_of = _TEXTS[form]
    path = out or run.path / name
    write_whole(path, text_of(run))
    return path


def _write_parquet(columns: Mapping[str, list[Any]], path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError(
            "Parquet needs the package pyarrow; install it with: pip install 'inference-bench[parquet]'"
        ) from None
    types = {"float": pa.float64(), "int": pa.int64(), "str": pa.string(), "bool": pa.bool_()}
    types |= {"floats": pa.list_(pa.float64()), "ints": pa.list_(pa.int64())}
    arrays = {name: pa.array(values, types[kind]) for (name, kind), values in _typed(columns).items()}
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise RequestError(f"{shown_name(path)} is not a regular file; give the path of one")
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name[:40]}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        pq.write_table(pa.table(arrays), temporary)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StorageError(f"could not write {shown_name(path)}: {reason.lower()}") from None


def _typed(columns: Mapping[str, list[Any]]) -> dict[tuple[str, str], list[Any]]:
    """Columns by (name, kind), as `exports_rows` names them: `name:kind`."""
    return {(name.partition(":")[0], name.partition(":")[2]): values for name, values in columns.items()}
