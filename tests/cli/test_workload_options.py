"""What a person asks for on the command line becomes that workload, or one line that says why not."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import pytest

from inference_bench.cli import workload_options
from inference_bench.cli.workload_options import REFERENCE_DEFAULTS, add_workload_options, workload_from
from inference_bench.errors import InferenceBenchError, RequestError
from inference_bench.workload import (
    ARRIVALS_FORMS,
    LENGTHS_FORMS,
    REFERENCE_COUNT,
    REFERENCE_OUTPUT,
    REFERENCE_PROMPT,
    TRACE_FORMATS,
    ClosedLoop,
    OpenLoop,
    Workload,
    leading_block_hits,
    parse_lengths,
    reference_workload,
)

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.0,4808,10
2023-11-16 18:17:04.0,3180,8
2023-11-16 18:17:07.0,2,1
"""


def asked(text: str, *paths: Path) -> Workload:
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency")
    add_workload_options(parser)
    return workload_from(parser.parse_args([*shlex.split(text), *map(str, paths)]))


def schedule(workload: Workload) -> OpenLoop:
    assert isinstance(workload.arrival, OpenLoop)
    return workload.arrival


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    return path


def test_a_rate_alone_is_the_reference_workload() -> None:
    assert asked("--rate 0.25") == reference_workload(0.25)
    assert asked("--rate 0.25 --count 20 --seed 7") == reference_workload(0.25, 20, 7)
    assert asked("--rate 0.25 --requests 20 --seed 7") == reference_workload(0.25, 20, 7)


def test_arrivals_and_lengths_are_the_ones_that_were_named() -> None:
    workload = asked("--rate 2 --arrivals constant --count 4 --prompt-tokens 1k --output-tokens uniform:5:9")
    assert list(schedule(workload).times_s) == [0.5, 1.0, 1.5, 2.0]
    assert set(workload.requests.prompt_tokens) == {1024}
    assert all(5 <= length <= 9 for length in workload.requests.output_tokens)
    assert (workload.name, workload.max_output_tokens) == ("generated", 9)
    assert "gamma" in schedule(asked("--rate 2 --arrivals gamma:3")).process


def test_clients_state_the_longest_output_as_their_limit_unless_told_otherwise() -> None:
    assert asked("--rate 1 --output-tokens lognormal:100:1:1:300").max_output_tokens == 300
    assert asked("--rate 1 --output-tokens mix:10%:700:values:5,9").max_output_tokens == 700
    assert asked("--rate 1 --output-tokens 20 --max-output-tokens 1k").max_output_tokens == 1024
    with pytest.raises(RequestError, match="more than the 10"):
        asked("--rate 1 --output-tokens 20 --max-output-tokens 10")


def test_a_shared_prefix_stands_in_front_of_every_prompt() -> None:
    workload = asked("--rate 1 --count 50 --prompt-tokens 10 --shared-prefix 100:5:1.2")
    assert set(workload.requests.prompt_tokens) == {110}
    assert leading_block_hits(workload).hit_tokens == 45 * 100
    assert leading_block_hits(asked("--rate 1 --count 50 --shared-prefix 100")).num_hits == 49


def test_a_rate_of_conversations_is_the_rate_of_their_turns() -> None:
    workload = asked("--rate 4 --count 400 --turns 4:3s --prompt-tokens 10 --output-tokens 5 --shared-prefix 7")
    assert schedule(workload).nominal_rate == 4.0
    assert set(workload.requests.prompt_tokens) == {17, 32, 47, 62}
    assert "3 s apart" in schedule(workload).process
    assert "10 s apart" in schedule(asked("--rate 4 --turns 2")).process


def test_samples_count_in_the_rate_and_in_the_number_of_requests() -> None:
    workload = asked("--rate 4 --count 400 --samples 4 --prompt-tokens 10 --output-tokens uniform:5:500")
    assert (len(workload), workload.name, schedule(workload).nominal_rate) == (400, "samples", 4.0)
    assert len(set(schedule(workload).times_s)) == 100
    assert len(set(workload.requests.output_tokens)) > 100
    assert set(asked("--rate 4 --samples 2 --shared-prefix 7 --prompt-tokens 10").requests.prompt_tokens) == {17}
    assert asked("--rate 0.25 --samples 1") == reference_workload(0.25)
    assert asked("--rate 4 --turns 2 --samples 1") == asked("--rate 4 --turns 2")


def test_a_concurrency_is_a_closed_loop_over_the_same_requests() -> None:
    workload = asked("--concurrency 3 --count 5 --prompt-tokens uniform:5:9 --output-tokens 7")
    assert (workload.name, workload.arrival) == ("closed loop", ClosedLoop(3, 5))
    assert len(set(workload.requests.prompt_tokens)) > 1
    assert asked("--concurrency 3 --count 9 --shared-prefix 10").requests.prompts is not None


def test_a_trace_is_replayed_as_it_is_slower_at_a_rate_or_under_other_arrivals(trace: Path) -> None:
    assert list(schedule(asked("--trace", trace)).times_s) == [0.0, 1.0, 4.0]
    assert list(schedule(asked("--time-scale 2 --trace", trace)).times_s) == [0.0, 2.0, 8.0]
    at_rate = schedule(asked("--rate 3 --trace", trace))
    assert (list(at_rate.times_s), at_rate.nominal_rate) == ([0.0, 0.25, 1.0], 3.0)
    replaced = asked("--rate 2 --arrivals constant --trace", trace)
    assert list(schedule(replaced).times_s) == [0.5, 1.0, 1.5]
    assert list(replaced.requests.prompt_tokens) == [4808, 3180, 2]
    assert len(asked("--requests 2 --trace", trace)) == 2
    assert asked("--concurrency 2 --trace", trace).arrival == ClosedLoop(2, 3)


