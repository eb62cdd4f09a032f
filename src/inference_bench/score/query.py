"""What a published row asks: which model in which formats, on what, by which engine, and how long it took.

In:   MeasuredRow
Out:  Case: a Question and the seconds measured, or the reason why the row cannot be asked
Leaves out: predictions (see scoring)
Read next by: scoring, fitting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

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
from inference_bench.score.rows import METRICS_OF_PHASE, MeasuredRow
from inference_bench.units import GIBI, GIGA, KILO

# how tables name formats → our names
_WEIGHTS: Final = {
    **{"FP16": "fp16", "F16": "fp16", "BF16": "bf16", "FP32": "fp32", "FP8": "fp8", "INT8": "int8", "W8A8": "int8"},
    **{
        "MXFP4": "mxfp4",
        "NVFP4": "nvfp4",
        "FP4": "nvfp4",
        "W4A8KV4": "int4-g128",
        "W4A8": "int4-g128",
        "INT3": "int3-g128",
        "IQ2_M": "iq2_s",
    },
    **dict.fromkeys(("INT4-g128", "W4A16", "4bit", "INT4", "AWQ"), "int4-g128"),
    **dict.fromkeys(("GPTQ-4bit-g128", "GPTQ"), "gptq-g128"),
}
_CACHE: Final = {"": "fp16", "FP16": "fp16", "BF16": "bf16", "FP8": "fp8", "INT8": "int8", "INT4": "q4_0"}
_BITS: Final = re.compile(r"(?<!\d)(\d{1,3}(?:\.\d{1,9})?)\s*-?(?:bpw|bit)", re.IGNORECASE)
_GIB: Final = re.compile(r"weights_gib=(\d{1,7}(?:\.\d{1,9})?)(?![\d.])")
_DEPTH: Final = re.compile(r"depth=(\d{1,8})(?!\d)")
_THREADS: Final = re.compile(r"threads=(\d{1,5})(?!\d)")
_PARALLEL: Final = {name: re.compile(rf"(?:^|[ x]){name}(\d{{1,4}})") for name in ("TP", "DP", "PP")}
_NEURON_CORES: Final = "NeuronCores"
# batched benchmarks that repeat one prompt send its tokens to the same experts more often than chance
_SAME_PROMPTS: Final = "batched-bench"
_SAME_PROMPTS_CORRELATION: Final = 0.4
_SERVING_NOTE: Final = "batch column = concurrency"
_EARLY: Final = "2025"
MAX_REASON_CHARS: Final = 90


@dataclass(frozen=True, slots=True)
class Case:
    """A row and what it asks.

    Where:  question and seconds are None where the row cannot be asked; then reason says why, the same for all rows of
            its kind, and detail is what this row says instead
    """

    row: MeasuredRow
    question: Question | None
    seconds: float | None
    reason: str | None = None
    detail: str = ""


class NotAsked(RequestError):
    """A row that leaves open what a prediction needs."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def case(row: MeasuredRow) -> Case:
    """What a row asks, or why it asks nothing that can be answered."""
    try:
        question = _question(row)
    except NotAsked as error:
        return Case(row, None, None, error.reason, error.detail)
    except InferenceBenchError as error:
        return Case(row, None, None, short_reason(error))
    return Case(row, question, _seconds(row, question.batch))


def short_reason(error: InferenceBenchError) -> str:
    """An error as a reason that fits a line."""
    text = " ".join(str(error).split())
    return text if len(text) <= MAX_REASON_CHARS else f"{text[: MAX_REASON_CHARS - 1]}…"


def _question(row: MeasuredRow) -> Question:
    """The question of a row.

    Raises:  NotAsked with what the row leaves open
    """
    if row.metric not in METRICS_OF_PHASE[row.phase]:
        raise NotAsked("the metric says nothing about the phase", f"{row.metric} of {row.phase}")
    if row.batch is None:
        raise NotAsked("the batch or concurrency is not a number", row.batch_text)
    if row.input_tokens is None and row.output_tokens is None:
        raise NotAsked("neither length is given")
    prompt, output = row.input_tokens or 0, row.output_tokens or 0
    phase = phase_of(row)
    if phase in (Phase.E2E, Phase.SERVING_TPOT) and output < 1:
        raise NotAsked("the output length is not given")
    if phase in (Phase.PREFILL, Phase.SERVING_TTFT) and prompt < 1:
        raise NotAsked("the prompt length is not given")
    depth = _DEPTH.search(row.notes)
    return Question(_setting(row), phase, row.batch, prompt, output, int(depth[1]) if depth else 0)


def phase_of(row: MeasuredRow) -> Phase:
    """The phase a row times; serving where requests come and go at a fixed concurrency."""
    is_serving = _SERVING_NOTE in row.notes
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
        return row.value / KILO
    if row.metric == "e2e_latency_s":
        return row.value
    tokens = {"decode": 1, "prefill": max(1, row.input_tokens or 0), "e2e": max(1, row.output_tokens or 0)}[row.phase]
    return batch * tokens / row.value


def _setting(row: MeasuredRow) -> Setting:
    engine = engine_family(row.engine)
    machine = _machine(row.hardware)
    model, share = _model(row.model, row.params_billions)
    weights = _weights(row.model, row.params_billions, _plan_name(row.weight_format, engine))
    correlation = _SAME_PROMPTS_CORRELATION if _SAME_PROMPTS in row.notes else 0.0
    served = ServedModel(model, weights, _cache_format(row.kv_format), expert_correlation=correlation)
    layout = _layout(row)
    return Setting(
        served=served,
        machine=machine,
        engine=engine,
        tensor=layout.tensor,
        replicas=layout.replicas,
        devices=layout.devices,
        split=layout.split,
        weight_scale=_weight_scale(row.notes, weights) or share,
        threads_fraction=_threads_fraction(row.notes, machine),
        is_early=bool(row.date) and row.date < _EARLY,
        version=f"{engine}-{'.'.join(row.engine_version.split('.')[:2])}",
        activations_8bit=row.weight_format == "W8A8",
    )


