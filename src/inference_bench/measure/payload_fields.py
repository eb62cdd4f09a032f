"""What does one field of a payload hold: read strictly, so that a server's mistake is said and never guessed at.

In:   JSON from a server
Out:  objects, lists, texts, counts and times, absent ones as the empty value of their kind or None
Read next by: openai_stream, native_payloads.

Every function raises StreamError, which names the field and what it must be, and does not repeat text.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from inference_bench.errors import StreamError
from inference_bench.measure.stream_events import MAX_COUNT
from inference_bench.records import ServerTimings
from inference_bench.units import KILO, MEBI


def parse_json(text: str | bytes) -> object:
    """JSON from a server, strictly: no NaN, no infinity, no nesting without end.

    Raises:   StreamError
    """
    try:
        return strict_json(text)
    except (ValueError, RecursionError):
        raise StreamError(f"the server sent {len(text)} characters that are not JSON") from None


def as_object(value: object, what: str) -> dict[str, object]:
    """A value that must be an object."""
    return value if isinstance(value, dict) else _refuse(what, "an object", value)


def object_field(fields: dict[str, object], name: str) -> dict[str, object] | None:
    """A field that must be an object; None where there is none."""
    value = fields.get(name)
    return None if value is None else as_object(value, name)


def list_field(fields: dict[str, object], name: str) -> list[object]:
    """A field that must be a list; empty where there is none."""
    value = fields.get(name)
    if value is None:
        return []
    return value if isinstance(value, list) else _refuse(name, "a list", value)


def text_field(fields: dict[str, object], name: str) -> str:
    """A field that must be text; empty where there is none."""
    value = fields.get(name)
    if value is None:
        return ""
    return value if isinstance(value, str) else _refuse(name, "text", value)


def flag_field(fields: dict[str, object], name: str) -> bool:
    """A field that must be true or false; false where there is none."""
    value = fields.get(name)
    if value is None:
        return False
    return value if isinstance(value, bool) else _refuse(name, "true or false", value)


def count_field(fields: dict[str, object], name: str) -> int | None:
    """A field that must be a whole number of things."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return _refuse(name, "a plausible count", value)


def timings_field(fields: dict[str, object]) -> ServerTimings | None:
    """llama.cpp's `timings`, which its own route and its OpenAI routes have alike."""
    timings = object_field(fields, "timings")
    if timings is None:
        return None
    return ServerTimings(
        prompt_tokens=count_field(timings, "prompt_n"),
        cached_prompt_tokens=count_field(timings, "cache_n"),
        prefill_s=_milliseconds_field(timings, "prompt_ms"),
        output_tokens=count_field(timings, "predicted_n"),
        decode_s=_milliseconds_field(timings, "predicted_ms"),
    )


def _milliseconds_field(fields: dict[str, object], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value / KILO
    return _refuse(name, "a plausible number of milliseconds", value)


def _refuse(what: str, expected: str, value: object) -> NoReturn:
    shown = value if isinstance(value, int | float) and abs(value) < MEBI else f"a {type(value).__name__}"
    raise StreamError(f"the server sent {shown} as {what}, which must be {expected}")


class RepeatedKeyError(ValueError):
    """An object has a key twice: readers of JSON take the first or the last of its values, and so see different contents."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key[:40]!r} is there twice")
        self.key = key


def strict_json(text: str | bytes, *, has_keys_once: bool = False) -> Any:
    """JSON as the standard has it: NaN and infinity are none.

    Raises:   ValueError, RepeatedKeyError where keys have to come once; RecursionError for nesting without end
    """
    if isinstance(text, str) and not has_keys_once:
        return _JSON.decode(text)
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once if has_keys_once else None)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)  # made once: json.loads would make one for every chunk
