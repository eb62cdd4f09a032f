"""What did the server say about itself during a run? Its own counters and gauges under common names, once a second.

In:   pages of metrics, each with its time on the run's clock
Out:  ServerSample, one a page; ServerMetrics, those of a run; ServerSummary, what they come to
Leaves out: how pages are fetched (server_metrics_watch), and what they say beside the records (server_metrics_checks)
Read next by: server_metrics_watch, server_metrics_checks, report.

Names as of 2026-11-30: vLLM 0.33 (docs.vllm.ai, "Production Metrics" and "Metrics" design page), SGLang 0.5.23
(docs.sglang.io, "Production Metrics"; off unless it is started with --enable-metrics), llama.cpp (tools/server/README.md,
"GET /metrics", and a page of the embedded engine; off unless started with --metrics). Older names of a figure come after its
newest; only the first that is on the page is read, so that no figure is counted twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from inference_bench.errors import RunFolderError
from inference_bench.measure.journal_fields import refuse
from inference_bench.measure.prometheus_text import Series, is_known, parse_prometheus
from inference_bench.units import KIBI

SERVER_METRICS_FILE: Final = "server_metrics.jsonl"
_MAX_LINE_BYTES: Final = 64 * KIBI
_WITHIN_ONE: Final = (
    "tp_rank",
    "pp_rank",
    "moe_ep_rank",
)  # labels of devices that all say the same of their one scheduler


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What a server said at one moment; None for what it did not say, or said as NaN or beyond everything.

    Where:    at_s is when it was asked, on the run's clock, took_s how long the answer took. running and waiting are
              requests at that moment; of several caches cache_used_fraction is the fullest. What ends in _total, and
              prefix_hit_tokens, prefix_asked_tokens, preemptions, ttft_sum_s and ttft_count, counts from the server's start;
              prompt tokens are all, those found in a cache too. output_tokens_per_s and cache_hit_fraction are the server's
              own averages over a time that it chose
    """

    at_s: float
    took_s: float
    running: float | None = None
    waiting: float | None = None
    cache_used_fraction: float | None = None
    prompt_tokens_total: float | None = None
    output_tokens_total: float | None = None
    prefix_hit_tokens: float | None = None
    prefix_asked_tokens: float | None = None
    preemptions: float | None = None
    output_tokens_per_s: float | None = None
    cache_hit_fraction: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None


FIELDS: Final = tuple(field.name for field in fields(ServerSample) if field.name not in {"at_s", "took_s"})


class Naming(NamedTuple):
    """A server's name, and its names for each of our figures, the newest first.

    Where:    counts_misses: its count of prompt tokens leaves out those found in its cache, which we add
    """

    server: str
    names: Mapping[str, tuple[str, ...]]
    counts_misses: bool = False


NAMINGS: Final = (
    Naming(
        "vLLM",
        {
            "running": ("vllm:num_requests_running",),
            "waiting": ("vllm:num_requests_waiting",),
            "cache_used_fraction": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "prompt_tokens_total": ("vllm:prompt_tokens_total",),
            "output_tokens_total": ("vllm:generation_tokens_total",),
            "prefix_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            "prefix_asked_tokens": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            "preemptions": ("vllm:num_preemptions_total",),
            "ttft_sum_s": ("vllm:time_to_first_token_seconds_sum",),
            "ttft_count": ("vllm:time_to_first_token_seconds_count",),
        },
    ),
    Naming(
        "SGLang",
        {
            "running": ("sglang:num_running_reqs",),
            "waiting": ("sglang:num_queue_reqs",),
            "cache_used_fraction": ("sglang:token_usage",),
            "prompt_tokens_total": ("sglang:prompt_tokens_total",),
            "output_tokens_total": ("sglang:generation_tokens_total",),
            "prefix_hit_tokens": ("sglang:cached_tokens_total",),
            "preemptions": ("sglang:num_retracted_requests_total",),
            "output_tokens_per_s": ("sglang:gen_throughput",),
            "cache_hit_fraction": ("sglang:cache_hit_rate",),
            "ttft_sum_s": ("sglang:time_to_first_token_seconds_sum",),
            "ttft_count": ("sglang:time_to_first_token_seconds_count",),
        },
    ),
    Naming(
        "llama.cpp",
        {
            "running": ("llamacpp:requests_processing",),
            "waiting": ("llamacpp:requests_deferred",),
            "cache_used_fraction": ("llamacpp:kv_cache_usage_ratio",),  # until 2025
            "prompt_tokens_total": ("llamacpp:prompt_tokens_total",),
            "output_tokens_total": ("llamacpp:tokens_predicted_total",),
            "prefix_hit_tokens": ("llamacpp:prompt_tokens_cached_total",),
        },
        counts_misses=True,
    ),
)


