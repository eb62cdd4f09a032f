"""One drawing outside a report: a picture that stands alone, or the smallest page around it.

In:   a drawing that render made for a page, and the specification it shows
Out:  SVG with its own size, paper and font, in the light colours; HTML that follows the reader's theme
Leaves out: drawing (render) and writing files (cli)
Read next by: cli.
"""

from __future__ import annotations

import html
import re
from typing import Final

from inference_bench.charts import PALETTE, Spec
from inference_bench.report.text import printable

_FONT: Final = "sans-serif"
_VARIABLE: Final = re.compile(r"var\(--\w+, (#[0-9a-f]{6})\)")


def _theme(index: int) -> str:
    return "".join(f"--{role}:{colours[index]};" for role, colours in PALETTE.items())


def picture_svg(spec: Spec, drawing: str) -> str:
    """The drawing as a file: any viewer shows it, so its colours are written out and its paper is part of it."""
    width, height = _size(spec)
    paper = f'<rect width="{width}" height="{height}" fill="{PALETTE["paper"][0]}" />'
    head, rest = _VARIABLE.sub(r"\1", drawing).split(">", 1)
    return f'{head} width="{width}" height="{height}" font-family="{_FONT}">{paper}{rest}\n'


def picture_page(spec: Spec, drawing: str) -> str:
    """The drawing in a page of its own, light or dark as the reader's system is."""
    title = html.escape(printable(str(spec.get("description", "chart"))))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n'
        f":root {{ color-scheme: light dark; {_theme(0)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_theme(1)} }} }}\n"
        f"body {{ margin: 1rem auto; max-width: {_size(spec)[0]}px; background: var(--paper); font-family: {_FONT}; }}\n"
        "svg { width: 100%; height: auto; }\n"
        f"</style></head><body>{drawing}</body></html>\n"
    )


def _size(spec: Spec) -> tuple[int, int]:
    """Outer width and height."""
    padding = spec["padding"]
    return (
        spec["width"] + padding["left"] + padding["right"],
        spec["height"] + padding["top"] + padding["bottom"],
    )
