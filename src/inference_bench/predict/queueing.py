"""Two laws that check a plan: Little's, which always holds, and the M/M/1 queue, which holds where its assumptions do.

In:   rates, times, utilisations
Out:  mean numbers and mean times
Leaves out: batching, bursts, percentiles: what depends on them is simulated
Read next by: plan.
"""

from __future__ import annotations

from typing import Final

from inference_bench.errors import RequestError

LITTLE_ASSUMPTIONS: Final = "a steady state; no assumption about the arrivals or the order of service"
MM1_ASSUMPTIONS: Final = (
    "one server that takes one request at a time, Poisson arrivals, exponential service times; an engine batches, so this is "
    "a rule of thumb for the wait and no prediction"
)


def little_mean_number(requests_per_s: float, mean_time_s: float) -> float:
    """How many requests are inside on average.

    Formula:  n = λ · w
    Unit:     requests
    Source:   Little 1961, A Proof for the Queuing Formula L = λW

    >>> round(little_mean_number(0.332, 54.2), 1)
    18.0
    """
    return requests_per_s * mean_time_s


def mm1_mean_time_s(service_s: float, utilisation: float) -> float:
    """Mean time in an M/M/1 system, waiting and service together.

    Formula:  S / (1 - ρ)
    Unit:     seconds
    Raises:   RequestError for a utilisation outside 0..1, 1 excluded: the queue then grows without end
    Source:   Kleinrock 1975, Queueing Systems, volume 1, section 3.2

    >>> mm1_mean_time_s(1.0, 0.5)
    2.0
    """
    if not 0 <= utilisation < 1:
        raise RequestError(f"a utilisation of {utilisation:g} has no steady state; it must lie in 0..1, 1 excluded")
    return service_s / (1 - utilisation)


def interactive_users(requests_per_s: float, response_s: float, think_s: float) -> float:
    """How many people keep a machine busy when each thinks for a while between an answer and the next request.

    Formula:  N = λ · (R + Z)
    Unit:     people
    Source:   Little's law over the closed loop (the interactive response time law; Denning and Buzen 1978)
    """
    return requests_per_s * (response_s + think_s)
