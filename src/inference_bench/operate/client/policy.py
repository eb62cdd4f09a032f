"""What is allowed, and what does each way to end mean: every rule of the client that is a number or a table.

In:   the caller's own numbers, checked once
Out:  Policy and BreakerPolicy; RULES, which say for each AttemptEnd whether to ask again and what it says of the endpoint
Leaves out: doing any of it (attempts, breaker)
Read next by: all others here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.operate.answers import AttemptEnd
from inference_bench.units import MEBI

MOST_S: Final = 86_400.0

_HEADER_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_OVERLOADED: Final = 503


class Health(StrEnum):
    """What one attempt says of its endpoint."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"  # it says nothing: this side stopped, or the endpoint lives and only limits this caller


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows from one way to end."""

    is_retried: bool
    health: Health


RULES: Final[Mapping[AttemptEnd, Rule]] = MappingProxyType({
    AttemptEnd.COMPLETED: Rule(False, Health.GOOD),
    AttemptEnd.BAD_REQUEST: Rule(False, Health.GOOD),  # it answered; the request was wrong, and would be wrong elsewhere
    AttemptEnd.REFUSED: Rule(True, Health.UNKNOWN),
    AttemptEnd.SERVER_ERROR: Rule(True, Health.BAD),
    AttemptEnd.NOT_REACHED: Rule(True, Health.BAD),
    AttemptEnd.GARBAGE: Rule(True, Health.BAD),
    AttemptEnd.TIMED_OUT: Rule(True, Health.BAD),
    AttemptEnd.INTERRUPTED: Rule(False, Health.BAD),  # the caller has text: asking again might say something else
    AttemptEnd.CANCELLED: Rule(False, Health.UNKNOWN),
    AttemptEnd.BREAKER_OPEN: Rule(True, Health.UNKNOWN),
})  # fmt: skip


def health_of(end: AttemptEnd, status: int | None, *, is_cut_short: bool) -> Health:
    """What an attempt says of its endpoint.

    Where:    is_cut_short says that it had less time than the policy gives an attempt, because little of the budget was left
    """
    if is_cut_short:
        return Health.UNKNOWN
    if end is AttemptEnd.REFUSED and status == _OVERLOADED:
        return Health.BAD
    return RULES[end].health


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When an endpoint is left alone, and how it comes back.

    Where:    it opens when, within the last window_s, at least least_failures attempts failed and they were at least
              failure_fraction of those that say anything; after open_s it lets num_probes attempts at a time through, and
              num_successes of them close it; one that fails opens it again
    Raises:   RequestError
    """

    window_s: float = 10.0
    least_failures: int = 5
    failure_fraction: float = 0.5
    open_s: float = 5.0
    num_probes: int = 1
    num_successes: int = 1

    def __post_init__(self) -> None:
        _check_s("window of the breaker", self.window_s)
        _check_s("time that the breaker stays open", self.open_s)
        _check_count("failures that open the breaker", self.least_failures)
        _check_count("probes of the breaker at a time", self.num_probes)
        _check_count("successes that close the breaker", self.num_successes)
        if not 0 < self.failure_fraction <= 1:
            raise RequestError(
                f"the fraction of failures that opens the breaker is {self.failure_fraction}; it must be above 0, at most 1"
            )


@dataclass(frozen=True, slots=True)
class Policy:
    """How long, how often and how a request is tried.

    Unit:     seconds
    Where:    budget_s is for everything together, pauses and fallbacks included. first_token_s counts from the start of an attempt,
              stall_s from one token to the next. tries_each is how often one endpoint is asked, most_attempts how often all of them.
              The n-th pause is drawn evenly from 0 to backoff_base_s · 2^(n-1), at most backoff_most_s. A Retry-After longer than
              retry_after_most_s counts as one that does not fit. No attempt begins with less than least_left_s of the budget.
              hedge_after_s is when a second attempt starts beside one that has no token yet; None: never. keep_alive_s is how long
              an idle connection is kept for the next attempt; 0: not at all
    Raises:   RequestError
    """

    budget_s: float = 60.0
    connect_s: float = 2.0
    first_token_s: float = 20.0
    stall_s: float = 10.0
    tries_each: int = 3
    most_attempts: int = 6
    backoff_base_s: float = 0.1
    backoff_most_s: float = 5.0
    retry_after_most_s: float = 30.0
    least_left_s: float = 0.05
    hedge_after_s: float | None = None
    idempotency_header: str | None = "Idempotency-Key"
    max_reply_bytes: int = 16 * MEBI
    keep_alive_s: float = 0.0
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)

    def __post_init__(self) -> None:
        _check_s("budget", self.budget_s)
        _check_s("time limit to connect", self.connect_s)
        _check_s("time limit for the first token", self.first_token_s)
        _check_s("time limit between tokens", self.stall_s)
        _check_s("first pause", self.backoff_base_s)
        _check_s("longest pause", self.backoff_most_s)
        _check_s("longest Retry-After", self.retry_after_most_s)
        _check_s("least time for an attempt", self.least_left_s)
        _check_s("time that an idle connection is kept", self.keep_alive_s, may_be_0=True)
        _check_count("tries at each endpoint", self.tries_each)
        _check_count("attempts in all", self.most_attempts)
        _check_count("bytes of a reply", self.max_reply_bytes)
        if self.hedge_after_s is not None:
            _check_s("time until a hedge", self.hedge_after_s)
        if self.idempotency_header is not None and not _HEADER_NAME.fullmatch(self.idempotency_header):
            raise RequestError(
                "the idempotency header must be a name of letters, digits and -, such as Idempotency-Key"
            )


def check_budget(budget_s: float) -> None:
    """A request's own budget.

    Raises:   RequestError
    """
    _check_s("budget", budget_s)


def _check_s(what: str, value_s: float, *, may_be_0: bool = False) -> None:
    is_number = isinstance(value_s, int | float) and not isinstance(value_s, bool) and math.isfinite(value_s)
    if not is_number or not 0 <= value_s <= MOST_S or (not value_s and not may_be_0):
        least = "0 or above" if may_be_0 else "above 0"
        raise RequestError(f"the {what} is {value_s!r} s; it must be {least} and at most {MOST_S:g}")


def _check_count(what: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"the number of {what} is {value!r}; it must be a whole number, at least 1")