def test_a_trace_of_another_form_is_described(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"t": 2000, "i": 5, "o": 6}\n{"t": 1000, "i": 7, "o": 0}\n{"t": 500, "i": 8, "o": 9}\n')
    workload = asked("--trace-columns time_ms=t,prompt=i,output=o --trace-fix sort,drop-empty --trace", path)
    assert list(schedule(workload).times_s) == [0.0, 1.5]
    assert list(workload.requests.prompt_tokens) == [8, 5]


def test_text_without_times_or_counts_is_given_both(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    turns = [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c d e"}]
    path.write_text(json.dumps([{"conversations": turns}] * 30))
    workload = asked("--rate 5 --trace-format sharegpt --trace-fix words=1 --trace", path)
    assert (schedule(workload).process, schedule(workload).nominal_rate) == ("poisson", 5.0)
    assert set(workload.requests.prompt_tokens) == {2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "give a rate, or a trace"),
        ("--rate 0", "rate is 0.0 requests/s; it must be from 1e-09 to 1e+09"),
        ("--rate -1", "rate is -1.0 requests/s"),
        ("--rate nan", "rate is 'nan'; give a finite number"),
        ("--rate fast", "rate is 'fast'; give a number"),
        ("--rate 1 --concurrency 2", "ask for one of them"),
        ("--rate 1 --count 0", "number of requests is 0"),
        ("--rate 1 --count x", "'x' is not a number"),
        ("--rate 1 --arrivals posson", "no arrival process is called 'posson'"),
        ("--rate 1 --prompt-tokens many", "prompt tokens 'many' is not understood"),
        ("--rate 1 --output-tokens 0", "at least 1"),
        ("--rate 1 --turns 0", "number of turns is 0"),
        ("--rate 1 --turns 2:3:4", "write N or N:THINK"),
        ("--rate 1 --samples 0", "number of samples is 0"),
        ("--rate 1 --samples 2000", "number of samples is 2000"),
        ("--rate 1 --samples 2 --turns 2", "a turn follows one answer, so turns have no samples"),
        ("--concurrency 2 --samples 2", "samples of a prompt are sent together, and a closed loop sends when"),
        ("--trace none.csv --samples 2", "samples cannot be given here: a trace brings its own requests"),
        ("--rate 1 --shared-prefix 0", "shared prefix in tokens is 0"),
        ("--rate 1 --shared-prefix 1:2:3:4", "write T, T:GROUPS or T:GROUPS:ZIPF"),
        ("--rate 1 --shared-prefix 1:2:x", "Zipf exponent is 'x'"),
        ("--rate 1 --time-scale 2", "time scale cannot be given here: that is about a trace"),
        ("--rate 1 --trace-fix sort", "trace fix cannot be given here"),
        ("--concurrency 2 --turns 2", "turns cannot be given here: a closed loop sends when an answer is there"),
        ("--concurrency 2 --arrivals poisson", "arrivals cannot be given here"),
        ("--concurrency 0", "concurrency is 0"),
        ("--trace none.csv", "there is no file none.csv"),
        ("--trace none.csv --prompt-tokens 5", "prompt tokens cannot be given here: a trace brings its own requests"),
        ("--trace none.csv --trace-fix glue", "cannot be mended by 'glue'"),
        ("--trace none.csv --trace-fix words", "cannot be mended by 'words'"),
        ("--trace none.csv --trace-fix words=x", "tokens a word is 'x'"),
        ("--trace none.csv --trace-columns time", "the columns 'time' are not understood"),
        ("--trace none.csv --trace-format azur", "nearest: 'azure'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InferenceBenchError) as refused:
        asked(text)
    assert message in str(refused.value)
    assert refused.value.exit_code == 2
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--rate 1 --time-scale 2 --trace", "give one of them"),
        ("--arrivals poisson --trace", "arrivals need a rate"),
        ("--time-scale 0 --trace", "factor for the arrival times is 0"),
        ("--time-scale 2 --concurrency 2 --trace", "time scale cannot be given here"),
    ],
)
def test_what_contradicts_itself_about_a_trace_is_refused(trace: Path, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        asked(text, trace)


def test_the_defaults_are_those_of_the_reference_workload() -> None:
    assert parse_lengths(REFERENCE_DEFAULTS["prompt_tokens"]) == REFERENCE_PROMPT
    assert parse_lengths(REFERENCE_DEFAULTS["output_tokens"]) == REFERENCE_OUTPUT
    assert int(REFERENCE_DEFAULTS["requests"]) == REFERENCE_COUNT


def test_the_help_names_every_form_there_is() -> None:
    assert ", ".join(ARRIVALS_FORMS) == workload_options._ARRIVALS
    assert ", ".join(LENGTHS_FORMS) == workload_options._LENGTHS
    assert ", ".join(TRACE_FORMATS) == workload_options._TRACES


@pytest.mark.parametrize("rate", ["1e300", "1e-14", "0", "-1"])
def test_a_rate_beyond_the_limits_is_refused_with_them(rate: str, trace: Path) -> None:
    for text in (f"--rate {rate}", f"--rate {rate} --trace"):
        with pytest.raises(RequestError, match=r"from 1e-09 to 1e\+09 requests/s"):
            asked(text, *([trace] if "trace" in text else []))


def test_a_trace_without_a_name_is_refused() -> None:
    with pytest.raises(RequestError, match="the trace is named by an empty text"):
        asked("--trace ''")
