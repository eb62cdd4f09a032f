"""What a llama.cpp log says about contexts, caches and buffers, and why a start failed.

In:   the text of a log written at verbosity 4 (llama.cpp prints no buffer sizes below that)
Out:  EngineFigures with the line each figure was read from; the line that explains a failure
Leaves out: anything the log does not say (None), and what the figures should be (accounting)
Read next by: llama_cpp.

A number that is printed more than once is taken from its first line: a draft model's context comes after the main one.
Buffers are listed all, one for each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from inference_bench.engines.base import Buffer, EngineFigures, KVBuffer, KVCacheKind, PrintedSize, StateBuffer

_PREFIX: Final = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ")
_SOURCE_FOLDER: Final = re.compile(r"^/\S*/(?=[\w.-]+:\d+: )")
_ERROR: Final = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} E |.*GGML_ASSERT\(|terminate called after")
_NUMBERS: Final = {
    "context_tokens_total": re.compile(r"llama_context: n_ctx +=\s*(\d+)"),
    "context_tokens_per_slot": re.compile(r"llama_context: n_ctx_seq +=\s*(\d+)"),
    "num_slots": re.compile(r"llama_context: n_seq_max +=\s*(\d+)"),
    "token_budget": re.compile(r"llama_context: n_batch +=\s*(\d+)"),
    "micro_batch": re.compile(r"llama_context: n_ubatch +=\s*(\d+)"),
    "n_ctx_train": re.compile(r"print_info: n_ctx_train +=\s*(\d+)"),
}
_SWITCHES: Final = {
    "kv_unified": re.compile(r"llama_context: kv_unified += (true|false)"),
    "flash_attention": re.compile(
        r"(?:llama_context: flash_attn += |Flash Attention (?:was auto, set to )?)(en|dis)abled"
    ),
}
_KV_SIZE: Final = re.compile(
    r"llama_kv_cache: size =\s*(?P<size>[\d.]+) MiB \(\s*(?P<cells>\d+) cells,\s*(?P<layers>\d+) layers,"
    r"\s*(?P<sequences>\d+)/(?P<streams>\d+) seqs\),"
    r" K \((?P<k_type>\w+)\):\s*[\d.]+ MiB, V \((?P<v_type>\w+)\):\s*[\d.]+ MiB"
)
_KIND_NEXT: Final = re.compile(r"llama_kv_cache_\w+: creating\s+(non-SWA|SWA|main|indexer) KV cache")
_KINDS: Final = {
    "non-SWA": KVCacheKind.FULL,
    "main": KVCacheKind.FULL,
    "SWA": KVCacheKind.SLIDING,
    "indexer": KVCacheKind.INDEX,
}
_STATE_SIZE: Final = re.compile(
    r"llama_memory_recurrent: size =\s*(?P<size>[\d.]+) MiB \(\s*(?P<cells>\d+) cells,\s*(?P<layers>\d+) layers,"
    r"\s*(?P<sequences>\d+) seqs[^)]*\),"
    r" R \((?P<r_type>\w+)\):\s*(?P<r_size>[\d.]+) MiB, S \((?P<s_type>\w+)\):\s*(?P<s_size>[\d.]+) MiB"
)
_BUFFERS: Final = {
    "model_buffers": re.compile(r"(\S+) model buffer size =\s*([\d.]+) MiB"),
    "compute_buffers": re.compile(r"(\S+) compute buffer size =\s*([\d.]+) MiB"),
}


def parse_llama_cpp_log(text: str) -> EngineFigures:
    """The figures a llama.cpp server printed while it started.

    Source:   llama.cpp, the log lines of src/llama-context.cpp, src/llama-kv-cache*.cpp, src/llama-memory-recurrent.cpp
    """
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    values: dict[str, Any] = {}
    read_from: dict[str, str] = {}
    for name, value, line in [*_numbers(lines), *_switches(lines)]:
        if name not in values:
            values[name], read_from[name] = value, _citation(line)
    for name, buffer, line in [*_kv_buffers(lines), *_state_buffers(lines), *_buffers(lines)]:
        values[name] = (*values.get(name, ()), buffer)
        read_from[name] = "; ".join(filter(None, (read_from.get(name), _citation(line))))
    return EngineFigures(**values, read_from=read_from)


def _citation(line: str) -> str:
    return f"log: {' '.join(line.split())}"


def _numbers(lines: list[str]) -> Iterator[tuple[str, int, str]]:
    for name, pattern in _NUMBERS.items():
        for line in lines:
            if match := pattern.search(line):
                yield name, int(match[1]), line


def _switches(lines: list[str]) -> Iterator[tuple[str, bool, str]]:
    for name, pattern in _SWITCHES.items():
        for line in lines:
            if match := pattern.search(line):
                yield name, match[1] in ("true", "en"), line


def _kv_buffers(lines: list[str]) -> Iterator[tuple[str, KVBuffer, str]]:
    kind = KVCacheKind.FULL
    for line in lines:
        if announced := _KIND_NEXT.search(line):
            kind = _KINDS[announced[1]]
        if match := _KV_SIZE.search(line):
            yield "kv_buffers", _kv_buffer(match, kind), line


def _kv_buffer(match: re.Match[str], kind: KVCacheKind) -> KVBuffer:
    return KVBuffer(
        kind=kind,
        cells=int(match["cells"]),
        layers=int(match["layers"]),
        num_sequences=int(match["sequences"]),
        num_streams=int(match["streams"]),
        k_type=match["k_type"],
        v_type=match["v_type"],
        size=PrintedSize(match["size"]),
    )


def _state_buffers(lines: list[str]) -> Iterator[tuple[str, StateBuffer, str]]:
    for line in lines:
        if match := _STATE_SIZE.search(line):
            buffer = StateBuffer(
                cells=int(match["cells"]),
                layers=int(match["layers"]),
                num_sequences=int(match["sequences"]),
                convolution_type=match["r_type"],
                recurrent_type=match["s_type"],
                size=PrintedSize(match["size"]),
                convolution=PrintedSize(match["r_size"]),
                recurrent=PrintedSize(match["s_size"]),
            )
            yield "state_buffers", buffer, line


def _buffers(lines: list[str]) -> Iterator[tuple[str, Buffer, str]]:
    for name, pattern in _BUFFERS.items():
        for line in lines:
            if match := pattern.search(line):
                yield name, Buffer(match[1], PrintedSize(match[2])), line


def find_failure(text: str) -> str | None:
    """The line that says why a server did not start: the first error, or the last line where none is marked so.

    Where:    llama.cpp prints the cause first and then each caller's view of it; a failed check of its own has no mark
    """
    cause = next(filter(_ERROR.match, text.splitlines()), None)
    return find_last_line(text) if cause is None else find_last_line(cause)


def find_last_line(text: str) -> str | None:
    """The last line that is not empty, without its time and without the folder its engine was built in."""
    lines = [line for line in text.splitlines() if line.strip()]
    return " ".join(_SOURCE_FOLDER.sub("", _PREFIX.sub("", lines[-1])).split()) if lines else None
