"""Where a fact comes from, and as of when: a number never travels without this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """The document a fact was read in, and the date it was read (ISO, day precision)."""

    title: str
    as_of: str

    def __str__(self) -> str:
        return f"{self.title} ({self.as_of})"
