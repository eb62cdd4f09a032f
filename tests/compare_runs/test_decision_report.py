from __future__ import annotations

import json
from pathlib import Path

import pytest

from compare_runs.test_decide import FAILED, run_of
from inference_bench.charts.canary import canary_chart, rule_name
from inference_bench.cli.main import main
from inference_bench.compare_runs.decide import Decision, decide
from inference_bench.compare_runs.rules import FIGURES
from inference_bench.report.decision_report import decision_html, decision_json, decision_text
from inference_bench.report.report_html import Provenance

MADE = Provenance("compare", "inference-bench compare a b --decide", "2026-11-30 00:00:00 UTC", {})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return run_of(folder, "base", 1), run_of(folder, "slow", 2, slow=1.5)


@pytest.fixture(scope="module")
def rolled_back(runs: tuple[Path, Path]) -> Decision:
    return decide([runs[0]], [runs[1]])


def test_the_verdict_comes_first_and_the_text_fits_100_columns(rolled_back: Decision) -> None:
    lines = decision_text(rolled_back).splitlines()
    assert lines[0].split() == ["verdict", "ROLL", "BACK"]
    assert max(map(len, lines)) <= 100
    row = next(line for line in lines if line.startswith("TTFT p50"))
    assert "broken" in row
    assert "10.0 %" in row


def test_the_json_holds_every_rule_with_its_evidence_and_only_finite_numbers(
    rolled_back: Decision, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    found = json.loads(json.dumps(decision_json(rolled_back), allow_nan=False))
    assert (found["schema"], found["verdict"]) == ("inference-bench/compare-decision/1", "roll back")
    (ttft,) = [each for each in found["rules"] if each["figure"] == "ttft_p50_s"]
    assert ttft["outcome"] == "broken"
    assert ttft["most_worse"] == 0.1
    assert ttft["interval_of_all_rules"]["low"] > 0.1
    dead = run_of(tmp_path, "dead", 3, change=lambda _index: FAILED)
    infinite = decision_json(decide([runs[0]], [dead]))
    json.dumps(infinite, allow_nan=False)
    (ttft,) = [each for each in infinite["rules"] if each["figure"] == "ttft_p50_s"]
    assert (ttft["worse"], ttft["interval"]["low"]) == (None, None)  # longer than any time
    assert "beyond any" in decision_text(decide([runs[0]], [dead]))


def test_the_chart_draws_each_rule_in_its_own_limits_with_the_limit_at_1(rolled_back: Decision) -> None:
    spec = canary_chart(rolled_back)
    assert spec is not None
    rows = {row["name"]: row for each in spec["layer"] for row in each["data"]["values"] if "outcome" in row}
    ttft = next(each for each in rolled_back.evidence if each.rule.figure == "ttft_p50_s")
    assert ttft.worse is not None
    assert rows["TTFT p50"]["worse"] == pytest.approx(min(ttft.worse / 0.1, 5.0))
    assert rows["TTFT p50"]["outcome"] == "broken"
    assert all(row["low"] <= row["worse"] <= row["high"] for row in rows.values() if row["label"] == row["name"])
    assert any(
        row.get("kind") == "limit" and row["worse"] == 1.0 for each in spec["layer"] for row in each["data"]["values"]
    )
    assert canary_chart(rolled_back, 340) is not None


def test_every_figure_has_a_short_name_of_its_own() -> None:
    names = [rule_name(figure) for figure in FIGURES]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 14


def test_the_page_says_the_verdict_in_its_title_and_escapes_names(rolled_back: Decision) -> None:
    page = decision_html(rolled_back, MADE, lambda spec: "<svg></svg>")
    assert "May the canary take over? Roll back." in page
    assert "<script" not in page
    assert "percentage points" in page
    assert "not drawn" in decision_html(rolled_back, MADE, None)


def test_the_command_exits_1_unless_it_promotes_and_writes_page_and_chart(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline, slow = map(str, runs)
    page, chart = tmp_path / "d.html", tmp_path / "d.svg"
    assert main(["compare", baseline, slow, "--decide", "--report", str(page), "--chart", str(chart)]) == 1
    assert "ROLL BACK" in capsys.readouterr().out
    assert "Rule by rule" in page.read_text()
    assert chart.read_text().startswith("<svg")
    same = run_of(tmp_path, "same", 5)
    assert main(["compare", "--baseline", baseline, "--canary", str(same), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "promote"
    loose = ["--limit", "ttft_p50_s=100%", "--min-requests", "500"]
    assert main(["compare", baseline, str(same), "--decide", *loose]) == 1
    assert "the rules ask for 500" in " ".join(capsys.readouterr().out.split())
