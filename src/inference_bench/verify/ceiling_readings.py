"""The machine's ceilings, read before and after it was measured: a shared machine moves within minutes.

In:   how long each reading may take
Out:  ProbeResult, of both readings the larger ones
Leaves out: how a reading is made (measure.probe_here)
Read next by: flow, matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.probe_here import ProbeDevice, probe_here
from inference_bench.units import format_si

_SECOND_READING_BATCH: Final = 256

Progress = Callable[[str], None]


def read_ceilings(budget_s: float, say: Progress, device: ProbeDevice = ProbeDevice.AUTO) -> ProbeResult:
    """The first reading, of the device that serves, before anything else runs.

    Raises:  MissingExtraError, MeasurementError
    """
    return probe_here(device, progress=say, budget_s=budget_s)


def read_again(before: ProbeResult, budget_s: float, say: Progress) -> ProbeResult:
    """Both ceilings read once more; the larger readings are the ceilings."""
    return larger_of(before, second_reading(before, budget_s, say))


def second_reading(before: ProbeResult, budget_s: float, say: Progress) -> ProbeResult | None:
    """Both ceilings read once more; None of a card, which is read before alone: the engine holds most of its memory by now."""
    if before.gpu is not None:
        return None
    say("reading the ceilings again")
    return probe_here(ProbeDevice.CPU, max_batch=_SECOND_READING_BATCH, budget_s=budget_s)


def larger_of(before: ProbeResult, after: ProbeResult | None) -> ProbeResult:
    """The larger readings are the ceilings, for a ceiling is what a machine can do at its best."""
    if after is None:
        return before
    read, product = (
        max(before, after, key=lambda result: result.bandwidth_bytes_per_s),
        max(before, after, key=lambda result: result.peak_flops_per_s),
    )
    return replace(
        before,
        bandwidth_bytes_per_s=read.bandwidth_bytes_per_s,
        bandwidth_method=read.bandwidth_method,
        bandwidth_rows=read.bandwidth_rows,
        peak_flops_per_s=product.peak_flops_per_s,
        peak_batch=product.peak_batch,
        rows=product.rows,
        matrix_size=product.matrix_size,
        ridge_flops_per_byte=product.peak_flops_per_s / read.bandwidth_bytes_per_s,
        notes=(*before.notes, _readings_note(before, after)),
    )


def _readings_note(before: ProbeResult, after: ProbeResult) -> str:
    bandwidths = [format_si(result.bandwidth_bytes_per_s, "B/s") for result in (before, after)]
    peaks = [format_si(result.peak_flops_per_s, "FLOP/s") for result in (before, after)]
    return (
        f"ceilings before and after the sweep: memory {bandwidths[0]} and {bandwidths[1]}, compute {peaks[0]} and "
        f"{peaks[1]}; the larger ones are used"
    )
