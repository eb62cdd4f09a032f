"""Prefixes, and how numbers are read and printed: the only module that knows 1e9 or 2**30.

Everything inside the package is a plain int or float in SI base units, with the unit in the name
(`_s`, `_bytes`, `_flops`, `_bytes_per_s`, ...). Prefixes appear here and nowhere else: reading what a
person typed ("32k", "24GB", "80 GiB") and printing what a person reads. Decimal prefixes are powers of
1000 (GB = 10**9); binary ones are powers of 1024 and always carry the i (GiB = 2**30).

Read next by: facts (datasheet texts), report and cli (input and output).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from inference_bench.errors import QuantityError

NOT_AVAILABLE: Final = "n/a"

KILO: Final = 1_000
MEGA: Final = 1_000_000
GIGA: Final = 1_000_000_000
TERA: Final = 1_000_000_000_000
KIBI: Final = 1 << 10
MEBI: Final = 1 << 20
GIBI: Final = 1 << 30
TEBI: Final = 1 << 40

SECONDS_PER_HOUR: Final = 3_600
SECONDS_PER_DAY: Final = 86_400
HOURS_PER_DAY: Final = 24
HOURS_PER_YEAR: Final = 8_760

_DECIMAL: Final = {"": 1, "k": KILO, "M": MEGA, "G": GIGA, "T": TERA, "P": 1_000 * TERA, "E": MEGA * TERA}
_BINARY: Final = {"Ki": KIBI, "Mi": MEBI, "Gi": GIBI, "Ti": TEBI, "Pi": 1 << 50, "Ei": 1 << 60}
_SMALL: Final = {"m": Decimal("1e-3"), "u": Decimal("1e-6"), "µ": Decimal("1e-6"), "n": Decimal("1e-9")}
_SPACES: Final = " \t\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # the last two as datasheets and web pages print them
_QUANTITY: Final = re.compile(
    rf"[{_SPACES}]*([+-]?(?:[0-9][0-9_]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[{_SPACES}]*([A-Za-zµ/]*)[{_SPACES}]*"
)
_THOUSANDS: Final = re.compile(rf"[{_SPACES}]*[+-]?[0-9]{{1,3}}(?:,[0-9]{{3}})+(?![0-9,])")
_LARGEST_EXPONENT: Final = 30
_LEAST_WRITTEN_OUT: Final = 1e-9
_LEAST_WITH_EXPONENT: Final = 1e15
_MOST_READ: Final = 1e100  # of a number from elsewhere: what is made of two such by one operation is still a float


def plain_number(value: object) -> float | None:
    """A number in JSON of unknown origin; None for any other value, NaN, an infinity, and one that is larger than any quantity.

    Where:   a whole number in JSON may have hundreds of digits, for which even math.isfinite raises

    >>> plain_number(2), plain_number(True), plain_number("2"), plain_number(10**400)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST_READ:
        return None
    return float(value)


def _split(text: str, what: str, such_as: str = "32k, 24GB or 80GiB") -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(_without_commas(text))
    if match is None:
        raise QuantityError(f"{what} {text!r} is not a number with a unit; write for example {such_as}")
    number = Decimal(match.group(1).replace("_", ""))
    if number and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise QuantityError(f"{what} {text!r} is out of range")
    return number, match.group(2)


def _without_commas(text: str) -> str:
    """The text without commas between thousands, as this program prints them; other commas stay."""
    return text.replace(",", "") if _THOUSANDS.match(text) else text


def _factor(prefix: str, text: str, what: str) -> int:
    folded = prefix[:1].upper() + prefix[1:].lower() if prefix.lower() != "k" else "k"
    factor = _DECIMAL.get(folded) or _BINARY.get(folded)
    if factor is None:
        allowed = ", ".join([*filter(None, _DECIMAL), *_BINARY])
        raise QuantityError(f"{what} {text!r} has an unknown prefix {prefix!r}; known prefixes: {allowed}")
    return factor


