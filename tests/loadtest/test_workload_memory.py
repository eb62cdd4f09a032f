"""What was asked is remembered to the last bit, and what nobody wrote is not believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference_bench.arrival_proof import Verdict
from inference_bench.loadtest.workload_memory import (
    asked_from_json,
    asked_in,
    asked_of,
    asked_to_json,
    prove_asked,
)
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.workload import (
    Arrivals,
    Constant,
    Fixed,
    GammaArrivals,
    OnOff,
    OpenLoop,
    Poisson,
    Ramp,
    RequestShape,
    Steps,
    Workload,
    closed_loop,
    generate,
    open_loop,
)

PROCESSES = [
    Poisson(20.0),
    GammaArrivals(20.0, 2.0),
    Constant(20.0),
    OnOff(30.0, 2.0, 1.0),
    Ramp(1.0, 20.0, 10.0),
    Steps((5.0, 20.0), 3.0, is_even=True),
]


def a_schedule(process: Arrivals, count: int = 200) -> Workload:
    return generate(process, Fixed(64), Fixed(16), count, seed=3)


def sent(times_s: list[float], first_index: int = 0) -> list[RequestRecord]:
    return [
        RequestRecord(
            request_id=f"r{number}",
            origin=Origin.MEASURED,
            stage=Stage.MEASURE,
            status=RequestStatus.COMPLETED,
            planned_s=5.0 + time_s,
            sent_s=5.0 + time_s,
            end_s=6.0 + time_s,
            index=first_index + number,
        )
        for number, time_s in enumerate(times_s)
    ]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: type(process).__name__)
def test_a_schedule_and_its_process_come_back_through_json(process: Arrivals) -> None:
    asked = asked_of(a_schedule(process))
    again = asked_from_json(json.loads(json.dumps(asked_to_json(asked), allow_nan=False)))
    assert again == asked
    assert isinstance(again.arrival, OpenLoop)
    assert again.arrival.drawn_from == process
    assert (again.prompt_tokens.least, again.prompt_tokens.mean, again.output_tokens.most) == (64, 64.0, 16)


def test_a_closed_loop_comes_back_through_json() -> None:
    workload = closed_loop("closed loop", [RequestShape(10, 2), RequestShape(30, 4)], 4, 8, 9, think_s=0.5)
    asked = asked_of(workload)
    assert asked_from_json(json.loads(json.dumps(asked_to_json(asked)))) == asked
    assert (asked.prompt_tokens.mean, asked.seed) == (20.0, 9)


def test_the_proof_of_a_folder_is_that_of_the_run() -> None:
    workload = a_schedule(Poisson(20.0))
    assert isinstance(workload.arrival, OpenLoop)
    asked = asked_from_json(asked_to_json(asked_of(workload)))
    assert asked is not None
    proof = prove_asked(sent(list(workload.arrival.times_s)), asked)
    assert (proof.verdict, proof.num_requests) == (Verdict.KEPT, 200)
    assert proof.plan_fit is not None


def test_a_run_that_was_cut_short_is_held_to_the_part_that_it_sent() -> None:
    workload = a_schedule(Poisson(20.0))
    assert isinstance(workload.arrival, OpenLoop)
    times_s = list(workload.arrival.times_s)
    asked = asked_of(workload)
    assert prove_asked(sent(times_s[:90]), asked).verdict is Verdict.KEPT
    assert prove_asked(sent(times_s[50:170], first_index=50), asked).verdict is Verdict.KEPT
    doubled = sent([time_s / 2 for time_s in times_s[:90]])
    assert prove_asked(doubled, asked).verdict is Verdict.BROKEN


CHANGES: dict[str, dict[str, Any]] = {
    "a name that is a number": {"name": 3},
    "a seed that is true": {"seed": True},
    "no arrival": {"arrival": None},
    "another policy": {"arrival": {"policy": "open loop"}},
    "times that are no base64": {"times_s": "%%%"},
    "times of half a number": {"times_s": "AAAA"},
    "no times": {"times_s": ""},
    "a time that is not a number": {"times_s": "AAAAAAAA+H8="},
    "a negative rate": {"nominal_rate": -1.0},
    "an unknown process": {"drawn_from": {"kind": "Workload"}},
    "a process without its rate": {"drawn_from": {"kind": "Poisson"}},
    "a process with a rate of no number": {"drawn_from": {"kind": "Poisson", "rate": "20"}},
    "a process with a rate that cannot be": {"drawn_from": {"kind": "Poisson", "rate": -3}},
    "lengths that are a list": {"prompt_tokens": []},
    "notes that are no list": {"notes": "x"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_nobody_wrote_is_not_believed(change: dict[str, Any]) -> None:
    values = asked_to_json(asked_of(a_schedule(Poisson(20.0), 5)))
    assert asked_from_json(values) is not None
    (name,) = change
    inner = values["arrival"] if name in values["arrival"] else values
    inner.update(change)
    assert asked_from_json(values) is None
    assert asked_in({"asked": {"measure": values}}) == {}


@pytest.mark.parametrize("meta", [{}, {"asked": None}, {"asked": []}, {"asked": {"measure": 7}}])
def test_a_folder_that_remembers_nothing_has_nothing_asked(meta: dict[str, object]) -> None:
    assert asked_in(meta) == {}


def test_a_sweep_remembers_each_of_its_points() -> None:
    points = {rate: asked_of(a_schedule(Constant(float(rate)), 4)) for rate in ("5", "10")}
    meta = {"asked": {rate: asked_to_json(asked) for rate, asked in points.items()}}
    assert asked_in(meta) == points
    assert asked_in(meta)["5"].arrival == open_loop([0.2, 0.4, 0.6, 0.8], "constant", 5.0)
