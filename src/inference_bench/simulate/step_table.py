"""Tables of step times: of any cost of a step, or as they were measured.

In:   a StepCost; or rows of a phase, a batch, a number of tokens and seconds
Out:  StepTime whose flat table `kernel.pricing.table_seconds` reads
Leaves out: what stands in the table (step_sources, or whoever measured)
Read next by: step_sources, cli.

Decoding is by sequences and mean context, prompts by their positions in the step and the cached positions before them. A
step with both takes their sum less what both pay only once.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from inference_bench.accounting.work import SequenceStep
from inference_bench.errors import MeasurementTableError, RequestError
from inference_bench.facts.fields import shown
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import StepCost
from inference_bench.simulate.kernel.pricing import grid_size
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.stats import median
from inference_bench.units import KILO

if TYPE_CHECKING:
    from inference_bench.simulate.step_sources import StepRange

_SHORTEST_S: Final = 1e-9  # no device starts anything in less
_LONGEST_S: Final = (
    1_000_000.0  # eleven days: what is longer is a wrong unit, and sums of such times lose their precision
)
_NO_WORK: Final = Coefficients(0.0, 0.0, 0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """Times over two axes; `seconds` has one row for each value of the first axis.

    Raises:  RequestError for an axis that does not grow, or times that are missing or below 0
    """

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for axis, what in ((self.rows, "rows"), (self.columns, "columns")):
            if not axis or not 0 <= min(axis) <= max(axis) < math.inf or any(not a < b for a, b in pairwise(axis)):
                raise RequestError(
                    f"the {what} of a table of step times, {list(axis)[:8]}, must be there, 0 or more, and grow"
                )
        if len(self.seconds) != len(self.rows) or any(len(row) != len(self.columns) for row in self.seconds):
            raise RequestError("a table of step times needs one time for each row and column")
        if odd := [value for row in self.seconds for value in row if not 0 <= value <= _LONGEST_S]:
            raise RequestError(f"a table of step times holds {odd[0]!r} s; times of 0 to {_LONGEST_S:g} s are needed")

    def flat(self) -> list[float]:
        """As `kernel.pricing.bilinear` reads it."""
        values = [value for row in self.seconds for value in row]
        return [float(len(self.rows)), float(len(self.columns)), *self.rows, *self.columns, *values]


def table_step_time(
    decode: Grid, prefill: Grid, shared_s: float, origin: Origin, source: str, notes: tuple[str, ...] = ()
) -> StepTime:
    """A StepTime that looks its times up.

    Where:  shared_s is what prompts and decoding in one step pay only once
    """
    grids = [*decode.flat(), *prefill.flat()]
    size = 2 + len(grids)
    table = (float(size), max(0.0, shared_s), *grids)
    if size != 2 + grid_size(table, 2) + grid_size(table, 2 + grid_size(table, 2)):
        raise RequestError("the table of step times is not of the size it says")
    return StepTime(_NO_WORK, table=table, origin=origin, source=source, notes=notes)


# --- of any cost --------------------------------------------------------------------------------------------------

_GROWTH: Final = 1.5  # between points of an axis: linear in between is within 2 % of a time that grows as their square
_FIRST_CONTEXT: Final = 64.0
_FIRST_CHUNK: Final = 16.0
_FIRST_PAST: Final = 512.0
_PAST_GROWTH: Final = 2.0


def tabulate(cost: StepCost, reach: StepRange) -> StepTime:
    """The table of a cost, as far as the steps of a workload reach.

    Where:   shared is a step of one sequence with an empty context: weights read, layers started, nothing attended
    """
    batches = _axis(1.0, reach.max_batch, _GROWTH, (2.0, 3.0))
    contexts = [1.0, *_axis(_FIRST_CONTEXT, reach.max_context, _GROWTH)]
    chunks = [1.0, *_axis(_FIRST_CHUNK, reach.max_chunk, _GROWTH)]
    pasts = [0.0, *_axis(_FIRST_PAST, reach.max_context, _PAST_GROWTH)]

    def decode(batch: float, context: float) -> float:
        return cost.step_s((SequenceStep(int(context) - 1, 1, int(batch)),))

    def prefill(chunk: float, past: float) -> float:
        return cost.step_s(_prompts(int(chunk), int(past), reach.prompt_tokens))

    return table_step_time(
        _grid(batches, contexts, decode),
        _grid(chunks, pasts, prefill),
        decode(1.0, 1.0),
        Origin.PREDICTED,
        "a step's cost",
    )


def _axis(first: float, last: float, growth: float, extra: Sequence[float] = ()) -> list[float]:
    """Whole numbers, each so many times the one before it, from the first to the last."""
    points = {first, float(max(first, last)), *(value for value in extra if first <= value <= last)}
    value = first
    while value < last:
        points.add(float(round(value)))
        value *= growth
    return sorted(points)


def _grid(rows: Sequence[float], columns: Sequence[float], seconds: Callable[[float, float], float]) -> Grid:
    return Grid(tuple(rows), tuple(columns), tuple(tuple(seconds(row, column) for column in columns) for row in rows))


def _prompts(chunk: int, past: int, prompt_tokens: int) -> tuple[SequenceStep, ...]:
    """So many prompt positions of a step: of one prompt, or of several where they are more than a prompt has.

    Where:  a single new position would count as decoding: two stand for it
    """
    if not prompt_tokens or chunk <= prompt_tokens:
        return (SequenceStep(past, max(2, chunk)),)
    whole, rest = divmod(chunk, prompt_tokens)
    steps = [SequenceStep(0, prompt_tokens, whole)]
    if rest > 1 or past:
        steps.append(SequenceStep(past, max(2, rest)))
    return tuple(steps)


# --- as measured --------------------------------------------------------------------------------------------------


class MeasuredStep(NamedTuple):
    """One measured step.

    Where:  tokens is the context each sequence attends when decoding, and the length of each prompt when reading prompts
    Unit:   seconds
    """

    is_decode: bool
    batch: int
    tokens: float
    seconds: float


_PHASES: Final = {"decode": True, "decoding": True, "token": True, "prefill": False, "prompt": False, "prompts": False}
_TOKEN_COLUMNS: Final = ("tokens", "context", "context_tokens", "prompt_tokens", "context or prompt tokens")
_SPLITWISE: Final = ("model", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time", "tensor_parallel")
# (tensor parallel, batch) whose rows are wrong at the source: prompt times fall sharply, memory was short
_BROKEN_SPLITWISE: Final = frozenset({(2, 64)})


def step_time_from_rows(rows: Iterable[MeasuredStep], source: str) -> StepTime:
    """The table of measured steps: the median of each setting; what lies between settings is linear.

    Raises:  MeasurementTableError where one of the two phases was not measured, or more work takes less than half the time
    """
    kept = list(rows)
    decode, prefill = (_medians(kept, is_decode=is_decode) for is_decode in (True, False))
    for phase, medians in (("decoding", decode), ("reading prompts", prefill)):
        _refuse_falls(medians, f"{source}: {phase}")
    if not decode or not prefill:
        raise MeasurementTableError(
            f"{source}: {'decoding' if not decode else 'reading prompts'} was not measured; rows of both phases are needed"
        )
    return table_step_time(
        _measured_grid(decode),
        _prompt_grid(prefill),
        min(seconds for curve in decode.values() for seconds in curve.values()),
        Origin.MEASURED,
        source,
        (
            "medians of each setting; times between them, and beyond them, follow straight lines",
            "prompts are looked up by their positions in all: what was cached before them is not in the table",
        ),
    )


def _medians(rows: Sequence[MeasuredStep], *, is_decode: bool) -> dict[float, dict[float, float]]:
    """Batch → tokens → median time of one phase."""
    times: dict[tuple[float, float], list[float]] = {}
    for row in rows:
        if row.is_decode == is_decode:
            times.setdefault((float(row.batch), float(row.tokens)), []).append(row.seconds)
    found: dict[float, dict[float, float]] = {}
    for (batch, tokens), values in sorted(times.items()):
        found.setdefault(batch, {})[tokens] = median(values)
    return found


_LEAST_RISE: Final = 0.5  # noise and a better kernel make more work a little faster, never twice as fast


def _refuse_falls(medians: Mapping[float, Mapping[float, float]], what: str) -> None:
    """Refuse a median far below that of a smaller batch with as many tokens, or of fewer tokens in as large a batch."""
    slowest: dict[tuple[str, float], tuple[float, str]] = {}
    for batch, curve in medians.items():
        for tokens, seconds in curve.items():
            setting = f"a batch of {batch:g} with {tokens:g} tokens"
            for along in (("batch", batch), ("tokens", tokens)):
                most_s, where = slowest.get(along, (0.0, ""))
                if seconds < _LEAST_RISE * most_s:
                    raise MeasurementTableError(
                        f"{what}: {setting} takes {seconds:g} s, less than half of the {most_s:g} s of {where}; correct or leave "
                        "out one of them"
                    )
                slowest[along] = max((seconds, setting), (most_s, where))


def _measured_grid(decode: Mapping[float, Mapping[float, float]]) -> Grid:
    """A full grid of what may have gaps: each batch along its own contexts, level beyond the ones it was measured at."""
    contexts = sorted({tokens for curve in decode.values() for tokens in curve})
    batches = sorted(decode)
    return Grid(
        tuple(batches),
        tuple(contexts),
        tuple(tuple(_along(decode[batch], context) for context in contexts) for batch in batches),
    )


def _along(curve: Mapping[float, float], at: float) -> float:
    points = sorted(curve)
    before = max((point for point in points if point <= at), default=points[0])
    after = min((point for point in points if point >= at), default=points[-1])
    if before == after:
        return curve[before]
    if at < points[0] or at > points[-1]:
        return curve[points[0] if at < points[0] else points[-1]]
    return curve[before] + (at - before) / (after - before) * (curve[after] - curve[before])


def _prompt_grid(prefill: Mapping[float, Mapping[float, float]]) -> Grid:
    """Prompts by all their positions; the same number of positions in different batches is averaged by median."""
    totals: dict[float, list[float]] = {}
    for batch, curve in prefill.items():
        for tokens, seconds in curve.items():
            totals.setdefault(batch * tokens, []).append(seconds)
    positions = sorted(totals)
    return Grid(tuple(positions), (0.0,), tuple((median(totals[position]),) for position in positions))


def read_step_times(path: Path, model: str | None = None, tensor_parallel: int | None = None) -> StepTime:
    """Measured step times from a CSV file: columns phase, batch, tokens and seconds; or Splitwise's.

    Where:   tokens may be called context, context_tokens or prompt_tokens; model and tensor_parallel choose among
             Splitwise's
    Raises:  MeasurementTableError naming the line
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            columns = _columns(table.fieldnames or (), path)
            rows = [(table.line_num, row) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementTableError(f"{path}: cannot be read as a table of step times: {error}") from None
    if long := [line for line, row in rows if None in row]:
        raise MeasurementTableError(
            f"{path}, line {long[0]}: it has more fields than the {len(columns)} columns; leave them out"
        )
    if set(_SPLITWISE) <= set(columns):
        return step_time_from_rows(_splitwise_rows(rows, columns, path, model, tensor_parallel), str(path))
    return step_time_from_rows(_plain_rows(rows, columns, path), str(path))


def _columns(names: Sequence[str], path: Path) -> dict[str, str]:
    """Columns by their names without case; a name that stands for two columns is refused."""
    columns: dict[str, str] = {}
    for name in names:
        folded = name.strip().casefold()
        if folded and folded in columns:
            raise MeasurementTableError(f"{path}: there are two columns {folded[:40]!r}; keep one")
        columns[folded] = name
    if len(tokens := [name for name in _TOKEN_COLUMNS if name in columns]) > 1:
        raise MeasurementTableError(f"{path}: columns {' and '.join(tokens)} mean the same; keep one")
    return columns


_Rows = Sequence[tuple[int, Mapping[str, str | None]]]


def _plain_rows(rows: _Rows, columns: Mapping[str, str], path: Path) -> Iterable[MeasuredStep]:
    tokens = next((name for name in _TOKEN_COLUMNS if name in columns), None)
    missing = [name for name in ("phase", "batch", "seconds") if name not in columns]
    if missing or tokens is None:
        raise MeasurementTableError(
            f"{path}: no column {', '.join(missing) or 'tokens'}; phase (decode or prefill), batch, tokens (context or "
            "prompt) and seconds are needed"
        )
    for line, row in rows:
        phase = (row[columns["phase"]] or "").strip().casefold()
        if phase not in _PHASES:
            raise MeasurementTableError(f"{path}, line {line}: phase is {phase[:40]!r}; decode or prefill is needed")
        where = f"{path}, line {line}"
        yield MeasuredStep(
            _PHASES[phase],
            _whole(row[columns["batch"]], f"{where}: batch"),
            _number(row[columns[tokens]], f"{where}: {tokens}", _COUNTS),
            _number(row[columns["seconds"]], f"{where}: seconds", _TIMES_S),
        )


def _splitwise_rows(
    rows: _Rows,
    columns: Mapping[str, str],
    path: Path,
    model: str | None,
    tensor_parallel: int | None,
) -> Iterable[MeasuredStep]:
    """Two measured steps a row; times are in milliseconds, and a token's is at the mean context of its generation."""
    chosen = [
        (line, row)
        for line, row in rows
        if model is None or (row[columns["model"]] or "").casefold() == model.casefold()
    ]
    kinds = {(row[columns["model"]], row[columns["tensor_parallel"]]) for _, row in chosen}
    if tensor_parallel is not None:
        kinds = {kind for kind in kinds if kind[1] == str(tensor_parallel)}
    if len(kinds) != 1:
        known = ", ".join(f"{name} over {ranks}" for name, ranks in sorted(map(_as_text, kinds))) or "none"
        raise MeasurementTableError(f"{path}: choose one model and one tensor parallelism; found: {known}")
    ranks = next(iter(kinds))[1]
    for line, row in chosen:
        if row[columns["tensor_parallel"]] != ranks:
            continue
        where = f"{path}, line {line}"
        batch, tensor = (_whole(row[columns[name]], f"{where}: {name}") for name in ("batch_size", "tensor_parallel"))
        if (tensor, batch) in _BROKEN_SPLITWISE:
            continue
        prompt, output = (
            _number(row[columns[name]], f"{where}: {name}", _COUNTS) for name in ("prompt_size", "token_size")
        )
        prompt_ms, token_ms = (
            _number(row[columns[name]], f"{where}: {name}", _TIMES_MS) for name in ("prompt_time", "token_time")
        )
        yield MeasuredStep(False, batch, prompt, prompt_ms / KILO)
        yield MeasuredStep(True, batch, prompt + output / 2, token_ms / KILO)


def _as_text(kind: tuple[str | None, str | None]) -> tuple[str, str]:
    return str(kind[0]), str(kind[1])


_COUNTS: Final = (1e-3, float(1 << 30))  # mean contexts need not be whole
_TIMES_S: Final = (_SHORTEST_S, _LONGEST_S)
_TIMES_MS: Final = (_SHORTEST_S * KILO, _LONGEST_S * KILO)


def _number(text: str | None, what: str, limits: tuple[float, float]) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    least, most = limits
    if not least <= value <= most:
        raise MeasurementTableError(
            f"{what} is {shown(text)}; a number above 0 is needed, between {least:g} and {most:g}"
        )
    return value


def _whole(text: str | None, what: str) -> int:
    value = _number(text, what, (1.0, _COUNTS[1]))
    if value != int(value):
        raise MeasurementTableError(f"{what} is {shown(text)}; a whole number of at least 1 is needed")
    return int(value)
