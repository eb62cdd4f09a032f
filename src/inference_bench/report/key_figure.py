"""What is a figure that answers a question by itself?

In:   texts that `units` wrote
Out:  KeyFigure
Read next by: key_figures, html_pieces, and every module here that chooses some.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One figure with its name and where it comes from.

    Where:  beside is what it should be read with, in a few words, and detail says the rest; fraction is its share of a
            ceiling, None for a figure without one
    """

    name: str
    value: str
    unit: str
    origin: str
    beside: str
    detail: str
    fraction: float | None = None
    is_finding: bool = False
