"""Which bytes stand for a record, so that one hash over them names it?

In:   objects, lists, texts, whole numbers and truth values
Out:  canonical JSON; a SHA-256; a fraction as text, and a setting as a manifest holds it
Leaves out: what is recorded
Read next by: components, conversation, from_files, from_gguf, from_server.

For the values allowed here the bytes are those of RFC 8785 (JSON Canonicalization Scheme): keys in the order of their UTF-16 code
units, no spaces, UTF-8, only the escapes that JSON needs. Numbers are whole ones that a double holds exactly; fractions are texts,
the shortest that name the same number in single precision, since that is what engines sample with: 0.6 in a file and
0.6000000238418579 in a server's answer are one setting.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import Any, Final

from inference_bench.errors import RequestError

LARGEST_NUMBER: Final = (1 << 53) - 1  # RFC 8785, section 3.2.2.3: above this a double is not exact
_MOST_DIGITS: Final = 9  # tell any two numbers of single precision apart


def canonical_json(value: Any) -> bytes:
    """The one way to write it.

    Raises:   RequestError for a fraction, a number that is too large, a text that is not Unicode, and what JSON does not have
    """
    try:
        return json.dumps(_ordered(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise RequestError("a text holds half a character (a lone surrogate), which no canonical JSON can") from None
    except RecursionError:
        raise RequestError("the value is nested too deeply for canonical JSON") from None


def _ordered(value: Any) -> Any:
    match value:
        case bool() | str() | None:
            return value
        case int() if abs(value) <= LARGEST_NUMBER:
            return value
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _ordered(value[key]) for key in sorted(value, key=_utf16)}
        case list() | tuple():
            return [_ordered(each) for each in value]
    raise RequestError(
        f"{str(value)[:60]!r} is a {type(value).__name__} that canonical JSON does not hold; allowed are texts, truth values, and "
        f"whole numbers up to {LARGEST_NUMBER}"
    )


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def sha256_of(content: bytes) -> str:
    """The hash of bytes that are here."""
    return hashlib.sha256(content).hexdigest()


def fraction_text(value: float) -> str | None:
    """The shortest text that names the same number in single precision; None for one that is none.

    >>> fraction_text(0.6000000238418579), fraction_text(40.0), fraction_text(1e-06)
    ('0.6', '40', '1e-06')
    """
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < LARGEST_NUMBER:
        return str(int(value))
    single = _single(value)
    if single is None:
        return repr(value)
    texts = (f"{single:.{digits}g}" for digits in range(1, _MOST_DIGITS + 1))
    return next((text for text in texts if _single(float(text)) == single), repr(value))


def plain_value(value: Any) -> str | int | bool | None:
    """A setting as a manifest holds it: a fraction or a list as text; None for what it cannot hold."""
    if isinstance(value, float):
        return fraction_text(value)
    if isinstance(value, list):
        try:
            return canonical_json(value).decode()
        except RequestError:
            return None
    return value if isinstance(value, bool | int | str) and value != "" else None


def _single(value: float) -> float | None:
    """The number in single precision; None where it is too large for that."""
    try:
        (found,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    return float(found)
