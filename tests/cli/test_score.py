from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from inference_bench.cli.main import main
from score.tables import write_table

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "measured.csv")


def test_score_prints_the_same_figures_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", EXAMPLE]) == 0
    text = capsys.readouterr().out
    assert main(["score", EXAMPLE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "inference-bench/score/1"
    assert found["overall"]["coverage"] == 1.0
    assert f"{found['overall']['rows']} rows of 1 table" in text
    assert max(map(len, text.splitlines())) <= 100


def test_score_calibrates_and_cross_validates_quietly_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [
        {"hardware": name, "batch_or_concurrency": str(batch)} for name in ("H100 SXM", "B200") for batch in (1, 2, 4)
    ]
    table = str(write_table(tmp_path / "t.csv", *rows))
    assert main(["score", table, "--calibrate", "one", "--cross-validate", "device", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert shown.err == ""
    assert (found["calibration"], found["cross_validation"]) == ("one", "device")
    assert (found["overall"]["predicted"], found["overall"]["spent"], found["overall"]["scored"]) == (6, 2, 4)


@pytest.mark.parametrize("kind", ["svg", "html", "json"])
def test_score_draws_its_chart_and_still_prints_its_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    file = tmp_path / f"predicted.{kind}"
    assert main(["score", EXAMPLE, "--chart", str(file)]) == 0
    assert "8 rows of 1 table" in capsys.readouterr().out
    assert {"svg": "<svg", "html": "<!doctype html>", "json": "{"}[kind] in file.read_text(encoding="utf-8")[:20]


MISTAKES = [
    ({"value": "nan"}, [], "t.csv row 2: value is 'nan'"),
    ({"unit": "s"}, [], "t.csv row 2: tpot_ms is in ms"),
    ({}, ["--cross-validate", "device"], "at least 2 are needed"),
    ({}, ["--chart", "predicted.png"], ".svg, .html, .json"),
    ({"hardware": "Abacus"}, ["--chart", "predicted.json"], "nothing to draw: no row could be scored"),
    ({}, ["--calibrate", "all"], "invalid choice"),
]


@pytest.mark.parametrize(("row", "options", "message"), MISTAKES, ids=lambda value: str(value)[:30])
def test_a_mistake_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, row: dict[str, str], options: list[str], message: str
) -> None:
    table = str(write_table(tmp_path / "t.csv", row))
    try:
        code = main(["score", table, *options])
    except SystemExit as error:
        code = error.code
    shown = capsys.readouterr()
    assert (code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert message in shown.err


def test_a_table_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["score", str(tmp_path / "none.csv")]) == 2
    assert "none.csv: no such file" in capsys.readouterr().err


def test_scoring_needs_no_package_and_cross_validation_names_the_extra(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy", "inference_bench.score.cross_validation", "inference_bench.score.fitting"):
        monkeypatch.setitem(sys.modules, name, None)
    table = str(write_table(tmp_path / "t.csv", {}, {"hardware": "B200"}))
    assert main(["score", table]) == 0
    capsys.readouterr()
    assert main(["score", table, "--cross-validate", "device"]) == 2
    assert "pip install 'inference-bench[fit]'" in capsys.readouterr().err
