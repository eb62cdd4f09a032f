"""The published schema of `verify --json`, and the same with no room for a key that it does not name."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "verify.schema.json"


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(found)
    return found


def closed(value: Any) -> Any:
    """The schema with every object that names its keys holding no others."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    shut = {key: closed(item) for key, item in value.items()}
    if isinstance(value.get("properties"), dict) and value.get("type") == "object":
        shut.setdefault("additionalProperties", False)
    return shut


def complaints(found: Any) -> list[str]:
    """What is wrong with a result, each with its place; nothing of one that is whole and documented."""
    errors = Draft202012Validator(closed(schema())).iter_errors(found)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]
