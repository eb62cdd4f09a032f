"""Our own client with many streams at once, beside what the truth server wrote down about each of them."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from inference_bench.conform.truth_process import TruthProcess
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.target import Endpoint, Target
from inference_bench.metrics import chunk_gaps_s
from inference_bench.records import RequestStatus
from inference_bench.workload import RequestShape, closed_loop

NUM_STREAMS = 8
NUM_TOKENS = 25


@pytest.mark.parametrize("pace", ["paced,first=0.03,gap=0.01", "lockstep,first=0.03,gap=0.01", "firehose"])
@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
def test_every_stream_is_seen_as_it_was_sent(pace: str, endpoint: Endpoint) -> None:
    workload = closed_loop("paced", (RequestShape(5, NUM_TOKENS),), NUM_STREAMS, NUM_STREAMS)
    with TruthProcess() as server:
        result = run_load(Target(server.url(pace), model="conform", endpoint=endpoint), workload, LoadOptions())
        log = server.log(pace)
    assert [record.status for record in result.records] == [RequestStatus.COMPLETED] * NUM_STREAMS
    assert {record.output_tokens for record in result.records} == {NUM_TOKENS}
    assert {len(record.chunk_times_s) for record in result.records} == {NUM_TOKENS}
    sent = [[time_ns / 1e9 for time_ns, _, chunks in entry["sends"] for _ in chunks] for entry in log]
    assert {len(times) for times in sent} == {NUM_TOKENS}
    true_gaps_s = [after - before for times in sent for before, after in pairwise(times)]
    seen_gaps_s = [gap for record in result.records for gap in chunk_gaps_s(record)]
    assert median(seen_gaps_s) == pytest.approx(median(true_gaps_s), abs=0.001)
    assert sum(seen_gaps_s) == pytest.approx(sum(true_gaps_s), rel=0.05, abs=0.02 * NUM_STREAMS)
