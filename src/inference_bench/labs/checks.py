"""What has to hold for a lab's figures to mean anything, and whether it did.

In:   what was found, and what is allowed
Out:  Check
Read next by: every lab, report, cli.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold: in words, with what was found and what is allowed, each with its unit."""

    name: str
    is_met: bool
    found: str
    allowed: str


def missed(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks that did not hold."""
    return tuple(check for check in checks if not check.is_met)
