"""What a search for the capacity says of itself, as JSON and in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.loadtest.capacity import Limits
from inference_bench.loadtest.capacity_evidence import UNKNOWN_DISPERSION
from inference_bench.loadtest.capacity_run import CapacityRun
from inference_bench.loadtest.capacity_search import (
    Answer,
    CapacityFound,
    Judgement,
    RateTried,
    SearchPlan,
    Stop,
    Trial,
)
from inference_bench.measure.floor import ClientFloor
from inference_bench.measure.machine_identity import identify_machine
from inference_bench.report.load_capacity_report import capacity_run_json, capacity_run_text
from inference_bench.workload import Fixed, Poisson, generate


def tried(rate: float, misses: bytes, verdict: Judgement) -> RateTried:
    found = RateTried(rate)
    found.add(Trial(len(misses), misses))
    found.verdict = verdict
    return found


@pytest.fixture(scope="module")
def run() -> CapacityRun:
    found = CapacityFound(
        answer=Answer.INTERVAL,
        low_rate=40.0,
        high_rate=60.0,
        trials=(
            tried(60.0, bytes([1] * 30 + [0] * 70), Judgement.FAIL),
            tried(40.0, bytes(200), Judgement.PASS),
        ),
        num_sent=420,
        dispersion=1.5,
        plan=SearchPlan(),
    )
    return CapacityRun(
        target="http://host",
        model="m",
        endpoint="completions",
        limits=Limits(ttft_p99_s=1.5),
        found=found,
        workload=generate(Poisson(1.0), Fixed(8), Fixed(2), 1, seed=4),
        floor=ClientFloor(0.001, 1e-5, 10),
        dropped_fields=(),
        run_dir=Path("runs/x"),
        client=identify_machine(),
        versions={"python": "3"},
    )


def test_the_interval_every_rate_and_the_promise_are_there(run: CapacityRun) -> None:
    found = json.loads(json.dumps(capacity_run_json(run)))
    assert found["schema"] == "inference-bench/load-capacity/1"
    assert found["answer"] == "interval"
    half_width = pytest.approx(0.2)
    assert found["interval"] == {"low_rate": 40.0, "high_rate": 60.0, "half_width": half_width, "confidence": 0.95}
    assert found["objectives"]["ttft_p99_s"] == 1.5
    assert found["objectives"]["itl_p99_s"] is None
    assert found["objectives"]["good_share"] == 0.99
    assert found["trials"][0] == {
        "rate": 60.0,
        "num_requests": 100,
        "num_good": 70,
        "verdict": "fail",
        "num_runs": 1,
        "is_growing": False,
    }
    text = " ".join(capacity_run_text(run).split())
    assert "lies between 40.00 and 60.00 requests/s (95 % confidence)" in text
    assert "99 % of the requests within TTFT <= 1.50 s" in text
    assert "runs/x" in text


def test_what_was_not_seen_is_said_to_be_assumed(run: CapacityRun) -> None:
    assert "Misses cluster: 1.5 of these requests" in " ".join(capacity_run_text(run).split())
    assumed = replace(run, found=replace(run.found, dispersion=UNKNOWN_DISPERSION))
    text = " ".join(capacity_run_text(assumed).split())
    assert "Misses cluster:" not in text
    assert "as one alone would is assumed" in text
    assert capacity_run_json(assumed)["is_dispersion_assumed"]


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop.REQUESTS, "the requests that may be sent were used up; more would tell more"),
        (Stop.TIME, "the time was used up"),
        (Stop.DONE, None),
    ],
)
def test_why_a_search_ended_is_said(run: CapacityRun, stop: Stop, words: str | None) -> None:
    ended = replace(run, found=replace(run.found, stopped_by=stop))
    assert capacity_run_json(ended)["stopped_by"] == stop.value
    text = " ".join(capacity_run_text(ended).split())
    assert words in text if words else "used up" not in text
    assert ("wider than asked (± 20 %, not 5.0 %)" in text) == (words is not None)


def test_no_interval_is_an_answer_too(run: CapacityRun) -> None:
    none = replace(run, found=replace(run.found, answer=Answer.NONE_PASSES, low_rate=None, high_rate=0.01))
    assert "not even" in capacity_run_text(none)
    assert capacity_run_json(none)["interval"]["half_width"] is None
