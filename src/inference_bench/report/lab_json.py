"""A lab's result as JSON: its own fields by their own names, which hold the units.

In:   the result of any lab
Out:  a dict ready for JSON
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any


def lab_json(lab: str, result: Any) -> dict[str, Any]:
    """The stable keys of `lab NAME --json`: the fields of the result's type, as docs/json.md lists them."""
    return {"schema": f"inference-bench/lab-{lab}/1", **_plain(result)}


def _plain(value: Any) -> Any:
    """Plain values; a number that is not finite is null, since no figure is that."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
