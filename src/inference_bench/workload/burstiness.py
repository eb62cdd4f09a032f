"""How even are the arrivals: the rate that was asked for, the rate there is, and whether requests come in bursts.

In:   arrival times, or a schedule
Out:  index of dispersion; ArrivalSummary, which says all three in one line
Read next by: report, measure.load, simulate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from inference_bench.units import format_number
from inference_bench.workload.arrivals import OpenLoop
from inference_bench.workload.checks import require_positive


def index_of_dispersion(times_s: Sequence[float], bin_s: float = 1.0) -> float | None:
    """Whether arrivals come in bursts: 0 for clockwork, 1 for Poisson, more for bursts longer than a bin.

    Formula:  population variance of the arrivals in a bin / their mean; with n arrivals in B bins that is
              Σ count² / n - n / B
    Where:    bins start at the first arrival; the last, partial bin is dropped
    Unit:     none; times_s in order. None for fewer than two whole bins
    Raises:   RequestError for a bin that is not finite and above zero
    Source:   Cox and Lewis, The Statistical Analysis of Series of Events, 1966, section 4.5
    """
    require_positive(bin_s, "bin", "s")
    if not times_s:
        return None
    first_s = times_s[0]
    num_bins = math.floor((times_s[-1] - first_s) / bin_s)
    if num_bins < 2:
        return None
    counts = Counter(math.floor((time_s - first_s) / bin_s) for time_s in times_s)
    kept = [count for index, count in counts.items() if index < num_bins]
    total = sum(kept)
    return sum(count * count for count in kept) / total - total / num_bins


@dataclass(frozen=True, slots=True)
class ArrivalSummary:
    """What a schedule is: what was asked for, and what came of it.

    Where:    dispersion is the index of dispersion over bins of bin_s
    Unit:     requests per second; None where there is no value
    """

    process: str
    num_requests: int
    nominal_rate: float | None
    realised_rate: float | None
    dispersion: float | None
    bin_s: float = 1.0

    @property
    def text(self) -> str:
        """The summary in one line."""
        rates = f"{format_number(self.nominal_rate)} nominal, {format_number(self.realised_rate)} realised requests/s"
        bins = f"index of dispersion {format_number(self.dispersion)} over bins of {self.bin_s:g} s"
        return f"{self.process}: {self.num_requests} requests, {rates}, {bins}"


def summarise_arrivals(arrival: OpenLoop, bin_s: float = 1.0) -> ArrivalSummary:
    """The rates and the burstiness of a schedule.

    Raises:   RequestError for a bin that is not finite and above zero
    """
    return ArrivalSummary(
        arrival.process,
        len(arrival),
        arrival.nominal_rate,
        arrival.realised_rate,
        index_of_dispersion(arrival.times_s, bin_s),
        bin_s,
    )
