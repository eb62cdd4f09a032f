"""The command that realises an answer: what to type so that an engine allocates what `fit` counted.

In:   FitAnswer and what the model is called where engines look for it
Out:  EngineCommand: one line for llama.cpp, vLLM or SGLang, or why that engine cannot do what was counted
Leaves out: running it
Read next by: report, cli.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Final

from inference_bench.facts.formats import number_format
from inference_bench.predict.fit import FitAnswer
from inference_bench.predict.placement import Split

_LARGEST_MEMORY_FRACTION: Final = 0.98
# what llama.cpp takes for keys and values (its common/arg.cpp, kv_cache_types), by our names
_LLAMA_CPP_CACHE: Final = {
    "fp32": "f32",
    "fp16": "f16",
    **{name: name for name in ("bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")},
}
_PLAIN: Final = frozenset({"fp32", "fp16", "bf16"})
_SERVER_CACHE: Final = frozenset({"fp16", "bf16", "fp8"})  # what vLLM and SGLang store, as flags say it here


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """One engine's command line; `command` is None where the engine cannot do what was counted, and `note` says why."""

    engine: str
    command: str | None
    note: str


def engine_commands(answer: FitAnswer, model_id: str | None = None) -> tuple[EngineCommand, ...]:
    """How to start each engine with the context, sequences, cache format, split and memory share that were counted.

    Where:  model_id is the name engines look a model up by (a hub id or a folder); None takes the model's own
    """
    name = model_id or answer.model.name
    return (_llama_cpp(answer), _vllm(answer, name), _sglang(answer, name))


def _cannot(engine: str, why: str) -> EngineCommand:
    return EngineCommand(engine, None, why)


def _llama_cpp(answer: FitAnswer) -> EngineCommand:
    cache, offload = answer.cache, answer.offload
    keys, _, values = cache.number_format.partition("/")
    odd = [name for name in (keys, values or keys) if name not in _LLAMA_CPP_CACHE]
    if odd:
        return _cannot("llama.cpp", f"it has no {odd[0]} cache")
    if answer.fits is False and (offload is None or offload.gpu_layers == 0):
        return _cannot("llama.cpp", "it does not fit")
    layers = offload.gpu_layers if answer.fits is False and offload is not None else 999
    parts = ["llama-server", "-m", f"{answer.model.name.removesuffix('.gguf')}.gguf"]
    parts += ["-c", str(cache.context_tokens * cache.sequences), "-np", str(cache.sequences), "-ngl", str(layers)]
    for flag, name in (("-ctk", keys), ("-ctv", values or keys)):
        if name != "fp16":
            parts += [flag, _LLAMA_CPP_CACHE[name]]
    if (values or keys) not in _PLAIN:
        parts += ["-fa", "on"]
    return EngineCommand(
        "llama.cpp", shlex.join(parts), f"needs a GGUF file of these weights ({answer.weights.format_name})"
    )


def _server_problem(answer: FitAnswer) -> str | None:
    """Why vLLM and SGLang cannot do what was counted."""
    if answer.fits is False:
        return "it does not fit"
    if answer.cache.number_format not in _SERVER_CACHE:
        return f"it has no {answer.cache.number_format} cache"
    if (
        number_format(answer.weights.linear_format.name).ggml_type is not None
        and answer.weights.linear_format.name not in _PLAIN
    ):
        return f"{answer.weights.format_name} is a GGUF format; it serves safetensors checkpoints"
    return None


def _fraction(answer: FitAnswer) -> float | None:
    """The share of the machine's memory that is needed, rounded up to whole percents."""
    if answer.machine is None or not answer.machine.memory_bytes:
        return None
    share = math.ceil(answer.needed_bytes / answer.machine.memory_bytes * 100) / 100
    return min(share, _LARGEST_MEMORY_FRACTION)


def _note(answer: FitAnswer) -> str:
    return f"needs a checkpoint stored as {answer.weights.format_name}"


def _vllm(answer: FitAnswer, name: str) -> EngineCommand:
    if problem := _server_problem(answer):
        return _cannot("vLLM", problem)
    cache, fraction, placement = answer.cache, _fraction(answer), answer.placement
    parts = [
        "vllm",
        "serve",
        name,
        "--max-model-len",
        str(cache.context_tokens),
        "--max-num-seqs",
        str(cache.sequences),
    ]
    if cache.number_format == "fp8":
        parts += ["--kv-cache-dtype", "fp8"]
    if fraction is not None:
        parts += ["--gpu-memory-utilization", f"{fraction:.2f}"]
    if placement.devices > 1:
        flag = "--pipeline-parallel-size" if placement.split is Split.PIPELINE else "--tensor-parallel-size"
        parts += [flag, str(placement.devices)]
    return EngineCommand("vLLM", shlex.join(parts), _note(answer))


def _sglang(answer: FitAnswer, name: str) -> EngineCommand:
    if problem := _server_problem(answer):
        return _cannot("SGLang", problem)
    cache, fraction, placement = answer.cache, _fraction(answer), answer.placement
    parts = ["python", "-m", "sglang.launch_server", "--model-path", name]
    parts += ["--context-length", str(cache.context_tokens), "--max-running-requests", str(cache.sequences)]
    if cache.number_format == "fp8":
        parts += ["--kv-cache-dtype", "fp8_e4m3"]
    if fraction is not None:
        parts += ["--mem-fraction-static", f"{fraction:.2f}"]
    if placement.devices > 1:
        parts += ["--pp-size" if placement.split is Split.PIPELINE else "--tp-size", str(placement.devices)]
    return EngineCommand("SGLang", shlex.join(parts), _note(answer))
