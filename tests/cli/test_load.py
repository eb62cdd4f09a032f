"""`load` end to end against a server of known behaviour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli.main import main
from inference_bench.measure.store import read_records
from inference_bench.records import Stage
from measure.truth_server import TruthServer

NO_PAGE = ("--no-report",)  # drawing takes longer than these loads


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


class Run:
    def __init__(self, server: TruthServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._server, self._folder, self._capsys = server, folder, capsys

    def text(self, *options: str, case: str = "steady") -> str:
        url = self._server.url(case)
        assert main(["load", url, "--served-model", "m", "--runs", str(self._folder), *options, *NO_PAGE]) == 0
        return self._capsys.readouterr().out

    def json(self, *options: str, case: str = "steady") -> dict[str, Any]:
        found = json.loads(self.text(*options, "--json", case=case))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def run(server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(server, tmp_path, capsys)


def test_without_options_it_is_the_closed_loop_it_always_was(run: Run) -> None:
    found = run.json("--output-tokens", "3")
    assert found["arrival"] == {"policy": "closed loop", "concurrency": 1, "think_s": 0.0}
    assert (found["prompt_tokens"], found["output_tokens"]) == (128, 3)
    assert found["requests"]["completed"] == 16
    assert found["workload"] == "closed loop"


def test_an_open_loop_says_its_nominal_and_realised_rate_and_its_dispersion(run: Run) -> None:
    found = run.json(
        "--rate", "20", "--arrivals", "constant", "--requests", "60", "--output-tokens", "2", case="at_once"
    )
    arrival = found["arrival"]
    assert (arrival["policy"], arrival["process"], arrival["concurrency"]) == ("open loop", "constant", None)
    assert (arrival["nominal_rate"], arrival["realised_rate"], arrival["bin_s"]) == (20.0, 20.0, 1.0)
    assert arrival["index_of_dispersion"] == pytest.approx(0.0, abs=0.05)
    assert found["realised_rate"] == pytest.approx(20.0, rel=0.2)
    records = [record for record in read_records(Path(found["run_dir"])).records if record.stage is Stage.MEASURE]
    planned_s = sorted(record.planned_s for record in records)
    assert planned_s[-1] - planned_s[0] == pytest.approx(59 / 20, abs=1e-6)


def test_lengths_that_differ_are_summed_up(run: Run) -> None:
    found = run.json(
        "--rate",
        "200",
        "--requests",
        "20",
        "--prompt-tokens",
        "uniform:10:30",
        "--output-tokens",
        "values:2,4",
        case="at_once",
    )
    assert (found["prompt_tokens"], found["output_tokens"]) == (None, None)
    assert found["lengths"]["output"] == {"min": 2, "mean": pytest.approx(3, abs=0.9), "max": 4}
    assert 10 <= found["lengths"]["prompt"]["min"] <= found["lengths"]["prompt"]["max"] <= 30


def test_a_trace_is_replayed_faster_and_its_notes_are_shown(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "burst.csv"
    rows = "".join(f"{number}.0,GPT-4,20,{number % 4},20,x\n" for number in range(12))
    trace.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + rows)
    text = run.text("--trace", str(trace), "--time-scale", "0.01", case="at_once")
    assert "open loop, replay: 9 requests" in " ".join(text.split())
    assert "n/a nominal" in " ".join(text.split())
    assert "dropped 3 failed requests" in " ".join(text.split())


@pytest.mark.parametrize(
    "options", [("--rate", "1", "--concurrency", "2"), ("--trace", "none.csv"), ("--rate", "0"), ("--turns", "2")]
)
def test_a_question_that_is_wrong_ends_with_2_before_anything_is_sent(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    before = len(server.requests)
    assert main(["load", server.url("steady"), "--served-model", "m", "--runs", str(tmp_path), *options]) == 2
    assert len(server.requests) == before
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_proves_its_arrivals_and_says_what_other_tools_would_have_printed(run: Run) -> None:
    found = run.json("--rate", "50", "--requests", "40", "--output-tokens", "3")
    proof = found["arrivals_proof"]
    assert (proof["process"], proof["num_requests"], proof["asked_rate"]) == ("poisson", 40, 50.0)
    assert proof["verdict"] in {"kept", "broken"}  # of this machine's lateness, which others share
    assert 0 <= proof["plan_fit"]["ks"] <= 1
    assert proof["realised_rate"] == pytest.approx(found["realised_rate"])
    ttft = {tool: metrics["ttft"]["p50_s"] for tool, metrics in found["definitions"].items()}
    assert ttft["inference-bench"] == ttft["MLPerf"] == found["ttft_s"]["p50"] > ttft["vLLM"]
    assert found["all_requests"]["ttft_s"]["p50"] == {"value_s": found["ttft_s"]["p50"], "above_s": None}


def test_the_text_has_the_verdict_and_on_demand_the_definitions(run: Run) -> None:
    text = run.text("--concurrency", "2", "--requests", "30", "--output-tokens", "3")
    assert "closed loop of 2, 30 requests" in " ".join(text.split())
    assert "2 at most" in " ".join(text.split())
    assert "GuideLLM" not in text
    assert "(l − s)/n" in run.text("--output-tokens", "3", "--definitions")
