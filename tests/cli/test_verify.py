"""What `verify` makes of its options, and its exit code, without measuring anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli import verify as command
from inference_bench.cli.main import build_parser, main
from inference_bench.report.json_result import verify_json
from inference_bench.report.text_result import verify_text
from inference_bench.simulate.rate_search import Limits
from inference_bench.verify.closed_loop import CapacityCheck
from inference_bench.verify.flow import VerifyInterrupted
from inference_bench.verify.plan import QUICK, THOROUGH, Plan
from inference_bench.verify.result import VerifyResult
from inference_bench.verify.session import VerifyRequest
from report.sample import sample_result


def asked(*arguments: str) -> VerifyRequest:
    return command.request_from(build_parser().parse_args(["verify", *arguments]))


def test_without_options_the_embedded_engine_is_measured_by_the_default_plan_with_a_load() -> None:
    request = asked()
    assert (request.url, request.model, request.machine, request.engine) == (None, None, None, "llama.cpp")
    assert request.plan == Plan()
    assert request.runs_load
    assert request.objective is None
    assert (request.num_slots, request.context_tokens, request.num_threads) == (None, None, None)


def test_every_option_of_a_start_and_of_the_extent_arrives() -> None:
    request = asked("--quick", "--slots", "4", "--context", "2k", "--threads", "1", "--engine", "vllm", "--no-load")
    assert request.plan == QUICK
    assert (request.num_slots, request.context_tokens, request.num_threads) == (4, 2000, 1)
    assert (request.engine, request.runs_load) == ("vllm", False)
    assert asked("--thorough").plan == THOROUGH
    assert asked("--ttft-p99", "2s", "--itl-p99", "80ms").objective == Limits(2.0, 0.08)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--quick", "--thorough"], "not allowed with"),
        (["http://127.0.0.1:9", "--slots", "2"], "--slots is a setting of a server that is started here"),
        (["http://127.0.0.1:9", "--engine", "vllm"], "--engine is a setting"),
        (["--no-load", "--ttft-p99", "1s"], "--no-load runs none"),
        (["--engine", "nobody"], "llama.cpp, vllm, sglang"),
        (["--slots", "none"], "slots"),
        (["--itl-p99", "0s"], "above 0"),
        (["--save-profile", "/"], "profile file"),
        (["--save-profile", "/no-such-folder/p.json"], "folder that is not there"),
        (["--timeout", "0"], "within 0 s"),
        (["--kv", "nope"], "'nope'"),
        pytest.param(["--weights", "nope"], "'nope'", marks=pytest.mark.real_engine),
        pytest.param(["--slots", "1000000000"], "num_slots 1000000000", marks=pytest.mark.real_engine),
        pytest.param(["--context", "1000000000000"], "context_tokens_total", marks=pytest.mark.real_engine),
        pytest.param(["--threads", "1000000"], "num_threads 1000000", marks=pytest.mark.real_engine),
        pytest.param(["--kv", "fp8"], "cache format of llama.cpp", marks=pytest.mark.real_engine),
        (["--engine", "sglang"], "SGLang needs a virtual environment"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], said: str
) -> None:
    try:
        code: object = main(["verify", *arguments, "--runs", str(tmp_path / "runs")])
    except SystemExit as ended:
        code = ended.code
    shown = capsys.readouterr().err
    assert code == 2
    assert said in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def capacity(measured_rate: float | None) -> CapacityCheck:
    return CapacityCheck("TTFT p99 <= 1 s", 1.0, 0.1, 2.0, None, None, None, None, measured_rate, "")


@pytest.mark.parametrize(
    ("arguments", "found", "code"),
    [
        ([], None, 0),
        ([], capacity(None), 0),
        (["--ttft-p99", "1s"], capacity(2.0), 0),
        (["--ttft-p99", "1s"], capacity(None), 1),
        (["--ttft-p99", "1s"], None, 1),
    ],
)
def test_an_objective_that_no_rate_keeps_is_exit_1_where_it_was_asked_for(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    found: CapacityCheck | None,
    code: int,
) -> None:
    def measured(_request: VerifyRequest, _progress: Any) -> VerifyResult:
        return replace(sample_result(), run_dir=tmp_path, capacity=found)

    monkeypatch.setattr(command, "verify_server", measured)
    monkeypatch.setattr(command, "remember_probe", lambda _: None)
    assert main(["verify", *arguments]) == code
    assert {"result.json", "report.html", "report.txt"} <= {path.name for path in tmp_path.iterdir()}
    assert str(tmp_path) in capsys.readouterr().out


def test_a_profile_that_there_is_none_of_is_said_after_all_else_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(command, "verify_server", lambda *_: replace(sample_result(), run_dir=run, calibration=None))
    monkeypatch.setattr(command, "remember_probe", lambda _: None)
    assert main(["verify", "--save-profile", str(tmp_path / "p.json")]) == 2
    assert {"result.json", "report.html", "report.txt"} <= {path.name for path in run.iterdir()}
    shown = capsys.readouterr()
    assert str(run) in shown.out
    assert "no profile to save" in shown.err


def run_dir_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **changed: Any) -> Path:
    """A folder, and a `verify` that has measured into it what the sample holds."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(command, "verify_server", lambda *_: replace(sample_result(), run_dir=run, **changed))
    monkeypatch.setattr(command, "remember_probe", lambda _: None)
    return run


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_on_a_full_disk_what_was_found_is_printed_before_the_one_line_that_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    run = run_dir_of(monkeypatch, tmp_path)
    (run / "result.json").mkdir()  # cannot be written; the others can
    assert main(["verify", *form]) == 3
    shown = capsys.readouterr()
    if form:
        assert json.loads(shown.out) == json.loads(json.dumps(verify_json(replace(sample_result(), run_dir=run))))
    else:
        assert verify_text(replace(sample_result(), run_dir=run)) in shown.out
    assert "result.json" in shown.err
    assert shown.err.count("\n") == 1
    assert {"report.html", "report.txt"} <= {path.name for path in run.iterdir()}


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ({"trouble": "nothing answers at 127.0.0.1:9"}, 3, "nothing answers at 127.0.0.1:9"),
        ({"trouble": "it was interrupted", "is_interrupted": True}, 130, "interrupted"),
    ],
)
def test_a_run_that_did_not_come_to_its_end_is_written_and_printed_and_says_where_it_is(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    code: int,
    said: str,
) -> None:
    run = run_dir_of(monkeypatch, tmp_path, **changed)
    assert main(["verify"]) == code
    assert {"result.json", "report.html", "report.txt"} == {path.name for path in run.iterdir()}
    shown = capsys.readouterr()
    assert changed["trouble"] in shown.out
    assert said in shown.err
    assert str(run) in shown.err
    assert shown.err.count("\n") == 1


def test_an_interruption_before_there_is_a_result_says_where_the_samples_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> VerifyResult:
        raise VerifyInterrupted(tmp_path / "run")

    monkeypatch.setattr(command, "verify_server", stopped)
    assert main(["verify"]) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"inference-bench: interrupted; what was measured is in {tmp_path / 'run'}\n"
