"""Was a run disturbed so much that nobody should judge the engine by it?

In:   the engine's share of the processor, how the machine drifted, what other work took, both readings of the ceilings
Out:  clauses of one sentence, none of a run that can be judged
Leaves out: what is worth a note but no warning (calibration_sweep, flow)
Read next by: calibration_sweep, flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from inference_bench.measure.ceilings import ProbeResult
from inference_bench.units import format_fraction, format_number

MUCH_OTHER_WORK: Final = 0.05  # of all cores: it lengthens a step on two of them by about as much
_STARVED: Final = 0.8  # of the processor time that the engine's threads could take
_MUCH_SLOWER: Final = 0.15
_MOVED: Final = 1.5  # a ceiling before over after, or after over before


def of_sweep(share: float | None, drift: float | None) -> Iterator[str]:
    """The engine was starved, or the machine slowed, while steps were measured."""
    if share is not None and share < _STARVED:
        yield f"the engine's threads got {format_fraction(share, 2)} of the processor time that they could take"
    if drift is not None and drift > _MUCH_SLOWER:
        yield f"the machine slowed by {format_fraction(drift, 2)} while steps were measured"


def of_loads(other_shares: Mapping[str, float]) -> Iterator[str]:
    """Other work while loads were sent: the load beside which it took most."""
    group = max(other_shares, key=lambda name: other_shares[name], default=None)
    if group is not None and other_shares[group] > MUCH_OTHER_WORK:
        yield f"other work took {format_fraction(other_shares[group], 2)} of the processors while {group} was sent"


def of_ceilings(before: ProbeResult, after: ProbeResult) -> Iterator[str]:
    """The machine's own ceilings were others after the sweep than before it."""
    for name, first, second in (
        ("memory bandwidth", before.bandwidth_bytes_per_s, after.bandwidth_bytes_per_s),
        ("compute peak", before.peak_flops_per_s, after.peak_flops_per_s),
    ):
        factor = max(first, second) / min(first, second)
        if factor > _MOVED:
            than = "higher" if second > first else "lower"
            yield f"the {name} read after the sweep was {format_number(factor)} times {than} than before it"
