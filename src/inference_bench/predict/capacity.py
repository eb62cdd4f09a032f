"""How many sequences fit, what a machine delivers when it is full, and how many machines a daily volume needs.

In:   free memory and bytes a sequence; or prefill time, step time and batch; or a volume and a rate
Out:  counts of sequences; FullLoad, the accounting of a machine that is never idle; Demand, in replicas
Leaves out: arrival randomness (see queueing and simulate), block rounding (see accounting.allocation)
Read next by: fit, plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from inference_bench.errors import RequestError
from inference_bench.units import SECONDS_PER_DAY, SECONDS_PER_HOUR


def count_sequences(free_bytes: int, bytes_per_sequence: int) -> int:
    """How many whole sequences fit in free memory; 0 when none does or memory is short.

    Formula:  floor(free / KV(prompt + output))
    """
    if bytes_per_sequence < 1:
        raise RequestError(f"a sequence of {bytes_per_sequence} bytes cannot be counted; it must take at least 1")
    return max(0, free_bytes) // bytes_per_sequence


def count_shared_prefix_sequences(free_bytes: int, prefix_bytes: int, own_bytes_per_sequence: int) -> int:
    """How many sequences fit when they share one prefix, whose cache is paid once.

    Formula:  floor((free - KV(prefix)) / KV(own part))
    """
    return count_sequences(free_bytes - prefix_bytes, own_bytes_per_sequence)


def largest_that_fits(fits: Callable[[int], bool], limit: int) -> int:
    """The largest n in 0..limit for which `fits(n)` holds, given that it holds up to some n and never after."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@dataclass(frozen=True, slots=True)
class FullLoad:
    """A machine that always has work: what each request costs it and what it delivers.

    Formula:  GPU-time a request = prefill + (n_out - 1) · step(B) / B
    Unit:     seconds; per hour
    Ignores:  queueing and partial batches
    """

    prefill_s: float
    step_s: float
    batch: int
    output_tokens: int

    @property
    def machine_seconds_per_request(self) -> float:
        """GPU-time one request takes."""
        return self.prefill_s + (self.output_tokens - 1) * self.step_s / self.batch

    @property
    def requests_per_hour(self) -> float:
        """Requests an hour at full load."""
        return SECONDS_PER_HOUR / self.machine_seconds_per_request

    @property
    def output_tokens_per_hour(self) -> float:
        """Output tokens an hour at full load."""
        return self.requests_per_hour * self.output_tokens

    @property
    def prefill_share(self) -> float:
        """Share of the machine's time that goes to prefill."""
        return self.prefill_s / self.machine_seconds_per_request

    @property
    def requests_per_s(self) -> float:
        """Requests a second at full load."""
        return 1 / self.machine_seconds_per_request

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens a second at full load."""
        return self.output_tokens / self.machine_seconds_per_request

    @property
    def effective_step_s(self) -> float | None:
        """A decode step as a user sees it, stretched by the prefills in between; None where one token has no step.

        Formula:  step / (1 - prefill share)
        """
        if self.output_tokens == 1:
            return None
        return self.step_s / (1 - self.prefill_share)

    @property
    def residence_s(self) -> float:
        """How long a request stays in the batch after its first token.

        Formula:  (n_out - 1) · effective step = B · machine time a request
        """
        return (self.output_tokens - 1) * (self.effective_step_s or 0.0)


@dataclass(frozen=True, slots=True)
class Demand:
    """A daily volume with a peak, and the replicas that carry the peak.

    Formula:  peak rate = volume / 86400 · peak factor;
              replicas = ceil(peak rate / (rate of one replica · target utilisation))
    Where:    peak_factor is the peak rate over the mean one; target_utilisation what a replica may be loaded to at the peak
    Unit:     requests a day, requests a second
    Ignores:  that arrivals are random within the peak: the target leaves room for it
    """

    requests_per_day: float
    peak_factor: float
    target_utilisation: float
    replica_requests_per_s: float

    @property
    def mean_requests_per_s(self) -> float:
        """The mean rate of arrivals."""
        return self.requests_per_day / SECONDS_PER_DAY

    @property
    def peak_requests_per_s(self) -> float:
        """The rate of arrivals at the peak."""
        return self.mean_requests_per_s * self.peak_factor

    @property
    def replicas(self) -> int:
        """Machines needed; a rounding error of the division does not buy one more."""
        needed = self.peak_requests_per_s / (self.replica_requests_per_s * self.target_utilisation)
        return max(1, math.ceil(round(needed, 9)))

    @property
    def mean_utilisation(self) -> float:
        """Share of the bought machine time that is busy over a day."""
        return self.mean_requests_per_s / (self.replicas * self.replica_requests_per_s)

    @property
    def peak_utilisation(self) -> float:
        """The same at the peak."""
        return self.peak_requests_per_s / (self.replicas * self.replica_requests_per_s)

    @property
    def headroom_fraction(self) -> float:
        """How much of what the replicas can do is left at the peak."""
        return 1 - self.peak_utilisation

    @property
    def busy_hours_per_day(self) -> float:
        """Machine hours a day that carry requests."""
        return self.requests_per_day / self.replica_requests_per_s / SECONDS_PER_HOUR
