from __future__ import annotations

import json
from pathlib import Path

import pytest

from convert import tiny
from inference_bench.cli.main import main
from inference_bench.convert.hugging_face_config import DTYPES
from inference_bench.convert.plan import ARCHITECTURES, TARGETS
from inference_bench.measure.files import sha256_of_file


def test_convert_says_what_it_wrote_with_the_hashes_of_both_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tiny.write(tmp_path / "in.gguf"), tmp_path / "out.gguf"
    assert main(["convert", str(source), str(target), "--to", "q8_0"]) == 0
    text = capsys.readouterr().out
    assert f"source SHA-256: {sha256_of_file(source)}" in text
    assert f"target SHA-256: {sha256_of_file(target)}" in text
    assert "linear=q8_0,embedding=q8_0,norm=fp32; 20 tensors" in text
    assert "bytes, as counted" in text


def test_convert_as_json_holds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tiny.write(tmp_path / "in.gguf"), tmp_path / "out"
    assert main(["convert", str(source), str(target), "--to", "hf", "--dtype", "bfloat16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "inference-bench/convert/1"
    assert found["source"]["sha256"] == sha256_of_file(source)
    assert found["target"]["counted_bytes"] == found["target"]["tensor_bytes"] > 0
    files = {file["name"]: file["sha256"] for file in found["target"]["files"]}
    assert files["model.safetensors"] == sha256_of_file(target / "model.safetensors")


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.gguf").write_bytes(b"GGUF" + bytes(40))
    assert main(["convert", str(tmp_path / "in.gguf"), str(tmp_path / "out.gguf"), "--to", "f16"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "version 0; allowed: 2 and 3" in shown.err


def test_a_target_that_is_there_is_kept_and_the_option_that_replaces_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tiny.write(tmp_path / "in.gguf"), tmp_path / "out.gguf"
    target.write_bytes(b"mine")
    asked = ["convert", str(source), str(target), "--to", "q8_0"]
    assert main(asked) == 2
    assert capsys.readouterr().err.endswith("give another name, or replace it with --force\n")
    assert target.read_bytes() == b"mine"
    assert main([*asked, "--force"]) == 0
    assert target.read_bytes()[:4] == b"GGUF"


def test_the_help_names_every_target_dtype_and_design(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in (*TARGETS, *DTYPES, *ARCHITECTURES))
