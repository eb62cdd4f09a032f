"""The shared traces are read as the notes beside them describe them."""

from __future__ import annotations

import statistics

import pytest

from corpus.model_configs import SHARED
from inference_bench.workload import OpenLoop, Workload, index_of_dispersion, leading_block_hits, read_trace

TRACES = SHARED / "data" / "traces"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not beside this checkout"),
]

CODE, CONVERSATION = "azure2023_code_min00-30.csv", "azure2023_conv_min00-30.csv"
MOONCAKE = "mooncake_fast25_conversation_first-half.jsonl"
SYNTHETIC = "mooncake_fast25_synthetic_first-half.jsonl"
VLLM = "vllm-runs/RTXPRO6000_Llama-3.1-8B/requests.jsonl"

# from the table in README.md: rows, span in s, mean rate, input mean and p50, output mean and p50
FACTS = {
    CODE: (5740, 1788, 3.21, 2028, 1460, 27.4, 13),
    CONVERSATION: (10108, 1800, 5.62, 1243, 1033, 217, 134),
    MOONCAKE: (5606, 1767, 3.17, 12935, 7652, 346, 356),
    SYNTHETIC: (1925, 511, 3.77, 12219, 3616, 193, 156),
    VLLM: (300, None, 10.3, 858, 733, 653, 633),
}


def read(name: str) -> tuple[Workload, OpenLoop]:
    workload = read_trace(TRACES / name)
    assert isinstance(workload.arrival, OpenLoop)
    return workload, workload.arrival


@pytest.mark.parametrize(("name", "facts"), FACTS.items())
def test_a_trace_has_the_rows_the_span_the_rate_and_the_lengths_that_are_published(
    name: str, facts: tuple[float, ...]
) -> None:
    workload, arrival = read(name)
    rows, span_s, rate, prompt_mean, prompt_median, output_mean, output_median = facts
    assert len(workload) == rows
    assert arrival.times_s[0] == 0.0
    if span_s is not None:
        assert arrival.times_s[-1] == pytest.approx(span_s, abs=0.5)
    assert arrival.realised_rate == pytest.approx(rate, abs=0.005 if rate < 10 else 0.05)
    assert statistics.fmean(workload.requests.prompt_tokens) == pytest.approx(prompt_mean, abs=1)
    assert statistics.median_high(workload.requests.prompt_tokens) == pytest.approx(prompt_median, abs=1)
    assert statistics.fmean(workload.requests.output_tokens) == pytest.approx(output_mean, abs=1)
    assert statistics.median_high(workload.requests.output_tokens) == pytest.approx(output_median, abs=1)
    assert (arrival.process, arrival.nominal_rate, workload.notes) == ("replay", None, ())


@pytest.mark.parametrize(("name", "dispersion"), [(CODE, 13.90), (CONVERSATION, 1.31)])
def test_the_index_of_dispersion_is_the_published_one(name: str, dispersion: float) -> None:
    found = index_of_dispersion(read(name)[1].times_s)
    assert found is not None
    assert round(found, 2) == dispersion


@pytest.mark.parametrize(("name", "hits", "blocks"), [(MOONCAKE, 49_091, 144_280), (SYNTHETIC, 14_823, 47_171)])
def test_leading_blocks_that_were_seen_are_as_many_as_published(name: str, hits: int, blocks: int) -> None:
    found = leading_block_hits(read(name)[0])
    assert (found.num_hits, found.num_segments) == (hits, blocks)


def test_times_of_an_azure_trace_keep_all_seven_digits() -> None:
    _, arrival = read(CODE)
    assert arrival.times_s[1] == 0.052  # 18:17:04.0319600 - 18:17:03.9799600


def test_times_of_a_mooncake_trace_are_milliseconds() -> None:
    _, arrival = read(SYNTHETIC)
    assert arrival.times_s[-1] == 510.672