def _whole(number: Decimal, text: str, what: str) -> int:
    if number != number.to_integral_value():
        raise QuantityError(f"{what} {text!r} is not a whole number")
    if number < 0:
        raise QuantityError(f"{what} {text!r} is negative; give 0 or more")
    return int(number)


def parse_count(text: str, what: str = "count") -> int:
    """A whole number of things as a person writes it; k is 1000, Ki is 1024.

    Unit:    a count
    Raises:  QuantityError

    >>> parse_count("32k"), parse_count("32Ki"), parse_count("4096")
    (32000, 32768, 4096)
    """
    number, unit = _split(text, what)
    return _whole(number * _factor(unit, text, what), text, what)


def parse_tokens(text: str, what: str = "context") -> int:
    """A length in tokens as the field writes it: 32k is 32768, 1M is 1048576; digits alone are themselves.

    Unit:    tokens
    Raises:  QuantityError
    Source:  model cards and engines name context lengths by powers of two (32k = 32768, 128k = 131072)

    >>> parse_tokens("32k"), parse_tokens("128K"), parse_tokens("32000"), parse_tokens("32,768")
    (32768, 131072, 32000, 32768)
    """
    number, unit = _split(text, what)
    factor = {"": 1, "k": KIBI, "ki": KIBI, "m": MEBI, "mi": MEBI}.get(unit.lower())
    if factor is None:
        raise QuantityError(f"{what} {text!r} has an unknown suffix {unit!r}; write for example 32k, 1M or 32768")
    return _whole(number * factor, text, what)


def parse_bytes(text: str, what: str = "size") -> int:
    """An amount of data as a person writes it: a bare number is bytes, GB is 10**9, GiB is 2**30.

    Unit:    bytes, exact
    Raises:  QuantityError

    >>> parse_bytes("24GB"), parse_bytes("24GiB"), parse_bytes("2.5 GB")
    (24000000000, 25769803776, 2500000000)
    """
    number, unit = _split(text, what)
    prefix = unit.removesuffix("B").removesuffix("bytes").removesuffix("byte")
    return _whole(number * _factor(prefix, text, what), text, what)


def parse_rate(text: str, base: str, what: str = "rate") -> float:
    """A rate with its unit spelled out, as a datasheet prints it ("3.35 TB/s", "989 TFLOPS").

    Where:   `base` is the unit without prefix: "B/s" or "FLOP/s" ("FLOPS" is read as FLOP/s, "OPS" too)
    Unit:    `base`
    Raises:  QuantityError

    >>> parse_rate("3.35 TB/s", "B/s"), parse_rate("989.4 TFLOPS", "FLOP/s")
    (3350000000000.0, 989400000000000.0)
    """
    number, unit = _split(text, what)
    spellings = {"FLOP/s": ("FLOP/s", "FLOPS", "OP/s", "OPS"), "B/s": ("B/s",)}.get(base, (base,))
    for spelling in spellings:
        if unit.lower().endswith(spelling.lower()):
            value = number * _factor(unit[: len(unit) - len(spelling)], text, what)
            if value <= 0:
                raise QuantityError(f"{what} {text!r} must be above zero")
            return float(value)
    raise QuantityError(f"{what} {text!r} has no unit {base}; write for example {'3.35 T' + base}")


def parse_seconds(text: str, what: str = "time") -> float:
    """A duration as a person writes it: a bare number is seconds; ms, us, min and h are known.

    Unit:    seconds
    Raises:  QuantityError

    >>> parse_seconds("100ms"), parse_seconds("3"), parse_seconds("2min")
    (0.1, 3.0, 120.0)
    """
    number, unit = _split(text, what, "500ms, 2s or 1min")
    scale = {"": Decimal(1), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600)}
    scale |= {f"{prefix}s": factor for prefix, factor in _SMALL.items()}
    if unit not in scale:
        raise QuantityError(f"{what} {text!r} has an unknown unit {unit!r}; known: {', '.join(filter(None, scale))}")
    if number < 0:
        raise QuantityError(f"{what} {text!r} is negative")
    return float(number * scale[unit])


