"""The text of a load run: what failed stands in it, and cannot make it look better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.loadtest.flow import LoadRun
from inference_bench.loadtest.shards_clock import ClockCheck
from inference_bench.loadtest.shards_merge import Shard
from inference_bench.measure.client_health import ErrorBound, GcPauses
from inference_bench.measure.prompt_checks import PromptCheck
from inference_bench.measure.server_metrics import ServerMetrics, ServerSample
from inference_bench.metrics import summarise
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.report.load_report import (
    load_json,
    load_text,
    metrics_text,
    own_error_text,
    server_json,
    server_lines,
)
from inference_bench.report.proof_report import DEFINITIONS_TITLE, proof_text
from inference_bench.report.sweep_report import sweep_json, sweep_text
from report.load_samples import calm, failing
from report.load_samples import sweep as sweep_sample

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


def text_of(run: LoadRun, with_definitions: bool = False) -> str:
    return " ".join(load_text(run, with_definitions).split())


def test_what_must_not_be_missed_stands_before_any_figure() -> None:
    text = text_of(failing().run)
    first = text.index("http://127.0.0.1:8000")
    for words in ("invalid: this client may have moved the p99 of TTFT", "A prefix cache held"):
        assert 0 <= text.index(words) < first
    assert text_of(calm().run).startswith("http://127.0.0.1:8000, serving qwen3-8b: open loop")


def test_prompts_are_about_so_long_until_every_one_was_counted() -> None:
    run = calm().run
    assert "about 128 prompt tokens" in text_of(run)
    assert "about" not in text_of(replace(run, prompts=PromptCheck(300, 300, 300, 0))).split("prompt tokens")[0]
    assert "about 128 prompt tokens" in text_of(replace(run, prompts=PromptCheck(300, 299, 299, 0)))


def test_garbage_collections_are_said_where_there_were_any() -> None:
    run = calm().run
    assert ", 2 garbage collections, the longest 400 µs, 600 µs in all" in text_of(run)
    one = replace(run, health=replace(run.health, gc_pauses=GcPauses(1, 0.0004, 0.0004)))
    assert ", 1 garbage collection of 400 µs" in text_of(one)
    assert "garbage" not in text_of(replace(run, health=replace(run.health, gc_pauses=GcPauses())))


def test_how_many_processes_sent_and_which_do_not_count_is_said() -> None:
    run, clock = calm().run, ClockCheck(0.0, 0.0, True)
    wrong = replace(run.health, error_bounds=(ErrorBound("ttft_s", "p99", 0.05, 0.004),))
    assert "sent by" not in text_of(run)
    both = replace(run, shards=(Shard(0, 200, run.health, clock), Shard(1, 100, run.health, clock)))
    assert "sent by 2 processes (200 + 100 requests), each of them valid" in text_of(both)
    one = replace(run, shards=(Shard(0, 200, run.health, clock), Shard(1, 100, wrong, clock)))
    assert "process 2: invalid: this client may have moved the p99 of TTFT" in text_of(one)
    lost = replace(run, shards=(Shard(0, 200, run.health, clock), Shard(1, 100, None, clock)))
    assert "process 2 did not come to its end" in text_of(lost)


@pytest.mark.parametrize(
    ("bound_s", "words"),
    [
        (0.0, "no receive stamp is in doubt"),
        (1e-9, "by less than 0.01 %"),
        (0.0005, "most is the p99 of TTFT, by at most 1.0 %"),
    ],
)
def test_the_clients_own_error_is_never_said_to_be_nothing(bound_s: float, words: str) -> None:
    client = {"error_bounds": [{"metric": "ttft_s", "percentile": "p99", "value_s": 0.05, "bound_s": bound_s}]}
    assert words in own_error_text(client)
    assert " 0 %" not in own_error_text(client)
    assert "could not be bounded" in own_error_text({"error_bounds": []})


def test_what_the_server_said_of_itself_is_a_line_and_so_is_why_it_said_nothing() -> None:
    samples = tuple(
        ServerSample(at_s, 0.001, running=2.0 * at_s, waiting=1.0, cache_used_fraction=0.25 * at_s) for at_s in range(3)
    )
    (line,) = server_lines(ServerMetrics("vLLM", samples))
    assert line == (
        "vLLM of itself, in 3 answers: 1.00 running on average and 4.00 at most, 1.00 waiting on average and 1.00 at most, "
        "cache in use at most 50.0 %"
    )
    silent = ServerMetrics(None, (), num_failed=1, trouble="the server's own metrics: no such page")
    assert server_lines(silent) == ["the server's own metrics: no such page (once without an answer)"]
    assert server_lines(None) == []
    found = server_json(silent)
    assert found is not None
    assert (found["trouble"], found["num_samples"], found["mean_running"]) == (silent.trouble, 0, None)
    assert server_json(None) is None
    assert "vLLM of itself" in text_of(calm().run)


def test_the_judgement_of_documents_is_in_the_text_and_in_the_json() -> None:
    run = calm().run
    assert load_json(run)["documents"] is None
    fit = [replace(record, document_valid=True) for record in run.records]
    assert "All 300 answers fit the schema they were asked to." in text_of(replace(run, records=tuple(fit)))
    broken = replace(
        run, records=(replace(fit[0], document_valid=False), replace(fit[1], document_valid=None), *fit[2:])
    )
    assert load_json(broken)["documents"] == {"asked": 300, "valid": 298, "invalid": 1, "not_judged": 1}
    assert text_of(broken).startswith(
        "1 of 299 answers is no document that fits the schema they were asked to; 1 more brought no whole answer to judge."
    )


def test_tools_that_print_the_same_share_a_line_and_no_footnote() -> None:
    text = load_text(calm().run, with_definitions=True)
    text = text[text.index(DEFINITIONS_TITLE) :]
    assert "output tokens/s: all 9 tools that print it print 191" in text
    assert "goodput: all 6 tools that print it print 7.96" in text
    assert "a run passes or fails as a whole, by its p99: MLPerf" in text  # it prints none
    ttft = text[text.index("TTFT  ") : text.index("first answer")]
    assert "starts at the actual send" in ttft  # 0.3 ms of 37
    tpot = text[text.index("\nTPOT  ") : text.index("\nITL  ")]
    assert "tokens after the first in the first chunk make it too small: genai-bench" in tpot
    assert "vLLM," not in tpot  # it prints what we do


def test_the_verdict_on_arrivals_comes_first_and_its_statistics_are_one_line() -> None:
    proof = proof_text(calm().run.arrivals)
    assert proof.startswith("requests arrived as asked: poisson, 300 requests, ")
    assert " ".join(proof.split()).count("p-values of five tests of the process: plan ") == 1


def test_a_sweep_says_what_the_server_said_and_how_its_documents_were() -> None:
    run = sweep_sample().run
    text = " ".join(sweep_text(run).split())
    assert "of itself" not in text
    assert "schema" not in text
    assert sweep_json(run)["points"][0]["documents"] is None
    first = replace(run.points[0], records=tuple(replace(r, document_valid=True) for r in run.points[0].records))
    server = ServerMetrics("vLLM", (ServerSample(0.0, 0.001, running=3.0),))
    judged = replace(run, points=(first, *run.points[1:]), server=server)
    text = " ".join(sweep_text(judged).split())
    assert "rate-2: All 240 answers fit the schema they were asked to." in text
    assert "vLLM of itself, in 1 answer: 3.00 running on average and 3.00 at most" in text
    assert sweep_json(judged)["points"][0]["documents"] == {"asked": 240, "valid": 240, "invalid": 0, "not_judged": 0}