def _spellings(name: str) -> tuple[str, str]:
    """The name, and as collectors write it that allow no colon."""
    return name, name.replace(":", "_", 1)


WANTED: Final = frozenset(
    spelling for naming in NAMINGS for names in naming.names.values() for name in names for spelling in _spellings(name)
)
_FULLEST: Final = frozenset({"cache_used_fraction", "cache_hit_fraction"})


def read_page(text: str, at_s: float, took_s: float) -> tuple[str, ServerSample] | None:
    """The server's name and what its page says; None for a page of no server that is known here.

    Raises:   ServerError for a page that cannot be read
    """
    return read_series(parse_prometheus(text, WANTED), at_s, took_s)


def read_series(page: Iterable[Series], at_s: float, took_s: float) -> tuple[str, ServerSample] | None:
    """The same of a page that was parsed; series of other names are passed over."""
    found: dict[str, list[Series]] = {}
    for series in page:
        found.setdefault(series.name, []).append(series)
    for naming in NAMINGS:
        values = {name: _figure(name, theirs, found) for name, theirs in naming.names.items()}
        if any(value is not None for value in values.values()):
            computed, hits = values["prompt_tokens_total"], values.get("prefix_hit_tokens")
            if naming.counts_misses and computed is not None and hits is not None:
                values["prompt_tokens_total"] = computed + hits
            known = {name: value for name, value in values.items() if value is not None and is_known(value)}
            return naming.server, ServerSample(at_s, took_s, **known)
    return None


def _figure(name: str, theirs: Sequence[str], found: Mapping[str, Sequence[Series]]) -> float | None:
    """A figure from the first of their names that is on the page: added up over engines, or of the fullest."""
    for spelling in (spelling for each in theirs for spelling in _spellings(each)):
        if spelling in found:
            of_each = _of_each_scheduler(found[spelling])
            return None if not of_each else max(of_each) if name in _FULLEST else math.fsum(of_each)
    return None


def _of_each_scheduler(series: Iterable[Series]) -> list[float]:
    """A value for each scheduler: devices that work on the same requests say the same, and count once."""
    values: dict[tuple[tuple[str, str], ...], float] = {}
    for each in series:
        if each.is_known:
            whose = tuple(sorted((key, value) for key, value in each.labels.items() if key not in _WITHIN_ONE))
            values[whose] = max(each.value, values.get(whose, -math.inf))
    return list(values.values())


