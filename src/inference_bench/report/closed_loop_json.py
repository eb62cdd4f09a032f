"""The closed loop as JSON: calibration, parts of a gap, loads beside their predictions, capacity, memory.

In:   VerifyResult
Out:  dicts of raw SI numbers; None where that part was not run
Leaves out: the rest of a verification (json_result)
Read next by: json_result.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from inference_bench.calibrate.steps.forms import FittedObservation, StepCalibration
from inference_bench.gap.parts import GapReading
from inference_bench.origin import Origin
from inference_bench.report.closed_loop_answers import answers
from inference_bench.report.closed_loop_words import form_words
from inference_bench.report.wording import FITTED, REPORTED
from inference_bench.stats import Interval
from inference_bench.verify.closed_loop import CapacityCheck, Figure, LoadCheck, LoadRow, MemoryRow
from inference_bench.verify.result import VerifyResult

Json = dict[str, Any]

_NEAR: Final = "near"  # the load whose figures stand under the flat keys, or else the first


def closed_loop_json(result: VerifyResult) -> Json:
    """The keys of a verification that the closed loop fills."""
    return {
        "verdict": [asdict(answer) for answer in answers(result)],
        "calibration": _calibration(result.calibration),
        "gap": _gap(result.gap),
        "load": _load(result.load),
        "capacity": _capacity(result.capacity),
        "memory": [_memory(row) for row in result.memory],
        "profile_path": result.profile_path,
    }


def _interval(interval: Interval | None) -> Json | None:
    return None if interval is None else asdict(interval)


def _calibration(found: StepCalibration | None) -> Json | None:
    if found is None:
        return None
    chosen = found.chosen
    return {
        "form": found.form,
        "words": form_words(found.form),
        "parameters": {
            item.name: {"value": item.value, "interval": _interval(item.interval), "note": item.note}
            for item in found.parameters
        },
        "request_s": found.request_s,
        "held_out_error": found.held_out_error,
        "held_out_p90": found.held_out_p90,
        "worst_held_out": found.worst_held_out,
        "error_by_kind": {str(kind): error for kind, error in found.error_by_kind.items()},
        "candidates": [
            {**asdict(item), "num_parameters": item.num_parameters, "is_chosen": item is chosen}
            for item in found.candidates
        ],
        "observations": [_observation(item) for item in found.observations],
        "bandwidth_bytes_per_s": found.bandwidth_bytes_per_s,
        "compute_flops_per_s": found.compute_flops_per_s,
        "reading": found.reading,
        "notes": found.notes,
        "origin": FITTED,
    }


def _observation(item: FittedObservation) -> Json:
    """A step as it was measured, with exactly what was in it, beside what the formula says."""
    seen = item.observation
    return {
        "kind": seen.kind,
        "setting": seen.setting,
        "batches": [
            [{"cached_tokens": part.cached, "new_tokens": part.new, "is_decoding": part.is_decoding} for part in batch]
            for batch in seen.batches
        ],
        "measured_s": seen.seconds,
        "interval_s": _interval(seen.interval),
        "predicted_s": item.predicted_s,
        "error": item.error,
        "is_held_out": seen.is_held_out,
        "includes_request": seen.includes_request,
        "num_waves": seen.num_waves,
        "relative_spread": seen.relative_spread,
        "cpu_s": seen.cpu_s,
        "engine_s": seen.engine_s,
    }


def _gap(found: GapReading | None) -> Json | None:
    if found is None:
        return None
    return {
        "steps": [{**asdict(step), "origin": Origin.MEASURED} for step in found.steps],
        "changes": [{**asdict(change), "origin": Origin.PREDICTED} for change in found.changes],
        "sentences": found.sentences,
    }


def _load(found: LoadCheck | None) -> Json | None:
    """Every load, and the three flat objects of the one near the knee."""
    if found is None:
        return None
    near = next((row for row in found.rows if row.place.startswith(_NEAR)), next(iter(found.rows), None))
    figures = () if near is None else near.figures
    return {
        "workload": found.workload,
        "saturation_rate": found.saturation_rate,
        "rules": found.rules,
        "place": None if near is None else near.place,
        "predicted": {figure.name: figure.predicted for figure in figures},
        "measured": {figure.name: figure.measured for figure in figures},
        "error": {figure.name: figure.error for figure in figures},
        "rows": [_row(row) for row in found.rows],
        "notes": found.notes,
        "origin": {"predicted": Origin.SIMULATED, "measured": Origin.MEASURED},
    }


def _row(row: LoadRow) -> Json:
    return {
        "place": row.place,
        "rate": row.rate,
        "realised_rate": row.realised_rate,
        "num_requests": row.num_requests,
        "num_completed": row.num_completed,
        "figures": {figure.name: _figure(figure) for figure in row.figures},
        "requests": {
            "predicted_ttft_s": row.predicted_ttft_s,
            "measured_ttft_s": row.measured_ttft_s,
            "predicted_e2e_s": row.predicted_e2e_s,
            "measured_e2e_s": row.measured_e2e_s,
        },
        "notes": row.notes,
    }


def _figure(figure: Figure) -> Json:
    return {
        "predicted": figure.predicted,
        "measured": figure.measured,
        "error": figure.error,
        "target": figure.target,
        "reached": figure.is_reached,
        "count": figure.count,
    }


def _capacity(found: CapacityCheck | None) -> Json | None:
    if found is None:
        return None
    return {
        "objective": found.objective,
        "ttft_s": found.ttft_s,
        "gap_s": found.gap_s,
        "predicted_rate": found.predicted_rate,
        "interval": _interval(found.interval),
        "at_rate": None if found.at_rate is None else _row(found.at_rate),
        "above_rate": None if found.above_rate is None else _row(found.above_rate),
        "is_confirmed": found.is_confirmed,
        "measured_rate": found.measured_rate,
        "contradiction": found.contradiction,
        "crossing_rate": found.crossing_rate,
        "error": found.error,
        "reading": found.reading,
        "origin": {"predicted_rate": Origin.SIMULATED, "measured_rate": Origin.MEASURED},
    }


def _memory(row: MemoryRow) -> Json:
    return {**asdict(row), "agrees": row.agrees, "origin": {"predicted": Origin.COUNTED, "reported": REPORTED}}
