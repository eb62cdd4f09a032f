"""How many sequences fit, and what a machine delivers when it is full.

In:   free memory and bytes a sequence; or prefill time, step time and batch
Out:  counts of sequences, and FullLoad: the accounting of a machine that is never idle
Leaves out: arrival randomness (see simulate), block rounding (see accounting.allocation)
Read next by: fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inference_bench.errors import RequestError


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
        return 3600 / self.machine_seconds_per_request

    @property
    def output_tokens_per_hour(self) -> float:
        """Output tokens an hour at full load."""
        return self.requests_per_hour * self.output_tokens

    @property
    def prefill_share(self) -> float:
        """Share of the machine's time that goes to prefill."""
        return self.prefill_s / self.machine_seconds_per_request

    @property
    def effective_step_s(self) -> float:
        """A decode step as a user sees it, stretched by the prefills in between.

        Formula:  step / (1 - prefill share)
        """
        return self.step_s / (1 - self.prefill_share)
