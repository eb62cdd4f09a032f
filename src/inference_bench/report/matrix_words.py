"""What did quantisation, the cache's format and batching buy, against what the bytes promised? In sentences.

In:   MatrixResult
Out:  sentences a person can check against the tables
Leaves out: tables (matrix_tables)
Read next by: matrix_report, matrix_html.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.charts.matrix import short_name
from inference_bench.compare import Phase
from inference_bench.report.matrix_tables import gained, times
from inference_bench.roofline import LimitedBy
from inference_bench.units import format_bytes, format_count, format_fraction
from inference_bench.verify.matrix_result import ROUNDS_AGREE, Gain, MatrixPoint, MatrixResult, MatrixRow, Step, gain
from inference_bench.verify.result import UNSTEADY

_KEPT: Final = 0.8  # of a promised gain, from which on it counts as kept
_NONE: Final = 0.05  # a gain below this is none


def verdict(result: MatrixResult) -> str:
    """The answer: the fastest combination at the largest batch, what it was promised, and whether the machine kept still."""
    base = result.base
    rated = result.alike(result.largest) or result.alike(lambda row: row.alone)
    if not rated or base is None:
        return "No decode step could be measured."
    best, point = max(rated, key=lambda item: item[1].tokens_per_s)
    found = gain(point, base.at(point))
    said = f"Fastest at batch {point.batch}: {short_name(best, result)}"
    if len(result.measured) == 1:
        said = f"Only {short_name(best, result)} was measured: there is nothing to compare it with"
    elif len(rated) == 1:
        said = f"No other combination did the same decode steps as {short_name(best, result)}: nothing is compared"
    elif close := _overlapping(point, rated, result):
        said = (
            f"At batch {point.batch} none is fastest for sure: rounds of {short_name(best, result)} and {close} overlap"
        )
    elif best is base:
        is_most = all(point.bound.num_bytes >= other.bound.num_bytes for _, other in rated)
        said += ", which moves most bytes of all: fewer bytes bought nothing there" if is_most else ""
    elif found is not None:
        promised = f" where the ceilings promise {times(found.promised)}" if found.promised is not None else ""
        said += f", {gained(found)} the tokens a second of {short_name(base, result)}{promised}"
    return f"{said}.{_pace(result)}"


def _overlapping(point: MatrixPoint, rated: Sequence[tuple[MatrixRow, MatrixPoint]], result: MatrixResult) -> str:
    """The combinations that are not told apart from the one with this point."""
    found = [(row, gain(point, other)) for row, other in rated if other is not point]
    return ", ".join(short_name(row, result) for row, one in found if one is not None and one.is_apart is False)


def _pace(result: MatrixResult) -> str:
    """That the rounds do not agree, where they do not."""
    apart = max((one for row in result.measured for point in row.points if (one := point.rounds_apart)), default=0.0)
    if apart <= ROUNDS_AGREE:
        return " Most runs were unsteady." if _is_unsteady(result) else ""
    return f" Rounds of the same step lie up to {format_fraction(apart, 2)} apart: smaller differences are none."


def _is_unsteady(result: MatrixResult) -> bool:
    """Whether that is most runs."""
    return 2 * _num_unsteady(result) > sum(len(row.runs) for row in result.measured)


def _num_unsteady(result: MatrixResult) -> int:
    return sum(UNSTEADY in note for row in result.measured for note in row.notes)


def reading(result: MatrixResult) -> tuple[str, ...]:
    """One sentence for each thing that was varied, and one for batching."""
    return (*_weights(result), *_caches(result), *_engines(result), *_batching(result))


def _weights(result: MatrixResult) -> Iterator[str]:
    """Other weights in the same cache and engine as the base."""
    base = result.base
    for row in result.measured:
        if base is not None and row is not base and _same(row, base, "kv", "engine"):
            yield from _against(f"{row.combination.weights} for {base.combination.weights} weights", row, base, result)


def _caches(result: MatrixResult) -> Iterator[str]:
    base = result.base
    for row in result.measured:
        if base is not None and row is not base and _same(row, base, "weights", "engine"):
            yield from _against(f"A {row.combination.kv} cache for {base.combination.kv}", row, base, result)


def _engines(result: MatrixResult) -> Iterator[str]:
    base = result.base
    for row in result.measured:
        if base is None or row.combination.engine == base.combination.engine:
            continue
        twin = next(
            (
                one
                for one in result.measured
                if one.combination.engine == base.combination.engine and _same(one, row, "weights", "kv")
            ),
            None,
        )
        if twin is not None:
            what = f"{row.combination.engine} for {twin.combination.engine}, with {row.combination.weights} weights"
            yield from _against(what, row, twin, result)


def _same(one: MatrixRow, other: MatrixRow, *axes: str) -> bool:
    return all(getattr(one.combination, axis) == getattr(other.combination, axis) for axis in axes)


def _against(what: str, row: MatrixRow, over: MatrixRow, result: MatrixResult) -> Iterator[str]:
    """What the bytes of a step of one sequence promised, and what was gained there and in the largest batch."""
    alone, then = row.alone, None if row.alone is None else over.at(row.alone)
    first = gain(alone, then)
    if alone is None or then is None or first is None:
        return
    share = format_fraction(alone.bound.num_bytes / then.bound.num_bytes, 2)
    moved = f"a step of one sequence moves {format_bytes(alone.bound.num_bytes)}, {share} of {format_bytes(then.bound.num_bytes)}"
    largest = result.largest(row)
    second = gain(largest, None if largest is None else over.at(largest))
    more = f"; at batch {largest.batch} {_gained(second)}" if largest is not None and second is not None else ""
    limit = "" if alone.bound.limited_by is not LimitedBy.COMPUTE else " where compute limits it"
    yield f"{what}: {moved}; {_gained(first, limit)}{more}. {_meaning(alone, then, first)}{_in_a_batch(largest, second)}"


def _gained(found: Gain, limit: str = "") -> str:
    promised = "no bound is known" if found.promised is None else f"promised {times(found.promised)}{limit}"
    return f"{promised}, measured {gained(found)}"


def _meaning(alone: MatrixPoint, over: MatrixPoint, found: Gain) -> str:
    """How much of the promise was kept for one sequence, in words."""
    if found.promised is None:
        return "Without ceilings nothing was promised."
    if abs(found.promised - 1) < _NONE:
        return "Next to nothing was promised there."
    if found.promised < 1:
        more = alone.bound.num_bytes > over.bound.num_bytes
        return "More bytes were moved, so a loss was promised." if more else "A loss was promised."
    if found.is_apart is False:
        return "The rounds overlap, so that nothing is said of one sequence."
    kept = (found.measured - 1) / (found.promised - 1)
    if kept >= _KEPT:
        return "The promise was kept for one sequence."
    if kept > _NONE:
        return f"Of the promised gain {format_fraction(kept, 2)} was kept for one sequence."
    return "Nothing of the promise was kept for one sequence."


def _in_a_batch(largest: MatrixPoint | None, found: Gain | None) -> str:
    """That a batch is slower than the other's, and why only where a ceiling says so."""
    if largest is None or found is None or found.is_apart is False or found.measured >= 1 - _NONE:
        return ""
    why = ", where compute limits it" if largest.bound.limited_by is LimitedBy.COMPUTE else ""
    return f" In the larger batch it costs{why}."


