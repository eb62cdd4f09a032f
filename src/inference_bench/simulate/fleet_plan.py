"""Several servers of one kind, said in a few numbers; and what such a fleet did, said in a few.

In:   FleetPlan, with the server and its step times
Out:  FleetSetup; FleetFigures of a run
Leaves out: fleets of servers that differ (fleet_setup)
Read next by: sweep, cli, report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.autoscaling import AutoscalingSettings, ScalingEvent
from inference_bench.simulate.disaggregated import Disaggregation, TransferTotals
from inference_bench.simulate.failures import FailureSettings
from inference_bench.simulate.fleet_outcome import FleetOutcome
from inference_bench.simulate.fleet_setup import FleetSetup
from inference_bench.simulate.outcome import Progress
from inference_bench.simulate.replica import ReplicaRecord, ReplicaSetup
from inference_bench.simulate.routing import RouterSettings, Routing
from inference_bench.simulate.settings import ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import GIGA, MEGA, SECONDS_PER_HOUR, format_count, format_seconds, format_si
from inference_bench.workload import Workload

DEFAULT_TRANSFER_BYTES_PER_S: Final = 50.0 * GIGA  # 400 Gbit/s a server
MOST_REPLICAS: Final = 10_000


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """So many servers that are alike.

    Where:   replicas are there at the start: those that prefill, where decode_replicas decode
    Raises:  RequestError for what cannot be
    """

    replicas: int = 1
    routing: Routing = Routing.ROUND_ROBIN
    autoscaling: AutoscalingSettings | None = None
    failures: FailureSettings | None = None
    decode_replicas: int = 0
    transfer_bytes_per_s: float = DEFAULT_TRANSFER_BYTES_PER_S
    transfer_latency_s: float = 0.0

    def __post_init__(self) -> None:
        for count, least, what in ((self.replicas, 1, "replicas"), (self.decode_replicas, 0, "replicas that decode")):
            if not least <= count <= MOST_REPLICAS:
                raise RequestError(
                    f"{format_count(count)} {what} cannot be simulated: {least} to {format_count(MOST_REPLICAS)}"
                )

    def setup(self, server: ServerSetup, step_time: StepTime) -> FleetSetup:
        """The fleet of this server.

        Raises:  RequestError for a policy of batches that nobody joins, or numbers that contradict each other
        """
        one = ReplicaSetup(server, step_time)
        return FleetSetup(
            (one,) * self.replicas, RouterSettings(self.routing), self.autoscaling, self.failures, self._split(one)
        )

    @property
    def num_servers(self) -> int:
        """Servers at the start, those that decode included."""
        return self.replicas + self.decode_replicas

    def _split(self, one: ReplicaSetup) -> Disaggregation | None:
        if not self.decode_replicas:
            return None
        server = replace(one.server, scheduler=replace(one.server.scheduler, prefix_cache=False))
        decode = (replace(one, server=server),) * self.decode_replicas
        return Disaggregation(decode, self.transfer_bytes_per_s, self.transfer_latency_s)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result says of it."""
        said = [
            f"fleet: {_servers(self.replicas)} at the start, all alike, requests sent {self.routing}; the router costs no time"
        ]
        scaling, failures = self.autoscaling, self.failures
        if scaling is not None:
            said.append(
                f"autoscaling from {scaling.min_replicas} to {scaling.max_replicas}: checked every "
                f"{format_seconds(scaling.check_interval_s)} for {scaling.target:g} {scaling.signal} a replica; a replica serves "
                f"{format_seconds(scaling.start_up_s)} after its order, is taken away {format_seconds(scaling.cool_down_s)} after a "
                "change at the earliest"
            )
        if failures is not None:
            said.append(
                "a replica that fails loses its cache; its requests are sent again at once, tokens that were given are kept, up to "
                f"{failures.max_retries} times"
            )
        if self.decode_replicas:
            said.append(
                f"{_servers(self.decode_replicas)} more only for decoding; caches travel at "
                f"{format_si(self.transfer_bytes_per_s, 'B/s')} and {format_seconds(self.transfer_latency_s)}, one link for each "
                "server that prefills"
            )
        return tuple(said)


def _servers(count: int) -> str:
    return f"{format_count(count)} server{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """What several servers did, beside what users got.

    Where:  fractions are of all requests; up_fraction is of the time that is paid, None where none is
    Unit:   seconds
    """

    replicas: tuple[ReplicaRecord, ...]
    failed_fraction: float
    retried_fraction: float
    replica_seconds: float
    up_fraction: float | None
    transfers: TransferTotals
    scaling: tuple[ScalingEvent, ...]


def figures_of(outcome: FleetOutcome) -> FleetFigures:
    """The figures of a run."""
    return FleetFigures(
        outcome.replicas,
        outcome.failed_fraction,
        outcome.retried_fraction,
        outcome.replica_seconds,
        outcome.up_fraction,
        outcome.transfers,
        outcome.scaling,
    )


def fleet_usd_per_million_tokens(
    usd_per_hour: float | None, replica_seconds: float, makespan_s: float, output_tokens_per_s: float
) -> float | None:
    """What a million output tokens cost of servers that are paid from their order to their end.

    Formula:  price an hour · replica hours / (tokens/s · makespan) · 10^6
    Unit:     US dollars; None without a price, or without a token
    """
    tokens = output_tokens_per_s * makespan_s
    if usd_per_hour is None or not tokens:
        return None
    return usd_per_hour * replica_seconds / SECONDS_PER_HOUR / tokens * MEGA


def run_fleet(
    workload: Workload,
    server: ServerSetup,
    step_time: StepTime,
    plan: FleetPlan,
    objective: Objective | None = None,
    progress: Progress | None = None,
) -> FleetOutcome:
    """A workload on so many of a server.

    Raises:  RequestError naming a request that can never run, or for a fleet that cannot be
    """
    from inference_bench.simulate.fleet import simulate_fleet
    from inference_bench.simulate.run import later, refuse_what_never_fits, seen_by_server

    refuse_what_never_fits(workload, server)
    seen, request_s = seen_by_server(workload, server.request_s), server.request_s
    found = simulate_fleet(seen, plan.setup(server, step_time), objective, progress)
    if not request_s:
        return found
    failed_s = tuple(each + request_s for each in found.failed_s)
    return replace(found, outcome=later(found.outcome, workload, request_s), failed_s=failed_s)
