"""`suite` loses no answer: to Ctrl-C, to a folder that cannot be made, or to a full disk."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.cli import suite as module
from inference_bench.cli.main import main
from inference_bench.cli.output import ProgressLine
from inference_bench.errors import StorageError
from measure.truth_server import TruthServer


@pytest.fixture
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


@pytest.fixture
def arguments(server: TruthServer, tmp_path: Path) -> list[str]:
    file = tmp_path / "s.jsonl"
    lines = [{"prompt": f"zebra {number}", "expected": "a", "max_tokens": 1} for number in range(4)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return ["suite", server.url("at_once"), str(file), "--served-model", "m", "--runs", str(tmp_path / "runs")]


class StopAtTheSecond(ProgressLine):
    def __call__(self, text: str) -> None:
        if " 2 of 4 " in text:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_prints_and_keeps_what_was_answered_and_is_no_pass(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ProgressLine", StopAtTheSecond)
    assert main(arguments) == 130
    shown = capsys.readouterr()
    said = " ".join(shown.out.split())
    assert "2 of 4 answers are exactly as expected, 2 were not asked, as it was interrupted" in said
    assert "not as expected, by their place" not in said
    assert "interrupted; this is what was answered by then" in shown.err
    (kept,) = (tmp_path / "runs").glob("*/suite.json")
    assert json.loads(kept.read_text())["is_interrupted"] is True


def test_runs_that_cannot_be_kept_anywhere_are_refused_before_a_question_is_asked(
    arguments: list[str], server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").write_text("a file")
    before = len(server.requests)
    assert main(arguments) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not any("zebra" in str(each.body) for each in server.requests[before:])


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_answers_that_cannot_be_written_are_printed(
    arguments: list[str], form: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise StorageError("could not write suite.json: no space left on device")

    monkeypatch.setattr(module, "write_outcome", full)
    assert main([*arguments, *form]) == 3
    shown = capsys.readouterr()
    assert '"num_right": 4' in shown.out if form else "4 of 4 answers" in shown.out
    assert "kept" not in shown.out
    assert "no space left" in shown.err
