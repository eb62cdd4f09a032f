"""What does one page of metrics say that a watch needs? The common figures, and beside them who is served, and by what cache.

In:   the text of a page, when it was asked for and how long it took
Out:  PageRead
Leaves out: figures over time (history)
Read next by: history, observer.

The common figures are those of measure.server_metrics, under the names of vLLM, SGLang and llama.cpp. A page without any of them is
named as what it is: an engine's page whose names are not known here (another version), another program's, or none; it never becomes
zeros.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import ServerError
from inference_bench.measure.prometheus_text import Series, is_known, parse_prometheus
from inference_bench.measure.server_metrics import WANTED, ServerSample, read_series

_MODEL_LABELS: Final = ("model_name", "served_model_name")
_MODELS_FROM: Final = frozenset({"vllm:num_requests_running", "sglang:num_running_reqs"})
_REJECTED: Final = frozenset({"vllm:admission_rejections_total"})  # turned away, as its queue was full
_CACHE_TOKENS: Final = "sglang:max_total_num_tokens"
_CACHE_CONFIG: Final = "vllm:cache_config_info"
# what rises while tokens come, also before a request is complete: llama.cpp and SGLang count their tokens only then
_PROGRESS: Final = frozenset({
    "vllm:generation_tokens_total", "sglang:generation_tokens_total", "sglang:realtime_tokens_total",
    "sglang:inter_token_latency_seconds_count", "llamacpp:n_decode_total", "llamacpp:tokens_predicted_total",
})  # fmt: skip
_OWN: Final = _PROGRESS | _MODELS_FROM | _REJECTED | {_CACHE_TOKENS, _CACHE_CONFIG}
_ENGINES: Final = (("vLLM", "vllm[:_]"), ("SGLang", "sglang[:_]"), ("llama.cpp", "llamacpp[:_]"))
_SERIES: Final = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*[ \t{]", re.MULTILINE)
_MOST_NAME_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class PageRead:
    """One page.

    Where:    engine and sample are None where no figure on it is known here, and then trouble says why. models are the names that
              its labels give; rejected counts from the server's start; cache_tokens is what its cache can hold; progress
              is a sum of counters that rises while tokens come, and means nothing else
    """

    engine: str | None
    sample: ServerSample | None
    trouble: str | None = None
    models: tuple[str, ...] = ()
    rejected: float | None = None
    cache_tokens: float | None = None
    progress: float | None = None


def read_metrics(text: str, at_s: float, took_s: float) -> PageRead:
    """What stands on the page; a page that cannot be read is trouble, and no error."""
    try:
        own = parse_prometheus(text, WANTED | _OWN)
    except ServerError as error:
        return PageRead(None, None, str(error))
    found = read_series(own, at_s, took_s)
    if found is None:
        return PageRead(None, None, _strange(text))
    engine, sample = found
    return PageRead(
        engine,
        sample,
        models=_models(own),
        rejected=_total([each for each in own if each.name in _REJECTED]),
        cache_tokens=_cache_tokens(own),
        progress=_total([each for each in own if _is_progress(each)]),
    )


def _strange(text: str) -> str:
    """What a page is on which nothing is known."""
    for engine, prefix in _ENGINES:
        if re.search(rf"^{prefix}", text, re.MULTILINE):
            return f"its metrics have names of {engine}, none of which is known here: another version? Its figures are unknown"
    if _SERIES.search(text):
        return "its metrics are of no server that is known here (vLLM, SGLang, llama.cpp): its figures are unknown"
    return "its page of metrics holds no series: its figures are unknown"


def _models(own: tuple[Series, ...]) -> tuple[str, ...]:
    names = (
        each.labels[label][:_MOST_NAME_CHARS]
        for each in own
        if each.name in _MODELS_FROM
        for label in _MODEL_LABELS
        if each.labels.get(label)
    )
    return tuple(dict.fromkeys(names))


def _is_progress(series: Series) -> bool:
    """Whether it rises with tokens that come out; SGLang has prompts under the same name, in another mode."""
    return series.name in _PROGRESS and series.labels.get("mode", "decode") == "decode"


def _total(series: list[Series]) -> float | None:
    values = [each.value for each in series if each.is_known]
    total = math.fsum(values)
    return total if values and is_known(total) else None


def _cache_tokens(own: tuple[Series, ...]) -> float | None:
    """Tokens that fit into the cache, of all engines behind one address together."""
    said = [each.value for each in own if each.name == _CACHE_TOKENS and each.is_known and each.value > 0]
    if said:
        return max(said)  # devices of one scheduler all say the same
    pools = [tokens for each in own if each.name == _CACHE_CONFIG if (tokens := _pool_tokens(each)) is not None]
    return math.fsum(pools) if pools else None


def _pool_tokens(series: Series) -> float | None:
    """Of one vLLM engine: what it says that its cache holds, or else its blocks; their size is not told by older ones."""
    labels = series.labels
    for parts in (("kv_cache_size_tokens",), ("num_gpu_blocks", "block_size")):
        texts = [labels.get(part, "") for part in parts]
        if all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts):
            return float(math.prod(map(int, texts)))
    return None
