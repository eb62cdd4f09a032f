"""Whom not to ask for a while: a circuit breaker by time, which lets a few attempts find out whether an endpoint is back.

In:   what each attempt said of the endpoint, a monotonic clock
Out:  Permit for an attempt, or None; BreakerState
Leaves out: what counts as a failure (policy.RULES)
Read next by: attempts.

An attempt that was let through before the state changed says nothing about the state since: a slow failure from before does not open
a breaker that has just closed. Breakers of other packages were looked at (docs/client.md): they go by the wall clock, which steps, or
let every caller probe at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from inference_bench.operate.client.policy import BreakerPolicy, Health

_NUM_SLICES: Final = 10  # of the window, which moves on by one of them


class BreakerState(StrEnum):
    """Whether an endpoint is asked."""

    CLOSED = "closed"  # as usual
    OPEN = "open"  # not at all
    HALF_OPEN = "half_open"  # by a few, to find out


class Permit:
    """Leave to try once; has to be ended, however the attempt ends.

    Where:    is_probe says that the breaker waits for the first token, to find out
    """

    __slots__ = ("_breaker", "_era", "_is_over", "is_probe")

    def __init__(self, breaker: Breaker, era: int, is_probe: bool) -> None:
        self._breaker, self._era, self.is_probe = breaker, era, is_probe
        self._is_over = False

    def has_token(self) -> None:
        """The first token came: a probe has found out what it was to find out, however long its answer takes."""
        if self.is_probe and not self._is_over:
            self._breaker.end_probe(self._era, Health.GOOD)
            self.is_probe, self._era = False, self._breaker.era

    def end(self, health: Health) -> None:
        """The attempt is over."""
        if self._is_over:
            return
        self._is_over = True
        if self.is_probe:
            self._breaker.end_probe(self._era, health)
        else:
            self._breaker.count(self._era, health)


class Breaker:
    """One endpoint's; `on_change` is told of each new state.

    Where:    era counts the states so far
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        clock: Callable[[], float],
        on_change: Callable[[BreakerState], None] | None = None,
    ) -> None:
        self.era = 0
        self._policy, self._clock, self._on_change = policy, clock, on_change
        self._state = BreakerState.CLOSED
        self._until_s = 0.0
        # number of the slice, attempts that say something, failures among them
        self._slices: deque[list[int]] = deque()
        self._num_probing = self._num_succeeded = 0

    @property
    def state(self) -> BreakerState:
        """As it is now; an open one whose time has passed would let a probe through."""
        is_due = self._state is BreakerState.OPEN and self._clock() >= self._until_s
        return BreakerState.HALF_OPEN if is_due else self._state

    @property
    def open_for_s(self) -> float:
        """Until a probe may pass; 0 where one may, or need not."""
        return max(0.0, self._until_s - self._clock()) if self._state is BreakerState.OPEN else 0.0

    def admit(self) -> Permit | None:
        """Leave to try; None while the endpoint is to be left alone."""
        if self._state is BreakerState.OPEN and self.state is BreakerState.HALF_OPEN:
            self._change(BreakerState.HALF_OPEN)
        if self._state is BreakerState.CLOSED:
            return Permit(self, self.era, False)
        if self._state is BreakerState.OPEN or self._num_probing >= self._policy.num_probes:
            return None
        self._num_probing += 1
        return Permit(self, self.era, True)

    def count(self, era: int, health: Health) -> None:
        """An attempt that was let through as usual has ended."""
        if era != self.era or health is Health.UNKNOWN:
            return
        if self._state is BreakerState.HALF_OPEN:
            # a probe that broke off after its first token, while more have to succeed
            if health is Health.BAD:
                self._open()
            return
        number = int(self._clock() / self._policy.window_s * _NUM_SLICES)
        while self._slices and self._slices[0][0] <= number - _NUM_SLICES:
            self._slices.popleft()
        if not self._slices or self._slices[-1][0] != number:
            self._slices.append([number, 0, 0])
        self._slices[-1][1] += 1
        if health is Health.BAD:
            self._slices[-1][2] += 1
            self._judge()

    def end_probe(self, era: int, health: Health) -> None:
        """A probe has found out, or has not."""
        if era != self.era:
            return
        self._num_probing -= 1
        if health is Health.BAD:
            self._open()
        elif health is Health.GOOD:
            self._num_succeeded += 1
            if self._num_succeeded >= self._policy.num_successes:
                self._change(BreakerState.CLOSED)

    def _judge(self) -> None:
        num_all, num_failed = (sum(each[place] for each in self._slices) for place in (1, 2))
        if num_failed >= self._policy.least_failures and num_failed >= self._policy.failure_fraction * num_all:
            self._open()

    def _open(self) -> None:
        self._until_s = self._clock() + self._policy.open_s
        self._change(BreakerState.OPEN)

    def _change(self, state: BreakerState) -> None:
        self._state = state
        self.era += 1
        self._num_probing = self._num_succeeded = 0
        self._slices.clear()
        if self._on_change is not None:
            self._on_change(state)
