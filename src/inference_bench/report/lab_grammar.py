"""What does the grammar lab say?

In:   GrammarResult
Out:  LabPage
Leaves out: its tables (lab_grammar_tables)
Read next by: cli, notebook.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.charts.lab_grammar import allowed_chart, parts_chart
from inference_bench.labs.grammar.result import (
    ADVANCE,
    APPLY,
    MASK,
    MODEL,
    DocumentRun,
    GrammarResult,
    Outcome,
    ServerRun,
    ServerWay,
    StepPart,
    ValidityRate,
    Way,
)
from inference_bench.origin import Origin
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_grammar_tables import (
    documents_table,
    faults_table,
    keywords_table,
    rates_table,
    schemas_table,
    server_keywords_table,
    server_table,
    steps_table,
    unenforced_table,
)
from inference_bench.report.lab_page import LabPage
from inference_bench.units import format_count, format_fraction, format_number, format_seconds

_OWN_WORK: Final = (MASK, APPLY, ADVANCE)


def lab_page(result: GrammarResult) -> LabPage:
    """Its figures, its sentences, its charts."""
    return LabPage(
        head=result.head,
        checks=result.checks,
        figures=tuple(_figures(result)),
        reading=tuple(_reading(result)),
        tables=(
            rates_table(result),
            steps_table(result),
            schemas_table(result),
            unenforced_table(result),
            server_table(result),
            server_keywords_table(result),
        ),
        drawings=(
            Drawing(
                "How many tokens each step allows",
                "One document; where just one token is allowed, the model is not needed.",
                lambda width: allowed_chart(result, width),
            ),
            Drawing(
                "Where the time of a step goes",
                "With the schema's masks and without, on a log scale.",
                lambda width: parts_chart(result, width),
            ),
        ),
        details=(keywords_table(result), faults_table(result), documents_table(result)),
    )


def rate_of(result: GrammarResult, way: Way) -> ValidityRate | None:
    """The documents of one way."""
    return next((rate for rate in result.rates if rate.way is way), None)


def mask_share(result: GrammarResult) -> float | None:
    """What the grammar takes of a constrained step: its mask, applying it, and advancing; None without steps."""
    parts = [part for part in result.step_parts if part.is_constrained]
    return sum(part.share_fraction for part in parts if part.name in _OWN_WORK) if parts else None


def _part(result: GrammarResult, name: str) -> StepPart | None:
    return next((part for part in result.step_parts if part.is_constrained and part.name == name), None)


def _constrained(result: GrammarResult) -> list[DocumentRun]:
    return [each for each in result.documents if each.way is Way.CONSTRAINED]


def _figures(result: GrammarResult) -> Iterator[KeyFigure]:
    measured = Origin.MEASURED.value
    for way, name in ((Way.CONSTRAINED, "Valid with masks"), (Way.FREE, "Valid without")):
        if (rate := rate_of(result, way)) is not None:
            yield KeyFigure(
                name,
                f"{rate.num_valid} of {rate.num_documents}",
                "documents",
                measured,
                _interval_words(rate),
                f"{rate.num_truncated} cut off by the budget, which counts as invalid",
                rate.valid_fraction,
            )
    mask, share = _part(result, MASK), mask_share(result)
    if mask is not None and share is not None:
        value, unit = format_seconds(mask.median_s).split(" ", 1)
        yield KeyFigure(
            "A mask",
            value,
            unit,
            measured,
            f"{format_fraction(share, 2)} of a step with all its grammar work",
            f"median; 90th percentile {format_seconds(mask.p90_s)}, longest {format_seconds(mask.max_s)}",
        )
    if (forced := _forced_share(result)) is not None:
        value, unit = format_fraction(forced).split(" ", 1)
        yield KeyFigure(
            "Steps without a choice",
            value,
            unit,
            Origin.COUNTED.value,
            "just one token allowed",
            "an engine that fast-forwards does not ask the model there",
            forced,
        )


def _forced_share(result: GrammarResult) -> float | None:
    known = _constrained(result)
    num_tokens = sum(each.num_tokens for each in known)
    return sum(each.num_forced or 0 for each in known) / num_tokens if num_tokens else None


def _interval_words(rate: ValidityRate | ServerWay) -> str:
    if rate.valid_interval is None:
        return "no interval"
    return f"95 % interval {format_fraction(rate.valid_interval.low)} – {format_fraction(rate.valid_interval.high)}"


def _reading(result: GrammarResult) -> Iterator[str]:
    yield from _guarantee(result)
    yield from _cost(result)
    yield from _tokens(result)
    yield from _keywords(result)
    if result.server is not None:
        yield from _server(result.server)


def _guarantee(result: GrammarResult) -> Iterator[str]:
    masked, free, short = (rate_of(result, way) for way in (Way.CONSTRAINED, Way.FREE, Way.SHORT))
    if masked is not None:
        finished = masked.num_documents - masked.num_truncated
        held = f"{masked.num_valid} of {finished} finished ones are valid" if finished else "none was finished"
        yield (
            f"A schema guarantees the form of a finished document, and not that it is finished: {held}, and {masked.num_truncated} of "
            f"{masked.num_documents} were cut off by the budget"
        )
    if free is not None:
        yield (
            f"Without masks {free.num_valid} of {free.num_documents} documents are valid ({_interval_words(free)}): "
            f"{free.num_truncated} cut off, {free.num_json} JSON, {free.num_valid_inside} with a valid document inside"
        )
    if short is not None:
        yield (
            f"With a budget that is too small, {short.num_truncated} of {short.num_documents} documents are a valid beginning, and "
            f"{short.num_valid} are valid"
        )
    for schema in result.schemas:
        if schema.unbounded_at is not None:
            yield f"No budget is sure to suffice for {schema.name}: nothing ends what may stand at {schema.unbounded_at}"


def _cost(result: GrammarResult) -> Iterator[str]:
    mask, model, share = _part(result, MASK), _part(result, MODEL), mask_share(result)
    if mask is None or model is None or share is None:
        return
    yield (
        f"A mask takes {format_seconds(mask.median_s)} in the median ({format_seconds(mask.p90_s)} at the 90th percentile, "
        f"{format_seconds(mask.max_s)} at most), and a decode step {format_seconds(model.median_s)}; all of the grammar's work is "
        f"{format_fraction(share, 2)} of a step's time"
    )
    slowest = max(result.schemas, key=lambda each: each.compile_s + each.first_mask_s, default=None)
    if slowest is not None:
        yield (
            f"Before the first step a schema takes {format_seconds(slowest.compile_s + slowest.first_mask_s)} at most, once "
            f"({slowest.name}), and the vocabulary {format_seconds(result.tokenizer_s)}, once a model"
        )


def _tokens(result: GrammarResult) -> Iterator[str]:
    known = _constrained(result)
    num_tokens = sum(each.num_tokens for each in known)
    if not num_tokens:
        return
    forced, across = sum(each.num_forced or 0 for each in known), sum(each.num_spanning for each in known)
    partial = sum(each.num_partial_utf8 for each in known)
    yield (
        f"At {format_count(forced)} of {format_count(num_tokens)} steps ({format_fraction(forced / num_tokens)}) just one token was "
        f"allowed: an engine that fast-forwards asks the model at the other {format_count(num_tokens - forced)} only"
    )
    yield (
        f"{format_count(across)} of {format_count(num_tokens)} tokens lie across two or more parts of JSON, and "
        f"{format_count(partial)} split a character; masks are over bytes, and allow both"
    )
    split = max(result.schemas, key=lambda each: each.num_short_partial_utf8 or 0, default=None)
    if split is not None and split.num_short_partial_utf8:
        yield (
            f"A document of {split.name} that is known to fit has {split.num_short_partial_utf8} such tokens among "
            f"{split.num_short_tokens}, and its grammar allows each"
        )
    if (naive := result.naive) is not None and naive.num_tokens:
        more = naive.num_naive_tokens / naive.num_tokens - 1
        yield (
            f"Masks that allow structure one character at a time write the same {naive.num_documents} documents in "
            f"{format_count(naive.num_naive_tokens)} tokens and not {format_count(naive.num_tokens)} ({_signed(more)}), and made the "
            f"model write another text in {naive.num_different} of {naive.num_documents}"
        )


def _signed(share: float) -> str:
    return f"{'+' if share >= 0 else '−'}{format_fraction(abs(share), 2)}"


def _keywords(result: GrammarResult) -> Iterator[str]:
    def named(outcome: Outcome) -> list[str]:
        return [each.keyword for each in result.keywords if each.outcome is outcome]

    refused, ignored, enforced = (named(each) for each in (Outcome.REFUSED, Outcome.IGNORED, Outcome.ENFORCED))
    yield (
        f"The grammar library ({result.library}) enforces {len(enforced)} of {len(result.keywords)} keywords that forbid anything, ignores "
        f"{_listed(ignored)}, and refuses by name {_listed(refused)}"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _server(server: ServerRun) -> Iterator[str]:
    masked, free = (next(way for way in server.ways if way.is_constrained is kind) for kind in (True, False))
    speed = ""
    if masked.tokens_per_s is not None and free.tokens_per_s is not None:
        change = _signed(masked.tokens_per_s / free.tokens_per_s - 1)
        speed = f", at {format_number(masked.tokens_per_s)} and {format_number(free.tokens_per_s)} tokens/s ({change})"
    yield (
        f"On {server.engine} {masked.num_valid} of {masked.num_documents} documents are valid with the constraint "
        f"({masked.num_truncated} cut off) and {free.num_valid} of {free.num_documents} without{speed}"
    )
    ignored = [each.keyword for each in server.keywords if each.outcome is Outcome.IGNORED]
    if ignored:
        yield (
            f"It takes a schema with {' or '.join(ignored)} without a word, and answers what that forbids: only a validation of the "
            "answers shows it"
        )
