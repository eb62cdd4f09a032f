from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from convert import tiny
from inference_bench.cli import matrix as command
from inference_bench.cli.main import main
from inference_bench.errors import RequestError, ServerError, ServerStartError, UnknownNameError
from inference_bench.verify import matrix
from inference_bench.verify.matrix import MatrixRequest, MatrixResult
from verify.matrix_runs import MACHINE, Reply, fake_measure, from_table


def options(tmp_path: Path, *axes: str, **more: Any) -> argparse.Namespace:
    values: dict[str, Any] = {
        **dict.fromkeys((*command._OF_ONE_RUN, "on", "threads")),
        "matrix": list(axes),
        "model": str(tmp_path / "tiny.gguf"),
        "runs": str(tmp_path / "runs"),
        "seed": 0,
        "timeout": "10s",
        "json": False,
    }
    return argparse.Namespace(**{**values, **more})


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command with verifications that were never run, on a machine that is not probed."""
    monkeypatch.setenv("INFERENCE_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(command, "machine_to_measure", lambda _name: MACHINE)
    monkeypatch.setattr(command, "_keep", lambda _result: None)
    tiny.write(tmp_path / "tiny.gguf")
    real = matrix.run_matrix

    def with_replies(table: dict[tuple[str, str], Reply]) -> None:
        def run(request: MatrixRequest, progress: Any, keep: Any) -> MatrixResult:
            return real(request, progress, keep, fake_measure(from_table(table), []))

        monkeypatch.setattr(matrix, "run_matrix", run)

    return with_replies


def test_one_folder_holds_the_page_and_the_json_of_the_matrix(
    tmp_path: Path, faked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    faked({("fp32", "q8_0"): ServerStartError("quantized V cache requires flash_attn")})
    assert command.run_matrix(options(tmp_path, "weights=q8_0,f32", "kv=f16,q8_0", on="here")) == 0
    text = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"report: {folder / 'report.html'}" in text
    assert "quantized V cache requires flash_attn" in " ".join(text.split())
    assert json.loads((folder / "result.json").read_text())["schema"] == "inference-bench/verify-matrix/1"
    assert "All under one roof" in (folder / "report.html").read_text()
    assert main(["report", str(folder)]) == 0  # looked at again, it says the same
    assert capsys.readouterr().out == text.replace("\n\nreport:", "\nreport:")


def test_a_combination_that_failed_is_exit_code_3_and_the_others_are_printed(
    tmp_path: Path, faked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    faked({("q8_0", "auto"): ServerError("it ended")})
    assert command.run_matrix(options(tmp_path, "weights=q8_0,f32", on="here", json=True)) == 3
    found = json.loads(capsys.readouterr().out)
    assert [(one["weights"], one["outcome"]) for one in found["combinations"]] == [
        ("q8_0", "failed"),
        ("f32", "measured"),
    ]


def test_an_interrupted_matrix_is_written_and_exit_code_130(
    tmp_path: Path, faked: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    faked({("q8_0", "auto"): KeyboardInterrupt()})
    assert command.run_matrix(options(tmp_path, "weights=q8_0,f32", on="here", seed=1)) == 130
    (folder,) = (tmp_path / "runs").iterdir()
    found = json.loads((folder / "result.json").read_text())
    assert found["is_interrupted"] is True
    assert [one["outcome"] for one in found["combinations"]] == ["failed", "measured"]
    assert (folder / "report.html").is_file()
    assert "interrupted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"url": "http://127.0.0.1:1"}, "^a URL"),
        ({"kv": "f16"}, "--kv"),
        ({"save_profile": "p"}, "--save-profile"),
        ({"quick": True}, "--quick"),
        ({"thorough": True}, "--thorough"),
    ],
)
def test_options_of_one_run_are_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=f"{said} is for one run"):
        command.run_matrix(options(tmp_path, "weights=q8_0", **more))


def test_an_unknown_axis_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="axis 'batch' is not known"):
        command.run_matrix(options(tmp_path, "batch=1,2"))
    assert list(tmp_path.iterdir()) == []
