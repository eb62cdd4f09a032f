"""Reading typed fields from untrusted JSON: each value has the right type and a possible size, or is an error.

In:   the parsed object and what to call it in messages
Out:  ints, bools and strings that can be used; a message that names the field, the value and what is allowed
Read next by: config.py, hardware.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inference_bench.errors import ModelConfigError

MAX_FIELD: Final = 1 << 40
MAX_JSON_BYTES: Final = 64 << 20
_MISSING: Final = object()


def shown(value: object) -> str:
    """A value as it may stand in a one-line message: short, printable."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_json_object(text: str, what: str) -> dict[str, Any]:
    """The JSON object in `text`; duplicate keys, NaN, and anything that is not an object are refused.

    Raises:  ModelConfigError
    """

    def refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ModelConfigError(f"{what} has the key {shown(key)} twice")
            result[key] = value
        return result

    def refuse_constant(name: str) -> Any:
        raise ModelConfigError(f"{what} holds {name}, which is not JSON")

    try:
        value = json.loads(text, object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelConfigError):
            raise
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"is not valid JSON: {error}"
        raise ModelConfigError(f"{what} {reason}".splitlines()[0]) from None
    if not isinstance(value, dict):
        raise ModelConfigError(f"{what} holds a {type(value).__name__}; an object with the model's fields is needed")
    return value


class Fields:
    """Typed access to one JSON object of a config.

    Where:  a null field counts as absent, as Hugging Face configs use it
    """

    def __init__(self, values: Mapping[str, Any], what: str) -> None:
        self.values = values
        self.what = what

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def first(self, *keys: str) -> str | None:
        """The first of several spellings that is present."""
        return next((key for key in keys if key in self), None)

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number under the first of `keys` that is present.

        Raises:  ModelConfigError when it is missing, not a whole number, or out of range
        """
        key = self.first(*keys)
        if key is None:
            if default is None:
                raise ModelConfigError(f"{self.what} has no {keys[0]}; it is needed to count this model")
            return default
        return self._whole(key, self.values[key], minimum)

    def optional_integer(self, *keys: str, minimum: int = 1) -> int | None:
        """A whole number, or None when the field is absent or null."""
        key = self.first(*keys)
        return None if key is None else self._whole(key, self.values[key], minimum)

    def boolean(self, key: str, default: bool) -> bool:
        """True or false; anything else is refused."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; true or false is needed")
        return value

    def string(self, key: str) -> str | None:
        """Text, or None when absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; text is needed")
        return value

    def strings(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; a list of texts is needed")
        return tuple(value)

    def section(self, key: str) -> Fields | None:
        """A nested object, or None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; an object is needed")
        return Fields(value, f"{self.what} {key}")

    def _whole(self, key: str, value: object, minimum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; a whole number is needed")
        if not minimum <= value <= MAX_FIELD:
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; it must lie in {minimum}..{MAX_FIELD}")
        return value
