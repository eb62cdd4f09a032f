"""Whether everyone can use the calculator: on narrow and wide screens, in light and dark, by keyboard, by ear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browser.calculator import LOOK_AT_DRAWINGS, Calculator, wait_for
from inference_bench import bridge
from inference_bench.charts import PALETTE
from inference_bench.page.vendor import AXE_CORE
from page.sample import vendored

pytestmark = pytest.mark.browser

STATES = {
    "fit": "#fit?model=gemma-3-27b&on=RTX%204090&sequences=4",
    "roofline": "#roofline?others=H100,H200&chunk=2048",
    "simulate": "#simulate?requests=60&rates=1,2,4&policies=chunked,paged,static",
    "plan": "#plan?others=H100,H200",
    "article": "#article?length=64k",
}
WIDTHS = (320, 390, 768, 1280, 1920)
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
PAPER = "() => getComputedStyle(document.body).backgroundColor"
FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  return {
    is: at === document.body ? "" : at.id || at.dataset.take || at.dataset.view || at.dataset.save || at.dataset.order ||
      at.getAttribute("href") || at.getAttribute("aria-label") || `${at.tagName} ${at.textContent.slice(0, 30)}`,
    outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    inside: box.right > 0 && box.left < innerWidth && box.width > 0 && box.bottom > 0 && box.top < innerHeight,
  };
}"""
# Everything of the page that is there to be used and shows.
USABLE = """(view) => {
  const all = document.querySelectorAll(`.skip, nav a, #view-${view} :is(a[href], button, input, select, textarea, summary), footer a`);
  return [...all].filter(each => !each.disabled && each.checkVisibility({ contentVisibilityAuto: true })).length;
}"""
AXE = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => `${each.id}: ${each.help}: ${each.nodes.slice(0, 4).map(node => node.html.slice(0, 160)).join(" | ")}`);
}"""


def test_there_is_a_state_to_look_at_for_every_view() -> None:
    assert list(STATES) == [view.name for view in bridge.views()]


def go(calculator: Calculator, view: str, width: int, scheme: str = "light") -> None:
    calculator.page.set_viewport_size({"width": width, "height": 900})
    calculator.page.emulate_media(color_scheme=scheme)
    calculator.open(STATES[view])
    step = calculator.settled(view)
    assert "error" not in step, step


@pytest.mark.parametrize("view", STATES)
def test_a_view_fits_its_window_and_its_charts_can_be_read(calculator: Calculator, tmp_path: Path, view: str) -> None:
    go(calculator, view, WIDTHS[-1])
    for width in reversed(WIDTHS):
        calculator.page.set_viewport_size({"width": width, "height": 900})
        drawn = wait_for(lambda: is_drawn(calculator, view), f"{view} is drawn for {width} px")
        assert calculator.page.evaluate(OVERFLOW) <= 0, width
        for drawing in drawn:
            assert drawing["texts"] > 2, (width, drawing)
            assert drawing["beyond"] <= 1, (width, drawing)
            assert drawing["letters"] >= 10.99 or width < 360, (width, drawing)
        picture = tmp_path / f"{view}-{width}.png"
        calculator.page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 20_000


def is_drawn(calculator: Calculator, view: str) -> list[dict[str, Any]] | None:
    """The drawings that show, once each figure shows just one and none is of an older width."""
    calculator.settled(view)
    found: list[dict[str, Any]] = calculator.page.evaluate(LOOK_AT_DRAWINGS, view)
    figures = calculator.page.locator(f"#answer-{view} figure:has([data-chart])").count()
    names = [drawing["place"].rpartition("-")[0] for drawing in found]
    return found if len(names) == len(set(names)) == figures > 0 else None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", STATES)
def test_a_view_takes_the_theme_of_the_reader(calculator: Calculator, tmp_path: Path, view: str, scheme: str) -> None:
    go(calculator, view, 1280, scheme)
    paper = PALETTE["paper"][scheme == "dark"]
    red, green, blue = (int(paper[index : index + 2], 16) for index in (1, 3, 5))
    assert calculator.page.evaluate(PAPER) == f"rgb({red}, {green}, {blue})"
    ink = calculator.page.evaluate(
        "(view) => getComputedStyle(document.querySelector(`#answer-${view} .wide svg text`)).fill", view
    )
    assert (sum(map(int, ink.removeprefix("rgb(").removesuffix(")").split(","))) > 384) is (scheme == "dark")
    calculator.page.screenshot(path=tmp_path / f"{view}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", STATES)
def test_axe_finds_nothing_serious(calculator: Calculator, view: str, scheme: str) -> None:
    go(calculator, view, 1280, scheme)
    if not calculator.page.evaluate("() => 'axe' in window"):
        calculator.page.evaluate(vendored(AXE_CORE)["axe.min.js"].decode() + ";undefined")
    calculator.page.evaluate(
        "() => document.querySelectorAll('details').forEach(each => each.setAttribute('open', ''))"
    )
    calculator.page.wait_for_timeout(250)  # the answer fades in
    assert calculator.page.evaluate(AXE) == []


def test_axe_finds_nothing_serious_while_something_is_wrong(calculator: Calculator) -> None:
    if not calculator.page.evaluate("() => 'axe' in window"):
        calculator.page.evaluate(vendored(AXE_CORE)["axe.min.js"].decode() + ";undefined")
    calculator.page.set_viewport_size({"width": 390, "height": 844})
    calculator.type("context", "junk")
    calculator.page.wait_for_timeout(250)
    assert [line for line in calculator.page.evaluate(AXE) if not line.startswith("color-contrast")] == []


@pytest.mark.parametrize("view", ["fit", "simulate"])
def test_everything_is_reached_by_tab_with_its_focus_in_sight(calculator: Calculator, view: str) -> None:
    go(calculator, view, 1280)
    calculator.page.evaluate(
        "() => { document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0); }"
    )
    calculator.page.locator("body").click(position={"x": 1, "y": 1})
    reached = []
    for _ in range(250):
        calculator.page.keyboard.press("Tab")
        at = calculator.page.evaluate(FOCUSED)
        if not at["is"]:
            break
        reached.append(at)
    assert reached[0]["is"] in {"#main", "#answer-fit"}
    assert [at for at in reached if not at["outline"]] == []
    assert [at for at in reached if not at["inside"]] == []
    assert len(reached) >= calculator.page.evaluate(USABLE, view)
    assert [at["is"] for at in reached].index(f"{view}-model") > 1


def test_the_first_link_skips_to_the_answer(calculator: Calculator) -> None:
    calculator.page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    calculator.page.locator("body").click(position={"x": 1, "y": 1})
    calculator.page.keyboard.press("Tab")
    assert calculator.page.locator(".skip").is_visible()
    calculator.page.keyboard.press("Enter")
    assert calculator.page.evaluate("() => document.activeElement.id") == "answer-fit"
    assert calculator.page.locator("#view-fit").is_visible()


def test_a_simulation_can_be_started_and_ended_from_the_keyboard(calculator: Calculator) -> None:
    calculator.open("#simulate?requests=800&rates=1,2,3,4&policies=chunked,paged,static")
    wait_for(lambda: calculator.status().startswith("run "), "it runs")
    calculator.page.locator("#form-simulate .cancel").focus()
    calculator.page.keyboard.press("Enter")
    wait_for(lambda: calculator.status().startswith("Cancelled"), "it ends")
    calculator.page.locator("#simulate-requests").fill("20")
    calculator.page.keyboard.press("Enter")
    assert calculator.settled("simulate")["answer"]


def test_what_changes_is_read_out_in_a_few_words(calculator: Calculator) -> None:
    assert calculator.page.locator("#status").get_attribute("role") == "status"
    assert calculator.page.locator("#trouble").get_attribute("role") == "alert"
    for view, state in STATES.items():
        step = calculator.open(state).settled(view)
        assert calculator.status() == step["status"]
        assert 10 < len(step["status"]) < 200


@pytest.mark.parametrize("view", STATES)
def test_every_chart_has_a_name_that_says_what_it_shows(calculator: Calculator, view: str) -> None:
    go(calculator, view, 1280)
    for drawing in calculator.page.evaluate(LOOK_AT_DRAWINGS, view):
        assert len(drawing["name"]) > 30, drawing


def test_a_mark_of_a_chart_says_its_figures_under_the_pointer(calculator: Calculator) -> None:
    mark = calculator.page.locator("#answer-fit .wide .drawing svg [aria-label]").first
    said = mark.get_attribute("aria-label")
    mark.hover(force=True)
    tip = wait_for(
        lambda: calculator.page.locator(".tip").is_visible() and calculator.text(".tip"), "the words show", 10
    )
    assert tip
    assert said
