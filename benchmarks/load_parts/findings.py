"""A target, what was found, whether it was met; and what a benchmark has at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the verdict; is_met is None where it could not be measured here."""

    what: str
    target: str
    found: str
    is_met: bool | None

    @property
    def line(self) -> str:
        mark = {True: "met", False: "NOT MET", None: "not measured"}[self.is_met]
        return f"  {self.what}: {self.found}; target {self.target}: {mark}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is run."""

    runs: int = 20
    rounds: int = 3
    peers: tuple[str, ...] = ()  # none: every one that is here
    niceness: int = 0  # of this client, beside hogs and without


def at_most(what: str, found: float, most: float, unit: str) -> Finding:
    return Finding(what, f"at most {most:g} {unit}", f"{found:.3g} {unit}", found <= most)


def at_least(what: str, found: float, least: float, unit: str) -> Finding:
    return Finding(what, f"at least {least:g} {unit}", f"{found:.3g} {unit}", found >= least)


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
