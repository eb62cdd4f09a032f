"""Reading the packaged tables: one JSON object a line, keyed by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def read(file_name: str) -> Mapping[str, Mapping[str, Any]]:
    """The rows of a packaged table by their `name`, in file order."""
    text = (files("inference_bench.facts.data") / file_name).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {row["name"]: row for row in rows}
