"""`load` with durations, stages, sweeps and what is said, end to end against a server of known behaviour."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import inference_bench
from inference_bench.cli.load_page import without_header_values
from inference_bench.cli.main import build_parser, main
from inference_bench.measure.store import read_records
from inference_bench.records import RequestStatus, Stage
from measure.truth_server import TruthServer

NO_PAGE = ("--no-report",)  # drawing takes longer than these loads

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


class Run:
    def __init__(self, server: TruthServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._server, self._folder, self._capsys = server, folder, capsys

    def text(self, *options: str, case: str = "steady", code: int = 0) -> str:
        url = self._server.url(case)
        page = () if "--report" in options else NO_PAGE
        assert main(["load", url, "--served-model", "m", "--runs", str(self._folder), *options, *page]) == code
        return self._capsys.readouterr().out

    def json(self, *options: str, case: str = "steady") -> dict[str, Any]:
        found = json.loads(self.text(*options, "--json", case=case))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def run(server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(server, tmp_path, capsys)


def stages(found: dict[str, Any], group: str = "measure") -> list[Stage]:
    return [record.stage for record in read_records(Path(found["run_dir"])).records if record.group == group]


def test_a_closed_loop_lasts_as_long_as_it_is_told_and_its_window_is_the_measured_time(run: Run) -> None:
    found = run.json(
        "--concurrency", "3", "--ramp", "200ms", "--warmup", "300ms", "--duration", "1s", "--cooldown", "2s",
        "--output-tokens", "10",
    )  # fmt: skip
    window = found["window"]
    assert window["end_s"] - window["begin_s"] == pytest.approx(1.0)
    assert window["output_tokens_per_s"] > 0
    assert window["mean_concurrency"] == pytest.approx(3, abs=0.5)
    assert set(stages(found)) >= {Stage.WARMUP, Stage.MEASURE}
    assert found["requests"]["sent"] == stages(found).count(Stage.MEASURE)
    assert found["requests"]["cancelled"] == 0
    assert found["arrival"]["concurrency"] == 3


@pytest.mark.parametrize("how", [("--concurrency", "2"), ("--rate", "20"), ("--concurrency", "1,2")])
def test_without_a_word_about_a_cool_down_nothing_that_was_measured_is_cancelled(
    run: Run, how: tuple[str, ...]
) -> None:
    found = run.json(*how, "--duration", "300ms", "--output-tokens", "20", case="slow")
    for part in found.get("points", [found]):
        assert part["requests"]["sent"] == part["requests"]["completed"] > 0
    stopped = (*how, "--duration", "300ms", "--output-tokens", "20", "--cooldown", "0s", "--json")
    cut = json.loads(run.text(*stopped, case="slow", code=3))
    assert all(part["requests"]["cancelled"] > 0 for part in cut.get("points", [cut]))


def test_a_schedule_with_a_duration_has_as_many_requests_as_it_takes(run: Run) -> None:
    found = run.json(
        "--rate", "40", "--arrivals", "constant", "--duration", "1s", "--warmup", "500ms", "--output-tokens", "2"
    )
    assert (stages(found).count(Stage.WARMUP), stages(found).count(Stage.MEASURE)) == (19, 40)
    assert found["requests"]["sent"] == 40
    assert found["arrivals_proof"]["num_requests"] == 40
    assert not any("in the schedule" in reason for reason in found["arrivals_proof"]["reasons"])


def test_a_ramp_needs_no_rate_and_lasts_as_long_as_it_says(run: Run) -> None:
    found = run.json("--arrivals", "ramp:10:70:1s:even", "--output-tokens", "2")
    assert found["requests"]["sent"] == 39  # 40 are due at 1 s, which is its end
    assert found["arrival"]["process"] == "even ramp from 10 to 70 requests/s in 1 s"
    assert found["arrival"]["nominal_rate"] == 40.0


def test_the_first_requests_can_be_warm_up(run: Run) -> None:
    found = run.json("--concurrency", "2", "--requests", "6", "--warmup", "4", "--output-tokens", "2")
    assert (stages(found).count(Stage.WARMUP), stages(found).count(Stage.MEASURE)) == (4, 6)


def test_several_concurrencies_are_a_sweep_with_a_result_for_each(run: Run) -> None:
    found = run.json("--concurrency", "1,2", "--requests", "6", "--output-tokens", "2")
    assert found["schema"] == "inference-bench/load-sweep/1"
    assert found["sweep"] == {"by": "concurrency", "levels": [1.0, 2.0]}
    assert [point["group"] for point in found["points"]] == ["concurrency-1", "concurrency-2"]
    assert [point["requests"]["completed"] for point in found["points"]] == [6, 12]  # six a slot, or no steady window
    assert any("or 6 for each in flight" in note for note in found["notes"])
    assert all(point["window"]["output_tokens_per_s"] > 0 for point in found["points"])
    assert all("invalid_because" in point["client"] for point in found["points"])
    assert json.loads((Path(found["run_dir"]) / "result.json").read_text()) == found


def test_several_rates_are_a_sweep_and_a_finished_one_can_be_asked_again(run: Run) -> None:
    options = ("--rate", "20,40", "--requests", "5", "--output-tokens", "2")
    found = run.json(*options)
    assert [point["arrival"]["nominal_rate"] for point in found["points"]] == [20.0, 40.0]
    again = run.json(*options, "--resume", found["run_dir"])
    assert [point["requests"] for point in again["points"]] == [point["requests"] for point in found["points"]]
    text = run.text(*options, "--resume", found["run_dir"])
    assert "a sweep over rate" in text


def test_prompts_from_a_file_have_the_lengths_of_their_answers(run: Run, server: TruthServer, tmp_path: Path) -> None:
    before = len(server.of("steady"))
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "alpha beta gamma", "output_tokens": 3}\n{"prompt": "delta epsilon", "output_tokens": 5}\n'
    )
    found = run.json("--prompt-source", str(file))
    assert found["requests"]["completed"] == 2
    sent = [(request.prompt, request.num_tokens) for request in server.of("steady")[before:]][-2:]
    assert sorted(sent) == [("alpha beta gamma", 3), ("delta epsilon", 5)]
    assert found["lengths"]["output"] == {"min": 3, "mean": 4.0, "max": 5}


def test_a_corpus_a_template_a_header_and_body_fields_reach_the_server(
    run: Run, server: TruthServer, tmp_path: Path
) -> None:
    before = len(server.of("steady"))
    corpus, template = tmp_path / "corpus.txt", tmp_path / "template.txt"
    corpus.write_text(" ".join(f"w{number:x}" for number in range(4000)))
    template.write_text("[{prompt}]")
    run.text(
        "--corpus", str(corpus), "--template", str(template), "--header", "X-Project: test", "--extra-body",
        '{"top_k": 3}', "--requests", "3", "--output-tokens", "2",
    )  # fmt: skip
    last = server.of("steady")[before:][-1]
    assert last.prompt.startswith("[w")
    assert last.prompt.endswith("]")
    assert last.body["top_k"] == 3
    assert {name.lower(): value for name, value in last.headers.items()}["x-project"] == "test"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--duration", "0s"), "the duration is 0 s"),
        (("--duration", "5s", "--requests", "9"), "a duration and a number of requests are both given"),
        (("--max-time", "5s"), "max time cannot be given here: that is about a capacity"),
        (("--concurrency", "1,2", "--trace", "x.csv"), "a sweep asks for levels of its own"),
        (("--resume", "somewhere"), "only a sweep can be resumed"),
        (("--rate", "5", "--ramp", "2s"), "--arrivals ramp"),
        (("--rate", "5", "--arrivals", "ramp:1:2:3s"), "give no rate beside them"),
        (("--sweep", "--arrivals", "ramp:1:2:3s"), "a sweep asks for rates of its own"),
        (("--concurrency", "2,2"), "comes twice"),
        (("--corpus", "x", "--prompt-source", "words"), "give one of them"),
        (("--prompt-source", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--extra-body", "[1]"), "must be a JSON object"),
        (("--header", "nothing"), "a header is written"),
        (("--rate", "50", "--requests", "20", "--warmup", "20"), "are warm-up"),
        (("--rate", "50", "--requests", "20", "--warmup", "20s"), "are warm-up"),
        (("--ttft-p99", "1s"), "none is looked for"),
        (("--find-capacity",), "no objective is given"),
        (("--find-capacity", "--ttft-p99", "1s", "--duration", "5s"), "asks for rates of its own"),
        (("--find-capacity", "--ttft-p99", "1s", "--rate", "1,2"), "both asked for"),
        (("--model", "llama-3.1-8b"), "name both"),
        (("--kv", "fp8"), "no model and machine are named"),
        (("--report", "page.txt"), "end it in .html"),
        (("--report", "no/such/folder/page.html"), "a folder that is not there; make it first"),
        (("--scrape", "metrics"), "must begin with /"),
        (("--scrape", "/metrics\r\nX-Evil: 1"), "printable ASCII without spaces"),
        (("--scrape", "/m\u00e9triques"), "printable ASCII without spaces"),
        (("--timeout", "0"), "the timeout is 0 s"),
        (("--processes", "1000"), "ask for at most 256"),
        (("--warmup", "99999999999999"), "warm-up requests is more than one load run takes"),
    ],
)
def test_options_that_contradict_each_other_end_with_2_before_anything_is_sent(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    before = len(server.requests)
    assert main(["load", server.url("steady"), "--served-model", "m", "--runs", str(tmp_path), *options]) == 2
    assert len(server.requests) == before
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_page_is_written_where_it_is_wanted_and_holds_no_header_value(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = run.text(
        "--concurrency", "1,2", "--requests", "4", "--output-tokens", "2", "--report", str(page), "--header",
        "X-Key: topsecret123", "--hea=X-Other: othersecret123",
    )  # fmt: skip
    assert f"report: {page}" in text
    said = page.read_text()
    assert "concurrency" in said
    assert "topsecret123" not in said
    assert "othersecret123" not in said


def test_without_a_word_about_it_the_page_lies_in_the_run_folder(server: TruthServer, tmp_path: Path) -> None:
    load = ["load", server.url("steady"), "--requests", "2", "--output-tokens", "3", "--runs", str(tmp_path)]
    assert main(load) == 0
    (page,) = tmp_path.glob("*/report.html")
    assert "<svg" in page.read_text()


def test_goodput_counts_by_the_limits_that_are_given(run: Run) -> None:
    asked = ("--requests", "6", "--output-tokens", "4")
    assert run.json(*asked, "--max-ttft", "20s", "--max-gap", "20s")["goodput_requests_per_s"] > 0
    found = run.json(*asked, "--max-ttft", "1us")
    assert found["goodput_requests_per_s"] == 0
    assert found["objective"] == {"max_ttft_s": 1e-6, "max_gap_s": 0.1}


def test_header_values_are_taken_out_of_the_command_as_it_was_typed() -> None:
    typed = ("load", "http://host", "--header", "X-Key: a b", "--header=Y: c", "--hea", "--header", "--rate", "3")
    assert without_header_values(typed) == (
        "load",
        "http://host",
        "--header",
        "X-Key: (hidden)",
        "--header=Y: (hidden)",
        "--hea",
        "--header: (hidden)",
        "--rate",
        "3",
    )


def test_several_processes_send_one_schedule(run: Run) -> None:
    found = run.json("--rate", "40", "--requests", "24", "--output-tokens", "2", "--processes", "2")
    assert found["requests"]["completed"] == 24
    assert sorted(each["num_requests"] for each in found["processes"]) == [12, 12]
    assert not any("in the schedule" in reason for reason in found["arrivals_proof"]["reasons"])
    records = read_records(Path(found["run_dir"])).records
    assert sorted(record.index for record in records if record.group == "measure" and record.index is not None) == list(
        range(24)
    )


def test_times_are_held_to_physics_where_model_and_machine_are_named(run: Run) -> None:
    found = run.json("--requests", "20", "--output-tokens", "5", "--model", "llama-3.1-70b", "--on", "h100-sxm")
    assert found["referee"]["verdict"] == "above ceiling"  # 2 ms a token, where 140 GB of weights take 42 ms to read
    assert found["referee"]["num_above"] >= 10  # a busy machine may hold some of the 20 up


def start(url: str, folder: Path, *options: str, leaves_sockets: bool = False) -> subprocess.Popen[str]:
    source = str(Path(inference_bench.__file__).parents[1])
    tolerated = ["-W", "ignore:unclosed:ResourceWarning"] if leaves_sockets else []
    command = [sys.executable, "-W", "error", *tolerated, "-m", "inference_bench", "load", url, "--served-model", "m"]
    return subprocess.Popen(
        [*command, "--runs", str(folder), *options, *NO_PAGE],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_requests(server: TruthServer, process: subprocess.Popen[str], case: str, tokens: int, count: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(request.num_tokens == tokens for request in server.of(case)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s, "nothing was sent"
        time.sleep(0.02)


def test_an_interruption_prints_what_was_measured_and_ends_with_130(server: TruthServer, tmp_path: Path) -> None:
    with start(server.url("slow"), tmp_path, "--requests", "1000", "--output-tokens", "7", "--json") as process:
        try:
            wait_for_requests(server, process, "slow", 7, 5)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    found = json.loads(out)
    assert process.returncode == 130
    assert error == "inference-bench: interrupted; this is what was measured by then\n"
    assert found["is_interrupted"] is True
    assert found["requests"]["completed"] >= 3
    assert found["requests"]["cancelled"] == 1
    records = read_records(Path(found["run_dir"])).records
    assert sum(record.status is RequestStatus.CANCELLED for record in records) == 1


def test_an_interrupted_duration_is_judged_by_the_time_that_ran(server: TruthServer, tmp_path: Path) -> None:
    with start(server.url("slow"), tmp_path, "--duration", "60s", "--output-tokens", "8", "--json") as process:
        try:
            wait_for_requests(server, process, "slow", 8, 4)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    window = json.loads(out)["window"]
    assert 0 < window["end_s"] - window["begin_s"] < 30
    assert window["mean_concurrency"] == pytest.approx(1.0, abs=0.1)


def test_two_interruptions_end_at_once_and_what_was_written_stays(server: TruthServer, tmp_path: Path) -> None:
    asked = ("--requests", "1000", "--output-tokens", "9")
    # whoever ends it twice wants it to end: its sockets are the system's to close
    with start(server.url("slow"), tmp_path, *asked, leaves_sockets=True) as process:
        try:
            wait_for_requests(server, process, "slow", 9, 4)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert error.count("\n") == 1
    assert "Traceback" not in error
    (folder,) = tmp_path.iterdir()
    stored = read_records(folder)
    assert sum(record.status is RequestStatus.COMPLETED for record in stored.records) >= 2


def test_a_sweep_that_is_interrupted_can_be_resumed(
    run: Run, server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--concurrency", "1,2", "--requests", "30", "--output-tokens", "11")
    with start(server.url("slow"), tmp_path, *options) as process:
        try:
            wait_for_requests(server, process, "slow", 11, 34)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "(cut short)" in out
    (folder,) = tmp_path.iterdir()
    found = run.json(*options, "--resume", str(folder), case="slow")
    assert [point["is_complete"] for point in found["points"]] == [True, True]
    assert [point["requests"]["completed"] for point in found["points"]] == [30, 30]
    assert len({request.prompt for request in server.of("slow") if request.num_tokens == 11}) == sum(
        request.num_tokens == 11 for request in server.of("slow")
    )


def test_every_option_of_load_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["load", "--help"])
    said = capsys.readouterr().out
    for option in (
        "--duration",
        "--warmup",
        "--cooldown",
        "--ramp",
        "--sweep",
        "--resume",
        "--prompt-source",
        "--header",
    ):
        assert option in said
