"""`--report`: one page beside the answer, whole or not at all, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from calibrate.made_logs import BLOCKS, META, made_rows, write_log
from inference_bench import render
from inference_bench.cli import report_page
from inference_bench.cli.main import main
from inference_bench.facts.hardware import hardware
from inference_bench.report.html_pieces import NO_CHARTS
from inference_bench.simulate import study
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.sweep import SweepInterrupted
from report.pages import Page, key_figures, require_a_page_that_stands_alone
from simulate.served_models import served_model

EXAMPLES = Path(__file__).parents[2] / "examples"
SIMULATE = ("simulate", "--policy", "paged", "--rate", "0.2", "--count", "10")
CAPACITY = ("capacity", "--ttft-p99", "3s", "--seeds", "0", "--longer", "1", "--steps", "3", "--count", "30")
PLAN = ("plan", str(EXAMPLES / "reference.toml"))
MACHINES = ("plan", "--model", "qwen3-8b", "--compare", "h100,a100", "--prompt", "1k", "--output", "100")
COMMANDS = {
    "simulate": SIMULATE,
    "sweep": (*SIMULATE[:3], "--rate", "0.1,0.2", "--count", "10"),
    "capacity": CAPACITY,
    "plan": PLAN,
    "machines": MACHINES,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def read(file: Path) -> Page:
    return require_a_page_that_stands_alone(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_written_beside_the_answer_and_its_place_is_said(
    capsys: pytest.CaptureFixture[str], file: Path, name: str
) -> None:
    command = COMMANDS[name]
    assert main([*command]) == 0
    alone = capsys.readouterr().out
    assert main([*command, "--report", str(file)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{alone}\nreport: {file}\n"
    assert shown.err == ""
    page = read(file)
    assert shlex.join(["inference-bench", *command, "--report", str(file)]) in page.said()
    assert [tag for tag, _ in page.tags].count("figure") >= (name != "machines")
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("name", COMMANDS)
def test_json_stands_alone_on_stdout(capsys: pytest.CaptureFixture[str], file: Path, name: str) -> None:
    command = (*COMMANDS[name], "--json")
    assert main([*command]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*command, "--report", str(file)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == alone
    assert shown.err == ""
    read(file)


def test_a_log_beside_its_simulation_is_a_page_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: Path
) -> None:
    rows = made_rows(served_model("Meta-Llama-3.1-8B"), hardware("H100"), Shares(bandwidth=0.8, compute=0.6), 20.0, 40)
    log = write_log(tmp_path / "run", rows, META)
    asked = ["simulate", "--against", str(log), "--on", "H100", "--kv-blocks", str(BLOCKS)]
    assert main([*asked, "--report", str(file)]) == 0
    assert f"report: {file}" in capsys.readouterr().out
    assert "Measured beside simulated" in read(file).said()


def test_a_replay_is_a_page_without_charts(capsys: pytest.CaptureFixture[str], tmp_path: Path, file: Path) -> None:
    trace = tmp_path / "bursts.csv"
    lines = [f"{12.0 * (index // 6)},{500 + 7 * index},{5 + index % 40}" for index in range(60)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n")
    assert main(["capacity", "--trace", str(trace), "--replay", "--report", str(file)]) == 0
    assert f"report: {file}" in capsys.readouterr().out
    assert "<figure" not in file.read_text(encoding="utf-8")
    assert "tail as recorded" in key_figures(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "command",
    [
        ("capacity", "--ttft-p99", "1ms", "--seeds", "0", "--longer", "1", "--steps", "3", "--count", "20"),
        ("plan", "--model", "llama-3.1-70b", "--on", "rtx-4090", "--prompt", "1k", "--output", "100"),
        ("simulate", "--policy", "paged", "--count", "3", "--rate", "1", "--mtbf", "1ms", "--mttr", "1s"),
    ],
    ids=["capacity", "plan", "simulate"],
)
def test_a_no_is_a_page_as_well(capsys: pytest.CaptureFixture[str], file: Path, command: tuple[str, ...]) -> None:
    assert main([*command, "--report", str(file)]) == 1
    assert f"report: {file}" in capsys.readouterr().out
    read(file)


def test_a_sweep_that_was_interrupted_leaves_the_page_of_what_it_had(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    whole = study.sweep

    def interrupted(cases: Any, *args: Any, **more: Any) -> Any:
        raise SweepInterrupted(whole(cases[:1], *args, **more))

    monkeypatch.setattr(study, "sweep", interrupted)
    assert main([*SIMULATE[:2], "paged,chunked", *SIMULATE[3:], "--report", str(file)]) == 130
    capsys.readouterr()
    assert "Interrupted: 1 of 2 runs" in read(file).said()


def test_without_what_draws_the_page_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(render, "svg_or_none", lambda: None)
    assert main([*SIMULATE, "--report", str(file)]) == 0
    assert capsys.readouterr().err == ""
    assert NO_CHARTS in read(file).said()


def test_a_drawing_that_fails_is_said_and_the_page_is_written_without(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    def broken(_spec: object) -> str:
        raise ValueError("a part of it\nis broken")

    monkeypatch.setattr(render, "svg_or_none", lambda: broken)
    assert main([*SIMULATE, "--report", str(file)]) == 0
    assert capsys.readouterr().err == "inference-bench: the plots could not be drawn: a part of it is broken\n"
    assert "<figure" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [SIMULATE, CAPACITY, PLAN], ids=["simulate", "capacity", "plan"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "an empty text is given for report"),
        ("report.pdf", "end it in .html"),
        ("report.html/", "end it in .html"),
        ("folder.html", "is a folder"),
        ("n" * 5_000 + ".html", "longer than a file's may be"),
    ],
    ids=["empty", "kind", "slash", "folder", "long"],
)
def test_a_name_that_no_page_can_have_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
    name: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "sweep", None)
    (tmp_path / "folder.html").mkdir()
    assert main([*command, "--report", name]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert len(shown.err) < 400


@pytest.mark.parametrize("command", [SIMULATE, CAPACITY], ids=["simulate", "capacity"])
def test_the_page_and_a_chart_need_a_file_each(
    capsys: pytest.CaptureFixture[str], file: Path, command: tuple[str, ...]
) -> None:
    assert main([*command, "--report", str(file), "--chart", str(file)]) == 2
    assert "a file of its own" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize("command", [SIMULATE, CAPACITY, PLAN], ids=["simulate", "capacity", "plan"])
def test_a_page_that_cannot_be_written_is_a_failure_of_the_world(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(report_page, "require_output_place", lambda *_: None)  # the folder goes away after that
    assert main([*command, "--report", str(tmp_path / "no" / "folder.html")]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "no such file or directory" in shown.err


def test_on_a_full_disk_the_page_that_was_there_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text("what was there")

    def full(_number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main([*SIMULATE, "--report", str(file)]) == 3
    assert "no space left on device" in capsys.readouterr().err
    assert file.read_text() == "what was there"
    assert list(file.parent.iterdir()) == [file]


def test_what_a_file_is_called_does_nothing_in_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, file: Path
) -> None:
    trace = tmp_path / "<script>alert(1)</script> \x1b[31m\u202e'.csv".replace("/", "_")
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,5\n1,200,5\n")
    assert main(["simulate", "--trace", str(trace), "--policy", "chunked", "--report", str(file)]) == 0
    capsys.readouterr()
    source = file.read_text(encoding="utf-8")
    assert "<script" not in source
    assert not {"\x1b", "\u202e"} & set(source)
    assert "<script>alert(1)<_script>" in read(file).said()


def test_the_command_is_quoted_for_a_shell_and_names_no_home(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SIMULATE, "--profile", "24gb-bf16", "--report", "two words.html"]) == 0
    capsys.readouterr()
    said = read(tmp_path / "two words.html").said()
    assert "--profile 24gb-bf16 --report 'two words.html'" in said
    assert str(tmp_path) not in said
