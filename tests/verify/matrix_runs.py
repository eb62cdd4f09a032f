"""Verifications that were never run: what a matrix needs of them, with times that are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from inference_bench.accounting.work import SequenceStep, decode_batch
from inference_bench.compare import MeasuredPoint, Phase, compare_point
from inference_bench.engines.base import EngineFigures, EngineIdentity
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.load import load_model
from inference_bench.facts.source import Source
from inference_bench.origin import Origin
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.step_cost import ServedModel
from inference_bench.roofline import roof
from inference_bench.verify.result import VerifyResult
from inference_bench.verify.session import VerifyRequest

CONTEXT, PROMPT = 40, 100
# one gigabyte a second, and so much compute that only bytes ever limit decoding
MACHINE = HardwareSpec(
    "test machine", None, 1e9, {"fp32": 1e15, "bf16": 1e15}, Source("a test", "2026-11-30"), Origin.MEASURED
)


class _Model:
    def __init__(self, served: ServedModel) -> None:
        self.spec, self.weights = served.model, served.weights


class _Result:
    """The attributes that a matrix reads."""

    def __init__(self, request: VerifyRequest, served: ServedModel, slowness: float, run_dir: Path) -> None:
        assert request.machine is not None
        ceiling = roof(request.machine, served.weights.linear_format)
        steps = [(Phase.DECODE, batch, decode_batch(CONTEXT, batch)) for batch in (1, 4)]
        steps.append((Phase.PREFILL, 1, (SequenceStep(0, PROMPT),)))
        points = []
        for phase, batch, sequences in steps:
            work = served.work(sequences)
            context = CONTEXT if phase is Phase.DECODE else PROMPT
            bound_s = work.num_bytes / 1e9
            points.append(
                compare_point(
                    MeasuredPoint(phase, batch, context, context, slowness * bound_s, 3, None, None), work, ceiling
                )
            )
        self.points = tuple(points)
        self.model = _Model(served)
        self.engine = EngineIdentity(request.engine, "test", version="1.0")
        self.figures = EngineFigures()
        self.notes: tuple[str, ...] = ()
        self.run_dir = run_dir


Reply = float | BaseException
Asked = list[tuple[str, str, str]]


def fake_measure(
    replies: Callable[[str, str, int], Reply], asked: Asked
) -> Callable[[VerifyRequest, Any], VerifyResult]:
    """A verification that answers how many times its bound each step takes, or raises; what it was asked goes to `asked`.

    Where:  replies takes weights as the file stores them, cache, and how often this was asked before
    """

    def measure(request: VerifyRequest, _progress: Any) -> VerifyResult:
        model = load_model(str(request.model))
        weights = loaded_weights(model, None)
        key = (weights.linear_format.name, request.cache or "auto", request.engine)
        reply = replies(key[0], key[1], asked.count(key))
        asked.append(key)
        if isinstance(reply, BaseException):
            raise reply
        served = ServedModel(model.spec, weights, cache_format(request.cache))
        return cast(VerifyResult, _Result(request, served, reply, request.runs / f"run-{len(asked)}"))

    return measure


def from_table(table: Mapping[tuple[str, str], Reply], default: Reply = 2.0) -> Callable[[str, str, int], Reply]:
    """The same answer each time."""
    return lambda weights, cache, _before: table.get((weights, cache), default)
