"""How long are prompts and answers: distributions of whole numbers of tokens, each of which knows its own mean.

In:   parameters, or the text in which a person writes them
Out:  lengths, drawn from a generator that is given, so that a seed fixes them
Leaves out: how prompt and output lengths of one request depend on each other; a trace keeps that (traces)
Read next by: generate, cli.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final, Protocol

from inference_bench.errors import QuantityError, RequestError
from inference_bench.units import parse_fraction, parse_tokens
from inference_bench.workload.checks import require_count, require_fraction, require_length, require_positive

_MOST_CLIPPED: Final = 1 << 24  # the exact mean adds up one probability a token
_MOST_SIGMA: Final = 5.0
_NEGLIGIBLE: Final = 2.0**-60  # of the smallest possible mean, which is 1: below what a float can show


class Lengths(Protocol):
    """A distribution of lengths in tokens."""

    @property
    def mean(self) -> float:
        """The exact mean.

        Unit:     tokens
        """

    @property
    def longest(self) -> int:
        """The longest length there can be.

        Unit:     tokens
        """

    def draw(self, rng: Random) -> int:
        """One length.

        Unit:     tokens
        """


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same length.

    Raises:   RequestError for a length below one
    """

    length: int

    def __post_init__(self) -> None:
        require_length(self.length, "length in tokens")

    @property
    def mean(self) -> float:
        """The length itself."""
        return float(self.length)

    @property
    def longest(self) -> int:
        """The longest length there can be."""
        return self.length

    def draw(self, rng: Random) -> int:  # noqa: ARG002 (every distribution is given one; this draws nothing)
        """The length; `rng` is not touched."""
        return self.length

    def __str__(self) -> str:
        return f"{self.length} tokens"


@dataclass(frozen=True, slots=True)
class UniformLengths:
    """Every length from low to high, both included, equally often.

    Formula:  randint(low, high); mean = (low + high) / 2
    Raises:   RequestError for a length below one, or high below low
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        _require_range(self.low, self.high)

    @property
    def mean(self) -> float:
        """The exact mean."""
        return (self.low + self.high) / 2

    @property
    def longest(self) -> int:
        """The longest length there can be."""
        return self.high

    def draw(self, rng: Random) -> int:
        """One length."""
        return rng.randint(self.low, self.high)

    def __str__(self) -> str:
        return f"uniform from {self.low} to {self.high} tokens"


@dataclass(frozen=True, slots=True)
class ClippedLognormal:
    """Lengths around a median with a long tail, clipped at both ends.

    Formula:  min(high, max(low, int(lognormvariate(ln median, sigma))))
    Where:    sigma is the standard deviation of the logarithm
    Raises:   RequestError for a median or sigma that is not above zero, a sigma above 5, or an impossible range
    """

    median: float
    sigma: float
    low: int
    high: int

    def __post_init__(self) -> None:
        _require_range(self.low, self.high, _MOST_CLIPPED)
        require_positive(self.median, "median length", "tokens")
        require_positive(self.sigma, "sigma of the lognormal lengths")
        if self.sigma > _MOST_SIGMA or not 1 / _MOST_CLIPPED <= self.median <= _MOST_CLIPPED:
            raise RequestError(
                f"the lognormal lengths have median {self.median!r} and sigma {self.sigma!r}; give a median of at most "
                f"{_MOST_CLIPPED} tokens and a sigma of at most {_MOST_SIGMA:g}"
            )

    @property
    def mean(self) -> float:
        """The exact mean, clipping and rounding down included.

        Formula:  low + Σ P(X >= k) for k from low + 1 to high, with P(X >= k) = erfc((ln k - ln median) / (σ·√2)) / 2
        Unit:     tokens
        Source:   the mean of a whole number is the sum of its survival probabilities
        """
        return _clipped_lognormal_mean(self.median, self.sigma, self.low, self.high)

    @property
    def longest(self) -> int:
        """The longest length there can be."""
        return self.high

    def draw(self, rng: Random) -> int:
        """One length."""
        return min(self.high, max(self.low, int(rng.lognormvariate(math.log(self.median), self.sigma))))

    def __str__(self) -> str:
        return f"lognormal, median {self.median:g}, sigma {self.sigma:g}, {self.low} to {self.high} tokens"


@lru_cache(maxsize=256)
def _clipped_lognormal_mean(median: float, sigma: float, low: int, high: int) -> float:
    return low + math.fsum(_survivals(median, sigma, low, high))


def _survivals(median: float, sigma: float, low: int, high: int) -> Iterator[float]:
    log_median, width = math.log(median), sigma * math.sqrt(2)
    for length in range(low + 1, high + 1):
        survival = math.erfc((math.log(length) - log_median) / width) / 2
        if survival * (high - length + 1) < _NEGLIGIBLE:
            return
        yield survival


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths that were seen, each as often as it was seen; repeat a value to give it weight.

    Formula:  choice(values); mean = Σ values / their number
    Raises:   RequestError for no value, or one below one
    """

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise RequestError("an empirical distribution has no length; give at least one")
        for value in self.values:
            require_length(value, "length in tokens")

    @property
    def mean(self) -> float:
        """The exact mean."""
        return sum(self.values) / len(self.values)

    @property
    def longest(self) -> int:
        """The longest length there can be."""
        return max(self.values)

    def draw(self, rng: Random) -> int:
        """One length."""
        return rng.choice(self.values)

    def __str__(self) -> str:
        return f"{len(self.values)} lengths of mean {self.mean:.4g} tokens"


