"""How long to pause before asking again: drawn at random, or what the server asked for, and never more than there is.

In:   the number of the failure, a Retry-After, the room that the budget leaves
Out:  seconds, or None where the pause does not fit
Leaves out: whether to ask again at all (policy, attempts)
Read next by: opening, attempts.

The window that doubles, its cap and the even draw from all of it ("full jitter") are tenacity's. Its loop is not used: it repeats a
function until that succeeds, and here an attempt that has begun to answer is handed out while it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from inference_bench.errors import MissingExtraError

INSTALL: Final = "pip install 'inference-bench[client]'"

_SECONDS: Final = re.compile(r"([0-9]{1,9})(?:,.*)?")  # of a header that came twice, the first, as with dates

Backoff = Callable[[int], float]


def full_jitter(base_s: float, most_s: float) -> Backoff:
    """How long to pause after the n-th failure in a row: evenly from 0 to base_s · 2^(n-1), at most most_s.

    Raises:   MissingExtraError
    """
    try:
        from tenacity import AsyncRetrying, RetryCallState, wait_random_exponential
    except ImportError:
        raise MissingExtraError(f"the client's pauses are drawn by tenacity; install it with {INSTALL}") from None
    wait = wait_random_exponential(multiplier=base_s, max=most_s)
    retrying = AsyncRetrying()

    def draw(number: int) -> float:
        state = RetryCallState(retrying, None, (), {})
        state.attempt_number = number
        return float(wait(state))

    return draw


def parse_retry_after(value: str, now_s: float, date: str = "") -> float | None:
    """The seconds that a Retry-After asks for; None for what is neither a number of seconds nor an HTTP date.

    Where:    now_s is the wall clock; a date counts from the server's own Date, where it sent one, so that clocks may differ
    """
    value = value.strip()
    if (seconds := _SECONDS.fullmatch(value)) is not None:
        return float(seconds[1])
    until_s = _parse_date(value)
    if until_s is None:
        return None
    sent_s = _parse_date(date)
    return max(0.0, until_s - (now_s if sent_s is None else sent_s))


def _parse_date(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def choose_pause(drawn_s: float, retry_after_s: float | None, room_s: float, retry_after_most_s: float) -> float | None:
    """The pause before the next attempt at the same endpoint; None where what the server asked for, or any attempt, does not fit.

    Where:    room_s is what the budget leaves for a pause. The draw comes on top of what the server asked for, or all that it asked
              would come back at once
    """
    asked_s = retry_after_s or 0.0
    if room_s <= 0 or asked_s > min(room_s, retry_after_most_s):
        return None
    return min(asked_s + drawn_s, room_s)
