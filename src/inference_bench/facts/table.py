"""Reading the packaged tables: one JSON object a line, keyed by its name.

In:   the name of a table, and what a person typed
Out:  all rows, or the one that is meant
Leaves out: what a row means (see load, hardware)
Read next by: load, hardware.

A line begins with `name`, for models `id`, and `aliases`, so that one row is found without parsing the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from inference_bench.facts.names import find_name, fold_name

_PUNCTUATION: Final = {ord(character): None for character in " !#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}  # all but the quote


@cache
def _lines(file_name: str) -> tuple[str, ...]:
    text = (Path(__file__).with_name("data") / file_name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line.strip())


def read(file_name: str) -> Mapping[str, Mapping[str, Any]]:
    """The rows of a packaged table by their `name`, in file order."""
    rows = [json.loads(line) for line in _lines(file_name)]
    return {row["name"]: row for row in rows}


def find(file_name: str, kind: str, name: str) -> Mapping[str, Any]:
    """The row that goes by a name, an id or an alias; only that row is parsed.

    Raises:  UnknownNameError, with the nearest names
    """
    wanted = fold_name(name)
    quoted = f'"{wanted}"'
    for line in _lines(file_name):
        head = line[: line.index("]") + 1]
        if quoted in head.casefold().translate(_PUNCTUATION) and wanted in map(fold_name, _names(head)):
            found: Mapping[str, Any] = json.loads(line)
            return found
    return _look_among_all(file_name, kind, name)


def _names(head: str) -> tuple[str, ...]:
    """The name, the aliases and the id, where there is one, that the beginning of a line holds."""
    known = json.loads(head + "}")
    return (known["name"], *known["aliases"], known.get("id", known["name"]))


def _look_among_all(file_name: str, kind: str, name: str) -> Mapping[str, Any]:
    """The row by folding every name there is, which also knows the nearest ones of a name that is not there."""
    lines: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for line in _lines(file_name):
        known, *others = _names(line[: line.index("]") + 1])
        lines[known] = line
        aliases |= dict.fromkeys(others, known)
    row: Mapping[str, Any] = json.loads(find_name(kind, name, lines, aliases))
    return row