def _weight_scale(notes: str, weights: WeightCount) -> float | None:
    """A published size over the counted one; None where no size is given.

    Formula:  weights_gib · 2^30 / counted bytes
    """
    size = _GIB.search(notes)
    return float(size[1]) * GIBI / weights.total if size else None


class _Layout(NamedTuple):
    """How devices share a model: tensor ranks, replicas of the attention, devices that work at once."""

    split: DeviceSplit
    tensor: int
    replicas: int
    devices: int


def _layout(row: MeasuredRow) -> _Layout:
    """What the table's words for it mean.

    Where:  stages of a pipeline run one after another, as a layer split does: with TP a stage's devices count
    """
    if "layer-split" in row.parallelism:
        return _Layout(DeviceSplit.LAYER, 1, 1, row.devices)
    if "row-split" in row.parallelism:
        return _Layout(DeviceSplit.ROW, row.devices, 1, row.devices)
    named = {name: pattern.search(row.parallelism) for name, pattern in _PARALLEL.items()}
    tensor, replicas, stages = (int(found[1]) if (found := named[name]) else 0 for name in ("TP", "DP", "PP"))
    _check_devices(row, max(1, tensor) * max(1, replicas) * max(1, stages))
    if stages > 1 and tensor <= 1:
        return _Layout(DeviceSplit.LAYER, 1, 1, row.devices)
    if not tensor or _NEURON_CORES in row.parallelism:
        return _Layout(DeviceSplit.TENSOR, row.devices, 1, row.devices)
    return _Layout(DeviceSplit.TENSOR, tensor, max(1, replicas), max(1, row.devices // max(1, stages)))


def _check_devices(row: MeasuredRow, named: int) -> None:
    """Refuse a layout that the devices of the row cannot hold.

    Where:   a core of an accelerator that is one device is no device of its own
    """
    if _NEURON_CORES not in row.parallelism and row.devices % named:
        devices = f"{row.devices} device{'s' if row.devices > 1 else ''}"
        raise NotAsked("the parallelism does not go with the devices", f"{row.parallelism[:40]} on {devices}")


def _threads_fraction(notes: str, machine: HardwareSpec) -> float:
    found = _THREADS.search(notes)
    if found is None or not machine.cores:
        return 1.0
    return min(1.0, max(1, int(found[1])) / machine.cores)


def _machine(name: str) -> HardwareSpec:
    found = _known_machine(name)
    if found is None:
        raise NotAsked("the machine is not known", name)
    return found


@lru_cache(maxsize=4096)
def _known_machine(name: str) -> HardwareSpec | None:
    try:
        return hardware(name)
    except UnknownNameError:
        return None


def _model(name: str, params_billions: float | None) -> tuple[ModelSpec, float]:
    """The model of that name; failing that the known model nearest in size, and the size asked for over its own.

    Raises:  NotAsked where no size is given either
    """
    if (found := _known_model(name)) is not None:
        return found, 1.0
    if params_billions is None:
        raise NotAsked("the model is not known and its size is not given", name)
    return _model_of_size(params_billions)


@lru_cache(maxsize=4096)
def _known_model(name: str) -> ModelSpec | None:
    try:
        return known_model(name)
    except UnknownNameError:
        return None


@lru_cache(maxsize=4096)
def _model_of_size(params_billions: float) -> tuple[ModelSpec, float]:
    wanted = params_billions * GIGA
    sizes = ((abs(count_params(spec).total / wanted - 1), spec) for spec in known_models() if _is_plain(spec))
    nearest = min(sizes, key=lambda item: item[0])[1]
    return nearest, wanted / count_params(nearest).total


def _is_plain(model: ModelSpec) -> bool:
    """A dense decoder with attention in every layer: what an unknown model most likely is."""
    params = count_params(model)
    return params.active == params.total and len(model.attention_groups()) == len(tuple(model.mixer_groups()))


@lru_cache(maxsize=4096)
def _weights(model: str, params_billions: float | None, plan: str) -> WeightCount:
    found = _counted_weights(_model(model, params_billions)[0], plan)
    if found is None:
        raise NotAsked("the weight format is not known", plan or "none given")
    return found


@lru_cache(maxsize=4096)
def _counted_weights(model: ModelSpec, plan: str) -> WeightCount | None:
    try:
        return count_weights(model, weight_plan(plan))
    except RequestError:
        return None


def _plan_name(label: str, engine: str) -> str:
    """Our name of the format a table names; its own name where that is one of ours."""
    if label == "MXFP4" and engine in LLAMA_CPP_FAMILY:
        return "MXFP4_MOE"
    bits = _BITS.search(label)
    if label in _WEIGHTS or bits is None:
        return _WEIGHTS.get(label, label)
    whole = max(2, min(8, round(float(bits[1]))))
    return "int8" if whole == 8 else f"int{whole}-g128"


@lru_cache(maxsize=4096)
def _cache_format(label: str) -> CacheFormat:
    try:
        fmt = number_format(_CACHE.get(label, label))
    except UnknownNameError:
        raise NotAsked("the cache format is not known", label) from None
    return CacheFormat(fmt, fmt)