# ── a run's samples ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """What a server said during a run, and what it did not.

    Where:    num_failed is how often it was asked without a usable answer, num_late how often it was not asked as the answer
              before had not come yet; trouble says in words what went wrong first. cpu_s is this program's processor time
    """

    server: str | None
    samples: tuple[ServerSample, ...]
    num_failed: int = 0
    num_late: int = 0
    trouble: str | None = None
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ServerSummary:
    """What the samples of a run come to; None where the server does not say.

    Where:    means are over time, each sample until the next; differences are from the first to the last sample. prefix
              hits are a share of the prompt tokens that were looked up in the cache, or else of all
    Unit:     requests, tokens, seconds, fractions
    """

    num_samples: int
    mean_running: float | None
    peak_running: float | None
    mean_waiting: float | None
    peak_waiting: float | None
    peak_cache_fraction: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    prefix_hit_fraction: float | None
    preemptions: float | None
    mean_ttft_s: float | None


def summarise_server(samples: Sequence[ServerSample]) -> ServerSummary | None:
    """The same in a few figures; None without a sample."""
    if not samples:
        return None
    change = partial(counter_change, samples)
    hits, asked = change("prefix_hit_tokens"), change("prefix_asked_tokens")
    asked = change("prompt_tokens_total") if asked is None else asked
    waits, num_waits = change("ttft_sum_s"), change("ttft_count")
    return ServerSummary(
        num_samples=len(samples),
        mean_running=_mean_over_time(samples, "running"),
        peak_running=_peak(samples, "running"),
        mean_waiting=_mean_over_time(samples, "waiting"),
        peak_waiting=_peak(samples, "waiting"),
        peak_cache_fraction=_peak(samples, "cache_used_fraction"),
        prompt_tokens=change("prompt_tokens_total"),
        output_tokens=change("output_tokens_total"),
        prefix_hit_fraction=hits / asked if hits is not None and asked else None,
        preemptions=change("preemptions"),
        mean_ttft_s=waits / num_waits if waits is not None and num_waits else None,
    )


def counter_change(samples: Sequence[ServerSample], name: str) -> float | None:
    """By how much a counter rose from the first sample that has it to the last; None where it fell: the server began anew."""
    values = [value for sample in samples if (value := getattr(sample, name)) is not None]
    if len(values) < 2 or any(after < before for before, after in pairwise(values)):
        return None
    return float(values[-1] - values[0])


def _peak(samples: Sequence[ServerSample], name: str) -> float | None:
    return max((value for sample in samples if (value := getattr(sample, name)) is not None), default=None)


def _mean_over_time(samples: Sequence[ServerSample], name: str) -> float | None:
    known = [(sample.at_s, value) for sample in samples if (value := getattr(sample, name)) is not None]
    spans = [(after - before, value) for (before, value), (after, _) in pairwise(known) if after > before]
    if not spans:
        return known[0][1] if known else None
    return math.fsum(span * value for span, value in spans) / math.fsum(span for span, _ in spans)


# ── as lines of a file ─────────────────────────────────────────────────────────────────────────────


def sample_to_json(server: str, sample: ServerSample) -> str:
    """One sample as one line of JSON; what the server did not say is left out."""
    values = {name: value for name, value in asdict(sample).items() if value is not None}
    return json.dumps({"server": server, **values}, allow_nan=False, separators=(",", ":"))


def sample_from_json(line: str | bytes) -> tuple[str, ServerSample]:
    """The server's name and the sample that `sample_to_json` wrote.

    Raises:   ValueError for a line that is not one
    """
    values = json.loads(line, parse_constant=refuse)
    if not isinstance(values, dict) or not {"server", "at_s", "took_s"} <= values.keys():
        refuse("the sample")
    server = values.pop("server")
    if server not in {naming.server for naming in NAMINGS} or not values.keys() <= {"at_s", "took_s", *FIELDS}:
        refuse("the sample")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_known(value):
            refuse(name)
    return server, ServerSample(**{name: float(value) for name, value in values.items()})


def read_server_metrics(folder: Path) -> ServerMetrics | None:
    """What a run folder holds of its server's own figures; None where it holds none. A last line cut short is left out.

    Raises:   RunFolderError for a broken line other than the last, and for what is not a regular file
    """
    path = folder / SERVER_METRICS_FILE
    if not path.exists():
        return None
    if not path.is_file():
        raise RunFolderError(f"{path} is not a regular file; a run's own file is needed")
    try:
        with path.open("rb") as lines:
            return _from_lines(
                iter(partial(lines.readline, _MAX_LINE_BYTES), b""), lambda number: f"{path} line {number}"
            )
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from None


def _from_lines(lines: Iterable[bytes], name: Callable[[int], str]) -> ServerMetrics:
    server, samples = None, []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n") and len(line) < _MAX_LINE_BYTES:
            break
        try:
            server, sample = sample_from_json(line)
        except (ValueError, RecursionError) as error:
            raise RunFolderError(f"{name(number)} is not a sample of a server's metrics: {error}") from None
        samples.append(sample)
    return ServerMetrics(server, tuple(samples))
