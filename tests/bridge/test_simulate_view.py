"""The scheduler on the page: what it answers is what `simulate` prints, and no field's text can hang or break it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bridge.asking import (
    HOSTILE,
    answered,
    as_in_a_browser,
    ask,
    on_the_command_line,
    refused,
    require_harmless,
    require_survives,
    steps,
)
from inference_bench import bridge
from inference_bench.bridge.simulate_fields import LISTS, REFERENCE_OUTPUTS, REFERENCE_PROMPTS
from inference_bench.cli.workload_options import REFERENCE_DEFAULTS
from inference_bench.simulate.candidates import candidates_named
from inference_bench.workload import parse_arrivals, parse_lengths
from simulate.reference_case import FIELDS, published

SMALL = {
    "requests": "12",
    "prompt_lengths": "uniform:100:900",
    "output_lengths": "uniform:5:60",
    "rates": "5",
    "policies": "chunked",
}
OWN = {
    "on": "own",
    "memory": "80GB",
    "bandwidth": "3TB/s",
    "peak": "900 TFLOP/s",
    "interconnect": "900GB/s",
    "devices": "2",
}
CONFIG = json.dumps(
    {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True, "max_position_embeddings": 512,
    }
)  # fmt: skip


def test_the_first_answer_tells_the_policies_apart() -> None:
    found = answered("simulate")
    rows = found["answer"]["rows"]
    assert [row["policy"] for row in rows[::4]] == ["chunked", "paged", "reserve", "static"]
    rates = [row["nominal_rate"] for row in rows[:4]]
    assert rates == sorted(rates)
    assert len(rates) == 4
    good = {(row["policy"], row["nominal_rate"]): row["goodput_requests_per_s"] for row in rows}
    # chunked serves well what static does not, and not even chunked does at the highest rate
    assert good["chunked", rates[0]] > 10 * good["static", rates[0]] > 0
    assert good["chunked", rates[3]] < good["chunked", rates[2]]
    # at the highest rate, above what reading 256 positions a step can take in, first tokens come later and later under chunked;
    # under paged they come at once
    behind = {(row["policy"], row["nominal_rate"]) for row in rows if row["queue_grew"]}
    assert behind == {("chunked", rates[3]), *(("static", rate) for rate in rates)}
    waits = {
        row["queue_grew"]: [each["ttft_p50_s"] for each in rows if each["queue_grew"] is row["queue_grew"]]
        for row in rows
    }
    assert max(waits[False]) < 0.25 < 3 < min(waits[True])
    assert found["answer"]["books_balance"] is True
    assert "chunked at" in found["status"]


def test_a_run_follows_the_other_with_what_is_being_run() -> None:
    *going, last = steps("simulate", **{**SMALL, "rates": "2,5", "policies": "chunked,static"})
    assert [step["said"] for step in going] == [
        "run 1 of 4: chunked at 2 requests/s",
        "run 2 of 4: chunked at 5 requests/s",
        "run 3 of 4: static at 2 requests/s",
        "run 4 of 4: static at 5 requests/s",
    ]
    assert [step["progress"] for step in going] == [0, 0.25, 0.5, 0.75]
    assert set(last) == {"schema", "view", "answer", "status", "html", "charts", "tables", "command", "files"}


@pytest.mark.parametrize("name", ["chunked@0.25", "static@0.1", "reserve@0.25", "paged@0.25"])
def test_the_reference_profile_gives_the_published_rows(name: str) -> None:
    policy, rate = name.split("@")
    (row,) = answered("simulate", times="24GB-bf16", policies=policy, rates=rate)["answer"]["rows"]
    expected = published("scheduling")["rows"][name]
    for column, field in FIELDS.items():
        assert row[field] == pytest.approx(expected[column], rel=1e-6, abs=0), column


@pytest.mark.parametrize(
    "fields",
    [
        {"requests": "60", "usd_per_hour": "2.5"},
        {"times": "24GB-bf16", "rates": "0.1:0.3:0.1", "policies": " Chunked, vllm ,", "requests": "40", "seed": "7"},
        {"times": "H100-bf16", "rates": "1", "kv_memory": "20GB", "arrivals": "gamma:2", "policies": "all", "requests": "30"},
        {**SMALL, "engine": "vllm", "policies": "", "on": "H100"},
        {**SMALL, "engine": "sglang", "policies": "chunked,sglang", "overhead": "1GB"},
        {**SMALL, "engine": "tensorrt-llm", "mfu": "40%", "bandwidth_share": "0.7", "policies": ""},
        {**SMALL, **OWN, "arrivals": "constant", "max_ttft": "500ms", "max_gap": "20ms"},
        {**SMALL, "config": CONFIG, "weights": "q8_0", "kv": "q8_0", "arrivals": "on-off:2s:1s", "rates": "0.5,20"},
        {**SMALL, "policies": "chunked,static", "max_running": "4", "token_budget": "64", "max_batch": "3"},
        {**SMALL, "model": "gpt-oss-20b", "output_lengths": "mix:10%:200:20", "prompt_lengths": "values:10,20,3000"},
    ],
    ids=["default", "reference", "h100", "vllm", "sglang", "shares", "own", "config", "limits", "windows"],
)  # fmt: skip
def test_the_command_line_prints_the_same(
    fields: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered("simulate", **fields)
    assert on_the_command_line(found, tmp_path, monkeypatch, capsys) == found["answer"]
    assert found["answer"]["rows"]


def test_what_the_usual_values_are_is_not_repeated_on_the_command_line() -> None:
    command = answered("simulate", **{**SMALL, "times": "24GB-bf16", "on": "", "model": "", "overhead": "x"})["command"]
    assert command == (
        "inference-bench simulate --rate 5 --requests 12 --prompt-tokens uniform:100:900 --output-tokens uniform:5:60 "
        "--policy chunked --profile 24GB-bf16"
    )
    usual = bridge.view("simulate").defaults["requests"], REFERENCE_PROMPTS, REFERENCE_OUTPUTS
    assert usual == tuple(REFERENCE_DEFAULTS.values())


def test_charts_and_tables_belong_to_the_places_in_the_page() -> None:
    found = answered("simulate", **{**SMALL, "rates": "2,5", "policies": "chunked,paged"})
    assert list(found["charts"]) == ["rates-wide", "time-wide", "shares-wide"]
    both = steps("simulate", width=None, **SMALL)[-1]
    assert list(both["charts"]) == ["time-wide", "time-narrow", "shares-wide", "shares-narrow"]
    for place in (*both["charts"],):
        assert f'data-chart="{place}"' in both["html"]
    assert found["tables"]["runs"][0][:2] == ["policy", "rate"]
    assert [row[:2] for row in found["tables"]["runs"][1:]] == [
        ["chunked", "2"],
        ["chunked", "5"],
        ["paged", "2"],
        ["paged", "5"],
    ]
    require_harmless(found["html"])


def test_the_run_over_time_is_the_one_that_is_asked_for() -> None:
    fields = {**SMALL, "rates": "2,5", "policies": "chunked,paged"}
    assert "chunked at 5 requests/s: the server over time" in answered("simulate", **fields)["html"]
    named = answered("simulate", **fields, shown_policy="Paged", shown_rate="2.0")
    assert "paged at 2 requests/s: the server over time" in named["html"]
    assert refused("simulate", **fields, shown_policy="static") == (
        "shown_policy",
        "'static' is none of the policies that are simulated; name one of: chunked, paged",
    )
    assert refused("simulate", **fields, shown_rate="3") == (
        "shown_rate",
        "'3' is none of the rates that are simulated; name one of: 2, 5",
    )


def test_a_policy_that_cannot_run_is_said_beside_those_that_can() -> None:
    found = answered("simulate", **{**SMALL, "policies": "reserve,static", "kv_memory": "136MB"})
    assert [row["error"] is None for row in found["answer"]["rows"]] == [False, True]
    assert "reserve at 5: " in found["html"]
    assert "can never" in found["html"]


def test_where_nothing_can_run_the_field_is_named() -> None:
    for rates in ("", "5"):
        field, message = refused("simulate", **{**SMALL, "rates": rates, "kv_memory": "1MB"})
        assert (field, "can never fit" in message) == ("kv_memory", True)
        field, message = refused("simulate", **{**SMALL, "rates": rates, "prompt_lengths": "2M"})
        assert (field, "can never fit" in message) == ("prompt_lengths", True)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"requests": "3001"}, "requests", "the page simulates 1 to 3,000"),
        ({"requests": "0"}, "requests", "1 to 3,000"),
        ({"rates": "0.1:2:0.1"}, "rates", "20 rates were named; the page simulates up to 12"),
        ({"policies": "all", "rates": "1:12:1", "requests": "1000"}, "policies", "6 policies at 12 rates"),
        ({"output_lengths": "1M"}, "output_lengths", "one run would take about"),
        ({"token_budget": "1", "policies": "chunked"}, "prompt_lengths", "one run would take about"),
        ({"token_budget": "7", "policies": "chunked", "prompt_lengths": "1"}, "output_lengths", "one run would take"),
        ({"requests": "3000", "policies": "llama.cpp"}, "requests", "one run would take about"),
        ({"arrivals": "on-off:1us:1us"}, "arrivals", "bring hardly a request"),
        ({"arrivals": "now and then"}, "arrivals", "no arrival process"),
        ({"policies": "orca"}, "policies", "orca"),
        ({"policies": "static", "max_running": "4"}, "max_running", "concerns none of static"),
        ({"on": ""}, "on", "name a machine"),
        ({"on": "RTX 4090", "model": "Llama-3.1-70B"}, "on", "leaves no memory for its cache"),
        ({"overhead": "1TB"}, "overhead", "leaves no memory for its cache"),
        ({"devices": "3"}, "devices", "do not divide over 3"),
        ({"mfu": "0"}, "mfu", "share of compute"),
        ({"usd_per_hour": "-1"}, "usd_per_hour", "-1"),
        ({"max_ttft": "5000h"}, "max_ttft", "at most a day"),
        ({"times": "here"}, "times", "choose one of"),
        ({"config": "{"}, "config", "config.json"),
    ],
)
def test_what_cannot_be_answered_names_its_field(fields: dict[str, str], field: str, words: str) -> None:
    found, message = refused("simulate", **{"rates": "1", **fields})
    assert (found, words in message) == (field, True), (found, message)
    assert "\n" not in message


@pytest.mark.parametrize("name", [each.name for each in bridge.view("simulate").fields])
@pytest.mark.parametrize("times", ["model", "24GB-bf16"])
def test_no_text_in_a_field_breaks_or_hangs_it(name: str, times: str) -> None:
    for text in HOSTILE:
        require_survives("simulate", name, text, **{**SMALL, **OWN, "devices": "1", "times": times})


def test_what_the_page_ships_answers_the_same_with_the_standard_library_alone(tmp_path: Path) -> None:
    fields = {**SMALL, "rates": "", "policies": "chunked,static,sglang", "engine": "vllm", "usd_per_hour": "2"}
    assert as_in_a_browser(tmp_path, "simulate", **fields) == answered("simulate", **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"policies": "chunked", "rates": "2"},
        {"times": "24GB-bf16", "policies": "static", "rates": "0.1"},  # the slowest of the reference rows
    ],
)
def test_three_hundred_requests_of_a_policy_take_less_than_two_seconds_in_a_browser(fields: dict[str, str]) -> None:
    def cpu_s() -> float:
        start_s = time.process_time()
        answered("simulate", **fields)
        return time.process_time() - start_s

    # Python in a browser takes three to five times as long
    assert min(cpu_s() for _ in range(3)) < 2 / 4


def test_every_suggested_value_can_be_used() -> None:
    assert candidates_named(LISTS["schedulers"])
    assert [parse_arrivals(text, 1.0).mean_rate for text in LISTS["arrivals"]] == pytest.approx([1.0] * 5)
    assert all(parse_lengths(text).mean > 0 for text in LISTS["lengths"])


def test_only_what_a_model_on_a_machine_needs_is_hidden_beside_a_reference_profile() -> None:
    hidden = {each.name for each in bridge.view("simulate").fields if each.when == "times=model"}
    assert hidden == {
        "engine",
        "model",
        "config",
        "weights",
        "kv",
        "on",
        "devices",
        "overhead",
        "mfu",
        "bandwidth_share",
    }
    found = ask("simulate", **{**SMALL, "times": "24GB-bf16", **dict.fromkeys(hidden - {"engine"}, "nonsense")})
    assert "error" not in found
    assert found["files"] == {}
