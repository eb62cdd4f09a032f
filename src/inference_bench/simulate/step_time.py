"""How long a step of the server takes, from a few sums over who is in it: the one cost function of both engines.

In:   StepLoad: positions, sequences, cached positions read, attended pairs
Out:  seconds
Leaves out: where the coefficients come from (step_sources), and who is in a step (scheduler, kernel)
Read next by: server, kernel.

The formula itself is `kernel.pricing.step_seconds`, plain arithmetic over arrays, so that the compiled engine runs the very
same lines as the readable loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final, NamedTuple

from inference_bench.errors import RequestError
from inference_bench.origin import Origin
from inference_bench.simulate.kernel.pricing import (
    FIRST_GRID,
    NO_TABLE,
    attended_pairs,
    cached_reads,
    constant_bytes,
    constant_flops,
    grid_size,
    moved_bytes,
    step_seconds,
)


@dataclass(frozen=True, slots=True)
class WindowWork:
    """Layers that attend so many positions at most.

    Unit:  positions; bytes and FLOPs of one position of all those layers
    """

    max_positions: int
    read_bytes: float
    flops_per_pair: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What a step moves and computes, how fast, and what it costs besides.

    Formula:  t = min(max(m, c) + s·min(m, c), vector·P + max(m', c') + s·min(m', c')) + fixed + per sequence·S + per position·P
              m = (weights + experts·(1 - q^P) + read·C + write·P + state·S + windows) / bandwidth
              c = (FLOPs·P + head FLOPs·S + attention FLOPs·A + windows) / compute
              m' = m without weights and experts, c' = c without the FLOPs of positions and heads
    Where:    P positions, S sequences, C cached positions read, A attended pairs, q the chance that one position leaves an
              expert out, s the share of the shorter arm that is not overlapped (0: a bound, 1: a sum); vector_s is what one
              position takes in a kernel that reads the weights anew for each (0: there is no such kernel), which a step takes
              where that is quicker
    Unit:     bytes, FLOPs, per second, seconds
    Raises:   RequestError for rates of zero or values below zero
    """

    weight_bytes: float
    read_bytes: float
    flops_per_position: float
    flops_per_pair: float
    bandwidth_bytes_per_s: float
    compute_flops_per_s: float
    expert_bytes: float = 0.0
    expert_miss: float = 0.0
    write_bytes: float = 0.0
    state_bytes: float = 0.0
    flops_per_sequence: float = 0.0
    serial_share: float = 0.0
    fixed_s: float = 0.0
    sequence_s: float = 0.0
    position_s: float = 0.0
    vector_s: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = "above 0" if each.name in _RATES else "0 or more"
            if not (0 < value < _HUGE if each.name in _RATES else 0 <= value < _HUGE):
                raise RequestError(f"{each.name.replace('_', ' ')} of a step is {value!r}; it must be {least}")

    @property
    def weight_bytes_of_one(self) -> float:
        """Bytes of weights that a lone position reads."""
        return self.weight_bytes + self.expert_bytes * (1 - self.expert_miss)

    def vector(self) -> tuple[float, ...]:
        """The coefficients in the order that the cost function reads them."""
        return tuple(float(getattr(self, name)) for name in _ORDER)


_RATES: Final = frozenset({"bandwidth_bytes_per_s", "compute_flops_per_s"})
_HUGE: Final = 1e300
# the order of kernel.pricing's indices
_ORDER: Final = (
    "weight_bytes",
    "expert_bytes",
    "expert_miss",
    "read_bytes",
    "write_bytes",
    "state_bytes",
    "flops_per_position",
    "flops_per_sequence",
    "flops_per_pair",
    "bandwidth_bytes_per_s",
    "compute_flops_per_s",
    "serial_share",
    "fixed_s",
    "sequence_s",
    "position_s",
    "vector_s",
)


class StepPart(NamedTuple):
    """What one sequence brings to a step."""

    cached: int
    new: int
    is_decoding: bool


@dataclass(slots=True)
class StepLoad:
    """Who is in a step, added up.

    Where:  window_reads and window_pairs have one entry a window class; decodes, decode_context and past are what a table
            of times looks up: sequences that decode, the positions they attend, cached positions before prompts' chunks
    """

    positions: int = 0
    sequences: int = 0
    cached: int = 0
    pairs: int = 0
    decodes: int = 0
    decode_context: int = 0
    window_reads: list[int] = field(default_factory=list)
    window_pairs: list[int] = field(default_factory=list)


