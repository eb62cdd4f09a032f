"""Reading typed fields from untrusted JSON: each value has the right type and a possible size, or is an error.

In:   the parsed object and what to call it in messages
Out:  ints, bools and strings that can be used; a message that names the field, the value and what is allowed
Read next by: config.py, hardware.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inference_bench.errors import ModelConfigError

MAX_FIELD: Final = 1 << 40
MAX_DEPTH: Final = 200  # of arrays and objects within one another; a parser that recurses deeper may not survive it
MAX_JSON_BYTES: Final = 4 << 20  # what hostile JSON of this size grows to in memory stays below 100 MB


def shown(value: object) -> str:
    """A value as it may stand in a one-line message: short, printable."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_json_object(text: str, what: str) -> dict[str, Any]:
    """The JSON object in `text`; duplicate keys, NaN, and anything that is not an object are refused.

    Where:  Infinity is let through, as released state-space configs hold it in fields that are not counted

    Raises:  ModelConfigError
    """

    def refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ModelConfigError(f"{what} has the key {shown(key)} twice")
            result[key] = value
        return result

    def infinity_only(name: str) -> float:
        """Python writes an unlimited time step as Infinity; whoever asks for a number refuses it there."""
        if name == "NaN":
            raise ModelConfigError(f"{what} holds NaN, which is not a number")
        return float(name)

    if _is_too_deep(text):
        raise ModelConfigError(f"{what} is nested too deeply: more than {MAX_DEPTH} arrays and objects in one another")
    try:
        value = json.loads(text, object_pairs_hook=refuse_duplicates, parse_constant=infinity_only)
    except ModelConfigError:
        raise
    except ValueError as error:
        raise ModelConfigError(f"{what} is not valid JSON: {error}".splitlines()[0]) from None
    if not isinstance(value, dict):
        raise ModelConfigError(f"{what} holds a {type(value).__name__}; an object with the model's fields is needed")
    return value


_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NESTING: Final = re.compile(r"[\[{\]}]")


def _is_too_deep(text: str) -> bool:
    """Whether arrays and objects stand more than MAX_DEPTH deep in one another."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for mark in _NESTING.findall(_TEXT.sub("", text)):
        depth += 1 if mark in "[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False


class Fields:
    """Typed access to one JSON object of a config.

    Where:  a null field counts as absent, as Hugging Face configs use it; `used` are the fields that were asked for,
            so that a field nobody understands can be told from one that was read
    """

    def __init__(self, values: Mapping[str, Any], what: str) -> None:
        self.values = values
        self.what = what
        self.used: set[str] = set()

    def __contains__(self, key: str) -> bool:
        self.used.add(key)
        return self.values.get(key) is not None

    def mark(self, *keys: str) -> None:
        """Fields that are understood without being read: they change neither a count nor a byte here."""
        self.used.update(keys)

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
        self.used.add(key)
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; true or false is needed")
        return value

    def string(self, key: str) -> str | None:
        """Text, or None when absent."""
        self.used.add(key)
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; text is needed")
        return value

    def strings(self, key: str) -> tuple[str, ...] | None:
        """A list of texts, or None when absent."""
        self.used.add(key)
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; a list of texts is needed")
        return tuple(value)

    def integers(self, key: str, minimum: int = 0) -> tuple[int, ...] | None:
        """A list of whole numbers, or None when absent."""
        self.used.add(key)
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; a list of whole numbers is needed")
        return tuple(self._whole(key, item, minimum) for item in value)

    def per_layer(self, key: str, num_layers: int) -> tuple[str, ...] | None:
        """One text for each layer, or None when absent.

        Raises:  ModelConfigError when there are more or fewer than layers
        """
        kinds = self.strings(key)
        if kinds is not None and len(kinds) != num_layers:
            raise ModelConfigError(f"{self.what}: {key} has {len(kinds)} entries for num_hidden_layers {num_layers}")
        return kinds

    def refuse(self, reason: str) -> ModelConfigError:
        """The error that says why this config cannot be counted."""
        return ModelConfigError(f"{self.what}: {reason}")

    def section(self, key: str) -> Fields | None:
        """A nested object, or None when absent."""
        self.used.add(key)
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; an object is needed")
        return Fields(value, f"{self.what} {key}")

    def count(self, value: object, what: str) -> int:
        """A whole number inside another structure."""
        return self._whole(what, value, 0)

    def _whole(self, key: str, value: object, minimum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; a whole number is needed")
        if not minimum <= value <= MAX_FIELD:
            raise ModelConfigError(f"{self.what}: {key} is {shown(value)}; it must lie in {minimum}..{MAX_FIELD}")
        return value
