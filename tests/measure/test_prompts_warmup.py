"""Warm-up: afterwards prompts are as long as asked to the token, and none was said before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.prompt_checks import check_prompt_lengths
from inference_bench.measure.prompt_files import read_prompt_file
from inference_bench.measure.prompt_sources import PromptTemplate, WordSource, read_corpus
from inference_bench.measure.prompts import PromptMaker, TokenFit
from inference_bench.measure.server_tokenizer import ServerTokenizer
from inference_bench.measure.target import Endpoint, Target
from inference_bench.measure.warmup import warm_up
from inference_bench.records import RequestStatus, Stage
from inference_bench.workload import Constant, Fixed, RequestShape, SharedPrefix, closed_loop, generate_conversations
from measure.truth_server import TruthServer, count_tokens


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def prompts_of(server: TruthServer, case: str) -> list[str]:
    return [request.prompt for request in server.of(case) if not request.path.endswith("/tokenize")]


@pytest.mark.parametrize("case", ["tokenizes", "tokenizes_like_llama_cpp", "counts_long_words_twice"])
@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
def test_prompts_have_the_asked_length_to_the_token_and_none_comes_twice(
    server: TruthServer, case: str, endpoint: Endpoint
) -> None:
    server.requests.clear()
    prompts = PromptMaker(0)
    target = Target(server.url(case), "m", endpoint)
    warm = warm_up(target, prompts, LoadOptions())
    overhead_tokens = 25 if endpoint is Endpoint.CHAT else 5
    assert prompts.fit == TokenFit(1.0, overhead_tokens)
    assert isinstance(prompts.source, WordSource)
    assert 200 < len(prompts.source.words) < len(WordSource().words)
    assert not [word for word in prompts.source.starters if len(word) > 6]
    lengths = [30, 33, 64, 128, 500]
    workload = closed_loop("lengths", [RequestShape(length, 1) for length in lengths], 2, 20)
    run_load(warm.target, workload, LoadOptions(prompts=prompts))
    said = prompts_of(server, case)
    assert len(said) == len(set(said))
    assert sorted(count_tokens(text) + overhead_tokens for text in said[-20:]) == sorted(lengths * 4)


def test_the_records_show_that_prompts_are_as_long_as_asked(server: TruthServer) -> None:
    prompts = PromptMaker(1)
    warm = warm_up(Target(server.url("tokenizes")), prompts, LoadOptions())
    workload = closed_loop("lengths", [RequestShape(40, 1), RequestShape(60, 1)], 2, 10)
    result = run_load(warm.target, workload, LoadOptions(prompts=prompts))
    check = check_prompt_lengths(result.records, workload.requests.prompt_tokens)
    assert (check.num_counted, check.num_equal, check.largest_deviation_tokens) == (10, 10, 0)


def test_a_server_whose_words_are_all_tokens_is_asked_twice(server: TruthServer) -> None:
    server.requests.clear()
    warm_up(Target(server.url("steady")), PromptMaker(0), LoadOptions())
    assert [len(request.prompt.split()) for request in server.of("steady")] == [24, 96]


def test_what_messages_add_is_learned_and_conversations_are_as_long_as_asked(server: TruthServer) -> None:
    prompts = PromptMaker(0)
    target = Target(server.url("tokenizes"), endpoint=Endpoint.CHAT)
    warm = warm_up(target, prompts, LoadOptions(), with_messages=True)
    # the server has a system message of 20 tokens in its template, which one of ours takes the place of
    assert prompts.fit == TokenFit(1.0, 25.0, 3.0, 3.0 - 20.0)
    workload = generate_conversations(
        Constant(50.0), Fixed(20), Fixed(4), 9, num_turns=3, think_s=0.01, prefix=SharedPrefix(30)
    )
    result = run_load(warm.target, workload, LoadOptions(prompts=prompts))
    check = check_prompt_lengths(result.records, workload.requests.prompt_tokens)
    assert (check.num_counted, check.num_equal) == (9, 9)
    plain = generate_conversations(Constant(50.0), Fixed(60), Fixed(4), 4, num_turns=2, think_s=0.01)
    result = run_load(warm.target, plain, LoadOptions(prompts=prompts))
    assert check_prompt_lengths(result.records, plain.requests.prompt_tokens).num_equal == 4


def test_a_template_is_part_of_what_every_prompt_has(server: TruthServer) -> None:
    prompts = PromptMaker(0, template=PromptTemplate("Say it again\n{prompt}"))
    warm_up(Target(server.url("tokenizes")), prompts, LoadOptions())
    assert prompts.fit == TokenFit(1.0, 9.0)  # three words, a line end, five of the server's own


def test_a_corpus_is_fitted_by_its_own_words_and_keeps_them(server: TruthServer) -> None:
    prompts = PromptMaker(0, source=read_corpus())
    warm_up(Target(server.url("tokenizes")), prompts, LoadOptions())
    assert prompts.source == read_corpus()
    tokens = [count_tokens(prompts.make(1000).text) + 5 for _ in range(20)]
    assert abs(sum(tokens) / len(tokens) - 1000) < 60


def test_a_file_of_prompts_is_not_used_up_and_not_said_before_it_is_measured(
    server: TruthServer, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"question {n}"}) for n in range(3)), encoding="utf-8")
    server.requests.clear()
    prompts = PromptMaker(0, source=read_prompt_file(path))
    warm_up(Target(server.url("steady")), prompts, LoadOptions())
    assert not [text for text in prompts_of(server, "steady") if "question" in text]
    assert prompts.make(1).text == "question 0"


def test_counts_in_each_chunk_are_asked_for_and_given_up_where_they_are_refused(server: TruthServer) -> None:
    server.requests.clear()
    target = Target(server.url("steady"), counts_each_chunk=True, extra_body={"ignore_eos": True})
    assert warm_up(target, PromptMaker(0), LoadOptions()).target.counts_each_chunk
    assert server.of("steady")[0].body["stream_options"]["continuous_usage_stats"] is True
    strict = Target(server.url("refuses_chunk_counts"), counts_each_chunk=True, extra_body={"ignore_eos": True})
    warm = warm_up(strict, PromptMaker(0), LoadOptions())
    assert not warm.target.counts_each_chunk
    assert (warm.target.asks_usage, dict(warm.target.extra_body)) == (True, {"ignore_eos": True})
    assert [record.status for record in warm.records if record.http_status == 200] == [RequestStatus.COMPLETED] * 2
    assert {record.stage for record in warm.records} == {Stage.WARMUP}


@pytest.mark.parametrize("case", ["not_found", "html", "broken", "reset_at_once", "silent"])
def test_a_server_without_a_tokenizer_says_so_by_any_answer(
    server: TruthServer, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_bench.measure.server_tokenizer.TOKENIZE_PATH", "/v1/tokens")
    monkeypatch.setattr("inference_bench.measure.server_tokenizer.ASK_S", 0.3)
    assert ServerTokenizer.find(Target(server.url(case))) is None
