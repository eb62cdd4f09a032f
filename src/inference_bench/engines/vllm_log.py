"""What a vLLM server prints while it starts: its settings, its cache, and why it could not.

In:   the text of a log
Out:  EngineFigures, each with the line it was read from; the line that says why a start failed
Leaves out: what vLLM tells over HTTP (vllm_report)
Read next by: vllm.

A CPU says "CPU KV cache size" and a GPU "GPU KV cache size", "Available KV cache memory"; both are read. The GPU's lines are
those of the public source: no GPU has printed one here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

from inference_bench.engines.answers import Candidate, pick_figures
from inference_bench.engines.base import EngineFigures
from inference_bench.units import GIBI

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX: Final = re.compile(
    r"^(?:\([\w .=:-]+\) )?(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]+\] )?"
)
_LONGEST_CITATION: Final = 160
_LONGEST_CAUSE: Final = 600


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _length(text: str) -> int | None:
    return len([each for each in text.split(",") if each.strip()]) or None


def _gib_range(text: str) -> tuple[int, int]:
    """The least and the most bytes that are printed as these GiB."""
    half = Decimal(1).scaleb(min(0, int(Decimal(text).as_tuple().exponent))) / 2
    return max(0, math.ceil((Decimal(text) - half) * GIBI)), math.floor((Decimal(text) + half) * GIBI)


def _on(text: str) -> bool:
    return text in ("True", "enabled")


def _name(text: str) -> str | None:
    return None if text == "None" else text.removeprefix("torch.")


def _method(text: str) -> str:
    return "none" if text == "None" else text


# our field, the line, and how what stands there is read; of several lines the first
_LINES: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], Any]], ...]] = (
    ("kv_tokens", re.compile(r"(?:CPU|GPU|XPU|TPU) KV cache size: ([\d,]{1,24}) tokens"), _count),
    ("num_blocks", re.compile(r"# (?:GPU|CPU) blocks: (\d{1,18})"), _count),
    ("max_model_len", re.compile(r"Initializing a V1 LLM engine .*?\bmax_seq_len=(\d{1,12})"), _count),
    ("dtype", re.compile(r"Initializing a V1 LLM engine .*?\bdtype=([\w.]{1,40})"), _name),
    ("quantization", re.compile(r"Initializing a V1 LLM engine .*?\bquantization=([\w.-]{1,60})"), _name),
    ("cache_dtype", re.compile(r"Initializing a V1 LLM engine .*?\bkv_cache_dtype=([\w.]{1,40})"), _name),
    ("prefix_cache", re.compile(r"Initializing a V1 LLM engine .*?\benable_prefix_caching=(True|False)"), _on),
    (
        "speculation",
        re.compile(
            r"Initializing a V1 LLM engine .*?\bspeculative_config=(?:SpeculativeConfig\(method='?)?([\w-]{1,60})"
        ),
        _method,
    ),
    ("token_budget", re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,12})"), _count),
    (
        "cache_range_bytes",
        re.compile(r"(?:Available KV cache memory: |Explicitly set \(|Auto set \()(\d{1,9}(?:\.\d{1,9})?)[ /]"),
        _gib_range,
    ),
    ("num_threads", re.compile(r"local_rank=0, core ids=\[([\d, ]{1,4000})\]"), _length),
    ("attention_backend", re.compile(r"Using (\w{1,40}) (?:attention )?backend"), _name),
)
_EXCEPTION: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt))\b:? ?(.*)")
_REFUSED: Final = re.compile(r"^(?:[\w. -]{1,60}: )?error: (.+)")
_CALLERS: Final = re.compile(r"initialization failed|See root cause|died unexpectedly|proc died|cancelled")


def parse_vllm_log(text: str) -> EngineFigures:
    """The figures a vLLM server printed while it started.

    Source:   vLLM 0.32 vllm/v1/core/kv_cache_utils.py (update_kv_cache_capacity), vllm/v1/engine/core.py,
              vllm/config/vllm.py (VllmConfig.__str__), vllm/v1/worker/cpu_worker.py and gpu_worker.py
    """
    return pick_figures(_candidates([_bare(line) for line in text.splitlines()]))


def find_python_failure(text: str) -> str | None:
    """The line that says why a server did not start: the first error that is not a caller's view of another.

    Where:    a check of settings prints what is wrong below its first line; a line of a log that names no error is taken
              only where nothing else was said
    """
    lines = [bare for line in text.splitlines() if (bare := _bare(line))]
    for number, line in enumerate(lines):
        if (refused := _REFUSED.match(line)) is not None:
            return refused[1][:_LONGEST_CAUSE]
        match = _EXCEPTION.match(line)
        if match is not None and match[2] and not _CALLERS.search(line):
            return _with_details(match, lines[number + 1 :])[:_LONGEST_CAUSE]
    return lines[-1][:_LONGEST_CAUSE] if lines else None


def _with_details(match: re.Match[str], after: list[str]) -> str:
    said = f"{match[1]}: {match[2]}"
    if "validation error" in said and after:
        return f"{match[1]}: {after[0].removeprefix('Value error, ').partition(' [type=')[0]}"
    return said


def _bare(line: str) -> str:
    """A line without colours, process names, level, time and place."""
    return " ".join(_PREFIX.sub("", _COLOUR.sub("", line), count=1).split())


def _candidates(lines: list[str]) -> Iterator[Candidate]:
    for line in lines:
        for name, pattern, read in _LINES:
            if (match := pattern.search(line)) is not None:
                yield Candidate(name, read(match[1]), f"log: {_cite(line, match)}")


def _cite(line: str, match: re.Match[str]) -> str:
    """The line, or of a long one what was found in it."""
    if len(line) <= _LONGEST_CITATION:
        return line
    return f"{line[:40]}... {line[max(match.start(1) - 40, 40) : match.end(1)]}"
