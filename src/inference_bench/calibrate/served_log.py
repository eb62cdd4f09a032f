"""The server behind a log, simulated: its model, its machine, its limits and its memory, as the log or the caller says.

In:   RequestLog, and what the caller knows better than the log
Out:  LoggedServer: ServerSetup, and step times at shares of the peaks or as expected of its engine
Leaves out: errors (comparison) and fitting
Read next by: comparison, fitting, cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.accounting.parallel import rank_weights
from inference_bench.calibrate.log import RequestLog
from inference_bench.calibrate.log_meta import LogMeta
from inference_bench.calibrate.log_names import format_named
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import known_loaded_model, known_model
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.candidates import engine_scheduler
from inference_bench.simulate.presets import EnginePreset, engine_preset, memory_of_blocks, memory_of_bytes
from inference_bench.simulate.settings import KvMemory, ServerSetup
from inference_bench.simulate.step_sources import (
    BOUND_SHARES,
    Link,
    Shares,
    StepRange,
    engine_step_time,
    rank_of,
    step_time_of,
)
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import format_count

_RUNTIME_BYTES: Final = 1_500_000_000  # activations, graphs and the runtime of a server, beside weights and cache


@dataclass(frozen=True, slots=True)
class Stated:
    """What the caller says of the server; None leaves it to the log.

    Raises:  RequestError for a number below 1
    """

    model: LoadedModel | None = None
    machine: HardwareSpec | None = None
    devices: int | None = None
    engine: str | None = None
    num_blocks: int | None = None
    max_running: int | None = None
    token_budget: int | None = None
    weights: str | None = None
    cache: str | None = None
    link: Link | None = None

    def __post_init__(self) -> None:
        for value, what in (
            (self.devices, "number of devices"),
            (self.num_blocks, "number of blocks"),
            (self.max_running, "number of sequences that run"),
            (self.token_budget, "number of positions of a step"),
        ):
            if value is not None and value < 1:
                raise RequestError(f"the {what} is {value}; it must be at least 1")


_LIMITS_FROM: Final = "as the log or the caller says, else the engine's own"
NOTHING_STATED: Final = Stated()


@dataclass(frozen=True, slots=True)
class LoggedServer:
    """The server that wrote a log, as it is simulated."""

    log: RequestLog
    served: ServedModel
    machine: HardwareSpec
    devices: int
    engine: str
    setup: ServerSetup
    link: Link | None = None

    def at_shares(self, shares: Shares = BOUND_SHARES) -> StepTime:
        """Its model's work at shares of the machine's peaks; by default at both peaks, as the datasheet has them."""
        return step_time_of(self.served, self.machine, shares, self.devices, self.link)

    def expected(self) -> StepTime:
        """What is expected of its engine on its machine, with nothing fitted on the log.

        Raises:  RequestError where the machine's rates are not known
        """
        prompts, outputs = self.log.prompt_tokens, self.log.output_tokens
        scheduler = self.setup.scheduler
        reach = StepRange(
            max_batch=min(scheduler.max_running, max(2, len(prompts))),
            max_context=max(prompt + output for prompt, output in zip(prompts, outputs, strict=True)),
            max_chunk=min(scheduler.budget, sum(prompts) + sum(outputs)),
            prompt_tokens=max(1, round(sum(prompts) / len(prompts))),
        )
        return engine_step_time(self.served, self.machine, self.engine, reach, self.devices)


def logged_server(log: RequestLog, stated: Stated = NOTHING_STATED) -> LoggedServer:
    """The server of a log: what the caller states, else what the log says, else the engine's defaults.

    Raises:  RequestError naming what neither says: the model or the machine
    """
    meta = log.meta
    _refuse_unsimulated(meta, log.name)
    name = _known_model(meta, log.name) if stated.model is None else stated.model.spec.name
    model = stated.model or known_loaded_model(name)
    machine = stated.machine or _machine(meta, log.name)
    devices = stated.devices or meta.tensor_parallel or meta.named_devices or 1
    engine = stated.engine or meta.engine
    preset = engine_preset(engine_scheduler(engine, machine) or engine)
    weights = loaded_weights(model, stated.weights or _weight_format(meta, model, name))
    fmt = cache_format(stated.cache or _known_cache(meta.cache_format))
    served = ServedModel(model.spec, weights, fmt)
    memory, said = _memory(served, machine, devices, preset, stated.num_blocks or meta.num_blocks, meta)
    scheduler = replace(
        preset.scheduler,
        max_running=stated.max_running or meta.max_running or preset.scheduler.max_running,
        token_budget=stated.token_budget or meta.token_budget or preset.scheduler.token_budget,
    )
    stands = _said_instead(meta, log.name, stated)
    notes = (*preset.notes_at(scheduler, _LIMITS_FROM), *_said_devices(meta, stated), *stands, *log.notes, said)
    return LoggedServer(log, served, machine, devices, engine, ServerSetup(scheduler, memory, notes), stated.link)


def _said_instead(meta: LogMeta, name: str, stated: Stated) -> Iterator[str]:
    """What the caller says against the log."""
    pairs: list[tuple[str, str]] = []
    try:
        if stated.model is not None:
            pairs.append((known_loaded_model(_known_model(meta, name)).spec.name, stated.model.spec.name))
        if stated.machine is not None:
            pairs.append((_machine(meta, name).name, stated.machine.name))
    except RequestError:
        return
    for logged, simulated in pairs:
        if logged != simulated:
            yield f"the log is of {logged}, and {simulated} is simulated, as stated: what differs is not the simulation alone"


def _refuse_unsimulated(meta: LogMeta, name: str) -> None:
    if (meta.data_parallel or 1) > 1:
        raise RequestError(
            f"the log {name} is of {meta.data_parallel} data-parallel servers; split it into one log a server"
        )
    if (meta.pipeline_parallel or 1) > 1:
        raise RequestError(
            f"the log {name} is of a server with {meta.pipeline_parallel} pipeline stages, which are not simulated; take a log "
            "of a server whose devices share each layer"
        )


def _said_devices(meta: LogMeta, stated: Stated) -> list[str]:
    notes = []
    if stated.devices is None and meta.tensor_parallel is None and meta.named_devices is not None:
        notes.append(f"{meta.named_devices} device(s): the name of the log's folder says so, its settings do not")
    if meta.expert_parallel:
        notes.append("experts spread whole over devices are simulated as if each device had a part of every expert")
    return notes


# the names that vLLM gives to weight formats, where they are other ones here
_WEIGHTS: Final = {
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "gptq_marlin_24": "gptq",
    "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "fp8_e4m3": "fp8",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
    "bitsandbytes": "bnb-4bit",
    "half": "fp16",
    "float": "fp32",
}
# containers of several formats: which one it is stands in the name of the model
_CONTAINERS: Final = frozenset({"compressed-tensors", "compressed_tensors", "quark", "gguf", "inc", "torchao"})


def _weight_format(meta: LogMeta, model: LoadedModel, name: str) -> str | None:
    """The weight format that the log states; None where the model's own file says it, or nothing is stated."""
    if model.tensors is not None or (model.config or {}).get("quantization_config") is not None:
        return None
    said, named = (meta.weight_format or "").casefold(), format_named(meta.models, name)
    if said in _CONTAINERS and named is None:
        raise RequestError(f"the log says that weights are {said}, which may hold any format; state the weight format")
    return named if said in _CONTAINERS else _WEIGHTS.get(said, said) or named


