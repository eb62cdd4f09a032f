"""Steps that were measured on a real server, each with exactly what the engine computed in it.

In:   nothing; plain values, filled in by a calibration sweep
Out:  StepObservation
Leaves out: how they are measured (verify) and what is fitted to them (fitting)
Read next by: fitting, gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_bench.simulate.step_time import StepPart
from inference_bench.stats import Interval


class StepKind(StrEnum):
    """What a step does."""

    DECODE = "decode"  # one position of each of some sequences
    PREFILL = "prefill"  # a prompt alone, nothing of it cached
    CACHED_PREFILL = "cached prefill"  # the rest of a prompt whose beginning is in the cache
    MIXED = "mixed"  # a prompt beside sequences that decode


@dataclass(frozen=True, slots=True)
class StepObservation:
    """One step, or the few steps behind a first token, as it was measured.

    Where:    batches are what the engine computes one after another, each reading the weights once: for a decode step of B
              sequences one batch of B parts. includes_request says that the time holds a request's handling (connection,
              tokenising, the first reply) beside the steps. is_held_out keeps it from the fit. cpu_s is the engine's own CPU
              time for the same, where its process is ours; engine_s what the engine says itself
    Unit:     seconds: the median over waves; the interval is of that median
    """

    kind: StepKind
    setting: str
    batches: tuple[tuple[StepPart, ...], ...]
    seconds: float
    num_waves: int
    interval: Interval | None = None
    relative_spread: float | None = None
    includes_request: bool = False
    is_held_out: bool = False
    cpu_s: float | None = None
    engine_s: float | None = None

    @property
    def num_sequences(self) -> int:
        """Sequences in the largest batch."""
        return max(len(batch) for batch in self.batches)

    @property
    def num_positions(self) -> int:
        """New positions over all batches."""
        return sum(part.new for batch in self.batches for part in batch)

    @property
    def mean_context_tokens(self) -> float:
        """Cached positions before the step, over its sequences."""
        parts = [part for batch in self.batches for part in batch]
        return sum(part.cached for part in parts) / len(parts)
