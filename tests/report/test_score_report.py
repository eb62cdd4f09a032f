from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import validate

from inference_bench.report.score_json import score_json
from inference_bench.report.score_report import score_text
from inference_bench.score.flow import score_tables
from inference_bench.score.summary import ScoreReport
from score.tables import PROMPTS, SERVING, WHOLE, write_table

FRACTION = {"type": ["number", "null"], "minimum": 0}
COUNT = {"type": "integer", "minimum": 0}
SCORE = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("rows", "predicted", "spent", "scored"), COUNT),
        **{key: {**FRACTION, "maximum": 1} for key in ("coverage", "interval_coverage")},
        **dict.fromkeys(("median_ape", "p90_ape", "median_of_machine_medians", "bound_median_ape", "bound_p90_ape",
                         "fixed_factor_median_ape", "fixed_factor_p90_ape"), FRACTION),
    },
    "required": ["rows", "predicted", "coverage", "median_ape", "p90_ape", "interval_coverage", "bound_median_ape",
                 "fixed_factor_median_ape", "median_of_machine_medians"],
}  # fmt: skip
SCORES = {"type": "object", "additionalProperties": SCORE}
SECONDS = ("measured_s", "predicted_s", "low_s", "high_s", "bound_s", "fixed_factor_s")
SCHEMA = {
    "type": "object",
    "properties": {
        "schema": {"const": "inference-bench/score/1"},
        "calibration": {"enum": ["none", "one", "several"]},
        "cross_validation": {"enum": ["device", "model", None]},
        "fitted": {"type": "object", "required": ["source", "as_of", "rows"]},
        "overall": SCORE,
        "by_phase": {**SCORES, "required": ["decode", "prefill", "e2e", "serving_tpot", "serving_ttft"]},
        **dict.fromkeys(("by_hardware", "by_machine", "by_engine", "by_source"), SCORES),
        "worst": {
            "type": "array",
            "items": {
                "required": ["file", "row", "reason", "ape"],
                "properties": {key: {"type": "number", "exclusiveMinimum": 0} for key in SECONDS},
            },
        },
        "not_predicted": {"type": "array", "items": {"required": ["reason", "rows", "examples"]}},
        "assumptions": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    },
    "required": ["schema", "overall", "by_phase", "by_hardware", "by_engine", "by_source", "worst", "not_predicted",
                 "calibration", "cross_validation", "fitted", "assumptions"],
}  # fmt: skip

HOSTILE = {
    "source": "so\x1b[31mred\nand more" + "x" * 300,
    "model": "\u202eevil\x07" + "m" * 500,
    "engine": "\x1b]0;title\x07" + "e" * 500,
    "hardware": "\x9b2J" + "h" * 500,
    "batch_or_concurrency": "many\x1b[2J",
}


@pytest.fixture
def mixed(tmp_path: Path) -> ScoreReport:
    rows = [{}, PROMPTS, WHOLE, SERVING, {**PROMPTS, **SERVING}, HOSTILE, {**HOSTILE, "batch_or_concurrency": "4"},
            {"source": HOSTILE["source"], "engine": HOSTILE["engine"], "model": HOSTILE["model"]}]  # fmt: skip
    return score_tables([write_table(tmp_path / "mi\x1bxed.csv", *rows)])


@pytest.mark.parametrize("calibrate", ["none", "one", "several"])
def test_the_json_has_every_key_it_promises(tmp_path: Path, calibrate: str) -> None:
    rows = [{}, {}, {}, PROMPTS, SERVING, {"batch_or_concurrency": "Offline"}]
    found = score_json(score_tables([write_table(tmp_path / "t.csv", *rows)], calibrate=calibrate))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    validate(found, SCHEMA)
    assert found["overall"]["rows"] == 6
    assert found["overall"]["predicted"] == 5
    assert found["not_predicted"][0]["rows"] == 1


def test_a_report_of_nothing_that_could_be_predicted_has_the_same_keys_and_no_numbers(tmp_path: Path) -> None:
    report = score_tables([write_table(tmp_path / "t.csv", {"hardware": "Abacus"})])
    found = score_json(report)
    validate(found, SCHEMA)
    assert (found["overall"]["coverage"], found["overall"]["median_ape"], found["worst"]) == (0.0, None, [])
    assert "n/a" in score_text(report)


def test_the_text_fits_100_columns_and_holds_no_control_character_of_a_table(mixed: ScoreReport) -> None:
    text = score_text(mixed)
    assert max(map(len, text.splitlines())) <= 100
    assert all(char == "\n" or char.isprintable() for char in text)


def test_the_text_says_first_how_it_was_scored_and_whether_the_rows_were_seen(mixed: ScoreReport) -> None:
    first, second, *_ = score_text(mixed).split("\n\n")
    assert first.startswith("8 rows of 1 table, efficiencies as shipped, not calibrated: 6 predicted (75.0 %)")
    assert second.startswith("IN-SAMPLE if these rows are among the")
    assert "cross-validation" in " ".join(second.split())


def test_the_text_has_a_table_for_each_way_to_group_and_the_reasons(mixed: ScoreReport) -> None:
    text = score_text(mixed)
    for title in ("phase ", "hardware class ", "engine ", "source "):
        assert any(line.startswith(title) and line.split()[-1] == "p90" for line in text.splitlines())
    assert "1: the batch or concurrency is not a number" in text
    assert "1: the machine is not known" in text
    assert "rows furthest off, and what likely explains each" in text
    assert "what the numbers are" in text
