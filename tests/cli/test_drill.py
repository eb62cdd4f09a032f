"""`drill` as a person types it: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.main import main
from inference_bench.operate.drill import flow
from inference_bench.operate.drill.results import DrillResult, ScenarioResult, Tally
from inference_bench.report.drill_report import drill_text
from inference_bench.report.text import MAX_COLUMNS, display_columns
from operate.drill.fakes import TruthEngine

SCENARIO_KEYS = {
    "name",
    "sent",
    "completed",
    "lost",
    "duplicated",
    "detected_s",
    "recovered_s",
    "answered_by",
}  # SPEC 11


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    first, second = TruthEngine(), TruthEngine()
    yield first.base_url, second.base_url
    first.stop()
    second.stop()


def test_json_has_the_keys_of_the_specification_and_a_page_and_a_record_are_written(
    capsys: pytest.CaptureFixture[str], urls: tuple[str, str], tmp_path: Path
) -> None:
    page, record, chart = tmp_path / "drill.html", tmp_path / "answers.jsonl", tmp_path / "drill.json"
    more = [
        "--requests",
        "8",
        "--max-tokens",
        "8",
        "--report",
        str(page),
        "--record",
        str(record),
        "--chart",
        str(chart),
    ]
    found = run_json(capsys, "drill", urls[0], "--fallback", urls[1], "--scenario", "server-errors", *more)
    assert found["schema"] == "inference-bench/drill/1"
    (scenario,) = found["scenarios"]
    assert scenario.keys() >= SCENARIO_KEYS
    assert (scenario["lost"], scenario["duplicated"], scenario["wrong"], found["passed"]) == (0, 0, 0, True)
    assert sum(scenario["answered_by"].values()) == scenario["completed"] == scenario["sent"]
    assert len(scenario["requests"]) == scenario["sent"]
    assert "Do the failure paths work?" in page.read_text()
    assert "1 of 1 scenarios went as they must" in page.read_text()
    assert "What became of each request" in page.read_text() or "not drawn" in page.read_text()
    assert "server-errors" in json.loads(chart.read_text())["description"]
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(lines) == scenario["sent"]
    assert all(line.keys().isdisjoint({"text", "prompt", "messages"}) for line in lines)


def test_a_disk_that_fills_ends_the_record_and_the_table_is_printed(urls: tuple[str, str], tmp_path: Path) -> None:
    words = f"drill {urls[0]} --fallback {urls[1]} --scenario reset --requests 8 --max-tokens 8 --record {tmp_path / 'r.jsonl'}"
    command = (
        f"ulimit -f 1; exec {shlex.quote(sys.executable)} -m inference_bench {words}"  # files end at 512 or 1,024 bytes
    )
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 3
    assert "scenarios went as they must" in done.stdout
    assert "answers could not be recorded" in done.stderr


def test_a_drill_that_could_play_nothing_has_not_passed(
    capsys: pytest.CaptureFixture[str], urls: tuple[str, str]
) -> None:
    found = run_json(capsys, "drill", urls[0], "--scenario", "killed", "--scenario", "cold-fallback", code=1)
    assert [each["passed"] for each in found["scenarios"]] == [None, None]
    assert found["passed"] is False


def test_a_drill_that_found_something_ends_with_1_and_says_what(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = ScenarioResult("reset", "?", Tally(sent=9, completed=7, lost=1, duplicated=1), 0.1, None, 0.2, 1.0)
    monkeypatch.setattr("inference_bench.cli.drill.run_drill", lambda *_: DrillResult({}, None, (bad,)))
    assert main(["drill"]) == 1
    said = capsys.readouterr().out
    assert "0 of 1 scenarios" in said
    assert "reset: 1 without an account" in said
    assert "answered more than once" in said


def test_an_interrupted_drill_prints_what_it_has_and_ends_with_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = ScenarioResult("reset", "?", Tally(sent=9, completed=9), 0.1, None, 0.2, 1.0)
    found = DrillResult({}, None, (good,), is_interrupted=True)
    monkeypatch.setattr("inference_bench.cli.drill.run_drill", lambda *_: found)
    assert main(["drill", "--chart", "/tmp/nothing-is-drawn.svg"]) == 130
    shown = capsys.readouterr()
    assert "reset" in shown.out
    assert "nothing to draw" in shown.err
    assert "interrupted" in shown.err


def test_answers_that_could_not_be_recorded_end_with_3_after_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = ScenarioResult("reset", "?", Tally(sent=9, completed=9), 0.1, None, 0.2, 1.0)
    found = DrillResult({}, None, (good,), unrecorded=4, unrecorded_why="No space left on device")
    monkeypatch.setattr("inference_bench.cli.drill.run_drill", lambda *_: found)
    assert main(["drill"]) == 3
    shown = capsys.readouterr()
    assert "reset" in shown.out
    assert "4 answers could not be recorded: No space left on device" in shown.err


def test_text_fits_a_terminal_and_cannot_move_its_cursor() -> None:
    counts = {"fallback": 10, "primary": 1000}
    tally = Tally(*[1000] * 12, answered_by=counts, attempt_ends={f"end_{n}": 9 for n in range(9)}, reasons=counts)
    found = DrillResult(
        {"primary": "x\x1b[2J"}, None, (ScenarioResult("slow-first-token", "?", tally, problems=("a\x1bb",)),)
    )
    said = drill_text(found)
    assert "\x1b" not in said
    assert max(map(display_columns, said.splitlines())) <= MAX_COLUMNS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scenario", "earthquake"], "no scenario 'earthquake'"),
        (["http://192.0.2.1:8000"], "not on this machine"),
        (["--cache-isolation", "http://192.0.2.1:8000"], "not on this machine"),
        (["http://127.0.0.1:1", "--soak", "5s"], "random kills"),
        (["--requests", "1"], "too few"),
        (["--soak", "0s"], "above 0"),
        (["--soak", "5s", "--cache-isolation"], "soak cannot be given here: the probe"),
        (["--other-key-env", "X"], "second tenant"),
        (["--report", "page.txt"], "end it in .html"),
        (["--chart", "chart.png"], "end it in one of .svg"),
        (["--chart", "/not/there/chart.svg"], "folder that is not there"),
        (["--report", "/not/there/page.html"], "folder that is not there"),
        (["--report", "same.html", "--chart", "same.html"], "a file of its own"),
        (["--cache-isolation", "--chart", "chart.svg"], "chart cannot be given here: the probe"),
        (["--record", "/not/there/answers.jsonl"], "folder that is not there"),
        (["--cache-isolation", "http://127.0.0.1:1", "--pairs", "3"], "at least 6"),
        (["ftp://127.0.0.1"], "must look like"),
        (["http://name:secret@127.0.0.1"], "user name or password"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    line = refused(capsys, "drill", *arguments)
    assert said in line
    assert "secret" not in line


def test_a_dead_address_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "http://127.0.0.1:1"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert flow.PRIMARY == "primary"