def parse_fraction(text: str, what: str = "fraction") -> float:
    """A share between 0 and 1, or a percentage.

    Raises:  QuantityError

    >>> parse_fraction("0.25"), parse_fraction("25%")
    (0.25, 0.25)
    """
    stripped = text.strip(_SPACES)
    number, unit = _split(stripped.removesuffix("%"), what)
    value = float(number) / (100 if stripped.endswith("%") else 1)
    if unit or not 0 <= value <= 1:
        raise QuantityError(f"{what} {text!r} must lie between 0 and 1, or be a percentage")
    return value


def _digits(value: float, significant: int, separator: str = "") -> str:
    if value == 0:
        return "0"
    rounded = float(f"{value:.{significant - 1}e}")
    if not _LEAST_WRITTEN_OUT <= abs(rounded) < _LEAST_WITH_EXPONENT:
        return f"{value:.{significant - 1}e}"
    decimals = max(0, significant - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:{separator}.{decimals}f}"


def _scaled(value: float, factors: dict[str, int], unit: str, significant: int) -> str:
    chosen, factor = "", 1
    for prefix, candidate in factors.items():
        if abs(value) >= candidate * (1 - 0.5 * 10.0**-significant):
            chosen, factor = prefix, candidate
    text = _digits(value / factor, significant) if factor != 1 or value != int(value) else str(int(value))
    return f"{text} {chosen}{unit}".rstrip()


def format_si(value: float | None, unit: str, significant: int = 3) -> str:
    """A number with the decimal prefix that suits it; None is n/a.

    >>> format_si(3.35e12, "B/s"), format_si(None, "B/s"), format_si(147456, "B")
    ('3.35 TB/s', 'n/a', '147 kB')
    """
    return NOT_AVAILABLE if value is None else _scaled(value, _DECIMAL, unit, significant)


def format_bytes(value: int | None, significant: int = 3) -> str:
    """Bytes in decimal prefixes (kB, MB, GB).

    >>> format_bytes(5528428544)
    '5.53 GB'
    """
    return format_si(value, "B", significant)


def format_bytes_binary(value: int | None, significant: int = 3) -> str:
    """Bytes in binary prefixes (KiB, MiB, GiB), as drivers and tools report them.

    >>> format_bytes_binary(94371840)
    '90.0 MiB'
    """
    return NOT_AVAILABLE if value is None else _scaled(value, {"": 1, **_BINARY}, "B", significant)


def format_seconds(value: float | None, significant: int = 3) -> str:
    """A duration in the unit that suits it, from ns to s.

    >>> format_seconds(0.00623728), format_seconds(13.39), format_seconds(None)
    ('6.24 ms', '13.4 s', 'n/a')
    """
    if value is None:
        return NOT_AVAILABLE
    for floor, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs")):
        if abs(value) >= floor * (1 - 0.5 * 10.0**-significant):
            return f"{_digits(value * factor, significant)} {unit}"
    return "0 s" if value == 0 else f"{_digits(value * 1e9, significant)} ns"


def format_fraction(value: float | None, significant: int = 3) -> str:
    """A fraction as percent.

    >>> format_fraction(0.123), format_fraction(1.5), format_fraction(None)
    ('12.3 %', '150 %', 'n/a')
    """
    return NOT_AVAILABLE if value is None else f"{_digits(value * 100, significant)} %"


def format_count(value: int | None) -> str:
    """A whole number with thousands separated.

    >>> format_count(9550729216)
    '9,550,729,216'
    """
    return NOT_AVAILABLE if value is None else f"{value:,}"


def format_number(value: float | None, significant: int = 3) -> str:
    """A plain number to so many significant digits; None is n/a."""
    return NOT_AVAILABLE if value is None else _digits(value, significant, separator=",")
