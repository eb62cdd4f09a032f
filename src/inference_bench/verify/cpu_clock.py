"""How much processor time did the engine, this client and everybody else take while a server was measured?

In:   the server; the clocks of the system
Out:  CpuShares, and the share of others between two moments
Leaves out: what that does to the times (calibration_points)
Read next by: flow.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from inference_bench.engines.base import RunningServer
from inference_bench.engines.startup import StartedServer
from inference_bench.measure.machine_identity import identify_machine
from inference_bench.measure.processor_time import busy_s
from inference_bench.verify.result import CpuShares


class CpuReading(NamedTuple):
    """Clocks at one moment: real time, and the processor time of everybody, of the engine and of the client."""

    wall_s: float
    busy_s: float | None
    engine_s: float | None
    client_s: float


class CpuClock:
    """The processor time of client and engine from now on."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server if isinstance(server, StartedServer) else None
        self._began_s, self._client_s, self._engine_s = time.perf_counter(), time.process_time(), self.engine_cpu_s()

    def engine_cpu_s(self) -> float | None:
        """What the engine has used by now; None where its process is not ours."""
        return None if self._server is None else self._server.cpu_s()

    def now(self) -> CpuReading:
        """Where all clocks stand."""
        return CpuReading(time.perf_counter(), busy_s(), self.engine_cpu_s(), time.process_time())

    def other_share(self, before: CpuReading) -> float | None:
        """What others have used of all cores since then; None where the engine or the system does not say.

        Formula:  (busy - engine - client) / (wall time · cores)
        """
        after = self.now()
        cores = identify_machine().num_usable_cores
        if cores != os.cpu_count() or None in (before.busy_s, after.busy_s, before.engine_s, after.engine_s):
            return None  # where only some of the cores are ours, who is busy on those is not known
        ours_s = (after.engine_s or 0.0) - (before.engine_s or 0.0) + after.client_s - before.client_s
        others_s = (after.busy_s or 0.0) - (before.busy_s or 0.0) - ours_s
        return max(0.0, others_s) / ((after.wall_s - before.wall_s) * cores)

    def shares(self) -> CpuShares:
        """What both have used since the beginning."""
        engine_s = self.engine_cpu_s()
        return CpuShares(
            wall_s=time.perf_counter() - self._began_s,
            num_cores=identify_machine().num_usable_cores,
            client_cpu_s=time.process_time() - self._client_s,
            engine_cpu_s=None if engine_s is None or self._engine_s is None else engine_s - self._engine_s,
        )
