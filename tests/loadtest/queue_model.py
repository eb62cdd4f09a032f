"""A queue whose capacity is known, in virtual time: customers who all take the same time, one clerk or several.

Service takes one unit of time and the order is that of arrival, so with c clerks customer i begins when it is there and customer
i - c has gone: c interleaved queues of one clerk, each solved at once (Lindley).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference_bench.loadtest.capacity_search import Trial


@dataclass(frozen=True)
class Queue:
    """Requests miss that wait longer than `limit` services; gaps are gamma, of coefficient of variation cv (1: Poisson)."""

    limit: float
    clerks: int = 1
    cv: float = 1.0

    def waits(self, rate: float, count: int, seed: tuple[int, ...]) -> tuple[Any, Any]:
        """(arrival times, waits): one seed draws the same unit-rate gaps at every rate."""
        shape = 1 / self.cv**2
        times = np.cumsum(np.random.default_rng(seed).gamma(shape, 1 / shape, size=count)) / rate
        waits = np.empty(count)
        for clerk in range(self.clerks):
            mine = times[clerk :: self.clerks]
            work = np.concatenate([[0.0], np.cumsum(1 - np.diff(mine))])
            waits[clerk :: self.clerks] = work - np.minimum.accumulate(work)
        return times, waits

    def trial(self, base: int) -> Callable[[float, int, int], Trial]:
        """One server to search: runs begin empty, and what comes before it has filled is not judged."""

        def run(rate: float, num_requests: int, seed: int) -> Trial:
            settle = math.ceil(self.limit * rate)
            count = num_requests + settle
            times, waits = self.waits(rate, count, (base, seed))
            misses = (waits > self.limit)[settle:].astype(np.uint8).tobytes()
            ends = times + waits + 1  # in order, since all take the same time

            def inside(at: float) -> int:
                return int(np.searchsorted(times, at, "right") - np.searchsorted(ends, at, "right"))

            quarter = count // 4
            growth = (inside(times[-1]) - inside(times[quarter])) / (count - quarter)
            return Trial(count, misses, bool(growth > max(0.05, 4 / math.sqrt(count))))

        return run

    def long_run_capacity(self, share: float, count: int = 2_000_000) -> float:
        """By bisection over one long run, scaled: no formula, no search that is tested."""
        low, high = 0.01 * self.clerks, 0.999 * self.clerks
        for _ in range(14):
            rate = (low + high) / 2
            _, waits = self.waits(rate, count, (987, 654))
            low, high = (rate, high) if float((waits[1000:] <= self.limit).mean()) >= share else (low, rate)
        return (low + high) / 2


def md1_capacity(limit: float, share: float) -> float:
    """The rate at which this share of customers of an M/D/1 queue waits no longer than `limit` services.

    Source:  Erlang 1909: P(W <= t) = (1 - r) sum over k <= t of (-r (t - k))^k / k! · e^(r (t - k))
    """

    def within(rate: float) -> float:
        terms = (
            (-rate * (limit - k)) ** k / math.factorial(k) * math.exp(rate * (limit - k))
            for k in range(math.floor(limit) + 1)
        )
        return (1 - rate) * math.fsum(terms)

    low, high = 1e-6, 1 - 1e-6
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) >= share else (low, middle)
    return low
