"""The usual formula beside the truth for every known model, none beyond the length it was made for.

In:   the packaged models, a cache format, a context length
Out:  ModelRow: one for each model; LengthSummary: how many are wrong, by how much in the middle and at most
Leaves out: engine rounding; lengths beyond a model's own limit, which naive_error counts too
Read next by: naive_study, charts.naive_error, report.article.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from inference_bench.accounting.cache import CacheCount, CacheFormat, count_cache
from inference_bench.errors import RequestError
from inference_bench.facts.load import known_models
from inference_bench.facts.models import ModelSpec
from inference_bench.predict.naive_causes import Cause, Correction, corrections
from inference_bench.predict.naive_error import CONTEXTS, describe_layers
from inference_bench.stats import median

OWN_LIMIT: Final = None  # the length at which to look at each model: as long as it goes
LENGTHS: Final = (*CONTEXTS, OWN_LIMIT)
UNSTATED_LIMIT_TOKENS: Final = CONTEXTS[-1]  # taken for a model whose config states none


class Known(NamedTuple):
    """A packaged model with its layers in words; both take longer than counting, and stay the same."""

    model: ModelSpec
    layer_types: str

    def capped(self, context: int | None) -> int:
        """A length, or the model's own limit where that is shorter or asked for."""
        limit = self.model.max_position_embeddings
        if context is None:
            return UNSTATED_LIMIT_TOKENS if limit is None else limit
        return context if limit is None else min(context, limit)


class Order(StrEnum):
    """By what a table of models is sorted."""

    FACTOR = "factor"
    MODEL = "model"
    TRUE = "true"
    USUAL = "usual"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model at one length.

    Where:  as_of is when its config was read; is_capped says that the model goes no further than this, though more was
            asked; is_uniform that the usual formula is right for it at every length of LENGTHS; corrections are what
            makes the usual figure true, None where there is no usual figure
    """

    model: str
    layer_types: str
    as_of: str
    own_limit: int | None
    count: CacheCount
    is_capped: bool
    is_uniform: bool
    corrections: tuple[Correction, ...] | None

    @property
    def factor(self) -> float | None:
        """How many times the truth the usual formula says."""
        return self.count.naive_factor

    @property
    def is_right(self) -> bool:
        """Whether the usual formula is right at this length."""
        return self.count.naive_bytes == self.count.total_bytes

    @property
    def cause(self) -> Cause | None:
        """The largest of what is wrong; None where nothing is."""
        if self.corrections is None:
            return Cause.NO_ATTENTION
        return self.corrections[0].cause if self.corrections else None


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """How wrong the usual formula is at one length, over all models.

    Where:  context None is each model's own limit; median_factor is over the models it is wrong on; too_little are
            those of which it says less than the truth, unanswered those that give it nothing to multiply
    """

    context: int | None
    num_models: int
    num_wrong: int
    median_factor: float | None
    highest: tuple[ModelRow, ...]
    too_little: tuple[ModelRow, ...]
    unanswered: tuple[ModelRow, ...]


@cache
def registry() -> tuple[Known, ...]:
    """Every packaged model, read once."""
    return tuple(Known(model, describe_layers(model)) for model in known_models())


def rows_by_length(
    known: Sequence[Known], fmt: CacheFormat, contexts: Iterable[int | None] = LENGTHS
) -> dict[int | None, tuple[ModelRow, ...]]:
    """Every model at every length, and at those that tell whether the formula is right for it everywhere.

    Raises:  RequestError for a length below 1
    """
    wanted = tuple(dict.fromkeys((*LENGTHS, *contexts)))
    if any(context is not None and context < 1 for context in wanted):
        raise RequestError("the context must be at least 1 token, or none for each model's own limit")
    rows = [_model_rows(each, fmt, wanted) for each in known]
    return dict(zip(wanted, zip(*rows, strict=True), strict=True))


def _model_rows(known: Known, fmt: CacheFormat, contexts: Sequence[int | None]) -> list[ModelRow]:
    model = known.model
    counts = {length: count_cache(model, fmt, length) for length in {known.capped(context) for context in contexts}}
    usual = [counts[known.capped(context)] for context in LENGTHS]
    is_uniform = all(count.naive_bytes == count.total_bytes for count in usual)
    rows = []
    for context in contexts:
        count = counts[known.capped(context)]
        right = count.naive_bytes == count.total_bytes
        rows.append(
            ModelRow(
                model=model.name,
                layer_types=known.layer_types,
                as_of=model.source.as_of,
                own_limit=model.max_position_embeddings,
                count=count,
                is_capped=context is not None and count.context_tokens < context,
                is_uniform=is_uniform,
                corrections=() if right else corrections(model, fmt, count.context_tokens),
            )
        )
    return rows


def summarise(rows: Sequence[ModelRow], context: int | None) -> LengthSummary:
    """The rows of one length in a few figures."""
    factors = [row.factor for row in rows if not row.is_right and row.factor is not None]
    highest = max(factors, default=None)
    return LengthSummary(
        context=context,
        num_models=len(rows),
        num_wrong=sum(not row.is_right for row in rows),
        median_factor=median(factors) if factors else None,
        highest=tuple(row for row in rows if highest is not None and row.factor == highest),
        too_little=tuple(row for row in rows if row.factor is not None and row.factor < 1),
        unanswered=tuple(row for row in rows if row.factor is None and not row.is_right),
    )


def ordered(rows: Iterable[ModelRow], order: Order = Order.FACTOR) -> tuple[ModelRow, ...]:
    """The rows sorted; by factor the highest first and those without one before the models that are right."""
    by_name = sorted(rows, key=lambda row: row.model.casefold())
    if order is Order.FACTOR:
        return tuple(sorted(by_name, key=_by_factor))
    if order is Order.TRUE:
        return tuple(sorted(by_name, key=lambda row: -row.count.total_bytes))
    if order is Order.USUAL:
        return tuple(sorted(by_name, key=lambda row: -(row.count.naive_bytes or 0)))
    if order is Order.DATE:
        return tuple(sorted(by_name, key=lambda row: row.as_of, reverse=True))
    return tuple(by_name)


def _by_factor(row: ModelRow) -> tuple[bool, float]:
    return row.is_right, -(row.factor or 0.0)
