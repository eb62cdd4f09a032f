"""When replicas fail, for how long, and what becomes of the requests that were there.

In:   FailureSettings: failures at given times, or a mean time between them
Out:  FailureClock, which says when a replica fails next
Leaves out: what is lost with it (fleet)
Read next by: fleet, capacity.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_bench.errors import RequestError
from inference_bench.workload import OpenLoop, Workload
from inference_bench.workload.checks import require_seed

MOST_FAILURES: Final = 1_000_000  # of a run: some fifteen seconds
_STREAM = 1_000_003  # apart the seeds of replicas


class Failure(NamedTuple):
    """One replica fails.

    Where:  down_for_s until it serves again, with an empty cache; infinite: it never does
    Unit:   seconds since the workload began
    """

    replica: int
    at_s: float
    down_for_s: float


@dataclass(frozen=True, slots=True)
class FailureSettings:
    """What fails, and what is done about it.

    Formula:  time from ready to failure = expovariate(1 / mean_up_s), from failure to ready = expovariate(1 / mean_down_s),
              one random.Random(seed · 1000003 + replica) for each replica
    Where:    scheduled failures and drawn ones add up, and one that would hit a replica which is not up is none; the router
              learns of a failure detection_s after it, or as soon as the replica is back; until then it sends requests
              there. A request that was there is sent again, up to max_retries times (0: it fails): prompt and tokens
              given are read again. A replica that never comes back is paid until the router knows
    Unit:     seconds
    Raises:   RequestError for what cannot be
    """

    scheduled: tuple[Failure, ...] = ()
    mean_up_s: float | None = None
    mean_down_s: float | None = None
    seed: int = 0
    detection_s: float = 0.0
    max_retries: int = 10

    def __post_init__(self) -> None:
        for failure in self.scheduled:
            if failure.replica < 0 or not 0 <= failure.at_s < math.inf or not failure.down_for_s >= 0:
                raise RequestError(
                    f"a failure of replica {failure.replica} at {failure.at_s} s for {failure.down_for_s} s cannot be: "
                    "give a replica counted from 0, a time of 0 or more, and how long, 0 or more"
                )
        if (self.mean_up_s is None) != (self.mean_down_s is None):
            raise RequestError("failures are drawn from the mean time up and the mean time down; give both, or neither")
        for mean_s in (self.mean_up_s, self.mean_down_s):
            if mean_s is not None and not 0 < mean_s < math.inf:
                raise RequestError(f"a mean time up or down of {mean_s} s cannot be; it must be above 0 and finite")
        if not 0 <= self.detection_s < math.inf:
            raise RequestError(f"a failure is detected after {self.detection_s} s; it must be 0 or more and finite")
        if self.max_retries < 0:
            raise RequestError(f"a request is sent again {self.max_retries} times at most; it must be 0 or more")
        require_seed(self.seed)

    def expected_failures(self, num_replicas: int, span_s: float) -> float:
        """How many failures are drawn of so many replicas in so long a time, on average.

        Formula:  replicas · span / (mean time up + mean time down)
        Unit:     a count; scheduled failures are not in it
        """
        if self.mean_up_s is None or self.mean_down_s is None:
            return 0.0
        return num_replicas * span_s / (self.mean_up_s + self.mean_down_s)


def refuse_endless_failures(settings: FailureSettings | None, num_replicas: int, workload: Workload) -> None:
    """So many failures that drawing them would be most of the run are refused before it.

    Raises:   RequestError
    """
    if settings is None:
        return
    expected = settings.expected_failures(num_replicas, span_of(workload))
    if expected > MOST_FAILURES:
        servers = f"{num_replicas} server{'' if num_replicas == 1 else 's'}"
        raise RequestError(
            f"{servers} would fail some {expected:.3g} times in the {span_of(workload):.3g} s of the workload; up to "
            f"{MOST_FAILURES:,} failures are simulated: give longer times between them, a higher rate, or fewer requests"
        )


def span_of(workload: Workload) -> float:
    """How long a workload lasts at least: until its last arrival, or of thinking between answers.

    Unit:     seconds
    """
    arrival = workload.arrival
    return arrival.times_s[-1] if isinstance(arrival, OpenLoop) else arrival.thinking_s


class FailureClock:
    """The failures that are drawn, each replica's from a generator of its own: others do not move them."""

    def __init__(self, settings: FailureSettings | None) -> None:
        self._settings = settings
        self._draws: dict[int, random.Random] = {}
        self._num_drawn = 0

    def next_failure(self, replica: int, now_s: float) -> Failure | None:
        """The next failure of a replica that is up from now on; None where none are drawn.

        Raises:   RequestError where so many were drawn that the run would not end in useful time
        """
        settings = self._settings
        if settings is None or settings.mean_up_s is None or settings.mean_down_s is None:
            return None
        if replica not in self._draws:
            self._draws[replica] = random.Random(settings.seed * _STREAM + replica)
        self._num_drawn += 1
        if self._num_drawn > 2 * MOST_FAILURES:
            raise RequestError(
                f"more than {2 * MOST_FAILURES:,} failures were drawn before the requests ended: give longer times between them"
            )
        draws = self._draws[replica]
        up_s = draws.expovariate(1 / settings.mean_up_s)
        return Failure(replica, now_s + up_s, draws.expovariate(1 / settings.mean_down_s))