@dataclass(frozen=True, slots=True)
class LongDocuments:
    """A share of long documents among other requests.

    Formula:  long with probability `share`, else base; mean = share · long + (1 - share) · base
    Raises:   RequestError for a share outside 0..1
    """

    base: Lengths
    long: Lengths
    share: float

    def __post_init__(self) -> None:
        require_fraction(self.share, "share of long documents")

    @property
    def mean(self) -> float:
        """The exact mean."""
        return self.share * self.long.mean + (1 - self.share) * self.base.mean

    @property
    def longest(self) -> int:
        """The longest length there can be."""
        return max(self.long.longest, self.base.longest)

    def draw(self, rng: Random) -> int:
        """One length: first which kind, then how long."""
        return (self.long if rng.random() < self.share else self.base).draw(rng)

    def __str__(self) -> str:
        return f"{100 * self.share:g} % {self.long}, others {self.base}"


def _require_range(low: int, high: int, most: int | None = None) -> None:
    require_length(low, "shortest length in tokens")
    require_length(high, "longest length in tokens")
    if most is not None:
        require_count(high, "longest length in tokens", most=most)
    if high < low:
        raise RequestError(f"the longest length, {high}, is below the shortest, {low}; give the shortest first")


LENGTHS_FORMS: Final = (
    "N",
    "uniform:LOW:HIGH",
    "lognormal:MEDIAN:SIGMA:LOW:HIGH",
    "values:N,N,...",
    "mix:SHARE:LONG:BASE",
)


def parse_lengths(text: str, what: str = "length") -> Lengths:
    """The lengths that a person writes; a mix holds two of the other forms, the long one first.

    Unit:     tokens; 32k is 32768
    Raises:   RequestError for an unknown form, QuantityError for a field that is not a number

    >>> parse_lengths("128"), parse_lengths("uniform:2000:6000")
    (Fixed(length=128), UniformLengths(low=2000, high=6000))
    >>> parse_lengths("mix:10%:32k:uniform:500:2000").mean
    4401.8
    """
    fields = _Fields(text, what)
    found = fields.lengths()
    fields.require_end()
    return found


class _Fields:
    """The fields of a length text, taken one after the other."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what = text, what
        self._rest = [field.strip() for field in text.split(":")]

    def lengths(self) -> Lengths:
        name = self._take().lower()
        build = _BUILDERS.get(name)
        if build is not None:
            return build(self)
        if name[:1].isdigit() or name.startswith(("+", "-", ".")):
            return Fixed(parse_tokens(name, self._what))
        raise RequestError(f"the {self._what} {self._text[:80]!r} is not understood; {_FORMS}")

    def tokens(self) -> int:
        return parse_tokens(self._take(), self._what)

    def several_tokens(self) -> tuple[int, ...]:
        return tuple(parse_tokens(value, self._what) for value in self._take().split(","))

    def share(self) -> float:
        return parse_fraction(self._take(), f"share in the {self._what}")

    def number(self) -> float:
        field = self._take()
        try:
            return float(field)
        except ValueError:
            raise QuantityError(f"the {self._what} {self._text[:80]!r} has {field[:40]!r} for a number") from None

    def require_end(self) -> None:
        if self._rest:
            raise RequestError(f"the {self._what} {self._text[:80]!r} has fields left over; {_FORMS}")

    def _take(self) -> str:
        if not self._rest:
            raise RequestError(f"the {self._what} {self._text[:80]!r} ends too early; {_FORMS}")
        return self._rest.pop(0)


def _mix(fields: _Fields) -> Lengths:
    share = fields.share()
    long = fields.lengths()
    return LongDocuments(fields.lengths(), long, share)


def _lognormal(fields: _Fields) -> Lengths:
    return ClippedLognormal(float(fields.tokens()), fields.number(), fields.tokens(), fields.tokens())


_FORMS: Final = f"write one of {', '.join(LENGTHS_FORMS)}"
_BUILDERS: Final[dict[str, Callable[[_Fields], Lengths]]] = {
    "fixed": lambda fields: Fixed(fields.tokens()),
    "uniform": lambda fields: UniformLengths(fields.tokens(), fields.tokens()),
    "lognormal": _lognormal,
    "values": lambda fields: Empirical(fields.several_tokens()),
    "mix": _mix,
}
