from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from inference_bench.accounting.params import count_params
from inference_bench.errors import InferenceBenchError, ModelConfigError, UnknownNameError
from inference_bench.facts.load import load_hardware, load_model
from shapes import REFERENCE_CONFIG


def test_a_config_file_and_its_folder_give_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(REFERENCE_CONFIG))
    from_folder, from_file = load_model(str(folder)).spec, load_model(str(folder / "config.json")).spec
    assert from_folder.layers == from_file.layers
    assert from_folder.name == from_file.name == "my-model"
    assert count_params(from_folder).total == 9_550_729_216


@pytest.mark.parametrize("name", ["qwen3-8b", "Qwen/Qwen3-8B", "QWEN3 8B"])
def test_a_known_model_is_found_by_name_or_hub_id(name: str) -> None:
    assert load_model(name).spec.name == "Qwen3-8B"


@pytest.mark.parametrize(
    "name", ["qwen9-8b", "", " ", "\x00", "a" * 5000, "💥", "../../etc/passwd", "x.gguf", "~/nothing"]
)
def test_what_is_neither_known_nor_a_file_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(InferenceBenchError) as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Qwen3-8B"):
        load_model("qwen3-8")


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"no config\.json"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"<html></html>", b"GGUF", b"GGUF\x03\x00\x00\x00"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InferenceBenchError) as caught:
        load_model(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["pipe", "config.json", "model.gguf", "model.safetensors", "mine.toml", "mine.json"])
def test_a_pipe_is_refused_at_once_and_never_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InferenceBenchError) as caught:
        load_hardware(str(tmp_path / name)) if name.startswith("mine") else load_model(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_device_that_never_ends_is_refused() -> None:
    with pytest.raises(ModelConfigError, match="/dev/zero is a device"):
        load_model("/dev/zero")


def test_a_file_that_is_larger_than_any_config_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(ModelConfigError, match="too large"):
        load_model(str(path))
