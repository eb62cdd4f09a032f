"""The reports as a person sees them: in a real browser, at three widths, in both themes and on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inference_bench.charts import PALETTE
from inference_bench.render import svg
from inference_bench.report.verify_html import verify_html
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import hostile_loop, nothing_came_of_it, troubled_loop, whole_loop
from report.report_samples import sample
from report.sample import bare_result, hostile_result, hybrid, sample_result, with_findings

pytestmark = pytest.mark.browser

VERIFIED: dict[str, Callable[[], VerifyResult]] = {
    "whole": sample_result,
    "hybrid": lambda: sample_result(hybrid()),
    "findings": with_findings,
    "bare": bare_result,
    "hostile": hostile_result,
    "loop": whole_loop,
    "troubled loop": troubled_loop,
    "empty loop": nothing_came_of_it,
    "hostile loop": hostile_loop,
}
NUM_CHARTS = {
    **{"whole": 5, "hybrid": 5, "findings": 5, "bare": 2, "hostile": 5},
    **{"loop": 9, "troubled loop": 9, "empty loop": 6, "hostile loop": 9},
    # those of report_samples
    **{"schedulers": 4, "sweep": 1, "hostile study": 2, "capacity": 2, "replay": 0, "log": 2},
    **{"plan": 1, "machines": 1, "hostile plan": 1},
}
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


@cache
def source(name: str) -> str:
    return verify_html(VERIFIED[name](), svg) if name in VERIFIED else sample(name).page(svg)


class Opened:
    """A report opened from a file, with every complaint of the browser and every request that it makes."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page()
        say = self.complaints.append
        self.page.on("console", lambda message: say(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: say(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (say(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: say(request.url) if request.url != path.as_uri() else None)
        self.page.goto(path.as_uri())


@pytest.fixture(scope="module")
def opened(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    """Each report, opened once."""
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def start(name: str) -> Opened:
        path = folder / f"{name}.html"
        path.write_text(source(name), encoding="utf-8")
        return Opened(chrome, path)

    return start


@pytest.fixture
def open_page(opened: Callable[[str], Opened]) -> Iterator[Callable[..., Any]]:
    """Shows a report at a width, and fails the test on any complaint."""
    shown: list[Opened] = []

    def start(name: str, width: int, scheme: str = "light") -> Any:
        report = opened(name)
        shown.append(report)
        report.page.emulate_media(media="screen", color_scheme=scheme)
        report.page.set_viewport_size({"width": width, "height": 900})
        return report.page

    yield start
    assert [complaint for report in shown for complaint in report.complaints] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("name", NUM_CHARTS)
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
@pytest.mark.parametrize("name", NUM_CHARTS)
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
    assert len(boxes) == 7  # two of them folded
    assert boxes[0][0] > boxes[0][1]
    assert all(shown <= 360 for _, shown in boxes)


def test_on_paper_it_is_light_and_shows_the_wide_charts(open_page: Callable[..., Any], tmp_path: Path) -> None:
    page = open_page("findings", 720, "dark")
    page.emulate_media(media="print")
    assert page.evaluate(PAPER) == "rgb(253, 253, 251)"
    assert page.evaluate("() => getComputedStyle(document.querySelector('figure .narrow')).display") == "none"
    assert page.evaluate("() => getComputedStyle(document.querySelector('figure .wide')).display") == "block"
    page.screenshot(path=tmp_path / "paper.png", full_page=True)


@pytest.mark.parametrize("name", NUM_CHARTS)
def test_on_paper_nothing_reaches_beyond_the_sheet(open_page: Callable[..., Any], name: str) -> None:
    page = open_page(name, 703)  # A4 between margins of 12 mm
    page.emulate_media(media="print")
    assert page.evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("width", [360, 1280])
def test_a_long_command_is_broken_between_words(open_page: Callable[..., Any], width: int) -> None:
    page = open_page("plan", width)
    code = page.evaluate(
        "() => { const box = document.querySelector('.command'); return [box.innerText, box.scrollWidth - box.clientWidth]; }"
    )
    assert code == ["inference-bench simulate --policy chunked --trace 'two words.csv'", 0]


def test_on_a_desk_the_verdict_the_figures_and_the_contents_are_on_the_first_screen(
    open_page: Callable[..., Any],
) -> None:
    page = open_page("loop", 1280)
    bottoms = page.evaluate(
        "() => ['.answers', '.figures', 'nav.contents'].map(name => document.querySelector(name).getBoundingClientRect().bottom)"
    )
    assert bottoms == sorted(bottoms)
    assert bottoms[-1] <= 900


def test_on_a_telephone_the_first_screen_begins_with_the_verdict(open_page: Callable[..., Any]) -> None:
    page = open_page("loop", 360)
    marks = page.evaluate(
        "() => [...document.querySelectorAll('.answers .mark')].map(mark => mark.getBoundingClientRect().top)"
    )
    assert len(marks) == 4
    assert marks[2] < 900


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_mark_of_the_verdict_is_told_apart_by_its_words_and_by_its_colour(
    open_page: Callable[..., Any], scheme: str
) -> None:
    page = open_page("troubled loop", 1280, scheme)
    marks = page.evaluate(
        "() => [...document.querySelectorAll('.answers > div')].map(row => [row.className, row.querySelector('.mark').innerText,"
        " getComputedStyle(row.querySelector('.mark')).color])"
    )
    assert [mark[:2] for mark in marks][-1] == ["poor", "No"]
    assert len({words for _, words, _ in marks}) == 4
    colours = {state: colour for state, _, colour in marks}
    assert len(set(colours.values())) == len(colours) >= 2


def test_what_is_folded_on_the_screen_is_printed(open_page: Callable[..., Any]) -> None:
    page = open_page("loop", 720)
    hidden = "() => [...document.querySelectorAll('details table')].map(table => table.checkVisibility({contentVisibilityAuto: true}))"
    assert page.evaluate("() => document.querySelectorAll('details').length") == 9
    assert not any(page.evaluate(hidden))
    page.emulate_media(media="print")
    heights = page.evaluate(
        "() => [...document.querySelectorAll('details table')].map(table => table.getBoundingClientRect().height)"
    )
    assert len(heights) == 9  # one of them of sentences, one with two tables
    assert min(heights) > 40


def test_a_notebook_cell_keeps_the_page_to_itself(chrome: Any, tmp_path: Path) -> None:
    from inference_bench.notebook import show

    cell = tmp_path / "cell.html"
    cell.write_text(
        f"<style>p {{ color: red }}</style><p>cell</p>{show(hostile_loop())._repr_html_()}", encoding="utf-8"
    )
    shown = Opened(chrome, cell)
    frame = shown.page.frames[1]
    assert frame.url == "about:srcdoc"
    assert shown.page.evaluate("() => getComputedStyle(document.querySelector('p')).color") == "rgb(255, 0, 0)"
    assert frame.evaluate("() => getComputedStyle(document.querySelector('p')).color") != "rgb(255, 0, 0)"
    frame.click("nav.contents a:last-child")
    assert frame.evaluate("() => [location.href, scrollY > 1000]") == ["about:srcdoc#files", True]
    assert shown.complaints == []
