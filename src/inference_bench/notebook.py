"""How does a finished run look in a notebook? Its whole page inside a cell, apart from everything else on it.

In:   a VerifyResult, the result of any lab, or the folder of a finished run of `verify` or `load`
Out:  an object with `_repr_html_`, as Jupyter, marimo and VS Code ask for, and the text of a terminal
Leaves out: what the page says (report), measuring (verify)
Read next by: whoever works in a notebook.

The page is the `srcdoc` of a sandboxed frame under a policy of this module's own: whoever wrote the page, it can run nothing and
load nothing, its style touches nothing outside, and the notebook's own touches nothing inside.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError, RunFolderError
from inference_bench.files import require_file_name, shown_name
from inference_bench.labs.head import LabHead
from inference_bench.render import svg_or_none
from inference_bench.report.html_pieces import POLICY
from inference_bench.report.lab_page import LabPage, lab_html, lab_text, repeated
from inference_bench.report.saved_load import saved_load, saved_text
from inference_bench.report.text import printable, wrap
from inference_bench.report.text_result import verify_text
from inference_bench.report.verify_html import verify_html
from inference_bench.units import MEBI
from inference_bench.verify.result import VerifyResult
from inference_bench.verify.saved import REPORT_FILE, holds_result, read_result, read_text

_HEIGHT_PX: Final = 720
_LEAST_PX, _MOST_PX = 100, 20_000
_MOST_PAGE_BYTES: Final = 64 * MEBI
# before anything of the page: a browser keeps to every policy that it meets, so that none of the page's own loosens this one
_GUARD: Final = f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{POLICY}">'


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as a cell shows it.

    Where:  page is the whole document, None where the run has none; then the cell shows the text
    """

    title: str
    text: str
    page: str | None
    height_px: int = _HEIGHT_PX

    def _repr_html_(self) -> str:
        """The page in a frame of its own, without scripts and without any connection."""
        if self.page is None:
            return f"<pre>{html.escape(self.text)}</pre>"
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="" srcdoc="{html.escape(_GUARD + _linked(self.page))}" '
            f'style="width:100%;height:{self.height_px}px;border:0"></iframe>'
        )

    def __repr__(self) -> str:
        return self.text


def show(run: Any, height_px: int = _HEIGHT_PX) -> Shown:
    """A finished run for the last line of a notebook cell.

    Where:   run is what verify_server or a lab gave, or the folder of a run
    Raises:  RunFolderError for a folder that holds no run; RequestError for what names no run, and a height that no cell has
    """
    _require_height(height_px)
    if isinstance(run, VerifyResult):
        title = printable(f"{run.model.spec.name} on {run.machine.name}")
        return Shown(title, verify_text(run), verify_html(run, svg_or_none()), height_px)
    if isinstance(head := getattr(run, "head", None), LabHead):
        return _lab(run, head, height_px)
    folder = _folder(run)
    return Shown(printable(f"run {folder.name}"), _text(folder), _page(folder), height_px)


def _lab(result: object, head: LabHead, height_px: int) -> Shown:
    """A lab's result: its page, and its text."""
    page: LabPage = import_module(f"inference_bench.report.lab_{head.lab}").lab_page(result)
    return Shown(printable(f"lab {head.lab}"), lab_text(page), lab_html(page, repeated(head), svg_or_none()), height_px)


def _require_height(height_px: object) -> None:
    is_number = isinstance(height_px, int) and not isinstance(height_px, bool)
    if not is_number or not _LEAST_PX <= height_px <= _MOST_PX:  # type: ignore[operator]
        raise RequestError(
            f"a height of {shown_name(repr(height_px))} pixels is asked for; it must be a whole number from {_LEAST_PX} to {_MOST_PX}"
        )


def _folder(run: object) -> Path:
    """The folder that was named.

    Raises:  RequestError, RunFolderError
    """
    try:
        named = os.fspath(run)  # type: ignore[call-overload]
    except TypeError:
        named = None
    if not isinstance(named, str) or "\0" in named:
        raise RequestError(
            f"a run is what verify_server or a lab gave, or the path of a run folder; this is a {type(run).__name__}: "
            f"{shown_name(printable(repr(run)))}"
        )
    require_file_name(named, "run folder")
    if not Path(named).is_dir():
        raise RunFolderError(f"there is no run folder {printable(shown_name(named))!r}")
    return Path(named)


def _text(folder: Path) -> str:
    """What was printed of the run; of one without that, what its result or its raw samples say."""
    if (text := read_text(folder)) is not None:
        return "\n".join(map(printable, text.split("\n")))
    if holds_result(folder) and (said := _reading(read_result(folder))):
        return said
    return saved_text(saved_load(folder), False)


def _reading(result: Mapping[str, Any]) -> str:
    lines = result.get("reading")
    return "\n".join(wrap(printable(str(line))) for line in (lines if isinstance(lines, list) else ()))


def _page(folder: Path) -> str | None:
    """The page that the run left; None without one.

    Raises:  RunFolderError for a file that cannot be a page of ours
    """
    path = folder / REPORT_FILE
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise RunFolderError(
                f"{printable(path.name)} in {printable(folder.name)} is a link that leads out of the folder; a run's own page is needed"
            )
        if not path.is_file():
            return None
        if path.stat().st_size > _MOST_PAGE_BYTES:
            raise RunFolderError(f"{printable(path.name)} in {printable(folder.name)} is too large to be a report")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{printable(path.name)} in {printable(folder.name)} cannot be read: {error}") from None


def _linked(page: str) -> str:
    """The page with links to its own sections: inside a frame they would lead to the notebook instead."""
    return page.replace('href="#', 'href="about:srcdoc#')
