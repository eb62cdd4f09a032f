"""The answer to `fit` on a page: the verdict, its figures, its tables.

In:   FitAnswer, Suggestions, and where drawings go
Out:  HTML text
Leaves out: words and tables that a terminal shares (fit_tables); drawing
Read next by: bridge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from inference_bench.origin import Origin
from inference_bench.predict.fit import FitAnswer
from inference_bench.predict.latency import Range
from inference_bench.report import fit_tables as tables
from inference_bench.report import html_pieces as pieces
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.report_html import sentence
from inference_bench.units import (
    format_bytes,
    format_count,
    format_fraction,
    format_number,
    format_seconds,
)

if TYPE_CHECKING:
    from inference_bench.predict.engine_command import EngineCommand
    from inference_bench.predict.suggest import Suggestion
    from inference_bench.roofline import Bound

_NAMES: Final = ("vLLM",)
_WORDS: Final = {True: "fits", False: "does not fit", None: ""}


def fit_html(
    answer: FitAnswer,
    commands: Sequence[EngineCommand] = (),
    suggestions: Sequence[Suggestion] | None = None,
    *,
    drawings: str = "",
    notes: Sequence[str] = (),
) -> str:
    """The whole answer; drawings is HTML that stands below the figures, and notes are what else was assumed."""
    return "\n".join(
        [
            fit_verdict(answer),
            pieces.key_figures(_figures(answer)),
            "" if suggestions is None else _suggestions(suggestions),
            drawings,
            pieces.section("memory", "Memory", pieces.table(tables.memory_table(answer), has_heading=False)),
            pieces.section(
                "cache",
                "Cache by layer type",
                pieces.table(tables.cache_table(answer), has_heading=False),
                pieces.bullets(_sentences(tables.cache_notes(answer))),
            ),
            _speed(answer),
            _commands(commands),
            pieces.section("assumptions", "Assumptions", pieces.bullets((*notes, *answer.assumptions))),
        ]
    )


def fit_verdict(answer: FitAnswer) -> str:
    """The verdict in a word and a sentence, then what must be known with it."""
    first, *others = tables.verdict(answer)
    word = _WORDS[answer.fits]
    mark = f'<strong class="word {word.replace(" ", "-")}">{word}</strong> ' if word else ""
    more = "".join(f"<p>{pieces.say(line)}</p>" for line in others)
    return f'<div class="verdict"><p class="first">{mark}{pieces.say(first)}</p>{more}</div>'


def fit_status(answer: FitAnswer) -> str:
    """The verdict in so few words that they can be read out at every change."""
    machine = answer.machine.name if answer.machine else "no machine"
    decode = answer.decode.seconds if answer.decode else None
    rate = f"; decode at most {format_number(answer.cache.sequences / decode)} tokens/s" if decode else ""
    return (
        f"{answer.model.name} {_WORDS[answer.fits] or 'on'} {machine}: needs {format_bytes(answer.needed_bytes)}{rate}"
    )


def _sentences(lines: Sequence[str]) -> list[str]:
    """Lines as sentences; one that begins with an engine's name keeps its letters."""
    return [f"{line if line.startswith(_NAMES) else sentence(line)}." for line in lines]


def _figures(answer: FitAnswer) -> list[KeyFigure]:
    return [
        *_needed(answer),
        *_cache(answer),
        _longest(answer),
        _decode(answer),
        _prefill(answer),
        *_ridge(answer),
    ]


def _cache(answer: FitAnswer) -> list[KeyFigure]:
    """The true cache beside the usual formula's, and what the next token adds."""
    cache = answer.cache
    size, unit = format_bytes(cache.total_bytes).split(" ")
    token, token_unit = format_bytes(cache.next_token_bytes).split(" ")
    usual = cache.naive_factor
    is_wrong = usual is not None and cache.naive_bytes != cache.total_bytes
    times = "the usual formula has no answer" if usual is None else f"usual formula: {format_number(usual)} times that"
    beside = times if is_wrong or usual is None else "the usual formula is right"
    said = "nothing to multiply" if cache.naive_bytes is None else f"it says {format_bytes(cache.naive_bytes)}"
    devices = " and devices" if answer.placement.devices > 1 else ""
    grows = f"at {format_count(cache.context_tokens)} tokens, over all layers{devices}"
    return [
        KeyFigure("cache", size, unit, Origin.COUNTED, beside, said, is_finding=is_wrong),
        KeyFigure("one more token", token, token_unit, Origin.COUNTED, "of cache a sequence", grows),
    ]


