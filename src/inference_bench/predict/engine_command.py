"""The command that realises an answer: what to type so that an engine allocates what `fit` counted.

In:   FitAnswer and the request behind it
Out:  EngineCommand: one line for llama.cpp, vLLM or SGLang, and what it leaves to the user
Leaves out: running it
Read next by: report, cli.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Final

from inference_bench.predict.fit import FitAnswer

_LARGEST_MEMORY_FRACTION: Final = 0.98
_LLAMA_CPP_CACHE: Final = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
_PLAIN: Final = frozenset({"fp32", "fp16", "bf16"})


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """One engine's command line."""

    engine: str
    command: str
    note: str


def engine_commands(
    answer: FitAnswer, *, num_gpus: int = 1, gpu_layers: int | None = None
) -> tuple[EngineCommand, ...]:
    """How to start each engine with the context, sequences, cache format and memory share that were counted.

    Where:  num_gpus is the tensor-parallel width; gpu_layers is how many layers llama.cpp keeps on the GPU (None: all)
    """
    return (_llama_cpp(answer, gpu_layers), _vllm(answer, num_gpus), _sglang(answer, num_gpus))


def _llama_cpp(answer: FitAnswer, gpu_layers: int | None) -> EngineCommand:
    cache = answer.cache
    keys, _, values = cache.number_format.partition("/")
    parts = ["llama-server", "-m", f"{_file_stem(answer)}.gguf", "-c", str(cache.context_tokens * cache.sequences)]
    parts += ["-np", str(cache.sequences), "-ngl", "999" if gpu_layers is None else str(gpu_layers)]
    for flag, name in (("-ctk", keys), ("-ctv", values or keys)):
        if name != "fp16":
            parts += [flag, _LLAMA_CPP_CACHE.get(name, name)]
    if (values or keys) not in _PLAIN:
        parts += ["-fa", "on"]
    return EngineCommand(
        "llama.cpp", shlex.join(parts), "the context is shared out over the slots; needs a GGUF of these weights"
    )


def _file_stem(answer: FitAnswer) -> str:
    return answer.model.name.removesuffix(".gguf")


def _fraction(answer: FitAnswer) -> float | None:
    """The share of the machine's memory that is needed, rounded up to whole percents."""
    if answer.machine is None or not answer.machine.memory_bytes:
        return None
    share = math.ceil(answer.needed_bytes / answer.machine.memory_bytes * 100) / 100
    return min(share, _LARGEST_MEMORY_FRACTION)


def _vllm(answer: FitAnswer, num_gpus: int) -> EngineCommand:
    cache, fraction = answer.cache, _fraction(answer)
    parts = ["vllm", "serve", answer.model.name, "--max-model-len", str(cache.context_tokens)]
    parts += ["--max-num-seqs", str(cache.sequences)]
    if cache.number_format == "fp8":
        parts += ["--kv-cache-dtype", "fp8"]
    if fraction is not None:
        parts += ["--gpu-memory-utilization", f"{fraction:.2f}"]
    if num_gpus > 1:
        parts += ["--tensor-parallel-size", str(num_gpus)]
    return EngineCommand("vLLM", shlex.join(parts), _cache_note(cache.number_format))


def _sglang(answer: FitAnswer, num_gpus: int) -> EngineCommand:
    cache, fraction = answer.cache, _fraction(answer)
    parts = ["python", "-m", "sglang.launch_server", "--model-path", answer.model.name]
    parts += ["--context-length", str(cache.context_tokens), "--max-running-requests", str(cache.sequences)]
    if cache.number_format == "fp8":
        parts += ["--kv-cache-dtype", "fp8_e4m3"]
    if fraction is not None:
        parts += ["--mem-fraction-static", f"{fraction:.2f}"]
    if num_gpus > 1:
        parts += ["--tp-size", str(num_gpus)]
    return EngineCommand("SGLang", shlex.join(parts), _cache_note(cache.number_format))


def _cache_note(number_format: str) -> str:
    if number_format in {"fp16", "bf16", "fp8"}:
        return "give the model's own id or folder, with weights stored as counted"
    return f"this engine has no {number_format} cache: it will use its own, so the count does not hold for it"
