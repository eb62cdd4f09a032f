"""A server that stands still for part of the time: what its latencies are in closed form, and what two kinds of load see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.target import Endpoint, Target
from inference_bench.metrics import ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import quantile
from inference_bench.workload import Constant, Fixed, RequestShape, Workload, closed_loop, generate

from .frozen_server import FrozenServer

QUANTILES = (0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class Freeze:
    """Frozen for `frozen_s` of every `period_s`; an answer takes no time otherwise.

    Formula:  a request that is planned while the server is frozen waits until it is not: from a plan that is even in
              time the wait is 0 for 1 - f of the requests, f = frozen / period, and even on 0 .. frozen for the others
    """

    frozen_s: float
    period_s: float

    @property
    def share(self) -> float:
        return self.frozen_s / self.period_s

    @property
    def mean_s(self) -> float:
        return self.share * self.frozen_s / 2

    def quantile_s(self, q: float) -> float:
        return max(0.0, (q - (1 - self.share)) / self.share * self.frozen_s)

    def answer(self) -> list[float]:
        return [*(self.quantile_s(q) for q in QUANTILES), self.mean_s]

    def server(self) -> FrozenServer:
        return FrozenServer(self.frozen_s, self.period_s)


def send(url: str, workload: Workload) -> Sequence[RequestRecord]:
    target = Target(url, model="conform", endpoint=Endpoint.COMPLETIONS)
    records = run_load(target, workload, LoadOptions()).records
    assert len(records) == len(workload.requests)
    assert all(record.status is RequestStatus.COMPLETED for record in records)
    return records


def open_loop(freeze: Freeze, url: str, rate: float) -> Sequence[RequestRecord]:
    """A constant rate over one whole period, wherever it begins."""
    return send(url, generate(Constant(rate), Fixed(8), Fixed(1), round(rate * freeze.period_s)))


def in_turn(url: str, num_requests: int) -> Sequence[RequestRecord]:
    """One user who waits for each answer."""
    return send(url, closed_loop("in turn", (RequestShape(8, 1),), 1, num_requests))


def from_plan(records: Sequence[RequestRecord]) -> list[float]:
    """Our latency: from the planned send. Quantiles, then the mean."""
    return _summary([wait for record in records if (wait := ttft_s(record)) is not None])


def from_send(records: Sequence[RequestRecord]) -> list[float]:
    """What a clock that starts at the actual send says."""
    return _summary([record.chunk_times_s[0] - record.sent_s for record in records])


def _summary(waits_s: list[float]) -> list[float]:
    return [*(quantile(waits_s, q) for q in QUANTILES), sum(waits_s) / len(waits_s)]
