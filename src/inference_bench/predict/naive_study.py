"""Everything that the article on the usual KV-cache formula says in figures, counted at once.

In:   a context length or each model's own limit, a cache format, an order
Out:  NaiveStudy
Leaves out: words (report.article) and pictures (charts.naive_error)
Read next by: report.article, bridge, scripts/write_article.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.accounting.cache import CacheFormat, count_cache
from inference_bench.errors import UnknownNameError
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.fit import cache_format
from inference_bench.predict.naive_error import CONTEXTS
from inference_bench.predict.naive_examples import (
    CARDS,
    EXAMPLE_CONTEXT,
    CacheCurve,
    CardCase,
    EngineCase,
    Example,
    ShortCase,
    cache_curve,
    card_case,
    engine_case,
    example,
    short_cases,
)
from inference_bench.predict.naive_rows import (
    LENGTHS,
    Known,
    LengthSummary,
    ModelRow,
    Order,
    ordered,
    registry,
    rows_by_length,
    summarise,
)
from inference_bench.stats import median

# the example of each reason, by the word the article knows it under
EXAMPLES: Final = {
    "uniform": "Qwen3-8B",
    "windows": "gemma-3-27b-it",
    "half": "gpt-oss-20b",
    "all": "Mistral-7B-v0.1",
    "chunks": "Llama-4-Scout-17B-16E-Instruct",
    "latents": "DeepSeek-V3",
    "index": "DeepSeek-V3.2",
    "compressed": "DeepSeek-V4-Pro",
    "linear": "Qwen3-Next-80B-A3B-Instruct",
    "mamba": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "shared": "gemma-3n-E4B-it",
    "shapes": "gemma-4-31B",
    "wider": "gemma-4-E4B",
    "cross": "Llama-3.2-11B-Vision-Instruct",
}
_IN_ENGINES: Final = ("uniform", "windows", "half", "all", "chunks", "latents", "index", "linear", "mamba", "shared")
_CURVES: Final = ("windows", "latents", "mamba", "uniform")


@dataclass(frozen=True, slots=True)
class Beyond:
    """The same error counted past what models were made for, as `models --naive-error` does.

    Where:  only_there are the models that the usual formula is wrong on nowhere else
    """

    context: int
    num_wrong: int
    median_factor: float | None
    only_there: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overcorrection:
    """A model whose full layers are charged as its others are: with a window, which says less than the truth."""

    model: str
    context_tokens: int
    window: int
    true_bytes: int
    said_bytes: int


@dataclass(frozen=True, slots=True)
class NaiveStudy:
    """The figures of the article.

    Where:  context None is each model's own limit; rows are all models there; right and wrong go over all lengths
            within a model's own limit; examples are by the words of EXAMPLES
    """

    context: int | None
    fmt: CacheFormat
    order: Order
    rows: tuple[ModelRow, ...]
    here: LengthSummary
    by_length: tuple[LengthSummary, ...]
    num_right: int
    num_wrong: int
    beyond: Beyond
    examples: Mapping[str, Example]
    engines: Mapping[str, EngineCase]
    cards: tuple[CardCase, ...]
    short: tuple[ShortCase, ...]
    overcorrected: Overcorrection
    curves: tuple[CacheCurve, ...]
    as_of: str


def study_naive_error(
    context: int | None = EXAMPLE_CONTEXT, fmt: CacheFormat | None = None, order: Order = Order.FACTOR
) -> NaiveStudy:
    """The usual formula over every packaged model at one length, and the examples that explain it.

    Where:   context None is each model's own limit; fmt None is 16 bits
    Raises:  RequestError for a length below 1
    """
    fmt, known = fmt or cache_format(None), registry()
    by_length = rows_by_length(known, fmt, (context,))
    rows = by_length[context]
    by_name = {each.model.name: each for each in known}
    examples = {word: example(_named(by_name, name), fmt) for word, name in EXAMPLES.items()}
    return NaiveStudy(
        context=context,
        fmt=fmt,
        order=order,
        rows=ordered(rows, order),
        here=summarise(rows, context),
        by_length=tuple(summarise(by_length[length], length) for length in LENGTHS),
        num_right=sum(row.is_uniform for row in rows),
        num_wrong=sum(not row.is_uniform for row in rows),
        beyond=_beyond([each.model for each in known], rows, fmt),
        examples=examples,
        engines={word: engine_case(_named(by_name, EXAMPLES[word]), fmt) for word in _IN_ENGINES},
        cards=tuple(card_case(model, machine, length, fmt) for model, machine, length in CARDS),
        short=short_cases(known, fmt),
        overcorrected=_overcorrected(_named(by_name, "gemma-2-27b"), fmt),
        curves=tuple(cache_curve(_named(by_name, EXAMPLES[word]), fmt) for word in _CURVES),
        as_of=max(row.as_of for row in rows),
    )


def _named(by_name: Mapping[str, Known], name: str) -> Known:
    if name not in by_name:
        raise UnknownNameError(f"the article's example {name!r} is not in the table of models")
    return by_name[name]


def _beyond(models: Sequence[ModelSpec], rows: Sequence[ModelRow], fmt: CacheFormat) -> Beyond:
    context = CONTEXTS[-1]
    counts = [count_cache(model, fmt, context) for model in models]
    wrong = [(count, row) for count, row in zip(counts, rows, strict=True) if count.naive_bytes != count.total_bytes]
    factors = [count.naive_factor for count, _ in wrong if count.naive_factor is not None]
    only = tuple(row.model for _, row in wrong if row.is_uniform)
    return Beyond(context, len(wrong), median(factors) if factors else None, only)


def _overcorrected(known: Known, fmt: CacheFormat) -> Overcorrection:
    """Every layer given the window that some have."""
    count = count_cache(known.model, fmt, known.capped(EXAMPLE_CONTEXT))
    window = max(layer.sliding_window or 0 for layer in count.layers)
    said = count_cache(known.model, fmt, min(window, count.context_tokens)).total_bytes
    return Overcorrection(known.model.name, count.context_tokens, window, count.total_bytes, said)
