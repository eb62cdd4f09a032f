"""Progress is said at most ten times a second, in one line."""

from __future__ import annotations

from inference_bench.loadtest.progress import ProgressMeter
from inference_bench.records import Origin, RequestRecord, RequestStatus, Stage


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def ended(status: RequestStatus = RequestStatus.COMPLETED, tokens: int | None = 10) -> RequestRecord:
    return RequestRecord("r", Origin.MEASURED, Stage.MEASURE, status, 0.0, 0.0, 1.0, output_tokens=tokens)


def test_a_line_says_how_many_ended_how_fast_and_how_long_it_takes() -> None:
    clock, said = Clock(), list[str]()
    meter = ProgressMeter(said.append, clock)
    meter.begin("rate-2", num_planned=40)
    for _ in range(10):
        clock.now_s += 0.5
        meter.note(ended())
    assert said[-1] == "rate-2: 10 of 40 ended, 2.00 req/s, 20.0 tok/s, 5.00 s, 15.0 s left"


def test_failures_are_counted_and_what_was_cancelled_is_none() -> None:
    clock, said = Clock(), list[str]()
    meter = ProgressMeter(said.append, clock)
    meter.begin("", length_s=8.0)
    for status in (RequestStatus.FAILED, RequestStatus.TIMED_OUT, RequestStatus.CANCELLED):
        clock.now_s += 1.0
        meter.note(ended(status, tokens=None))
    assert said[-1] == "3 ended, 1.00 req/s, 2 failed, 3.00 s, 5.00 s left"


def test_ten_lines_a_second_and_no_more() -> None:
    clock, said = Clock(), list[str]()
    meter = ProgressMeter(said.append, clock)
    meter.begin("", num_planned=1000)
    for _ in range(1000):
        clock.now_s += 0.001
        meter.note(ended())
    assert 9 <= len(said) <= 11
