"""What a running vLLM server says about itself over HTTP.

In:   the model it lists, and an Asker for its other answers: /version and /metrics
Out:  Report: EngineFigures and EngineIdentity
Leaves out: what it only logs (vllm_log): the numbers it computes in, the backend of its attention
Read next by: attach.

Its page of metrics has one series, always 1, whose labels are the settings of its cache as Python prints them. Several
engines behind one address (data parallelism) have one each, and each its own cache: the first is read, and said to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from inference_bench.engines.answers import (
    Asker,
    Candidate,
    Listed,
    Report,
    fraction_in,
    inside,
    pick_figures,
    switch_in,
    text_in,
    whole_number_in,
)
from inference_bench.engines.base import EngineIdentity
from inference_bench.errors import ServerError
from inference_bench.measure.prometheus_text import Series, parse_prometheus

OWNER: Final = "vllm"
_CACHE_INFO: Final = "vllm:cache_config_info"
_UNSET: Final = "None"

# label of the series, our field, and how its text is read
_LABELS: Final = (
    ("num_gpu_blocks", "num_blocks", whole_number_in),
    ("block_size", "block_tokens", whole_number_in),
    ("kv_cache_size_tokens", "kv_tokens", whole_number_in),
    ("kv_cache_memory_bytes", "cache_bytes", whole_number_in),
    ("gpu_memory_utilization", "memory_fraction", fraction_in),
    ("enable_prefix_caching", "prefix_cache", switch_in),
    ("cache_dtype", "cache_dtype", text_in),
)


def read_vllm(listed: Listed, ask: Asker) -> Report | None:
    """The report of a vLLM server; None for another one.

    Source:   vLLM 0.32 vllm/v1/metrics/loggers.py (log_metrics_info), vllm/config/cache.py (metrics_info),
              vllm/entrypoints/serve/instrumentator/basic.py (/version)
    """
    page = ask.page("/metrics")
    engines = _cache_series(page)
    if listed.owner != OWNER and not engines:
        return None
    version = text_in(inside(ask.json("/version"), "version"))
    identity = EngineIdentity(
        name="vllm",
        source="reported by the server",
        version=version,
        build=version,
        model_name=listed.name,
        model_path=text_in(listed.entry.get("root")),
    )
    return Report(identity, pick_figures(_candidates(listed, engines)))


def _cache_series(page: str | None) -> Sequence[Series]:
    try:
        return () if page is None else parse_prometheus(page, {_CACHE_INFO})
    except ServerError:
        return ()


def _candidates(listed: Listed, engines: Sequence[Series]) -> Iterator[Candidate]:
    yield from listed.limits()
    if engines:
        yield from _of_cache(engines[0].labels, f", of the first of {len(engines)}" if len(engines) > 1 else "")


def _of_cache(labels: Mapping[str, str], which: str) -> Iterator[Candidate]:
    for label, name, read in _LABELS:
        text: Any = labels.get(label)
        if name == "memory_fraction" and labels.get("kv_cache_memory_bytes", _UNSET) != _UNSET:
            continue  # a cache of a given size does not look at it
        value = None if text in (None, _UNSET) else read(text)
        yield Candidate(name, value, f"/metrics {_CACHE_INFO} {label}{which}")
