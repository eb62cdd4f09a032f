"""Several servers: which, and how they are run.

In:   ReplicaSetups; settings of routing, autoscaling, failures, disaggregation
Out:  FleetSetup
Read next by: fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.simulate.autoscaling import AutoscalingSettings
from inference_bench.simulate.disaggregated import Disaggregation
from inference_bench.simulate.failures import FailureSettings
from inference_bench.simulate.replica import ReplicaSetup
from inference_bench.simulate.routing import RouterSettings

_IN_TURN: Final = RouterSettings()


@dataclass(frozen=True, slots=True)
class FleetSetup:
    """Several servers and how they are run.

    Where:    replicas are there from the start, those that only prefill where there is a disaggregation; counted from 0,
              then those that decode, then those that are ordered, which are like the first of their kind
    Raises:   RequestError for no replica, policies that run batches, numbers outside the autoscaler's, failures of
              replicas that cannot be
    """

    replicas: tuple[ReplicaSetup, ...]
    router: RouterSettings = _IN_TURN
    autoscaling: AutoscalingSettings | None = None
    failures: FailureSettings | None = None
    disaggregation: Disaggregation | None = None

    def __post_init__(self) -> None:
        if not self.replicas:
            raise RequestError("a fleet without a replica serves nobody; give at least one")
        for index, each in enumerate(self.all_replicas):
            if each.server.scheduler.is_batched:
                raise RequestError(
                    f"replica {index} has the policy {each.server.scheduler.policy}, which runs batches that nobody joins; "
                    "several servers are simulated with reserve, paged or chunked"
                )
        _require_within(self.autoscaling, len(self.replicas))
        if self.disaggregation is not None:
            _require_within(self.disaggregation.autoscaling, len(self.disaggregation.decode))
        self._require_existing_replicas()

    @property
    def all_replicas(self) -> tuple[ReplicaSetup, ...]:
        """Those that are there from the start, by index."""
        return self.replicas + (() if self.disaggregation is None else self.disaggregation.decode)

    @property
    def most_replicas(self) -> int:
        """How many there may be at once."""
        split = self.disaggregation
        count = len(self.replicas) if self.autoscaling is None else self.autoscaling.max_replicas
        if split is None:
            return count
        return count + (len(split.decode) if split.autoscaling is None else split.autoscaling.max_replicas)

    def _require_existing_replicas(self) -> None:
        grows = self.autoscaling is not None or (
            self.disaggregation is not None and self.disaggregation.autoscaling is not None
        )
        count = len(self.all_replicas)
        for failure in () if self.failures is None or grows else self.failures.scheduled:
            if failure.replica >= count:
                raise RequestError(f"replica {failure.replica} is to fail; there are {count}, counted from 0")


def _require_within(scaling: AutoscalingSettings | None, count: int) -> None:
    if scaling is not None and not scaling.min_replicas <= count <= scaling.max_replicas:
        raise RequestError(
            f"{count} replicas at the start are outside the {scaling.min_replicas} to {scaling.max_replicas} allowed"
        )
