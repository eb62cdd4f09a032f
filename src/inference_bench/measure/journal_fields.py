"""How is a record written as JSON: field by field, and back without believing a word of it.

In:   RequestRecords; JSON values that someone else may have written
Out:  plain values; RequestRecords
Leaves out: chunks, in a journal (journal_format)
Read next by: journal, journal_read, store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import StrEnum
from types import NoneType
from typing import Any, Final, NoReturn, get_args, get_origin, get_type_hints

from inference_bench.errors import MeasurementError
from inference_bench.measure.journal_format import MOST_TICKS, TICKS_PER_S, ticks_of
from inference_bench.records import RequestRecord
from inference_bench.units import plain_number

CHUNK_NOTES: Final = ("chunk_tokens", "channels")
TIME_FIELDS: Final = frozenset({"planned_s", "sent_s", "end_s", "first_byte_s"})

TICK_S: Final = 1 / TICKS_PER_S
_MOST_WHOLE: Final = 1 << 62  # JSON has whole numbers of any length, with which no mean can be taken
_NAMES: Final = tuple(field.name for field in fields(RequestRecord))
_PLAIN_NAMES: Final = tuple(name for name in _NAMES if name not in ("chunk_times_s", *CHUNK_NOTES))


def record_to_json(record: RequestRecord) -> str:
    """One record as one line of JSON, from which `record_from_json` gives back the same record.

    Raises:   MeasurementError for a time that is not a finite number
    """
    return _dumped({name: getattr(record, name) for name in _NAMES}, record.request_id)


def record_from_json(line: str | bytes) -> RequestRecord:
    """The record that `record_to_json` wrote.

    Raises:   ValueError for a line that is not one, in the words of the field that is wrong
    """
    record = _decode(RequestRecord, json.loads(line, parse_constant=refuse), "the record")
    return record if isinstance(record, RequestRecord) else refuse("the record")


def difference_to_json(record: RequestRecord, usual: RequestRecord, with_chunk_notes: bool = False) -> str:
    """The fields of a record that differ from a usual one; times in ticks, and those of chunks left out.

    Where:    with_chunk_notes holds the tokens and channels of chunks too
    Raises:   MeasurementError for a time that is not a finite number
    """
    found: dict[str, object] = {}
    for name in (*_PLAIN_NAMES, *CHUNK_NOTES) if with_chunk_notes else _PLAIN_NAMES:
        value = getattr(record, name)
        if value != getattr(usual, name):
            found[name] = ticks_of(value, record.request_id) if name in TIME_FIELDS and value is not None else value
    return _dumped(found, record.request_id)


def _dumped(values: Mapping[str, object], request_id: str) -> str:
    try:
        return json.dumps(values, allow_nan=False, separators=(",", ":"), default=asdict)
    except ValueError:
        raise MeasurementError(f"request {request_id} has a time that is not a number; not written") from None


def values_from_json(text: bytes) -> dict[str, Any]:
    """What `difference_to_json` wrote, as the values of a record's fields.

    Raises:   ValueError in the words of the field that is wrong
    """
    found = {}
    for name, value in object_from_json(text).items():
        decode = _DECODERS.get(name)
        found[name] = decode(value) if decode is not None else refuse("an item: its fields")
    return found


def object_from_json(text: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:   ValueError
    """
    values = json.loads(text, parse_constant=refuse)
    return values if isinstance(values, dict) else refuse("an item")


def plain_values(record: RequestRecord) -> dict[str, Any]:
    """A record's fields without its chunks."""
    return {name: getattr(record, name) for name in _PLAIN_NAMES}


def _decode(hint: Any, value: object, what: str) -> object:
    """A JSON value as the type that a dataclass field declares; nothing is converted that does not fit."""
    options = get_args(hint)
    if NoneType in options:
        rest = next(option for option in options if option is not NoneType)
        return None if value is None else _decode(rest, value, what)
    if is_dataclass(hint) and isinstance(hint, type):
        return _decode_object(hint, value, what)
    if get_origin(hint) is tuple:
        return tuple(_decode(options[0], item, what) for item in _expect(value, list, what))
    if issubclass(hint, bool):
        return value if isinstance(value, bool) else refuse(what)
    if issubclass(hint, StrEnum):
        return hint(value)
    if hint is float:
        return _expect_finite(value, what)
    return _expect(value, hint, what)


def _decode_object(kind: type, value: object, what: str) -> object:
    values, hints = _expect(value, dict, what), get_type_hints(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not needed <= values.keys() <= hints.keys():  # a record of an earlier version lacks what was added since
        refuse(f"{what}: its fields")
    return kind(**{name: _decode(hints[name], item, name) for name, item in values.items()})


def _expect(value: object, kind: type, what: str) -> Any:
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    return value if is_kind and _is_of_size(value) else refuse(what)


def _is_of_size(value: object) -> bool:
    return not isinstance(value, int) or -_MOST_WHOLE <= value <= _MOST_WHOLE


def _expect_finite(value: object, what: str) -> float:
    found = plain_number(value)
    return refuse(what) if found is None else found


def refuse(what: str) -> NoReturn:
    """Say that something is not as it is written here.

    Raises:   ValueError
    """
    raise ValueError(f"{what} is not what this version writes")


def _time_decoder(name: str, is_optional: bool) -> Callable[[object], object]:
    def decode(value: object) -> object:
        if type(value) is int and -MOST_TICKS < value < MOST_TICKS:
            return value * TICK_S
        return None if is_optional and value is None else refuse(name)

    return decode


def _field_decoder(name: str, hint: Any) -> Callable[[object], object]:
    """A function that checks one field's value, the usual types without a look at the hint."""
    is_optional = NoneType in get_args(hint)
    kind = next(option for option in get_args(hint) if option is not NoneType) if is_optional else hint
    if name in TIME_FIELDS:
        return _time_decoder(name, is_optional)
    if kind in (int, str):

        def decode(value: object) -> object:
            is_kind = type(value) is kind and _is_of_size(value)
            return value if is_kind or (is_optional and value is None) else refuse(name)

        return decode
    return lambda value: _decode(hint, value, name)


_DECODERS: Final = {
    name: _field_decoder(name, hint) for name, hint in get_type_hints(RequestRecord).items() if name != "chunk_times_s"
}