class WorkParts(NamedTuple):
    """What a step moves and computes, by what for.

    Where:  moved is written to the cache, or kept as states; cache and attention include the windows
    Unit:   bytes, FLOPs
    """

    weight_bytes: float
    moved_bytes: float
    cache_bytes: float
    product_flops: float
    attention_flops: float


@dataclass(frozen=True)
class StepTime:
    """A model of step times with where it comes from.

    Where:  table takes the place of the formula where it is not NO_TABLE (see step_table); notes are its assumptions
    Raises:  RequestError for a table that is not two whole grids of times
    """

    coefficients: Coefficients
    windows: tuple[WindowWork, ...] = ()
    table: tuple[float, ...] = NO_TABLE
    origin: Origin = Origin.BOUND
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.table != NO_TABLE:
            _require_table(self.table)

    @cached_property
    def vector(self) -> tuple[float, ...]:
        """The coefficients as the cost function reads them."""
        return self.coefficients.vector()

    def load_of(self, parts: Iterable[StepPart]) -> StepLoad:
        """The sums over sequences."""
        load = StepLoad(window_reads=[0] * len(self.windows), window_pairs=[0] * len(self.windows))
        for cached, new, is_decoding in parts:
            load.positions += new
            load.sequences += 1
            load.cached += cached
            load.pairs += attended_pairs(cached, new, cached + new)
            if is_decoding:
                load.decodes += 1
                load.decode_context += cached + 1
            for index, window in enumerate(self.windows):
                load.window_reads[index] += cached_reads(cached, window.max_positions)
                load.window_pairs[index] += attended_pairs(cached, new, window.max_positions)
        return load

    def parts_of(self, load: StepLoad) -> WorkParts:
        """The terms of a step's work, the weights read once."""
        moved = moved_bytes(self.vector, load.positions, load.sequences)
        window_bytes, window_flops = self._of_windows(load)
        return WorkParts(
            weight_bytes=constant_bytes(self.vector, load.positions, load.sequences) - moved,
            moved_bytes=moved,
            cache_bytes=self.coefficients.read_bytes * load.cached + window_bytes,
            product_flops=constant_flops(self.vector, load.positions, load.sequences),
            attention_flops=self.coefficients.flops_per_pair * load.pairs + window_flops,
        )

    def _of_windows(self, load: StepLoad) -> tuple[float, float]:
        """Bytes and FLOPs of the layers with a window."""
        num_bytes, flops = 0.0, 0.0
        for window, reads, pairs in zip(self.windows, load.window_reads, load.window_pairs, strict=True):
            num_bytes += window.read_bytes * reads
            flops += window.flops_per_pair * pairs
        return num_bytes, flops

    def seconds(self, load: StepLoad) -> float:
        """The time of a step.

        Unit:  seconds
        """
        extra_bytes, extra_flops = self._of_windows(load)
        return step_seconds(
            self.vector,
            self.table,
            load.positions,
            load.sequences,
            load.cached,
            load.pairs,
            extra_bytes,
            extra_flops,
            load.decodes,
            load.decode_context,
        )

    def step_s(self, parts: Iterable[StepPart]) -> float:
        """The time of a step to which sequences bring (cached, new) positions.

        Unit:  seconds
        """
        return self.seconds(self.load_of(parts))


def _require_table(table: tuple[float, ...]) -> None:
    """Refuse a table in which a step's time could not be looked up."""
    if not all(0 <= value < _HUGE for value in table):
        raise RequestError(
            "a table of step times holds a value below 0, or one that is no number; every value must be 0 or more"
        )
    end = FIRST_GRID
    for _ in range(2):
        rows, columns = table[end : end + 2] if len(table) >= end + 2 else (0.0, 0.0)
        if min(rows, columns) < 1 or rows * columns > len(table):
            break
        end += grid_size(table, end)
    else:
        if end == len(table) == table[0]:
            return
    raise RequestError(
        f"a table of step times of {len(table)} value(s) is not two whole grids; make it of a grid of decoding and one of prompts"
    )
