from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from inference_bench.engines.model_files import hash_model, list_model_files


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "model-00002-of-00002.safetensors",
        "model-00001-of-00002.safetensors",
        "config.json",
        "tokenizer.json",
    ):
        (tmp_path / name).write_text(name)
    (tmp_path / "README.md").write_text("not part of the model")
    (tmp_path / "more.safetensors").mkdir()
    return tmp_path


def test_a_model_of_one_file_has_that_files_hash(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"weights")
    found = hash_model(tmp_path / "m.gguf")
    assert found is not None
    assert (dict(found.by_name), found.sha256) == ({"m.gguf": sha256(b"weights")}, sha256(b"weights"))


def test_a_folder_has_a_hash_for_each_of_its_weights_its_config_and_its_tokenizer_in_order(folder: Path) -> None:
    said: list[str] = []
    found = hash_model(folder, said.append)
    names = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json"]
    assert found is not None
    assert list(found.by_name.items()) == [(name, sha256(name.encode())) for name in names]
    # what sha256sum prints for these files, hashed
    assert found.sha256 == sha256("".join(f"{sha256(name.encode())}  {name}\n" for name in names).encode())
    assert said == [f"hashing {folder.name}"]


def test_one_byte_more_in_any_file_is_another_model(folder: Path) -> None:
    before = hash_model(folder)
    with (folder / "tokenizer.json").open("a") as file:
        file.write(" ")
    after = hash_model(folder)
    assert before is not None
    assert after is not None
    assert before.sha256 != after.sha256


@pytest.mark.parametrize("name", ["absent", "absent.gguf", "README.md"])
def test_what_is_no_model_has_no_hash(tmp_path: Path, name: str) -> None:
    (tmp_path / "README.md").write_text("x")
    assert hash_model(tmp_path / name) is None
    assert list_model_files(tmp_path / name) == []


def test_a_folder_without_weights_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert hash_model(tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
def test_a_path_that_a_server_made_up_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert hash_model(tmp_path / "pipe.gguf") is None
