"""A server of known law for tests of predicted loads: its model, and ways to send that answer as it is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inference_bench.measure.client_health import ClientHealth
from inference_bench.measure.load import LoadResult
from inference_bench.measure.target import Target
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, TokenCountSource
from inference_bench.simulate.presets import llama_cpp_settings
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.settings import KvMemory, ServerSetup
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.simulate.summary import records_of
from inference_bench.verify.engine_rules import EngineRules, ServerModel
from inference_bench.workload import Workload

POSITION_S = 1e-3
STEP_S = 2e-3


def step_time(speed: float = 1.0) -> StepTime:
    """A step is 2 ms and 1 ms a position, over `speed`; nothing else counts."""
    return StepTime(
        Coefficients(
            weight_bytes=STEP_S,
            read_bytes=0.0,
            flops_per_position=POSITION_S,
            flops_per_pair=0.0,
            bandwidth_bytes_per_s=speed,
            compute_flops_per_s=speed,
            serial_share=1.0,
        ),
        source="a law for tests",
    )


def server_model(speed: float = 1.0, slots: int = 4, request_s: float = 0.0) -> ServerModel:
    setup = ServerSetup(llama_cpp_settings(slots), KvMemory(1 << 30, 1))
    return ServerModel(EngineRules(setup, ("a law for tests",), 4096), step_time(speed), request_s)


class LawfulServer:
    """Answers every workload as this model is simulated; `change` may make something else of its records."""

    def __init__(
        self, model: ServerModel, change: Callable[[list[RequestRecord]], list[RequestRecord]] | None = None
    ) -> None:
        self.sent: list[tuple[str, Workload]] = []
        self._model, self._change = model, change or (lambda records: records)

    def send(self, workload: Workload, group: str) -> LoadResult:
        self.sent.append((group, workload))
        outcome = simulate(workload, self._model.setup, self._model.step_time, engine=Engine.REFERENCE)
        records = [
            replace(
                record,
                origin=Origin.MEASURED,
                index=index,
                group=group,
                token_count_source=TokenCountSource.SERVER_USAGE,
            )
            for index, record in enumerate(records_of(outcome))
        ]
        kept = self._change(records)
        return LoadResult(tuple(kept), ClientHealth(None, None), Target("http://127.0.0.1:1"))
