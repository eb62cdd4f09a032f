"""`simulate` end to end: the published rows through the command line, what it refuses, what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli.main import main
from inference_bench.measure.store import record_from_json
from inference_bench.report.text import display_columns
from inference_bench.simulate import study
from inference_bench.simulate.estimate import work_ahead
from inference_bench.simulate.settings import SchedulerSettings
from inference_bench.simulate.sweep import SweepInterrupted
from inference_bench.workload import RequestShape, closed_loop
from simulate.reference_case import FIELDS, published

ROW_KEYS = {
    *("policy", "nominal_rate", "realised_rate", "ttft_p50_s", "ttft_p99_s", "itl_p50_s", "itl_p99_s", "itl_max_s"),
    *("tpot_p50_s", "e2e_p50_s", "output_tokens_per_s", "goodput_requests_per_s", "preemptions"),
}
SMALL = ("--count", "20", "--prompt-tokens", "uniform:100:900", "--output-tokens", "uniform:5:60", "--rate", "1")
HOSTILE = "evil\x1b[31m\u202etrace\x07"


class Command:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *options: str, code: int = 0) -> str:
        assert main(["simulate", *options]) == code
        return self._capsys.readouterr().out

    def json(self, *options: str) -> dict[str, Any]:
        found = json.loads(self.text(*options, "--json"))
        assert isinstance(found, dict)
        return found

    def refused(self, *options: str, code: int = 2) -> str:
        assert main(["simulate", *options]) == code
        shown = self._capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1
        return shown.err


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_alone_it_shows_all_six_policies_on_the_reference_server(simulate: Command) -> None:
    shown = simulate.text()
    rows = [line.split()[0] for line in shown.split("\n\n")[1].splitlines()[2:8]]
    assert rows == ["static", "static-memory", "dynamic", "reserve", "paged", "chunked"]
    assert "simulated" in shown
    assert "Little's law holds in all 6 runs" in " ".join(shown.split())
    assert max(map(display_columns, shown.splitlines())) <= 100


@pytest.mark.parametrize("name", ["chunked@0.25", "static@0.1", "reserve@0.25", "paged@0.25"])
def test_a_published_row_comes_through_the_command_line(simulate: Command, name: str) -> None:
    policy, rate = name.split("@")
    found = simulate.json("--policy", policy, "--rate", rate)
    (row,) = found["rows"]
    expected = published("scheduling")["rows"][name]
    assert (row["policy"], row["nominal_rate"], row["preemptions"]) == (policy, float(rate), expected["preemptions"])
    for column, field in FIELDS.items():
        assert row[field] == pytest.approx(expected[column], rel=1e-6, abs=0), column
    assert row["checks"]["kept"] is True


def test_every_promised_key_is_there(simulate: Command) -> None:
    found = simulate.json(*SMALL, "--policy", "chunked,paged", "--seeds", "2")
    assert found["schema"] == "inference-bench/simulate/1"
    assert {"origin", "complete", "workload", "server", "objective", "rows", "spread", "assumptions", "notes"} <= set(
        found
    )
    assert all(set(row) >= ROW_KEYS for row in found["rows"])
    assert found["origin"] == "simulated"
    assert found["rows"][0]["arrivals"]["index_of_dispersion"] is not None
    assert found["rows"][0]["error"] is None


def test_a_sweep_has_a_row_for_each_policy_rate_and_seed(simulate: Command) -> None:
    options = (*SMALL[:-2], "--rate", "0.5:1.5:0.5", "--policy", "paged,chunked", "--seeds", "2", "--seed", "3")
    rows = simulate.json(*options)["rows"]
    asked = [(policy, rate, seed) for policy in ("paged", "chunked") for rate in (0.5, 1.0, 1.5) for seed in (3, 4)]
    assert [(row["policy"], row["nominal_rate"], row["seed"]) for row in rows] == asked
    spread = simulate.json(*options)["spread"]
    assert [each["seeds"] for each in spread] == [2] * 6
    pair = sorted(row["ttft_p99_s"] for row in rows[:2])
    assert spread[0]["ttft_p99_s"] == pair


def test_a_policy_that_cannot_run_is_a_row_with_its_reason(simulate: Command) -> None:
    # 20 blocks are 320 positions, and prompts have 400; `static` does not look at memory
    options = ("--policy", "static,paged", "--kv-blocks", "20", "--rate", "1", "--count", "4")
    options = (*options, "--prompt-tokens", "400", "--output-tokens", "5")
    found = simulate.json(*options)
    assert [row["error"] is None for row in found["rows"]] == [True, False]
    assert "can never fit" in found["rows"][1]["error"]
    assert found["rows"][1]["ttft_p50_s"] is None
    shown = simulate.text(*options)
    assert "did not run" in shown
    assert "paged at 1: request 0 can never fit" in shown


def test_where_nothing_can_run_it_is_an_error(simulate: Command) -> None:
    error = simulate.refused("--policy", "paged", "--kv-memory", "1kB", "--count", "4")
    assert "can never fit" in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "0"), "from 1e-09 to 1e+09 requests/s"),
        (("--rate", "0.1:0.4"), "0.1:0.4:0.05"),
        (("--policy", "chunkd"), "nearest: chunked"),
        (("--policy", "static", "--token-budget", "64"), "concerns none of static"),
        (("--policy", "chunked", "--order", "fifo"), "nearest: fcfs"),
        (("--model", "qwen3-8b", "--rate", "1"), "name that too"),
        (("--on", "h100"), "no model is named"),
        (("--model", "qwen3-8b", "--on", "h100", "--rate", "1", "--profile", "24GB-bf16"), "a model and a machine"),
        (("--kv-memory", "1GB", "--kv-blocks", "9"), "give one of them"),
        (("--profile", "25GB"), "give a rate"),
        (("--profile", "25GB", "--rate", "1"), "24GB-bf16, H100-bf16"),
        (("--trace", "/no/such/trace"), "no file"),
        (("--concurrency", "4", "--rate", "1"), "ask for one"),
        (("--calibrate",), "fitted to a log"),
        (("--against", "/no/such/log"), "no log"),
        (("--records", "x.jsonl"), "6 are asked for"),
        (("--records", "x.jsonl", "--policy", "paged", "--simulator", "plain"), "keeps no token times"),
        (("--replicas", "2", "--policy", "static"), "batches that nobody joins"),
        (("--fail", "soon"), "0@60s:30s"),
        (("--mtbf", "60s"), "give both"),
        (("--transfer-latency", "1ms"), "only where some servers decode"),
        (("--speculate", "4", "--policy", "chunked"), "4:0.7"),
        (("--usd-per-hour", "-1"), "above 0"),
        (("--seeds", "0"), "1 to 1000"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_in_one_line(
    simulate: Command, options: tuple[str, ...], said: str
) -> None:
    assert said in simulate.refused(*options)


def test_an_empty_trace_is_refused(simulate: Command, tmp_path: Path) -> None:
    trace = tmp_path / "empty.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n")
    assert "request" in simulate.refused("--trace", str(trace))


def test_records_are_those_of_a_load_run(simulate: Command, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    found = simulate.json(*SMALL, "--policy", "chunked", "--records", str(file))
    records = [record_from_json(line) for line in file.read_text().splitlines()]
    assert len(records) == 20
    assert {record.origin.value for record in records} == {"simulated"}
    assert found["rows"][0]["engine"] == "reference"
    first = sorted(record.chunk_times_s[0] - record.planned_s for record in records)
    assert (first[9] + first[10]) / 2 == pytest.approx(found["rows"][0]["ttft_p50_s"])


def test_a_model_on_a_machine_is_simulated_at_the_shares_that_a_plan_assumes(simulate: Command) -> None:
    found = simulate.json(*SMALL, "--model", "qwen3-8b", "--on", "h100", "--policy", "chunked")
    assert found["server"]["step_time"]["origin"] == "predicted"
    assert "80.0 % of bandwidth and 50.0 % of compute are reached" in found["assumptions"]
    bound = simulate.json(
        *SMALL, "--model", "qwen3-8b", "--on", "h100", "--policy", "chunked", "--mfu", "1", "--bandwidth-share", "1"
    )
    assert bound["server"]["step_time"]["origin"] == "bound"
    assert bound["rows"][0]["tpot_p50_s"] < found["rows"][0]["tpot_p50_s"]


def test_an_engine_brings_its_speed_and_its_scheduler(simulate: Command) -> None:
    found = simulate.json(*SMALL, "--model", "qwen3-8b", "--on", "h100", "--engine", "vllm")
    (row,) = found["rows"]
    assert row["policy"] == "vllm-large"
    assert found["server"]["schedulers"][0]["settings"]["max_running"] == 1024
    small = simulate.json(*SMALL, "--model", "qwen3-8b", "--on", "rtx-4090", "--engine", "vllm")
    assert small["rows"][0]["policy"] == "vllm"
    plain = simulate.json(*SMALL, "--model", "qwen3-8b", "--on", "h100", "--engine", "vllm", "--policy", "paged")
    assert plain["rows"][0]["policy"] == "paged"


def test_a_measured_table_takes_the_place_of_a_model(simulate: Command, tmp_path: Path) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(
        "phase,batch,tokens,seconds\ndecode,1,10,0.01\ndecode,64,10,0.01\nprefill,1,10,0.5\nprefill,1,5000,0.5\n"
    )
    options = (*SMALL, "--profile", str(table), "--policy", "paged")
    assert "number of blocks" in simulate.refused(*options)
    found = simulate.json(*options, "--kv-blocks", "1000")
    assert found["server"]["step_time"]["origin"] == "measured"
    assert found["rows"][0]["itl_p50_s"] == pytest.approx(0.01)
    assert found["rows"][0]["itl_max_s"] >= 0.5


def test_several_servers_take_more(simulate: Command) -> None:
    one = simulate.json("--policy", "chunked", "--count", "40", "--rate", "0.5")
    two = simulate.json(
        "--policy", "chunked", "--count", "40", "--rate", "0.5", "--replicas", "2", "--fail", "1@20s:10s"
    )
    assert two["rows"][0]["ttft_p99_s"] < one["rows"][0]["ttft_p99_s"] + 30
    fleet = two["rows"][0]["fleet"]
    assert len(fleet["replicas"]) == 2
    assert fleet["retried_fraction"] > 0
    assert fleet["replicas"][1]["down"] == [[20.0, 30.0]]
    assert one["rows"][0]["fleet"] is None


@pytest.mark.parametrize(
    "options",
    [("--policy", "paged"), ("--policy", "paged,chunked"), ("--policy", "paged,chunked", "--rate", "0.1,0.2")],
)
def test_one_run_several_policies_and_several_rates_are_each_drawn(
    simulate: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "chart.json"
    simulate.text(*options, "--count", "20", "--chart", str(file))
    assert json.loads(file.read_text())["description"]


def test_a_chart_of_no_known_kind_is_refused_before_anything_runs(
    simulate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "sweep", None)
    assert "no known kind" in simulate.refused("--chart", "x.png")


def test_what_was_done_before_an_interruption_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = study.sweep

    def interrupted(cases: Any, *args: Any, **more: Any) -> Any:
        raise SweepInterrupted(whole(cases[:1], *args, **more))

    monkeypatch.setattr(study, "sweep", interrupted)
    assert main(["simulate", *SMALL, "--policy", "paged,chunked", "--json"]) == 130
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert ([row["policy"] for row in found["rows"]], found["complete"]) == (["paged"], False)
    assert "1 of 2 runs" in shown.err


def test_what_a_file_is_called_cannot_move_the_cursor(simulate: Command, tmp_path: Path) -> None:
    trace = tmp_path / f"{HOSTILE}.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,5\n1,200,5\n")
    shown = simulate.text("--trace", str(trace), "--policy", "chunked")
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert not {"\x1b", "\x07", "\u202e"} & set(simulate.text("--trace", str(trace), "--policy", "chunked", "--json"))


@pytest.mark.parametrize(
    "options",
    [
        ("--policy", "all", "--rate", "0.2,0.4", "--count", "30"),
        ("--policy", "chunked", "--count", "30"),
        ("--policy", "vllm,sglang,llama.cpp", "--count", "30", "--seeds", "2"),
        ("--policy", "vllm", "--prefix-cache", "--shared-prefix", "1k", "--count", "30"),
        ("--policy", "vllm", "--prefix-cache", "--samples", "4", "--rate", "0.2", "--count", "30"),
        ("--policy", "chunked", "--count", "30", "--replicas", "2", "--disaggregate", "1"),
        ("--model", "gemma-3-27b", "--on", "h100", "--devices", "2", "--rate", "1", "--count", "30"),
        ("--concurrency", "4", "--policy", "static,chunked", "--count", "30"),
    ],
)
def test_the_text_fits_a_terminal_and_says_what_it_rests_on(simulate: Command, options: tuple[str, ...]) -> None:
    shown = simulate.text(*options)
    assert max(map(display_columns, shown.splitlines())) <= 100
    assert "simulated" in shown
    assert "assumptions" in shown


def test_asking_for_help_loads_no_simulator() -> None:
    code = (
        "import sys, contextlib\nfrom inference_bench.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(['simulate', '--help'])\n"
        "print([name for name in sys.modules if 'inference_bench.simulate' in name or 'predict' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_records_go_through_a_link_into_a_pipe_and_nowhere_without_a_name(simulate: Command, tmp_path: Path) -> None:
    options = ("--policy", "paged", "--count", "3", "--rate", "1", "--output-tokens", "4")
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(target)
    simulate.text(*options, "--records", str(link))
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 3
    assert "an empty text is given for records" in simulate.refused(*options, "--records", "")
    assert "is a folder" in simulate.refused(*options, "--records", str(tmp_path))
    assert "longer than a file's may be" in simulate.refused(*options, "--records", "n" * 5_000)


@pytest.mark.parametrize("option", ["--trace", "--profile", "--against", "--save-profile", "--chart"])
def test_a_file_without_a_name_is_refused(simulate: Command, option: str) -> None:
    simulate.refused(option, "")


def test_an_overlong_name_is_said_in_short(simulate: Command) -> None:
    for option in ("--trace", "--against", "--profile"):
        assert len(simulate.refused(option, "n" * 5_000)) < 400


def test_a_run_in_which_nobody_is_answered_is_a_row_with_its_reason(simulate: Command) -> None:
    options = ("--policy", "paged", "--count", "3", "--rate", "1", "--mtbf", "1ms", "--mttr", "1s")
    shown = simulate.text(*options, code=1)
    assert "no request was answered: all 3 failed" in shown
    (row,) = json.loads(simulate.text(*options, "--json", code=1))["rows"]
    assert row["error"] == "no request was answered: all 3 failed"
    assert row["fleet"]["failed_fraction"] == 1.0


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--requests", "5", "--rate", "1e-6", "--mtbf", "1s", "--mttr", "1s"), "would fail some"),
        (("--mtbf", "1e-9", "--mttr", "1e-9"), "would fail some"),
        (("--arrivals", "on-off:1e-9:1e9"), "periods in a row brought no request"),
        (("--rate", "1e300"), "from 1e-09 to 1e+09"),
    ],
)
def test_what_would_run_for_ever_is_refused(simulate: Command, options: tuple[str, ...], said: str) -> None:
    options = options if "--rate" in options else (*options, "--rate", "1")
    assert said in simulate.refused(*options)


def test_what_is_ahead_is_said_before_it_is_done() -> None:
    workload = closed_loop("ahead", [RequestShape(10, 8)], 2, 3)
    ahead = work_ahead(workload, SchedulerSettings(max_running=2))
    assert (ahead.output_tokens, ahead.fewest_steps, ahead.most_steps) == (24, 12, 27)
    assert ahead.fewest_steps <= ahead.expected_steps <= ahead.most_steps


def test_vllm_takes_the_limits_it_sets_on_the_card_whatever_option_names_it(simulate: Command) -> None:
    asked = ("--model", "qwen3-8b", "--on", "h100", "--rate", "1", "--count", "5")
    for named in (("--policy", "vllm"), ("--engine", "vllm")):
        answer = simulate.json(*asked, *named)
        assert [row["policy"] for row in answer["rows"]] == ["vllm-large"]
    small = simulate.json(
        "--model", "qwen3-0.6b", "--on", "rtx-4090", "--rate", "1", "--count", "5", "--policy", "vllm"
    )
    assert [row["policy"] for row in small["rows"]] == ["vllm"]


def test_requests_beyond_what_the_model_was_made_for_are_named(simulate: Command) -> None:
    asked = (
        "--model",
        "qwen3-8b",
        "--on",
        "h100",
        "--policy",
        "chunked",
        "--rate",
        "1",
        "--count",
        "3",
        "--output-tokens",
        "10",
    )
    assert "40,960 positions" not in simulate.text(*asked, "--prompt-tokens", "40000")
    assert "40,960 positions" in simulate.text(*asked, "--prompt-tokens", "41000")


def test_an_overloaded_run_says_so(simulate: Command) -> None:
    assert "Overloaded" in simulate.text("--policy", "chunked", "--rate", "1")
    assert "Overloaded" not in simulate.text("--policy", "chunked", "--rate", "0.1")
