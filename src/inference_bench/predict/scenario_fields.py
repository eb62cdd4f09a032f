"""Reading the values of a scenario: each has the right type and a possible size, or is an error that says which.

In:   numbers in SI units, or texts with a unit as a person writes them ("4k", "100ms", "30%", "5.5 GB")
Out:  ints, floats, bools and strings that can be used
Leaves out: what the fields mean together (see scenario)
Read next by: scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from inference_bench.errors import ScenarioError
from inference_bench.facts.fields import shown
from inference_bench.units import parse_bytes, parse_count, parse_fraction, parse_seconds, parse_tokens

T = TypeVar("T")
Reader = Callable[[object, str], T]
_LEAST_SHARE: Final = 1e-6  # what is smaller is a slip, and lets quotients run out of the numbers there are
_LEAST_PRICE: Final = 1e-9
_LEAST_S: Final = 1e-9
_LEAST_YEARS: Final = 1e-3
_LEAST: Final = 1e-6  # of rates and factors
_MOST: Final = 1e14  # beyond every price, rate and volume, and far from where floating point ends
_PLAIN_NUMBER: Final = re.compile(r"\s*[+-]?(\d+(?:_\d+)*)(\.\d+)?([eE][+-]?\d+)?\s*")
_LONGEST_TEXT: Final = 4096
_LONGEST_AMOUNT: Final = 60


def _number(value: object, what: str, allowed: str) -> float:
    """A finite number, also as text.

    Raises:  ScenarioError
    """
    if isinstance(value, str) and _PLAIN_NUMBER.fullmatch(_short(value, what)):
        value = float(value)
    # nothing lies within bounds that is no number, or has more digits than a float
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_MOST <= value <= _MOST:
        raise ScenarioError(f"{what} is {shown(value)}; {allowed} is needed")
    return float(value)


def _short(value: str, what: str) -> str:
    """A text that may stand in a message, and that takes no time to read."""
    if len(value) > _LONGEST_AMOUNT:
        raise ScenarioError(
            f"{what} is a text of {len(value)} characters; a number with a unit has at most {_LONGEST_AMOUNT}"
        )
    return value


def _within(value: float, what: str, low: float, high: float, allowed: str) -> float:
    if not low <= value <= high:
        raise ScenarioError(f"{what} is {value:g}; {allowed} is needed")
    return value


def read_positive(value: object, what: str) -> float:
    """A number above zero: a rate, a factor."""
    return _from(value, what, _LEAST)


def read_years(value: object, what: str) -> float:
    """A time in years above zero."""
    return _from(value, what, _LEAST_YEARS)


def _from(value: object, what: str, least: float) -> float:
    allowed = f"a number above 0 (from {least:g} to {_MOST:g})"
    return _within(_number(value, what, allowed), what, least, _MOST, allowed)


def read_volume(value: object, what: str) -> float:
    """A number of things above zero, also as text with a prefix: 20k is 20000."""
    if isinstance(value, str) and not _PLAIN_NUMBER.fullmatch(_short(value, what)):
        value = parse_count(value, what)
    return read_positive(value, what)


def read_amount(value: object, what: str) -> float:
    """A number of zero or more: a price, a share of a cost."""
    allowed = f"a number of 0 or more (0, or {_LEAST_PRICE:g} to {_MOST:g})"
    amount = _number(value, what, allowed)
    return _within(amount, what, _LEAST_PRICE if amount else 0.0, _MOST, allowed)


def read_factor(value: object, what: str) -> float:
    """A number of 1 or more: how far a peak is above the mean."""
    allowed = "a number of 1 or more (at most 1e14)"
    return _within(_number(value, what, allowed), what, 1.0, _MOST, allowed)


def read_probability(value: object, what: str) -> float:
    """A share from 0 to 1, or a percentage."""
    if isinstance(value, str):
        return parse_fraction(_short(value, what), what)
    allowed = "a number from 0 to 1, or a percentage as text"
    return _within(_number(value, what, allowed), what, 0.0, 1.0, allowed)


def read_share(value: object, what: str) -> float:
    """A share above 0 and at most 1, or a percentage: a utilisation."""
    allowed = f"a share above 0 (at least {_LEAST_SHARE:g}) and at most 1"
    return _within(read_probability(value, what), what, _LEAST_SHARE, 1.0, allowed)


def _whole(parse: Callable[[str, str], int], least: int, unit: str) -> Reader[int]:
    def read(value: object, what: str) -> int:
        allowed = f"a whole number of {unit}, at least {least}"
        if isinstance(value, str):
            number = parse(_short(value, what), what)
        else:
            exact = _number(value, what, allowed)
            if exact != int(exact):
                raise ScenarioError(f"{what} is {shown(value)}; {allowed} is needed")
            number = int(exact)
        if not least <= number <= _MOST:
            raise ScenarioError(f"{what} is {number}; {allowed}, is needed")
        return number

    return read


read_tokens: Final = _whole(parse_tokens, 1, "tokens")
read_token_count: Final = _whole(parse_tokens, 0, "tokens")
read_count: Final = _whole(parse_count, 1, "things")
read_bytes: Final = _whole(parse_bytes, 0, "bytes")


def read_seconds(value: object, what: str) -> float:
    """A duration above zero: seconds, or text with a unit."""
    seconds = parse_seconds(_short(value, what), what) if isinstance(value, str) else _number(value, what, "a duration")
    return _within(
        seconds, what, _LEAST_S, _MOST, "a duration above 0 (at least 1 ns), such as 3 (seconds) or '100ms',"
    )


def read_switch(value: object, what: str) -> bool:
    """Yes or no."""
    if not isinstance(value, bool):
        raise ScenarioError(f"{what} is {shown(value)}; true or false is needed")
    return value


def read_text(value: object, what: str) -> str:
    """A name or a path."""
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT:
        raise ScenarioError(f"{what} is {shown(value)}; a text is needed")
    return value


class Section:
    """One table of a scenario, whose keys are known.

    Where:   a name that is empty is the top of the file
    Raises:  ScenarioError for a key that is not known, with the nearest
    """

    def __init__(self, values: object, name: str, known: tuple[str, ...]) -> None:
        self.label = f"[{name}] " if name else ""
        if not isinstance(values, Mapping):
            raise ScenarioError(f"{name} is {shown(values)}; a table [{name}] is needed")
        self.values = values
        for key in values:
            if key not in known:
                where = f"[{name}]" if name else "the scenario"
                raise ScenarioError(
                    f"{where} has an unknown key {shown(key)}; {_nearest(str(key)[:_LONGEST_AMOUNT], known)}"
                )

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def optional(self, key: str, read: Reader[T]) -> T | None:
        """The value, or None where it is not given."""
        return read(self.values[key], f"{self.label}{key}") if key in self.values else None

    def given(self, key: str, read: Reader[T], default: T) -> T:
        """The value, or a default where it is not given."""
        return read(self.values[key], f"{self.label}{key}") if key in self.values else default

    def needed(self, key: str, read: Reader[T], example: str) -> T:
        """The value, which must be there."""
        if key not in self.values:
            raise ScenarioError(f"{self.label}{key} is missing; give it, for example {key} = {example}")
        return read(self.values[key], f"{self.label}{key}")


def _nearest(key: str, known: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"{f'nearest: {close[0]}; ' if close else ''}known: {', '.join(known)}"
