"""The answers to `score` as JSON with stable keys.

In:   ScoreReport
Out:  dicts ready for JSON: times in seconds, errors and coverage as fractions, None for no value
Read next by: cli.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from inference_bench.score.summary import Score, ScoreReport, WorstRow

Json = dict[str, Any]


def score_json(found: ScoreReport) -> Json:
    """The stable keys of `score --json`."""
    return {
        "schema": "inference-bench/score/1",
        "files": list(found.files),
        "calibration": found.calibration.value,
        "cross_validation": found.cross_validation,
        "fitted": {
            "source": found.fitted.source.title,
            "as_of": found.fitted.source.as_of,
            "rows": found.fitted.rows,
        },
        "overall": _score(found.overall),
        "by_phase": _scores(found.by_phase),
        "by_hardware": _scores(found.by_hardware),
        "by_machine": _scores(found.by_machine),
        "by_engine": _scores(found.by_engine),
        "by_source": _scores(found.by_source),
        "not_predicted": [
            {"reason": item.reason, "rows": item.rows, "examples": list(item.examples)} for item in found.not_predicted
        ],
        "worst": [_worst(item) for item in found.worst],
        "assumptions": list(found.assumptions),
    }


def _scores(scores: Mapping[str, Score]) -> Json:
    return {name: _score(score) for name, score in scores.items()}


def _score(score: Score) -> Json:
    return {**dataclasses.asdict(score), "coverage": score.coverage}


def _worst(item: WorstRow) -> Json:
    scored, row = item.scored, item.scored.case.row
    return {
        "file": row.file,
        "row": row.row,
        "source": row.source,
        "model": row.model,
        "hardware": row.hardware,
        "devices": row.devices,
        "engine": row.engine,
        "phase": scored.form.question.phase.value,
        "batch": row.batch,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "familiarity": scored.familiarity.value,
        "measured_s": scored.measured_s,
        "predicted_s": scored.predicted_s,
        "low_s": scored.low_s,
        "high_s": scored.high_s,
        "fixed_factor_s": scored.fixed_s,
        "bound_s": scored.bound_s,
        "ape": scored.error,
        "reason": item.reason,
    }
