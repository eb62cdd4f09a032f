from __future__ import annotations

import json
from pathlib import Path

import pytest

from compare_runs.sample import load_run, point, verify_run
from inference_bench.charts.two_runs import two_runs_chart
from inference_bench.cli.main import main
from inference_bench.compare_runs.flow import compare_runs
from inference_bench.report.compare_runs_report import compare_runs_html, compare_runs_json, compare_runs_text
from inference_bench.report.report_html import Provenance

MADE = Provenance("compare", "inference-bench compare a b", "2026-11-30 00:00:00 UTC", {})


@pytest.fixture
def verified(tmp_path: Path) -> tuple[Path, Path]:
    points = [point(0.010), point(0.020, batch=4)]
    return (
        verify_run(tmp_path, "one", points),
        verify_run(tmp_path, "two", [point(0.008), point(0.025, batch=4)]),
    )


def test_the_text_fits_100_columns_and_says_better_and_worse(verified: tuple[Path, Path]) -> None:
    text = compare_runs_text(compare_runs(*verified))
    assert max(map(len, text.splitlines())) <= 100
    (first,) = [line for line in text.splitlines() if line.lstrip().startswith("decode, batch 1")]
    (fourth,) = [line for line in text.splitlines() if line.lstrip().startswith("decode, batch 4")]
    assert "-20.0 %" in first
    assert "better" in first
    assert "+25.0 %" in fourth
    assert "worse" in fourth
    assert "clearly faster in 1 and clearly slower in 1" in " ".join(text.split())


def test_the_json_has_the_same_figures_and_no_value_that_is_not_finite(verified: tuple[Path, Path]) -> None:
    found = json.loads(json.dumps(compare_runs_json(compare_runs(*verified)), allow_nan=False))
    assert found["schema"] == "inference-bench/compare/1"
    assert [each["change"] for each in found["points"]] == [pytest.approx(-0.2), pytest.approx(0.25)]
    assert found["changed"] == {"version": {"first": "one", "second": "two"}}


def test_the_page_escapes_names_and_draws_both_runs_on_one_roofline(verified: tuple[Path, Path]) -> None:
    result = compare_runs(*verified)
    spec = two_runs_chart(result)
    assert spec is not None
    drawn = [row for each in spec["layer"] for row in each["data"]["values"] if "run" in row and "to_x" not in row]
    assert sorted(row["run"] for row in drawn) == ["first run"] * 2 + ["second run"] * 2
    # 2.7e8 FLOPs in 8 ms
    assert any(row["flops_per_s"] == pytest.approx(2.7e8 / 0.008) for row in drawn)
    page = compare_runs_html(result, MADE, lambda spec: "<svg></svg>")
    assert "<script" not in page
    assert "-20.0 %" in page


def test_loads_without_a_step_in_common_have_tables_and_no_roofline(tmp_path: Path) -> None:
    runs = [load_run(tmp_path, name, lambda _index, s=seconds: s) for name, seconds in (("a", 0.1), ("b", 0.2))]
    result = compare_runs(*runs)
    assert two_runs_chart(result) is None
    assert "ttft p50" in compare_runs_text(result)
    assert "<figure" not in compare_runs_html(result, MADE, lambda spec: "<svg></svg>")


def test_the_command_compares_refuses_and_draws(
    verified: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = map(str, verified)
    assert main(["compare", first, second, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"]
    assert main(["compare", first, first]) == 2
    assert "two different ones" in capsys.readouterr().err
    page, chart = tmp_path / "c.html", tmp_path / "c.svg"
    assert main(["compare", first, second, "--report", str(page), "--chart", str(chart)]) == 0
    assert "one roofline" in page.read_text()
    assert chart.read_text().startswith("<svg")
