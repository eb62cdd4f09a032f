"""How is a client asked to run a case, and what did it say? Our own first.

In:   a case and the address where it is served
Out:  an Observed
Leaves out: other tools (tools), what is right (oracle)
Read next by: suite.
"""

from __future__ import annotations

from typing import Final, Protocol

from inference_bench import metrics
from inference_bench.conform.oracle import COMPLETED, ENDED, LOST, Observed
from inference_bench.conform.script import TOKENS, Case
from inference_bench.errors import MeasurementError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.target import Endpoint, Target
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.workload import RequestShape, closed_loop

OWN: Final = "inference-bench"

_PROMPT_TOKENS: Final = 5
_ENDED_IN_ORDER: Final = "the stream ended"  # how a record tells it from a connection that broke


class Adapter(Protocol):
    """One client under test."""

    @property
    def name(self) -> str:
        """What the client is called on the command line and in the matrix."""
        ...

    def why_absent(self) -> str | None:
        """Why it cannot run here; None when it can."""
        ...

    def run(self, case: Case, url: str) -> Observed:
        """Send the case's requests and say what came.

        Raises:   MeasurementError when the client itself did not work
        """
        ...


class OwnClient:
    """This package's client, by the path that `load` takes."""

    name = OWN

    def why_absent(self) -> str | None:
        """It is always here."""
        return None

    def run(self, case: Case, url: str) -> Observed:
        """One request in a closed loop; a loop that gives up because all failed has written its record before."""
        target = Target(url, model="conform", endpoint=Endpoint.CHAT if case.is_chat else Endpoint.COMPLETIONS)
        workload = closed_loop(case.name, (RequestShape(_PROMPT_TOKENS, TOKENS),), 1, 1)
        records: list[RequestRecord] = []
        limits = Timeouts(connect_s=case.timeout_s, idle_s=case.timeout_s, total_s=case.timeout_s)
        try:
            run_load(target, workload, LoadOptions(writer=records.append, timeouts=limits))
        except MeasurementError:
            if not records:
                raise
        return observed_in(records[0])


def observed_in(record: RequestRecord) -> Observed:
    """What a record says, in the oracle's words."""
    gaps_s = metrics.chunk_gaps_s(record)
    is_completed = record.status is RequestStatus.COMPLETED
    ending = None
    if record.status is RequestStatus.TRUNCATED:
        ending = ENDED if (record.error or "").startswith(_ENDED_IN_ORDER) else LOST
    return Observed(
        status=COMPLETED if is_completed else record.status.value,
        tokens=record.output_tokens,
        chunks=len(record.chunk_times_s),
        ending=ending,
        has_remark=record.error is not None if is_completed else None,
        ttft_s=metrics.ttft_s(record),
        gap_mean_s=sum(gaps_s) / len(gaps_s) if gaps_s else None,
        tpot_s=metrics.tpot_s(record),
        e2e_s=metrics.e2e_s(record),
        close_s=metrics.time_to_close_s(record),
    )
