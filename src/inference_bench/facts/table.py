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
from typing import Any

from inference_bench.facts.names import find_name


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
    lines: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for line in _lines(file_name):
        head = json.loads(line[: line.index("]") + 1] + "}")
        known = head["name"]
        lines[known] = line
        aliases |= dict.fromkeys((*head["aliases"], head.get("id", known)), known)
    row: Mapping[str, Any] = json.loads(find_name(kind, name, lines, aliases))
    return row
