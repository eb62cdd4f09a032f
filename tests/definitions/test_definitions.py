"""Each tool's figures of one recording, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.definitions import METRICS, RULES, TOOLS, Recomputed, recompute
from inference_bench.metrics import Objective, summarise, time_to_first_answer_s
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"

# planned at 1.0 s, sent at 1.25 s, 12 tokens in three chunks of 4 at 2, 3 and 4 s, over at 4.5 s
RECORD = RequestRecord(
    request_id="r",
    origin=Origin.MEASURED,
    stage=Stage.MEASURE,
    status=RequestStatus.COMPLETED,
    planned_s=1.0,
    sent_s=1.25,
    end_s=4.5,
    chunk_times_s=(2.0, 3.0, 4.0),
    output_tokens=12,
    requested_output_tokens=16,
    token_count_source=TokenCountSource.SERVER_USAGE,
    chunk_tokens=(4, 4, 4),
)


def found(records: list[RequestRecord], objective: Objective | None = None) -> dict[tuple[str, str], Recomputed]:
    return {(one.rule.tool, one.rule.metric): one for one in recompute(records, objective)}


MEANS = {
    "ttft": {"inference-bench": 1.0, "vLLM": 0.75, "SGLang": 0.75, "GuideLLM": 0.75, "AIPerf": 0.75,
             "inference-perf": 0.75, "MLPerf": 1.0, "genai-bench": 0.75, "llmperf": 0.75},
    "tpot": {"inference-bench": 2 / 8, "vLLM": 2 / 11, "SGLang": 2.5 / 11, "GuideLLM": 2.75 / 12, "AIPerf": 2 / 11,
             "inference-perf": 2 / 11, "MLPerf": 2 / 11, "genai-bench": 2.5 / 11, "llmperf": None},
    "itl": {"inference-bench": None, "vLLM": 1.0, "SGLang": 1.0, "GuideLLM": 2 / 11, "AIPerf": 1.0,
            "inference-perf": 2 / 11, "MLPerf": None, "genai-bench": None, "llmperf": 2.75 / 12},
    "e2e": {"inference-bench": 3.0, "vLLM": 2.75, "SGLang": 3.25, "GuideLLM": 3.25, "AIPerf": 2.75,
            "inference-perf": 3.25, "MLPerf": 3.0, "genai-bench": 3.25, "llmperf": 3.25},
}  # fmt: skip


@pytest.mark.parametrize("metric", MEANS)
def test_times_of_one_request_are_those_worked_by_hand(metric: str) -> None:
    one = found([RECORD])
    assert {tool: one[tool, metric].mean_s for tool in TOOLS} == pytest.approx(MEANS[metric])


def test_zeros_inside_a_chunk_move_the_median_and_not_the_mean() -> None:
    zeros = found([RECORD])["inference-perf", "itl"]
    assert (zeros.count, zeros.p50_s, zeros.mean_s) == (11, 0.0, pytest.approx(2 / 11))  # nine zeros, two of 1 s


def test_rates_differ_by_where_the_clock_starts_and_what_is_judged() -> None:
    one = found([RECORD], Objective(max_ttft_s=0.8, max_gap_s=0.5))
    assert one["inference-bench", "output_tokens_per_s"].value == pytest.approx(12 / 3.5)
    assert one["MLPerf", "output_tokens_per_s"].value == pytest.approx(12 / 3.5)
    assert one["vLLM", "output_tokens_per_s"].value == pytest.approx(12 / 3.25)
    # TTFT from the plan is 1 s and gaps are 1 s: not good here; from the send 0.75 s at a mean pace: good there
    assert one["inference-bench", "goodput_requests_per_s"].value == 0.0
    for tool in ("vLLM", "SGLang", "AIPerf"):
        assert one[tool, "goodput_requests_per_s"].value == pytest.approx(1 / 3.25)


def test_a_request_of_one_token_is_good_to_vllm_and_not_to_aiperf() -> None:
    single = replace(RECORD, chunk_times_s=(2.0,), output_tokens=1, chunk_tokens=(1,))
    one = found([single])
    assert one["vLLM", "goodput_requests_per_s"].value == pytest.approx(1 / 3.25)
    assert one["AIPerf", "goodput_requests_per_s"].value == 0.0
    assert one["vLLM", "tpot"].missing == "no request gives such a time"


def test_ours_are_those_of_the_metrics() -> None:
    records = [RECORD, replace(RECORD, planned_s=2.0, sent_s=2.0, end_s=9.0, chunk_times_s=(5.0, 6.0, 8.0))]
    records.append(replace(RECORD, status=RequestStatus.FAILED, end_s=12.0, chunk_times_s=()))
    one, ours = found(records), summarise(records)
    for metric, percentiles in (("ttft", ours.ttft_s), ("tpot", ours.tpot_s), ("e2e", ours.e2e_s)):
        assert percentiles is not None
        assert one["inference-bench", metric].p50_s == percentiles.p50
        assert one["inference-bench", metric].count == percentiles.count
    assert one["inference-bench", "output_tokens_per_s"].value == ours.output_tokens_per_s
    assert one["inference-bench", "goodput_requests_per_s"].value == ours.goodput_requests_per_s


def test_without_a_count_some_tools_credit_what_was_asked_for_and_we_do_not() -> None:
    one = found([replace(RECORD, output_tokens=None, chunk_tokens=(), token_count_source=TokenCountSource.UNKNOWN)])
    assert one["SGLang", "tpot"].mean_s == pytest.approx(2.5 / 15)
    assert one["GuideLLM", "tpot"].mean_s == pytest.approx(2.75 / 16)
    for tool in ("inference-bench", "vLLM", "AIPerf"):
        assert one[tool, "tpot"].mean_s is None
        assert "counts no tokens" in one[tool, "tpot"].missing
    assert "how many tokens each chunk holds" in one["inference-perf", "itl"].missing


def test_with_one_token_a_chunk_and_no_tail_all_gaps_are_the_same() -> None:
    plain = replace(RECORD, planned_s=1.25, end_s=4.0, output_tokens=3, chunk_tokens=())
    one = found([plain])
    assert {one[tool, "tpot"].mean_s for tool in ("inference-bench", "vLLM", "SGLang", "AIPerf", "MLPerf")} == {1.0}
    assert {one[tool, "itl"].p99_s for tool in ("inference-bench", "vLLM", "GuideLLM", "inference-perf")} == {1.0}


def test_a_run_with_a_failure_has_no_mlperf_value_and_one_without_success_none_at_all() -> None:
    failed = replace(RECORD, status=RequestStatus.FAILED)
    assert "invalid" in found([RECORD, failed])["MLPerf", "ttft"].missing
    assert all(one.mean_s is None and one.value is None and one.missing for one in recompute([failed]))


def test_every_tool_says_every_metric_and_every_difference_has_a_reason() -> None:
    assert [(rule.tool, rule.metric) for rule in RULES] == [(tool, metric) for tool in TOOLS for metric in METRICS]
    assert all(rule.reason for rule in RULES if rule.tool != "inference-bench")


def test_the_table_in_the_docs_is_this_one() -> None:
    rows = [
        f"| {rule.tool} | `{rule.metric}` | {rule.word or 'n/a'} | {rule.formula or 'n/a'} | {rule.reason or 'ours'} |"
        for rule in RULES
    ]
    text = DOCS.read_text(encoding="utf-8")
    assert "\n".join(rows) in text


# the same request after a pause to think: chunks of 2 reasoning tokens at 1.5 s, then 4, 4 and 2 of the answer
THINKING = replace(RECORD, chunk_times_s=(1.5, 2.0, 3.0, 4.0), chunk_tokens=(2, 4, 4, 2), channels="rccc")


def test_the_first_answer_waits_for_the_reasoning_and_the_first_token_does_not() -> None:
    assert time_to_first_answer_s(THINKING) == 1.0
    assert time_to_first_answer_s(replace(THINKING, channels="")) == 0.5  # all is content
    assert time_to_first_answer_s(replace(THINKING, channels="rrrr")) is None
    assert time_to_first_answer_s(replace(THINKING, chunk_times_s=(), channels="")) is None
    one = found([THINKING])
    firsts = {tool: one[tool, "ttfa"].mean_s for tool in ("inference-bench", "GuideLLM", "AIPerf", "vLLM")}
    assert firsts == {"inference-bench": 1.0, "GuideLLM": 0.75, "AIPerf": 0.75, "vLLM": None}
    assert one["inference-bench", "ttft"].mean_s == 0.5
    assert one["GuideLLM", "ttft"].mean_s == 0.25


def test_a_tool_call_is_an_answer_to_aiperf_and_not_to_guidellm() -> None:
    one = found([replace(THINKING, channels="rttc")])
    assert one["AIPerf", "ttfa"].mean_s == 0.75
    assert one["GuideLLM", "ttfa"].mean_s == 2.75


def test_inference_perf_sees_the_answer_alone() -> None:
    one = found([THINKING])
    assert one["inference-perf", "ttft"].mean_s == 0.75
    assert one["inference-perf", "tpot"].mean_s == pytest.approx(2 / 9)  # 10 tokens from 2 s to 4 s
    gaps = one["inference-perf", "itl"]
    assert (gaps.count, gaps.p50_s, gaps.mean_s) == (9, 0.0, pytest.approx(2 / 9))
    unknown = found([replace(THINKING, chunk_tokens=())])
    assert "how many tokens each chunk holds" in unknown["inference-perf", "tpot"].missing
    single = replace(RECORD, chunk_times_s=(2.0,), output_tokens=1, chunk_tokens=(1,))
    assert found([single])["inference-perf", "ttft"].missing == "no request gives such a time"


def test_guidellm_counts_a_request_once_for_each_of_its_tokens() -> None:
    # 12 tokens at 2/11 s a step, and 2 tokens at 1 s: weighed by 11 and 1 steps, or by 12 and 2 tokens from the send
    short = replace(RECORD, chunk_times_s=(2.0, 3.0), output_tokens=2, chunk_tokens=(1, 1))
    one = found([RECORD, short])
    assert one["GuideLLM", "itl"].mean_s == pytest.approx((11 * 2 / 11 + 1 * 1.0) / 12)
    assert one["GuideLLM", "itl"].p50_s == pytest.approx(2 / 11)
    assert one["GuideLLM", "tpot"].mean_s == pytest.approx((2.75 + 1.75) / 14)
    assert one["GuideLLM", "itl"].count == 2
    assert one["AIPerf", "tpot"].mean_s == pytest.approx((2 / 11 + 1.0) / 2)  # each request once


def test_goodput_of_one_token_is_undetermined_to_guidellm_and_missed_to_inference_perf() -> None:
    single = replace(RECORD, chunk_times_s=(2.0,), output_tokens=1, chunk_tokens=(1,))
    one = found([RECORD, single], Objective(max_ttft_s=0.8, max_gap_s=0.5))
    for tool in ("GuideLLM", "inference-perf"):
        assert one[tool, "goodput_requests_per_s"].value == pytest.approx(1 / 3.25)
    assert one["vLLM", "goodput_requests_per_s"].value == pytest.approx(2 / 3.25)