def _needed(answer: FitAnswer) -> list[KeyFigure]:
    memory = answer.machine.memory_bytes if answer.machine else None
    share = answer.needed_bytes / memory if memory else None
    each = " on the fullest device" if answer.placement.devices > 1 else ""
    beside = (
        f"{format_fraction(share)} of {format_bytes(memory)}{each}" if share is not None else "of an unknown memory"
    )
    parts = f"weights {format_bytes(answer.placement.weight_bytes)}, cache {format_bytes(answer.placement.cache_bytes)}"
    value, unit = format_bytes(answer.needed_bytes).split(" ")
    return [KeyFigure("needed", value, unit, Origin.COUNTED, beside, parts, share, answer.fits is False)]


def _longest(answer: FitAnswer) -> KeyFigure:
    return KeyFigure(
        "longest context",
        format_count(answer.max_context_tokens),
        "tokens",
        Origin.COUNTED,
        f"for {format_count(answer.cache.sequences)} sequence(s)",
        f"most sequences of {format_count(answer.cache.context_tokens)} tokens: {format_count(answer.max_sequences)}",
    )


def _decode(answer: FitAnswer) -> KeyFigure:
    limit, batch = answer.decode, answer.cache.sequences
    rate = batch / limit.seconds if limit and limit.seconds else None
    expected = answer.decode_expected_s
    between = f"expected {_rates(expected, batch)}" if expected else "expected: n/a"
    return KeyFigure("decode, at most", format_number(rate), "tokens/s", Origin.BOUND, between, _limit_words(limit))


def _prefill(answer: FitAnswer) -> KeyFigure:
    limit, expected = answer.prefill, answer.prefill_expected_s
    value, _, unit = format_seconds(limit.seconds if limit else None).partition(" ")
    between = (
        f"expected {format_seconds(expected.low)} to {format_seconds(expected.high)}" if expected else "expected: n/a"
    )
    detail = f"{format_count(answer.cache.context_tokens)} tokens; {_limit_words(limit)}"
    return KeyFigure("prefill, at least", value, unit, Origin.BOUND, between, detail)


def _rates(seconds: Range, batch: int) -> str:
    return f"{format_number(batch / seconds.high)} to {format_number(batch / seconds.low)}"


def _limit_words(limit: Bound | None) -> str:
    if limit is None:
        return "no machine was named"
    return f"limited by {limit.limited_by}, {format_fraction(limit.fraction_of_peak)} of peak compute"


def _ridge(answer: FitAnswer) -> list[KeyFigure]:
    limit, ceiling = answer.decode, answer.ceiling
    if limit is None or ceiling is None or ceiling.ridge_flops_per_byte is None:
        return []
    return [
        KeyFigure(
            "ridge",
            format_number(ceiling.ridge_flops_per_byte),
            "FLOP/byte",
            Origin.PUBLISHED,
            f"decode does {format_number(limit.intensity)}",
            f"{ceiling.compute_format} dense peak over bandwidth",
        )
    ]


def _suggestions(suggestions: Sequence[Suggestion]) -> str:
    shown = (
        pieces.table(tables.suggestion_table(suggestions), has_heading=False)
        if suggestions
        else f"<p>{tables.NOTHING_FITS}</p>"
    )
    return pieces.section("suggestions", "What would make it fit", shown)


def _speed(answer: FitAnswer) -> str:
    speeds = tables.speed_table(answer)
    if speeds is None:
        return ""
    notes = pieces.bullets(_sentences(tables.speed_notes(answer)))
    return pieces.section("speed", "Speed", pieces.table(speeds, has_heading=False), notes)


def _commands(commands: Sequence[EngineCommand]) -> str:
    if not commands:
        return ""
    shown = "".join(
        f"<dt>{pieces.say(item.engine)}</dt><dd><p>{pieces.say(item.note)}</p>"
        + (f"<pre><code>{pieces.say(item.command)}</code></pre>" if item.command else "")
        + "</dd>"
        for item in commands
    )
    return pieces.section("run", "To run it", f'<dl class="commands">{shown}</dl>')