def _batching(result: MatrixResult) -> Iterator[str]:
    """How far the largest batch went, the combination that gained least and the one that gained most."""
    found = [
        (row, largest, one)
        for row, largest in result.alike(result.largest)
        if (one := gain(largest, row.alone)) is not None
    ]
    if not found:
        return
    found.sort(key=lambda item: item[2].measured)
    least, most = found[0], found[-1]
    yield f"Batching: {_batch_words(*most, result)}."
    if least[0] is not most[0]:
        yield f"Batching gained least with {_batch_words(*least, result)}."


def _batch_words(row: MatrixRow, point: MatrixPoint, found: Gain, result: MatrixResult) -> str:
    return f"{short_name(row, result)}, batch {point.batch} in place of 1: {_gained(found)} tokens a second"


def odd(result: MatrixResult) -> tuple[str, ...]:
    """What must not be missed: combinations that failed, rounds that do not agree, steps above a ceiling."""
    lines = ["the matrix was interrupted: this is what was measured by then"] if result.is_interrupted else []
    lines += [f"{row.combination.name} failed: {row.said}" for row in result.failed]
    apart = [
        (row, point) for row in result.measured for point in row.points if (point.rounds_apart or 0) > ROUNDS_AGREE
    ]
    if apart:
        row, point = max(apart, key=lambda item: item[1].rounds_apart or 0)
        lines.append(
            f"rounds of {len(apart)} step(s) lie more than {format_fraction(ROUNDS_AGREE)} apart, of {short_name(row, result)} at batch "
            f"{point.batch} {format_fraction(point.rounds_apart, 2)}: smaller differences are none"
        )
    above = [point for row in result.measured for point in row.points if (point.bound.seconds or 0) > point.seconds]
    if above:
        lines.append(
            f"{len(above)} step(s) lie above their ceiling: the counted traffic or the measured ceiling is too strict there"
        )
    lines += _missing(result)
    runs = sum(len(row.runs) for row in result.measured)
    unsteady = _num_unsteady(result)
    if unsteady:
        lines.append(
            f"{unsteady} of {runs} runs were unsteady: their means lie far above their medians, which stand here"
        )
    lines += [
        f"{short_name(row, result)}: {note}" for row in result.measured for note in row.notes if UNSTEADY not in note
    ]
    return tuple(lines)


def _missing(result: MatrixResult) -> Iterator[str]:
    """Steps that others have and a combination has not, so that nothing is compared there."""
    steps = dict.fromkeys(point.step for row in result.measured for point in row.points)
    for row in result.measured:
        own = {point.step for point in row.points}
        if lacking := [_step(step) for step in steps if step not in own]:
            yield f"{short_name(row, result)}: not measured, and so not compared: {', '.join(lacking)}"


def _step(step: Step) -> str:
    tokens = f"{format_count(step.nominal_context_tokens)} tokens"
    return f"a prompt of {tokens}" if step.phase is Phase.PREFILL else f"batch {step.batch} behind prompts of {tokens}"


def not_composed_lines(result: MatrixResult) -> tuple[str, ...]:
    """The combinations that an engine does not take, each in the engine's own words where it has any."""
    return tuple(f"{row.combination.name}: {row.said}" for row in result.not_composed)
