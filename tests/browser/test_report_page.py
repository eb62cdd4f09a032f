"""The report as a person sees it: in a real browser, at two widths, in both themes and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_bench.charts import PALETTE
from inference_bench.render import svg
from inference_bench.report.verify_html import verify_html
from inference_bench.verify.result import VerifyResult
from report.sample import bare_result, hostile_result, hybrid, sample_result, with_findings

pytestmark = pytest.mark.browser

MAKERS: dict[str, Callable[[], VerifyResult]] = {
    "whole": sample_result,
    "hybrid": lambda: sample_result(hybrid()),
    "findings": with_findings,
    "bare": bare_result,
    "hostile": hostile_result,
}
NUM_CHARTS = {"whole": 5, "hybrid": 5, "findings": 5, "bare": 2, "hostile": 5}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
# How far letters reach out of their drawing, how small they get on the screen, and which drawings show at all.
LOOK_AT_DRAWINGS = """() => [...document.querySelectorAll('figure svg')]
  .filter(drawing => drawing.getBoundingClientRect().width > 0)
  .map(drawing => {
    const frame = drawing.getBoundingClientRect(), scale = frame.width / drawing.viewBox.baseVal.width;
    const texts = [...drawing.querySelectorAll('text')];
    const beyond = texts.map(text => {
      const box = text.getBoundingClientRect();
      return Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
    });
    return {
      name: drawing.getAttribute('aria-label'), texts: texts.length, beyond: Math.max(...beyond),
      letters: scale * Math.min(...texts.map(text => parseFloat(getComputedStyle(text).fontSize))),
    };
  })"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
PAPER = "() => getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        try:
            yield running
        finally:
            running.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a report from a file and fails the test on any complaint of the browser and any request it makes."""
    complaints: list[str] = []
    pages: list[Any] = []

    def start(name: str, width: int, scheme: str = "light") -> Any:
        path = tmp_path / f"{name}.html"
        path.write_text(verify_html(MAKERS[name](), svg), encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield start
    for page in pages:
        page.close()
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("name", MAKERS)
def test_the_page_fits_its_window_and_takes_the_theme_of_the_reader(
    open_page: Callable[..., Any], tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    page = open_page(name, width, scheme)
    assert page.evaluate(OVERFLOW) <= 0
    paper = PALETTE["paper"][scheme == "dark"]
    red, green, blue = (int(paper[index : index + 2], 16) for index in (1, 3, 5))
    assert page.evaluate(PAPER) == f"rgb({red}, {green}, {blue})"
    picture = tmp_path / f"{name}-{width}-{scheme}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 20_000


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("name", MAKERS)
def test_each_chart_shows_once_with_all_its_letters_inside_and_large_enough_to_read(
    open_page: Callable[..., Any], name: str, width: int
) -> None:
    drawings = open_page(name, width).evaluate(LOOK_AT_DRAWINGS)
    assert len(drawings) == NUM_CHARTS[name]
    for drawing in drawings:
        assert drawing["texts"] > 3, drawing
        assert drawing["beyond"] <= 0.5, drawing
        assert drawing["letters"] >= 11, drawing


def test_lines_and_letters_of_a_chart_change_with_the_theme(open_page: Callable[..., Any]) -> None:
    colour = "() => getComputedStyle(document.querySelector('figure .wide text')).fill"
    assert open_page("whole", 1280, "light").evaluate(colour) != open_page("whole", 1280, "dark").evaluate(colour)


def test_a_wide_table_scrolls_in_its_own_box_on_a_narrow_screen(open_page: Callable[..., Any]) -> None:
    page = open_page("whole", 360)
    boxes = page.evaluate(
        "() => [...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth])"
    )
    assert len(boxes) == 7
    assert boxes[0][0] > boxes[0][1]
    assert all(shown <= 360 for _, shown in boxes)


def test_on_paper_it_is_light_and_shows_the_wide_charts(open_page: Callable[..., Any], tmp_path: Path) -> None:
    page = open_page("findings", 720, "dark")
    page.emulate_media(media="print")
    assert page.evaluate(PAPER) == "rgb(253, 253, 251)"
    assert page.evaluate("() => getComputedStyle(document.querySelector('figure .narrow')).display") == "none"
    assert page.evaluate("() => getComputedStyle(document.querySelector('figure .wide')).display") == "block"
    page.screenshot(path=tmp_path / "paper.png", full_page=True)
