"""What does another tool's result file say? Its own names and units, put into the oracle's words.

In:   the JSON object of a result file, and how many requests were asked for
Out:  an Observed: success or not, tokens, and means over the successful requests
Leaves out: E2E, which some run to the last token and some to the close
Read next by: tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from inference_bench.conform.oracle import COMPLETED, NOT_COMPLETED, Observed
from inference_bench.units import KILO


def read_result(file: Path) -> Mapping[str, Any] | None:
    """The result file's last line or whole; None when there is none."""
    found = file if file.exists() else next(file.parent.rglob("profile_export_aiperf.json"), None)
    if found is None:
        return None
    text = found.read_text(encoding="utf-8").strip()
    for candidate in (text, text.rpartition("\n")[2]):
        with suppress(ValueError):
            value = json.loads(candidate)
            return value if isinstance(value, dict) else None
    return None


def read_bench_serving(found: Mapping[str, Any], num_requests: int) -> Observed:
    """The one JSON object of `vllm bench serve`, and of SGLang's bench_serving, whose fields are called alike.

    Where:    their ITL is the pause between chunks
    """
    completed, total = _number(found, "completed"), _number(found, "total_output_tokens")
    tokens = total / completed if completed and total is not None else None
    ttft_ms, tpot_ms, gap_ms = (_number(found, f"mean_{name}_ms") for name in ("ttft", "tpot", "itl"))
    return _observed(num_requests, completed, tokens, ttft_ms, tpot_ms, gap_ms)


def read_guidellm(found: Mapping[str, Any], num_requests: int) -> Observed:
    """The first benchmark of a GuideLLM report; its ITL is (last - first) / (n - 1), our TPOT."""
    listed = found.get("benchmarks")
    figures = listed[0].get("metrics", {}) if isinstance(listed, list) and listed else {}

    def mean(name: str) -> float | None:
        return _number(figures, name, "successful", "mean")

    completed = _number(figures, "request_totals", "successful")
    return _observed(
        num_requests,
        completed,
        mean("output_token_count"),
        mean("time_to_first_token_ms"),
        mean("inter_token_latency_ms"),
        None,
    )


def read_aiperf(found: Mapping[str, Any], num_requests: int) -> Observed:
    """AIPerf's profile export in milliseconds; its inter_token_latency is our TPOT."""
    names = (
        "request_count",
        "output_sequence_length",
        "time_to_first_token",
        "inter_token_latency",
        "inter_chunk_latency",
    )
    completed, tokens, ttft_ms, tpot_ms, gap_ms = (_number(found, name, "avg") for name in names)
    return _observed(num_requests, completed, tokens, ttft_ms, tpot_ms, gap_ms)


def _observed(
    num_requests: int,
    completed: float | None,
    tokens: float | None,
    ttft_ms: float | None,
    tpot_ms: float | None,
    gap_ms: float | None,
) -> Observed:
    if not completed or completed < num_requests:
        return Observed(NOT_COMPLETED)
    return Observed(
        COMPLETED,
        None if tokens is None else round(tokens),
        ttft_s=_seconds(ttft_ms),
        tpot_s=_seconds(tpot_ms),
        gap_mean_s=_seconds(gap_ms),
    )


def _number(found: Mapping[str, Any], *path: str) -> float | None:
    value: Any = found
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / KILO
