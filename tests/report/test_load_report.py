"""The text of a load run: what failed stands in it, and cannot make it look better."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.metrics import summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.report.load_report import metrics_text

GOOD = RequestRecord("r", Origin.MEASURED, Stage.MEASURE, RequestStatus.COMPLETED, 1.0, 1.0, 3.0, (2.0,), 4, 1)


def lines_of(*records: RequestRecord) -> list[str]:
    return [" ".join(line.split()) for line in metrics_text(summarise(records)).splitlines()]


def test_time_outs_print_as_longer_than_the_wait_and_other_failures_as_never() -> None:
    late = replace(GOOD, status=RequestStatus.TIMED_OUT, end_s=31.0, chunk_times_s=())
    refused = replace(GOOD, status=RequestStatus.REJECTED, end_s=1.001, chunk_times_s=())
    assert "TTFT 1.00 s > 30.0 s > 30.0 s 10" in lines_of(*[GOOD] * 8, late, late)
    assert "TTFT 1.00 s never never 10" in lines_of(*[GOOD] * 8, late, refused)


def test_without_failures_there_is_one_view() -> None:
    assert not any("failed ones too" in line for line in lines_of(*[GOOD] * 8))


def test_a_percentile_stands_beside_its_interval_where_there_are_samples_enough() -> None:
    many = [replace(GOOD, chunk_times_s=(1 + number / 1000,)) for number in range(1, 1001)]
    row = next(line for line in lines_of(*many) if line.startswith("TTFT"))
    # by SciPy's binomial sums: ranks 983 and 997 of a p99 of 1,000
    assert row.endswith("983 ms to 997 ms 1000")
    assert "n/a" in next(line for line in lines_of(GOOD) if line.startswith("TTFT"))
