"""The page of a load run as a person sees it: in a real browser, narrow and wide, in both themes and on paper."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from browser.test_report_page import LOOK_AT_DRAWINGS, OVERFLOW, PAPER
from inference_bench.charts import PALETTE
from inference_bench.render import svg
from report.load_samples import SAMPLES, capacity

pytestmark = pytest.mark.browser

NUM_CHARTS = {"calm": 2, "failing": 2, "sweep": 4, "closed": 4, "bare": 1, "hostile": 2, "capacity": 1}


@cache
def source(name: str) -> str:
    return capacity().page(svg) if name == "capacity" else SAMPLES[name]().page(svg)


def opened(chrome: Any, folder: Path, name: str, width: int, scheme: str = "light") -> tuple[Any, list[str]]:
    """The page in a tab of its own, and what the browser complains of."""
    path = folder / f"{name}.html"
    path.write_text(source(name), encoding="utf-8")
    page = chrome.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    return page, complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", NUM_CHARTS)
def test_the_page_fits_its_window_and_each_chart_shows_with_all_its_letters(
    chrome: Any, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    page, complaints = opened(chrome, tmp_path, name, width, scheme)
    try:
        assert page.evaluate(OVERFLOW) <= 0
        paper = PALETTE["paper"][scheme == "dark"]
        red, green, blue = (int(paper[index : index + 2], 16) for index in (1, 3, 5))
        assert page.evaluate(PAPER) == f"rgb({red}, {green}, {blue})"
        drawings = page.evaluate(LOOK_AT_DRAWINGS)
        assert len(drawings) == NUM_CHARTS[name]
        for drawing in drawings:
            assert drawing["texts"] > 3, drawing
            assert drawing["beyond"] <= 0.5, drawing
            assert drawing["letters"] >= 11, drawing
        picture = tmp_path / "page.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 20_000
        assert complaints == []
    finally:
        page.close()


@pytest.mark.parametrize("name", ["failing", "sweep", "hostile"])
def test_on_paper_it_is_light_and_nothing_reaches_beyond_the_sheet(chrome: Any, tmp_path: Path, name: str) -> None:
    page, complaints = opened(chrome, tmp_path, name, 703, "dark")  # A4 between margins of 12 mm
    try:
        page.emulate_media(media="print")
        assert page.evaluate(PAPER) == "rgb(253, 253, 251)"
        assert page.evaluate(OVERFLOW) <= 0
        assert complaints == []
    finally:
        page.close()
