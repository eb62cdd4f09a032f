"""Finding one thing by the name a person typed, and saying what is near when there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from inference_bench.errors import UnknownNameError

T = TypeVar("T")


def fold_name(name: str) -> str:
    """A name without case, spaces and punctuation: "RTX 4090" and "rtx-4090" are one machine."""
    return "".join(character for character in name.casefold() if character.isalnum())


def find_name(kind: str, name: str, table: Mapping[str, T], aliases: Mapping[str, str]) -> T:
    """The entry called `name`, by its own name or an alias.

    Raises:  UnknownNameError, with the nearest names and how many there are
    """
    folded = {fold_name(known): known for known in table}
    folded |= {fold_name(alias): known for alias, known in aliases.items() if known in table}
    wanted = fold_name(name)
    if wanted in folded:
        return table[folded[wanted]]
    raise UnknownNameError(f"no {kind} is called {name[:80]!r}; {_nearest(wanted, folded)}")


def _nearest(wanted: str, folded: Mapping[str, str]) -> str:
    import difflib

    close = [folded[match] for match in difflib.get_close_matches(wanted, folded, n=5, cutoff=0.5)]
    close += [known for key, known in folded.items() if len(wanted) > 2 and wanted in key]
    names = list(dict.fromkeys(close))[:5] or sorted(set(folded.values()))[:5]
    lead = "nearest" if close else f"{len(set(folded.values()))} are known, for example"
    return f"{lead}: {', '.join(names)}"
