"""What one value of a trace means: a time, a length, blocks of a prompt.

In:   text from a CSV table, or a JSON value
Out:  ticks, tokens, segments; TraceError says what is wrong, without the line, which the caller knows
Read next by: trace_formats, servegen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final

from inference_bench.errors import TraceError
from inference_bench.units import GIGA, HOURS_PER_DAY, KILO, MEGA
from inference_bench.workload.checks import MOST_TOKENS
from inference_bench.workload.requests import Segment

_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(?:(Z)|([+-])(\d\d):?(\d\d))?")
_EPOCH: Final = datetime(1970, 1, 1)
_NANO_DIGITS: Final = 9
_MINUTES_PER_HOUR: Final = 60
_MOST_TICKS: Final = 1 << 62  # nanoseconds since 1970 stay below
_MOST_CONTENT: Final = 1 << 62  # a column of 64 bits holds it, and its negative


class Clock(IntEnum):
    """How a trace counts time: ticks a second."""

    SECONDS = 1
    MILLISECONDS = KILO
    MICROSECONDS = MEGA
    NANOSECONDS = GIGA
    DATE = -1  # a date and a time of day, read as nanoseconds

    @property
    def ticks_per_s(self) -> int:
        """What a difference of ticks is divided by to be seconds."""
        return GIGA if self is Clock.DATE else int(self)


def read_ticks(value: object, clock: Clock) -> int | float:
    """A time as the trace counts it; whole numbers stay whole, so that no digit of a long time is lost.

    Unit:     ticks of the clock
    Raises:   TraceError for what is not a number (or a date), not finite, negative, or beyond any clock
    """
    if clock is Clock.DATE:
        return _read_date(value)
    ticks = _number(value)
    if ticks is None or (isinstance(ticks, float) and not math.isfinite(ticks)):
        raise TraceError(f"the time is {shown(value)}; a number is needed")
    if not 0 <= ticks <= _MOST_TICKS:
        raise TraceError(f"the time is {shown(value)}; it must be 0 or later, and no more than {_MOST_TICKS}")
    return ticks


def looks_like_date(value: object) -> bool:
    """Whether the value is a date and a time of day in text."""
    return isinstance(value, str) and _DATE.fullmatch(value.strip()) is not None


def _read_date(value: object) -> int:
    match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise TraceError(f"the time is {shown(value)}; a date such as 2023-11-16 18:17:03.9799600 is needed")
    day, clock, fraction, _, sign, hours, minutes = match.groups()
    try:
        seconds = (datetime.fromisoformat(f"{day} {clock}") - _EPOCH) // timedelta(seconds=1)
    except ValueError:
        raise TraceError(f"the time is {shown(value)}, which is in no calendar") from None
    if sign:
        if int(hours) >= HOURS_PER_DAY or int(minutes) >= _MINUTES_PER_HOUR:
            raise TraceError(f"the time is {shown(value)}, whose offset from UTC must be below 24:00")
        offset = timedelta(hours=int(hours), minutes=int(minutes)) // timedelta(seconds=1)
        seconds -= offset if sign == "+" else -offset
    return seconds * GIGA + int((fraction or "").ljust(_NANO_DIGITS, "0"))


def read_length(value: object, what: str) -> int:
    """A number of tokens, 0 included: the caller decides what a request without tokens means.

    Unit:     tokens
    Raises:   TraceError for what is not a whole number, is negative, or longer than any request
    """
    number = _number(value)
    if number is None or number != number or number in (math.inf, -math.inf) or number != int(number):
        raise TraceError(f"the {what} is {shown(value)}; a whole number of tokens is needed")
    if not 0 <= number <= MOST_TOKENS:
        raise TraceError(f"the {what} is {shown(value)}; it must be at least 1 and at most {MOST_TOKENS}")
    return int(number)


def read_whole(value: object, what: str) -> int:
    """A whole number of any sign, such as a priority.

    Raises:   TraceError
    """
    number = _number(value)
    if not isinstance(number, int) or abs(number) > _MOST_CONTENT:
        raise TraceError(f"the {what} is {shown(value)}; a whole number is needed")
    return number


def _number(value: object) -> int | float | None:
    """The number that a JSON value or a text is; None where it is none. Not-a-number and infinity come through."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or "_" in value:
        return None
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:  # also for more digits than Python reads
            continue
    return None


class BlockReader:
    """Blocks of a trace as segments; a block that comes again is the same object."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._full: dict[int, Segment] = {}
        self._num_own = 0

    def own(self, num_tokens: int) -> Segment:
        """A segment that no other prompt has."""
        self._num_own += 1
        return Segment(-self._num_own, num_tokens)

    def segments(self, ids: object, prompt_tokens: int) -> tuple[Segment, ...]:
        """The prompt as segments: full blocks, and a last one that holds the rest.

        Where:    a trace that gives no id to a last, partial block leaves it unshared
        Raises:   TraceError for what is not a list of block ids, or of too many or too few for the prompt
        """
        blocks = _block_ids(ids)
        full, rest = divmod(prompt_tokens, self._block_tokens)
        if len(blocks) not in {full, full + bool(rest)}:
            raise TraceError(
                f"{len(blocks)} block ids for a prompt of {prompt_tokens} tokens; blocks of {self._block_tokens} tokens "
                f"would be {full + bool(rest)}"
            )
        found = [self._block(content) for content in blocks[:full]]
        if rest:
            found.append(Segment(blocks[full], rest) if len(blocks) > full else self.own(rest))
        return tuple(found)

    def _block(self, content: int) -> Segment:
        segment = self._full.get(content)
        if segment is None:
            segment = self._full[content] = Segment(content, self._block_tokens)
        return segment


def _block_ids(ids: object) -> Sequence[int]:
    if not isinstance(ids, list):
        raise TraceError(f"the block ids are {shown(ids)}; a list of whole numbers is needed")
    for content in ids:
        if type(content) is not int or not 0 <= content <= _MOST_CONTENT:
            raise TraceError(f"the block id {shown(content)} is not a whole number from 0 to {_MOST_CONTENT}")
    return ids


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:40]}..."
