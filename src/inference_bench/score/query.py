"""What a published row asks: which model in which formats, on what, by which engine, and how long it took.

In:   MeasuredRow
Out:  Case: a Question and the seconds measured, or the reason why the row cannot be asked
Leaves out: predictions (see scoring)
Read next by: scoring, fitting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import WeightCount, count_weights
from inference_bench.errors import InferenceBenchError, RequestError, UnknownNameError
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import known_model, known_models
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.efficiency.question import Phase, Question
from inference_bench.predict.efficiency.setting import LLAMA_CPP_FAMILY, DeviceSplit, Setting, engine_family
from inference_bench.predict.step_cost import ServedModel
from inference_bench.score.rows import MeasuredRow

# how tables name formats → our names
_WEIGHTS: Final = {
    **{"FP16": "fp16", "F16": "fp16", "BF16": "bf16", "FP32": "fp32", "FP8": "fp8", "INT8": "int8", "W8A8": "int8"},
    **{"MXFP4": "mxfp4", "NVFP4": "nvfp4", "FP4": "nvfp4", "W4A8KV4": "int4-g128", "IQ2_M": "iq2_s"},
    **dict.fromkeys(("INT4-g128", "W4A16", "4bit", "INT4", "AWQ"), "int4-g128"),
    **dict.fromkeys(("GPTQ-4bit-g128", "GPTQ"), "gptq-g128"),
}
_CACHE: Final = {"": "fp16", "FP16": "fp16", "BF16": "bf16", "FP8": "fp8", "INT8": "int8", "INT4": "q4_0"}
_BITS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*-?(?:bpw|bit)", re.IGNORECASE)
_GIB: Final = re.compile(r"weights_gib=(\d+(?:\.\d+)?)")
_DEPTH: Final = re.compile(r"depth=(\d{1,9})")
_THREADS: Final = re.compile(r"threads=(\d{1,5})")
_PARALLEL: Final = {name: re.compile(rf"(?:^|[ x]){name}(\d{{1,4}})") for name in ("TP", "DP")}
_NEURON_CORES: Final = "NeuronCores"
# batched benchmarks that repeat one prompt send its tokens to the same experts more often than chance
_SAME_PROMPTS: Final = "batched-bench"
_SAME_PROMPTS_CORRELATION: Final = 0.4
_SERVING_SOURCES: Final = ("aiconfigurator",)
_SERVING_NOTE: Final = "concurrency"
_EARLY: Final = "2025"


@dataclass(frozen=True, slots=True)
class Case:
    """A row and what it asks.

    Where:  question and seconds are None where the row cannot be asked, and reason says why
    """

    row: MeasuredRow
    question: Question | None
    seconds: float | None
    reason: str | None = None


def case(row: MeasuredRow) -> Case:
    """What a row asks, or why it asks nothing that can be answered."""
    try:
        question = _question(row)
    except InferenceBenchError as error:
        return Case(row, None, None, str(error))
    return Case(row, question, _seconds(row, question.batch))


def _question(row: MeasuredRow) -> Question:
    """The question of a row.

    Raises:  RequestError with what the row leaves open
    """
    if row.batch is None:
        raise RequestError(f"concurrency is {row.batch_text or 'not given'!r}, not a number")
    lengths = (row.input_tokens, row.output_tokens)
    if all(length is None for length in lengths):
        raise RequestError("neither length is given")
    prompt, output = (length or 0 for length in lengths)
    setting = _setting(row)
    phase = _phase(row)
    if phase in (Phase.E2E, Phase.SERVING_TPOT) and output < 1:
        raise RequestError("the output length is not given")
    depth = _DEPTH.search(row.notes)
    return Question(setting, phase, row.batch, prompt, output, int(depth[1]) if depth else 0)


def _phase(row: MeasuredRow) -> Phase:
    """The phase a row times; serving where requests come and go at a fixed concurrency."""
    is_serving = row.source.startswith(_SERVING_SOURCES) or f"batch column = {_SERVING_NOTE}" in row.notes
    if row.phase == "decode":
        return Phase.SERVING_TPOT if is_serving else Phase.DECODE
    if row.phase == "prefill":
        return Phase.SERVING_TTFT if is_serving else Phase.PREFILL
    return Phase.E2E


def _seconds(row: MeasuredRow, batch: int) -> float:
    """The time of the phase.

    Formula:  tokens/s over the batch → batch / value for a decode step, batch · prompt / value for prompts,
              batch · output / value for a whole batch
    Unit:     seconds
    """
    if row.metric in ("tpot_ms", "ttft_ms"):
        return row.value / 1e3
    if row.metric == "e2e_latency_s":
        return row.value
    tokens = {"decode": 1, "prefill": max(1, row.input_tokens or 0), "e2e": max(1, row.output_tokens or 0)}[row.phase]
    return batch * tokens / row.value


def _setting(row: MeasuredRow) -> Setting:
    engine = engine_family(row.engine)
    machine = _machine(row.hardware)
    model, share = _model(row.model, row.params_billions)
    weights = _weights(row.model, row.params_billions, _plan_name(row.weight_format, engine))
    size = _GIB.search(row.notes)
    correlation = _SAME_PROMPTS_CORRELATION if _SAME_PROMPTS in row.notes else 0.0
    served = ServedModel(model, weights, _cache_format(row.kv_format), expert_correlation=correlation)
    split, tensor, replicas = _parallel(row)
    return Setting(
        served=served,
        machine=machine,
        engine=engine,
        tensor=tensor,
        replicas=replicas,
        devices=row.devices,
        split=split,
        weight_scale=float(size[1]) * 2**30 / weights.total if size else share,
        threads_fraction=_threads_fraction(row.notes, machine),
        is_early=row.date < _EARLY,
        version=f"{engine}-{'.'.join(row.engine_version.split('.')[:2])}",
        activations_8bit=row.weight_format == "W8A8",
    )


def _parallel(row: MeasuredRow) -> tuple[DeviceSplit, int, int]:
    """How the devices share the model: the split, tensor ranks, replicas of the attention."""
    text = row.parallelism
    if "layer-split" in text:
        return DeviceSplit.LAYER, 1, 1
    if "row-split" in text:
        return DeviceSplit.ROW, row.devices, 1
    found = {name: pattern.search(text) for name, pattern in _PARALLEL.items()}
    tensor, replicas = found["TP"], found["DP"]
    if not text or _NEURON_CORES in text or tensor is None:
        return DeviceSplit.TENSOR, row.devices, 1
    return DeviceSplit.TENSOR, max(1, int(tensor[1])), max(1, int(replicas[1])) if replicas else 1


def _threads_fraction(notes: str, machine: HardwareSpec) -> float:
    found = _THREADS.search(notes)
    if found is None or not machine.cores:
        return 1.0
    return min(1.0, max(1, int(found[1])) / machine.cores)


@cache
def _machine(name: str) -> HardwareSpec:
    return hardware(name)


@cache
def _model(name: str, params_billions: float | None) -> tuple[ModelSpec, float]:
    """The model of that name; failing that the known model nearest in size, and the size asked for over its own.

    Raises:  UnknownNameError where no size is given either
    """
    try:
        return known_model(name), 1.0
    except UnknownNameError:
        if params_billions is None:
            raise
    wanted = params_billions * 1e9
    sizes = ((abs(count_params(spec).total / wanted - 1), spec) for spec in known_models() if _is_plain(spec))
    nearest = min(sizes, key=lambda item: item[0])[1]
    return nearest, wanted / count_params(nearest).total


def _is_plain(model: ModelSpec) -> bool:
    """A dense decoder with attention in every layer: what an unknown model most likely is."""
    params = count_params(model)
    return params.active == params.total and len(model.attention_groups()) == len(tuple(model.mixer_groups()))


@cache
def _weights(model: str, params_billions: float | None, plan: str) -> WeightCount:
    return count_weights(_model(model, params_billions)[0], weight_plan(plan))


def _plan_name(label: str, engine: str) -> str:
    """Our name of the format a table names; its own name where that is one of ours."""
    if label == "MXFP4" and engine in LLAMA_CPP_FAMILY:
        return "MXFP4_MOE"
    bits = _BITS.search(label)
    if label in _WEIGHTS or bits is None:
        return _WEIGHTS.get(label, label)
    whole = max(2, min(8, round(float(bits[1]))))
    return "int8" if whole == 8 else f"int{whole}-g128"


@cache
def _cache_format(label: str) -> CacheFormat:
    fmt = number_format(_CACHE.get(label, label))
    return CacheFormat(fmt, fmt)
