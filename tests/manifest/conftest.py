"""A small model as a file and as a folder, and a server of fixed answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import tiny
from engines.fake_server import FakeServer
from inference_bench.convert.flow import ConversionRequest, convert_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes are remembered in a folder of the test's own."""
    monkeypatch.setenv("INFERENCE_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf")


@pytest.fixture(scope="session")
def _folder_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("release")
    convert_model(ConversionRequest(tiny.write(home / "tiny.gguf"), home / "model", "hf"))
    return home / "model"


@pytest.fixture
def folder(_folder_once: Path, tmp_path: Path) -> Path:
    """A release that a test may change."""
    copy = tmp_path / "model"
    copy.mkdir()
    for each in _folder_once.iterdir():
        (copy / each.name).write_bytes(each.read_bytes())
    return copy


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()
