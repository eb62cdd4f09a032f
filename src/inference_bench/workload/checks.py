"""What a number in a workload may be: the few refusals that every part of it shares.

In:   a value and what it stands for, in words
Out:  nothing, or the value as what it stands for; RequestError says what is wrong with it
Read next by: requests, arrivals, lengths, shared, generate, simulate, cli.
"""

from __future__ import annotations

import math
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.units import GIGA

MOST_TOKENS: Final = 1 << 31  # far beyond every context; sums of millions of requests still fit in 64 bits

MOST_RATE: Final = float(GIGA)  # requests/s, and the least is one in as many seconds
LEAST_RATE: Final = 1 / MOST_RATE
MOST_SPAN_S: Final = float(GIGA)  # some thirty years: a clock of 64 bits still tells a tenth of a microsecond apart


def require_rate(value: float, what: str = "rate") -> None:
    """Refuse a rate that nobody asks for, and that a clock could not keep.

    Raises:   RequestError
    """
    if not _is_finite(value) or not LEAST_RATE <= value <= MOST_RATE:
        raise RequestError(
            f"the {what} is {_shown(value)} requests/s; it must be from {LEAST_RATE:g} to {MOST_RATE:g} requests/s"
        )


def require_seed(value: int) -> None:
    """Refuse what is no seed: the same one would not give the same draws.

    Raises:   RequestError
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"the seed is {_shown(value)}; it must be a whole number")


def require_count(value: int, what: str, least: int = 1, most: int | None = None) -> None:
    """Refuse what is not a whole number within bounds.

    Raises:   RequestError
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RequestError(f"the {what} is {_shown(value)}; it must be a whole number of at least {least}")
    if most is not None and value > most:
        raise RequestError(f"the {what} is {_shown(value)}; it must be at most {most}")


def require_length(value: int, what: str) -> None:
    """Refuse what no request can be long.

    Raises:   RequestError
    """
    require_count(value, what, most=MOST_TOKENS)


def require_positive(value: float, what: str, unit: str = "") -> None:
    """Refuse what is not a finite number above zero.

    Raises:   RequestError
    """
    if not _is_finite(value) or value <= 0:
        raise RequestError(f"the {what} is {_shown(value)}{unit and ' ' + unit}; it must be a finite number above 0")


def require_not_negative(value: float, what: str, unit: str = "") -> None:
    """Refuse what is not a finite number of at least zero.

    Raises:   RequestError
    """
    if not _is_finite(value) or value < 0:
        raise RequestError(f"the {what} is {_shown(value)}{unit and ' ' + unit}; it must be a finite number, 0 or more")


def require_fraction(value: float, what: str) -> None:
    """Refuse what is not a share of a whole.

    Raises:   RequestError
    """
    if not _is_finite(value) or not 0 <= value <= 1:
        raise RequestError(f"the {what} is {_shown(value)}; it must lie between 0 and 1")


def _is_finite(value: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