def _known_model(meta: LogMeta, name: str) -> str:
    for known in meta.models:
        try:
            known_model(known)
        except UnknownNameError:
            continue
        return known
    raise RequestError(f"which model the log {name} is of is not known here ({_tried(meta.models)}); state it")


def _machine(meta: LogMeta, name: str) -> HardwareSpec:
    for known in meta.machines:
        try:
            return hardware(known)
        except UnknownNameError:
            continue
    raise RequestError(f"which machine the log {name} is of is not known here ({_tried(meta.machines)}); state it")


def _tried(names: Sequence[str]) -> str:
    return f"it says {', '.join(dict.fromkeys(names))[:200]}" if names else "it says nothing of it"


def _known_cache(name: str | None) -> str | None:
    """The names that vLLM gives to cache formats, as they are known here."""
    if name is None:
        return None
    folded = name.casefold().removeprefix("torch.")
    return {"bfloat16": "bf16", "float16": "fp16"}.get(folded, "fp8" if folded.startswith("fp8") else folded)


def _memory(
    served: ServedModel,
    machine: HardwareSpec,
    devices: int,
    preset: EnginePreset,
    num_blocks: int | None,
    meta: LogMeta,
) -> tuple[KvMemory, str]:
    """The cache's memory on one device, and where it is from.

    Formula:  blocks - 1, since one is never handed out; without a count: share · memory - weights - 1.5 GB
    """
    rank, block_size = rank_of(served, devices), meta.block_size or preset.block_size
    if num_blocks is not None:
        size = meta.block_size or preset.block_size
        memory = memory_of_blocks(served.model, served.cache_format, max(1, num_blocks - 1), size, devices)
        return memory, f"cache of {format_count(num_blocks)} blocks, as the log or the caller says"
    if machine.memory_bytes is None:
        raise RequestError(f"neither the blocks of the cache nor the memory of {machine.name} is known; state one")
    share = meta.memory_share or preset.memory_share
    weights = rank_weights(served.model, served.weights, devices).total
    free = int(share * machine.memory_bytes) - weights - _RUNTIME_BYTES
    if free < 1:
        raise RequestError(f"{served.model.name} leaves no memory for its cache on {devices} × {machine.name}")
    memory = memory_of_bytes(rank.model, served.cache_format, free, block_size)
    positions = free // max(1, memory.bytes_per_position) if memory.bytes_per_position else None
    said = "" if positions is None else f" (about {format_count(positions // block_size)} blocks of {block_size})"
    return memory, (
        f"the log does not say how large the cache is: {share:.0%} of the memory less weights and 1.5 GB is taken{said}; with few "
        "blocks the figure matters, so state the engine's own"
    )
