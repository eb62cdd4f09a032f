"""The built page, once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from page.sample import built_page


@pytest.fixture(scope="session")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_page(tmp_path_factory).folder
