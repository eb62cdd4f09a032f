"""The plan on the page: what it answers is what `plan` prints, for one machine and for several."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bridge.asking import (
    HOSTILE,
    answered,
    as_in_a_browser,
    on_the_command_line,
    refused,
    require_harmless,
    require_survives,
    steps,
)
from inference_bench import bridge

EMPTY = dict.fromkeys(
    ("prefix", "requests_per_day", "ttft", "tpot", "usd_per_hour", "utilisation", "hosted_input", "hosted_output"), ""
)
OWN = {"on": "own", "memory": "24GB", "bandwidth": "1TB/s", "peak": "165 TFLOP/s", "interconnect": "32GB/s"}
COMPARED = {"others": "H100 SXM5 80GB, RTX 4090"}


def test_the_first_answer_counts_replicas_and_prices_them() -> None:
    found = answered("plan")
    plan = found["answer"]
    assert plan["schema"] == "inference-bench/plan/1"
    assert plan["verdict"]["answer"] is True
    # 1 000 000 requests a day, at the peak three times the mean; a replica is to be 80 % busy then
    peak = 1_000_000 / 86_400 * 3
    replicas = plan["replicas"]
    assert replicas["peak_requests_per_s"] == pytest.approx(peak)
    assert replicas["replicas"] == -(-peak // (0.8 * replicas["replica_requests_per_s"])) > 1
    always_on = plan["cost"]["always_on"]
    assert always_on["usd_per_day"] == pytest.approx(24 * 5 * replicas["replicas"])
    # a hosted request: 4000 tokens at 0.10 and 500 at 0.40 a million; a replica costs 120 USD a day
    assert plan["cost"]["hosted"]["break_even_requests_per_day"] == pytest.approx(
        120 / (4000 * 0.10e-6 + 500 * 0.40e-6)
    )
    for shown in ("replicas", "480", "200,000", "a million output tokens", "prefix cached"):
        assert shown in found["html"]
    assert found["status"].startswith("B200: ")
    assert list(found["charts"]) == ["cost-wide"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        EMPTY,
        COMPARED,
        {**COMPARED, "usd_per_hour": "5,2.5,0.4", "requests_per_day": ""},
        {**COMPARED, "compute": "bf16"},
        {"engine": "vllm", "e2e": "30s", "judged_by": "full_load", "think_time": "45s", "max_batch": "64"},
        {"engine": "llama.cpp", "mfu": "40%", "overhead": "1GiB", "on": "RTX 4090"},
        {"engine": "sglang", "speed": "shares", "target_utilisation": "60%", "hosted_cached": "0.05"},
        {"ttft": "1us"},
        {"model": "DeepSeek-V3", "on": "H200", "devices": "8", "weights": "fp8"},
        {**OWN, "weights": "q4_k_m", "kv": "q8_0", "devices": "2"},
        {**OWN, "others": "B200"},
    ],
    ids=["default", "bare", "compared", "prices", "bf16", "vllm", "llama.cpp", "sglang", "no", "fp8", "own", "own-and-b200"],
)  # fmt: skip
def test_the_command_line_prints_the_same(
    fields: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered("plan", **fields)
    assert on_the_command_line(found, tmp_path, monkeypatch, capsys) == found["answer"]


def test_what_is_promised_is_kept_at_full_load_unless_the_step_alone_is_asked_for() -> None:
    found = answered("plan")
    (tpot,) = [item for item in found["answer"]["objectives"] if item["name"] == "TPOT"]
    assert tpot["full_load_s"] <= tpot["objective_s"] == 0.04
    assert found["answer"]["load"]["limited_by"] == "TPOT"
    assert "--judged-by full_load" in found["command"]
    alone = answered("plan", judged_by="step")
    (tpot,) = [item for item in alone["answer"]["objectives"] if item["name"] == "TPOT"]
    assert tpot["planned_s"] <= tpot["objective_s"] < tpot["full_load_s"]
    assert "--judged-by" not in alone["command"]
    assert "--judged-by" not in answered("plan", tpot="")["command"], "nothing is judged by it"
    assert "--judged-by full_load" in answered("plan", tpot="", e2e="60s")["command"]


def test_several_machines_are_compared() -> None:
    found = answered("plan", **COMPARED)
    assert [each["machine"]["name"] for each in found["answer"]["plans"]] == ["B200", "H100 SXM5 80GB", "RTX 4090"]
    header, *rows = found["tables"]["machines"]
    assert len(header) == 4
    assert len(rows) > 5
    assert found["status"].count(" sequences at once") == 3
    assert "it works on" in found["html"]


def test_a_no_says_what_would_help() -> None:
    found = answered("plan", model="Llama-3.1-70B", on="RTX 4090")
    assert found["answer"]["verdict"]["answer"] is False
    assert "RTX 4090: no, " in found["status"]
    assert found["answer"]["verdict"]["fixes"]
    assert found["answer"]["verdict"]["fixes"][0].split(",")[0] in found["html"]
    assert found["charts"] == {}


def test_fields_that_say_nothing_without_another_are_left_out() -> None:
    found = answered("plan", usd_per_hour="", requests_per_day="", hosted_input="")
    for option in ("--utilisation", "--peak-factor", "--hosted-output"):
        assert option not in found["command"]
    assert found["answer"]["cost"] == {
        "rented": None,
        "always_on": None,
        "hosted": None,
        "owned": None,
        "origin": "predicted",
    }
    assert "data-chart" not in found["html"]


def test_what_costs_nothing_is_not_drawn_on_a_log_scale() -> None:
    for free in ({"usd_per_hour": "0"}, {"hosted_input": "0", "hosted_output": "0"}):
        found = answered("plan", **free)
        assert ("data-chart" in found["html"]) is bool(found["charts"])
        assert found["answer"]["cost"]["rented"] is not None


def test_a_peak_that_only_one_of_the_machines_has_is_not_asked_for() -> None:
    assert "--compute fp8" in answered("plan")["command"]
    found = answered("plan", others="A100 SXM4 80GB")
    assert "--compute" not in found["command"]
    assert "fp8" not in found["answer"]["plans"][0]["assumptions"][-1]


def test_charts_and_tables_belong_to_the_places_in_the_page() -> None:
    both = steps("plan", width=None)[-1]
    assert list(both["charts"]) == ["cost-wide", "cost-narrow"]
    for place in both["charts"]:
        assert f'data-chart="{place}"' in both["html"]
    assert list(both["tables"]) == ["memory", "latency", "load", "replicas", "cost"]
    require_harmless(both["html"])


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"prompt": ""}, "prompt", "is empty"),
        ({"prompt": "many"}, "prompt", "prompt tokens 'many' is not a number"),
        ({"prefix": "9000"}, "prefix", "must be shorter than the prompt"),
        ({"e2e": "1ms"}, "e2e", "is below ttft"),
        ({"hosted_output": ""}, "hosted_output", "is empty"),
        ({"hosted_cached": "0.2"}, "hosted_cached", "is above hosted_input"),
        ({"usd_per_hour": "5,2"}, "usd_per_hour", "holds 2 prices for 1 machines"),
        ({"utilisation": "130%"}, "utilisation", "130%"),
        ({"speed": "expected"}, "speed", "is that of an engine"),
        ({"engine": "mine"}, "engine", "choose one of"),
        ({"others": "H100, nonsense"}, "others", "nonsense"),
        ({"others": "a,b,c,d,e"}, "others", "at most 4"),
        ({"on": ""}, "on", "name a machine"),
        ({"devices": "3"}, "devices", "do not divide over 3"),
        ({"weights": "fp3"}, "weights", "fp3"),
        ({"kv": "fp3"}, "kv", "fp3"),
        ({"compute": "fp3"}, "compute", "fp3"),
    ],
)
def test_what_cannot_be_answered_names_its_field(fields: dict[str, str], field: str, words: str) -> None:
    found, message = refused("plan", **fields)
    assert (found, words in message) == (field, True), (found, message)


@pytest.mark.parametrize("name", [each.name for each in bridge.view("plan").fields])
def test_no_text_in_a_field_breaks_or_hangs_it(name: str) -> None:
    for text in HOSTILE:
        require_survives("plan", name, text, **{**(OWN if name in OWN else {}), "prefix": ""})


@pytest.mark.parametrize("fields", [{}, {"engine": "vllm", **COMPARED}])
def test_what_the_page_ships_answers_the_same_with_the_standard_library_alone(
    fields: dict[str, str], tmp_path: Path
) -> None:
    assert as_in_a_browser(tmp_path, "plan", **fields) == answered("plan", **fields)


def test_it_follows_every_input() -> None:
    def cpu_s() -> float:
        start_s = time.process_time()
        answered("plan")
        return time.process_time() - start_s

    # Python in a browser takes three to five times as long
    assert min(cpu_s() for _ in range(5)) < 0.04
