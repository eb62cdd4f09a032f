"""Verifications that were never run: what a matrix needs of them, with times that are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Answer:
    """How many times its bound each step takes, and which steps a server was able to do.

    Where:  counted_more is how many tokens more a prompt came out than it was asked for
    """

    slowness: float
    context: int = CONTEXT
    batches: tuple[int, ...] = (1, 4)
    prompts: tuple[int, ...] = (PROMPT,)
    counted_more: int = 0
    notes: tuple[str, ...] = ()


class _Model:
    def __init__(self, served: ServedModel) -> None:
        self.spec, self.weights = served.model, served.weights


class _Result:
    """The attributes that a matrix reads."""

    def __init__(self, request: VerifyRequest, served: ServedModel, answer: Answer, run_dir: Path) -> None:
        assert request.machine is not None
        ceiling = roof(request.machine, served.weights.linear_format)
        attended = answer.context + answer.counted_more
        steps = [(Phase.DECODE, batch, answer.context, decode_batch(attended, batch)) for batch in answer.batches]
        steps += [
            (Phase.PREFILL, 1, prompt, (SequenceStep(0, prompt + answer.counted_more),)) for prompt in answer.prompts
        ]
        points = []
        for phase, batch, nominal, sequences in steps:
            work, counted = served.work(sequences), nominal + answer.counted_more
            seconds = answer.slowness * work.num_bytes / 1e9
            points.append(
                compare_point(MeasuredPoint(phase, batch, counted, nominal, seconds, 3, None, None), work, ceiling)
            )
        self.points = tuple(points)
        self.model = _Model(served)
        self.engine = EngineIdentity(request.engine, "test", version="1.0")
        self.figures = EngineFigures()
        self.notes = answer.notes
        self.run_dir = run_dir
        self.is_interrupted = False


Reply = float | Answer | BaseException
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
        answer = reply if isinstance(reply, Answer) else Answer(reply)
        return cast(VerifyResult, _Result(request, served, answer, request.runs / f"run-{len(asked)}"))

    return measure


def from_table(table: Mapping[tuple[str, str], Reply], default: Reply = 2.0) -> Callable[[str, str, int], Reply]:
    """The same answer each time."""
    return lambda weights, cache, _before: table.get((weights, cache), default)
