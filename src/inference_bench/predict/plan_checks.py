"""The checks of a plan: does it agree with Little's law, and how long would an M/M/1 queue make requests wait.

In:   FullLoad, Demand
Out:  LittleCheck, QueueCheck
Leaves out: what the laws are (see queueing)
Read next by: plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.predict.capacity import Demand, FullLoad
from inference_bench.predict.queueing import little_mean_number, mm1_mean_time_s

_UTILISATIONS: Final = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class LittleCheck:
    """The rate and the residence of a full batch, whose product must be the batch.

    Where:  residence_s is from the first token to the last, prefills of others in between
    Unit:   requests a second, seconds, requests
    """

    requests_per_s: float
    residence_s: float
    mean_requests: float
    batch: int


@dataclass(frozen=True, slots=True)
class QueueCheck:
    """Mean time of a request at a replica if it were an M/M/1 queue.

    Where:  service_s is the machine time of a request; utilisation that of the peak, None without a daily volume;
            mean_time_s is None at a utilisation of 1 and more: the queue grows without end
    Unit:   seconds
    """

    service_s: float
    utilisation: float | None
    mean_time_s: float | None
    by_utilisation: tuple[tuple[float, float], ...]


def little_check(load: FullLoad) -> LittleCheck | None:
    """Rate times residence beside the batch; None where one token leaves nothing to reside for."""
    if load.output_tokens == 1:
        return None
    rate, residence = load.requests_per_s, load.residence_s
    return LittleCheck(rate, residence, little_mean_number(rate, residence), load.batch)


def queue_check(load: FullLoad, demand: Demand | None) -> QueueCheck:
    """How waiting grows with utilisation."""
    service = load.machine_seconds_per_request
    busy = None if demand is None else demand.peak_utilisation
    return QueueCheck(
        service_s=service,
        utilisation=busy,
        mean_time_s=None if busy is None or busy >= 1 else mm1_mean_time_s(service, busy),
        by_utilisation=tuple((share, mm1_mean_time_s(service, share)) for share in _UTILISATIONS),
    )
