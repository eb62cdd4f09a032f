"""A chart as a file of its own: a picture, a page in the reader's theme, or the specification itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from inference_bench.charts import Spec
from inference_bench.errors import RequestError
from inference_bench.files import require_output_place, require_writable_name, shown_name, write_whole

KINDS: Final = (".svg", ".html", ".json")


def write_chart(spec: Spec | None, file: str, nothing: str = "no rate of this machine is known") -> None:
    """Write the chart as what the file's name says it is.

    Raises:  RequestError for another name or nothing to draw, MissingExtraError where drawing needs a package, StorageError
    """
    _require_chart_name(file)
    if spec is None:
        raise RequestError(f"there is nothing to draw: {nothing}")
    path = Path(file)
    write_whole(path, _text(spec, path.suffix))


def require_chart_file(file: str) -> None:
    """A name that says what to write, where it can be written; asked before anything that takes long.

    Raises:  RequestError
    """
    _require_chart_name(file)
    require_output_place(file, "chart file")


def _require_chart_name(file: str) -> None:
    if Path(file).suffix not in KINDS or file.endswith(("/", os.sep)):
        raise RequestError(f"chart file {shown_name(file)!r} is of no known kind; end it in one of {', '.join(KINDS)}")
    require_writable_name(file, "chart file")


def _text(spec: Spec, kind: str) -> str:
    if kind == ".json":
        return json.dumps(spec, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    from inference_bench.render import svg
    from inference_bench.report.picture import picture_page, picture_svg

    return picture_page(spec, svg(spec)) if kind == ".html" else picture_svg(spec, svg(spec))
