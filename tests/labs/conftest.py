"""A small model in a folder: as it is, and a copy to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labs import tiny


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "little-llama")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return shutil.copytree(whole, tmp_path / whole.name)
