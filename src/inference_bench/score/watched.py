"""Saying how far a long pass over many rows is.

In:   rows, and what shows a line to whoever waits
Out:  the same rows
Read next by: flow, calibrated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from inference_bench.units import format_count

Progress = Callable[[str], None]
T = TypeVar("T")
EVERY: Final = 20_000  # rows, each of which takes about a tenth of a millisecond


def silent(_: str) -> None:
    """Show nothing."""


def watched(rows: Iterable[T], what: str, progress: Progress) -> Iterator[T]:
    """The rows, with a line now and then that says how many were passed."""
    for number, row in enumerate(rows):
        if number and number % EVERY == 0:
            progress(f"{what} {format_count(number)} rows")
        yield row
