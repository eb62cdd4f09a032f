"""The tables of the article on the usual KV-cache formula.

In:   NaiveStudy
Out:  Rows
Leaves out: arithmetic; the sentences around the tables (article, article_reasons, article_engines)
Read next by: article, article_reasons, article_engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inference_bench.charts.naive_error import tokens_name
from inference_bench.origin import Origin
from inference_bench.predict.fit import DEFAULT_OVERHEAD_BYTES
from inference_bench.predict.naive_examples import EXAMPLE_CONTEXT, LONG_CONTEXT
from inference_bench.predict.naive_rows import Order
from inference_bench.report.article_blocks import Rows, Subject
from inference_bench.report.table import Column, Table
from inference_bench.units import NOT_AVAILABLE, format_bytes, format_bytes_binary, format_count, format_number

if TYPE_CHECKING:
    from inference_bench.accounting.allocation import EngineAllocation
    from inference_bench.accounting.cache import CacheCount
    from inference_bench.predict.naive_examples import CardCase, EngineCase, Example, ShortCase
    from inference_bench.predict.naive_rows import LengthSummary, ModelRow
    from inference_bench.predict.naive_study import NaiveStudy

_MANY_SHORT: Final = 8
OWN_LIMIT_NAME: Final = "each model's own limit"


def context_name(context: int | None) -> str:
    """A length that was asked for."""
    return OWN_LIMIT_NAME if context is None else f"{format_count(context)} tokens"


def _counted(title: str, note: str = "") -> Column:
    return Column(title, "r", Origin.COUNTED, note)


def _subject(count: CacheCount, model: str) -> Subject:
    return Subject(model, count.context_tokens)


# ── over all models ────────────────────────────────────────────────────────────────────────────────


def lengths_table(study: NaiveStudy) -> Rows:
    """How many models the formula is wrong about at each length, and by how much."""
    columns = (
        Column("at", "l"),
        _counted("models"),
        _counted("wrong on"),
        _counted("says too little of"),
        _counted("median factor where wrong"),
        _counted("highest factor"),
        Column("of", "l"),
    )
    rows = tuple(map(_length_row, study.by_length))
    return Rows("lengths", Table("The usual formula over all models, by length", columns, rows), (None,) * len(rows))


def _length_row(found: LengthSummary) -> tuple[str, ...]:
    first = found.highest[0] if found.highest else None
    return (
        context_name(found.context),
        format_count(found.num_models),
        format_count(found.num_wrong),
        format_count(len(found.too_little)),
        format_number(found.median_factor),
        format_number(first.factor if first else None),
        first.model if first else NOT_AVAILABLE,
    )


_REGISTRY_KEYS: Final = (Order.MODEL, Order.FACTOR, Order.USUAL, Order.TRUE, None, None, Order.DATE)


def registry_table(study: NaiveStudy) -> Rows:
    """Every model at the length asked for."""
    columns = (
        Column("model", "l"),
        Column("factor"),
        Column("usual formula"),
        Column("true"),
        Column("tokens"),
        Column("layers", "l"),
        Column("config read", "l"),
    )
    note = (
        "Sizes and factors are counted. "
        "Where a model goes no further than its own limit, that is its length here; a factor below 1 is a usual figure below "
        f"the truth; {NOT_AVAILABLE}: the formula finds nothing to multiply."
    )
    title = f"All {format_count(len(study.rows))} models at {context_name(study.context)}, cache in {study.fmt.name}"
    return Rows(
        "registry",
        Table(title, columns, tuple(map(_registry_row, study.rows)), note),
        tuple(_subject(row.count, row.model) for row in study.rows),
        tuple(None if key is None else str(key) for key in _REGISTRY_KEYS),
        str(study.order),
    )


def _registry_row(row: ModelRow) -> tuple[str, ...]:
    return (
        row.model,
        format_number(row.factor),
        format_bytes_binary(row.count.naive_bytes),
        format_bytes_binary(row.count.total_bytes),
        format_count(row.count.context_tokens),
        row.layer_types,
        row.as_of,
    )


# ── examples ───────────────────────────────────────────────────────────────────────────────────────


def examples_table(study: NaiveStudy) -> Rows:
    """One model for each reason, with what its usual figure needs to become the true one."""
    columns = (
        Column("model", "l"),
        Column("layers", "l"),
        _counted(f"usual at {tokens_name(EXAMPLE_CONTEXT)}"),
        _counted(f"true at {tokens_name(EXAMPLE_CONTEXT)}"),
        _counted("factor"),
        _counted(f"true at {tokens_name(LONG_CONTEXT)}"),
        _counted(f"factor at {tokens_name(LONG_CONTEXT)}"),
        Column(f"what the usual figure at {tokens_name(EXAMPLE_CONTEXT)} needs", "l", Origin.COUNTED),
    )
    examples = tuple(study.examples.values())
    note = "At the model's own limit where that is shorter. Usual figure and corrections add up to the true one, to the byte."
    return Rows(
        "examples",
        Table("One model for each reason", columns, tuple(map(_example_row, examples)), note),
        tuple(_subject(each.count, each.model.name) for each in examples),
    )


def _example_row(each: Example) -> tuple[str, ...]:
    said = [f"{signed(one.num_bytes)} {one.cause}" for one in each.corrections]
    return (
        each.model.name,
        each.layer_types,
        format_bytes_binary(each.count.naive_bytes),
        format_bytes_binary(each.count.total_bytes),
        format_number(each.count.naive_factor),
        format_bytes_binary(each.longer.total_bytes),
        format_number(each.longer.naive_factor),
        ", ".join(said) or "nothing",
    )


def signed(num_bytes: int) -> str:
    """Bytes with their sign in front."""
    return f"{'−' if num_bytes < 0 else '+'}{format_bytes_binary(abs(num_bytes))}"


def cards_table(study: NaiveStudy) -> Rows:
    """How many sequences one card holds, counted three ways."""
    columns = (
        Column("model", "l"),
        Column("card", "l"),
        Column("tokens each"),
        Column("weights", "l", Origin.COUNTED),
        _counted("left for the cache"),
        _counted("sequences: usual"),
        _counted("true"),
        _counted("vLLM's blocks"),
    )
    note = f"Weights as published, {format_bytes(DEFAULT_OVERHEAD_BYTES)} taken for the runtime; no prefix is shared."
    return Rows(
        "cards",
        Table("Sequences on one card", columns, tuple(map(_card_row, study.cards)), note),
        tuple(Subject(each.model, each.context_tokens) for each in study.cards),
    )


def _card_row(each: CardCase) -> tuple[str, ...]:
    return (
        each.model,
        each.machine,
        format_count(each.context_tokens),
        f"{format_bytes(each.weight_bytes)} {each.weight_format}",
        format_bytes(each.free_bytes),
        format_count(each.usual),
        format_count(each.true),
        format_count(each.vllm),
    )


def short_table(study: NaiveStudy) -> Rows:
    """The models of which the formula says too little while a sequence is short."""
    shown = study.short[:_MANY_SHORT]
    tokens = format_count(shown[0].tokens) if shown else NOT_AVAILABLE
    columns = (
        Column("model", "l"),
        Column("layers", "l"),
        _counted("fixed"),
        _counted("too little below"),
        _counted(f"usual at {tokens} tokens"),
        _counted("true"),
        _counted("short by a factor of"),
        _counted("vLLM, first token"),
    )
    return Rows(
        "short",
        Table("Where the usual formula says too little", columns, tuple(map(_short_row, shown))),
        tuple(Subject(each.model, each.tokens) for each in shown),
    )


def _short_row(each: ShortCase) -> tuple[str, ...]:
    return (
        each.model,
        each.layer_types,
        format_bytes_binary(each.fixed_bytes),
        f"{format_count(each.below_tokens)} tokens",
        format_bytes_binary(each.usual_bytes),
        format_bytes_binary(each.true_bytes),
        format_number(each.shortfall),
        format_bytes_binary(each.first_bytes),
    )


def engines_table(study: NaiveStudy) -> Rows:
    """What engines set aside for one sequence."""
    columns = (
        Column("model", "l"),
        Column("tokens"),
        _counted("usual formula"),
        _counted("counted, no engine"),
        _counted("llama.cpp"),
        _counted("vLLM, to admit it"),
        _counted("vLLM, once read"),
        _counted("vLLM, hybrid manager off"),
    )
    note = f"{NOT_AVAILABLE}: the engine cannot, stores no such cache, or lays it out in a way that is not counted."
    cases = tuple(study.engines.values())
    return Rows(
        "engines",
        Table("What engines set aside for one sequence", columns, tuple(map(_engine_row, cases)), note),
        tuple(_subject(each.count, each.model) for each in cases),
    )


def _engine_row(each: EngineCase) -> tuple[str, ...]:
    return (
        each.model,
        format_count(each.count.context_tokens),
        format_bytes_binary(each.count.naive_bytes),
        format_bytes_binary(each.count.total_bytes),
        _whole(each.llama_cpp),
        _whole(each.vllm),
        format_bytes_binary(each.pool.steady_bytes if each.pool else None),
        _whole(each.unmanaged),
    )


def _whole(found: EngineAllocation | None) -> str:
    return format_bytes_binary(None if found is None else found.num_bytes)
