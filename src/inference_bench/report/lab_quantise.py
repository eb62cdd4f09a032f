"""What does the quantise lab say?

In:   QuantiseResult
Out:  LabPage
Leaves out: the tables (lab_quantise_tables)
Read next by: cli, notebook.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from inference_bench.charts.lab_quantise import MOST_TIMES, outlier_chart, quality_chart
from inference_bench.facts.formats import number_format
from inference_bench.labs.quantise.result import (
    ACTIVATIONS,
    KV_FAMILY,
    OUTLIER_RATIO,
    SENSITIVITY,
    GgufRow,
    MethodRow,
    QuantiseResult,
)
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_page import LabPage
from inference_bench.report.lab_quantise_tables import (
    change,
    detail_table,
    file_table,
    format_table,
    method_tables,
    outlier_table,
    ratio_change,
    reference_table,
    times,
    worst_outliers,
)
from inference_bench.units import format_bytes, format_count, format_fraction, format_number

_LOSSLESS: Final = 0.01  # of float32's perplexity
_FOUR_BITS: Final = (4.0, 5.0)  # what is compared as "4 bits": with its scales, and a few layers kept finer apart
_PLAIN: Final = "float32"
_TIMING_SLACK: Final = 1.1  # a gain beyond what the bytes promise by more is no gain of the format


def lab_page(result: QuantiseResult) -> LabPage:
    """Its figures, its sentences, its charts."""
    return LabPage(
        head=result.head,
        checks=result.checks,
        figures=tuple(_figures(result)),
        reading=tuple(_reading(result)),
        tables=(*method_tables(result), file_table(result), outlier_table(result), reference_table(result)),
        drawings=_drawings(result),
        details=(format_table(result), detail_table(result), outlier_table(result, len(result.outliers))),
    )


# ── figures ────────────────────────────────────────────────────────────────────────────────────────


def _figures(result: QuantiseResult) -> Iterator[KeyFigure]:
    plain = result.float32_perplexity
    yield KeyFigure(
        "Perplexity of float32", format_number(plain, 4), "", "measured", f"{format_count(result.scored_tokens)} tokens scored",
        result.text_name if result.stored_format is None else f"{result.text_name}; weights read back from {result.stored_format}",
    )  # fmt: skip
    four = four_bits(result.methods)
    if four:
        best, worst = four[0], four[-1]
        yield KeyFigure(
            "Best at 4 bits",
            change(best),
            "",
            "measured",
            best.name,
            f"perplexity over float32's; {worst.name}: {change(worst)}",
        )
    smallest = smallest_lossless(result)
    if smallest is not None:
        yield KeyFigure(
            f"Fewest bits within {format_fraction(_LOSSLESS, 1)}", format_number(smallest.bits_per_weight), "bits a weight",
            "measured", smallest.name, f"of float32's perplexity: {change(smallest)}",
        )  # fmt: skip
    worst_input = worst_outliers(result)[:1]
    if worst_input and worst_input[0].ratio is not None:
        row = worst_input[0]
        yield KeyFigure(
            "Largest outlier", times(row.ratio), "", "measured", "the median channel",
            f"input of {row.kind}, block {format_count(row.block)}",
        )  # fmt: skip
    fastest = max(
        (row for row in result.gguf if row.measured_gain), key=lambda row: row.measured_gain or 0.0, default=None
    )
    if fastest is not None:
        yield KeyFigure(
            "Decode speed of real files", times(fastest.measured_gain), "", "measured", fastest.format,
            f"{times(fastest.predicted_gain)} expected from the bytes read",
        )  # fmt: skip


def of_weights(rows: Iterable[MethodRow]) -> list[MethodRow]:
    """Methods that change weights alone, from the best to the worst."""
    apart = (*ACTIVATIONS, KV_FAMILY, SENSITIVITY)
    return sorted(
        (row for row in rows if row.family not in apart and row.name != _PLAIN), key=lambda row: row.perplexity
    )


def four_bits(rows: Iterable[MethodRow]) -> list[MethodRow]:
    """Those of about 4 bits a weight, scales included."""
    low, high = _FOUR_BITS
    return [row for row in of_weights(rows) if low <= (row.bits_per_weight or 0.0) < high]


def smallest_lossless(result: QuantiseResult) -> MethodRow | None:
    """The method of fewest bits a weight whose perplexity is about that of float32."""
    mild = [row for row in of_weights(result.methods) if ratio_change(row.loss_change) <= _LOSSLESS]
    return min(mild, key=lambda row: row.bits_per_weight or 0.0, default=None)


# ── sentences ──────────────────────────────────────────────────────────────────────────────────────


def _reading(result: QuantiseResult) -> Iterator[str]:
    yield from _four_bit_sentences(result)
    yield from _stored_sentences(result)
    yield from _activation_sentences(result)
    yield from _cache_sentences(result)
    yield from _task_sentences(result)
    yield from _file_sentences(result.gguf)
    if result.references:
        yield from _reference_sentences(result)


def _four_bit_sentences(result: QuantiseResult) -> Iterator[str]:
    four = four_bits(result.methods)
    if len(four) > 1:
        best, worst = four[0], four[-1]
        yield (
            f"{best.name} costs least here at about 4 bits: perplexity {format_number(best.perplexity, 4)} ({change(best)}) at "
            f"{format_number(best.bits_per_weight)} bits a weight, against {format_number(result.float32_perplexity, 4)} in float32; "
            f"{worst.name} costs most, {format_number(worst.perplexity, 4)} ({change(worst)})"
        )
    mild = smallest_lossless(result)
    if mild is not None:
        yield (
            f"{format_number(mild.bits_per_weight)} bits a weight are enough to stay within {format_fraction(_LOSSLESS, 1)} of float32: "
            f"{mild.name}, {change(mild)}, {format_bytes(mild.weight_bytes)} for the whole model"
        )


def _stored_sentences(result: QuantiseResult) -> Iterator[str]:
    if result.stored_format is not None:
        bits = format_number(float(number_format(result.stored_format).bits_per_value))
        yield (
            f"float32 here is {result.stored_format} read back, {bits} bits a weight in the model's own file: the weights lie on that "
            "coarse grid already, every change is on top of what that cost, and which format does best here says nothing of a model of "
            "full precision"
        )


def _activation_sentences(result: QuantiseResult) -> Iterator[str]:
    both = sorted((row for row in result.methods if row.family in ACTIVATIONS), key=lambda row: row.perplexity)
    if len(both) > 1:
        best, worst = both[0], both[-1]
        yield (
            f"Rounding activations to 8 bits as well costs {change(worst)} by {worst.name}, and {change(best)} by {best.name}; they differ "
            "in how outliers are kept from setting the scale of everything else"
        )
    worst_input = worst_outliers(result)[:1]
    if worst_input and worst_input[0].ratio is not None:
        row = worst_input[0]
        yield (
            f"Channel {format_count(row.largest_channel)} of the input of {row.kind} in block {format_count(row.block)} reaches "
            f"{format_number(row.ratio)} times the median channel ({format_number(row.largest)} against "
            f"{format_number(row.median_channel_max)}); {format_count(row.num_outlier_channels)} of its "
            f"{format_count(row.num_channels)} channels are outliers"
        )


def _cache_sentences(result: QuantiseResult) -> Iterator[str]:
    caches = sorted((row for row in result.methods if row.family == KV_FAMILY), key=lambda row: row.perplexity)
    if len(caches) > 1:
        best, worst = caches[0], caches[-1]
        yield f"{best.name} costs {change(best)}; {worst.name} costs {change(worst)}, the most of {len(caches)} ways to store the cache"


def _task_sentences(result: QuantiseResult) -> Iterator[str]:
    asked = [
        row for row in result.methods if row.exact_copy_fraction is not None and row.json_valid_fraction is not None
    ]
    plain = next((row for row in asked if row.name == _PLAIN), None)
    if plain is None or len(asked) < 2:
        return
    worst = min(asked, key=lambda row: (row.exact_copy_fraction or 0.0, row.json_valid_fraction or 0.0))
    if worst is plain:
        yield f"No method copies less than float32 does, {format_fraction(plain.exact_copy_fraction)} of tokens"
        return
    yield (
        f"Of tokens that stood in the text before, float32 copies {format_fraction(plain.exact_copy_fraction)} and {worst.name} "
        f"{format_fraction(worst.exact_copy_fraction)}, the fewest; of their answers in JSON "
        f"{format_fraction(plain.json_valid_fraction)} and {format_fraction(worst.json_valid_fraction)} are valid"
    )


def _file_sentences(rows: tuple[GgufRow, ...]) -> Iterator[str]:
    known = [row for row in rows if row.measured_gain is not None and row.predicted_gain is not None]
    if len(known) > 1:
        base, row = known[0], known[-1]
        yield (
            f"A real file in {row.format} decodes {times(row.measured_gain)} as fast as the one in {base.format}, where the bytes it reads "
            f"promise {times(row.predicted_gain)}{_more_than_promised(row)}; its perplexity by the engine is "
            f"{format_number(row.perplexity, 4)}, and "
            f"{format_number(row.float32_perplexity_same_tokens, 4)} by PyTorch in float32 over the same "
            f"{format_count(row.scored_tokens)} tokens"
        )


def _more_than_promised(row: GgufRow) -> str:
    if (row.measured_gain or 0.0) <= _TIMING_SLACK * (row.predicted_gain or math.inf):
        return ""
    return " (more than the bytes explain: do not rely on it, a machine that is busy while one of them is timed can do that)"


def _reference_sentences(result: QuantiseResult) -> Iterator[str]:
    known = [row for row in result.references if row.difference_fraction is not None]
    if not known:
        yield f"The known answers could not be checked here: {result.reference_note}"
        return
    close = [row for row in known if abs(row.difference_fraction or 0.0) <= row.tolerance_fraction]
    worst = max(known, key=lambda row: abs(row.difference_fraction or 0.0))
    yield (
        f"{len(close)} of {len(known)} known answers are met within what is expected of each; furthest off is {worst.name}, "
        f"{format_number(worst.ours, 6)} against {format_number(worst.published, 6)}"
    )


# ── drawings ───────────────────────────────────────────────────────────────────────────────────────


def _drawings(result: QuantiseResult) -> tuple[Drawing, ...]:
    return (
        Drawing(
            "Perplexity over bits",
            "Each point is one method over the same text. The line joins those that no other beats in bits and in perplexity both. "
            f"Beyond {format_number(MOST_TIMES)} times the perplexity of float32 a method stands in the tables alone.",
            partial(quality_chart, result),
        ),
        Drawing(
            "Where the outliers are",
            "Each point is what a group of linear layers reads: its largest channel over its median one, on the calibration text. "
            f"Dashed: {format_number(OUTLIER_RATIO)} times the median, from where on a channel is called an outlier.",
            partial(outlier_chart, result),
        ),
    )
