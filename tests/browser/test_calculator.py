"""The calculator in real Chromium: complete before scripts, alive after them, offline from then on, and true to the core."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from browser.calculator import NARROW, Calculator, in_cpython, plain_host, wait_for
from inference_bench import bridge
from inference_bench.charts import PALETTE
from shapes import REFERENCE_CONFIG

pytestmark = pytest.mark.browser

VIEWS = [view.name for view in bridge.views()]
LIVE = [view.name for view in bridge.views() if view.is_live]
SMALL_RUN = "#simulate?requests=40&rates=2&policies=chunked"
LONG_RUN = "#simulate?requests=800&rates=1,2,3,4&policies=chunked,paged,static"  # some seconds


# ── before and while scripts load ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [None, NARROW], ids=["wide", "narrow"])
def test_without_scripts_the_first_answer_its_charts_and_the_article_are_there(
    fresh: Callable[..., Calculator], size: dict[str, int] | None
) -> None:
    options = {} if size is None else {"viewport": size}
    shown = fresh(listens=False, java_script_enabled=False, **options)
    shown.page.goto(shown.address)
    said = shown.answer_text()
    assert re.search(r"ridge 562 FLOP/byte", said)
    assert "147 kB" in said
    assert re.search(r"limited by memory, 0\.\d+ % of peak compute", said)
    charts = shown.page.locator("#answer-fit .drawing svg:visible")
    assert charts.count() == 2
    for index in range(2):
        box = charts.nth(index).bounding_box()
        assert box is not None
        assert box["width"] > 250
        assert box["height"] > 80
    assert "Scripts are off" in shown.text("body")
    article = shown.page.locator("#answer-article")
    assert article.is_visible()
    assert len(article.inner_text()) > 2000
    assert article.locator("svg:visible").count() >= 1
    assert shown.page.locator("button:visible").count() == 0


def test_it_comes_alive_by_itself_and_answers_what_it_showed(fresh: Callable[..., Calculator]) -> None:
    shown = fresh()
    shown.page.goto(shown.address)
    before = shown.answer_text()
    step = shown.ready().settled()
    assert shown.answer_text().replace("SVG PNG ", "") == before
    assert step == in_cpython(shown.asked())
    assert shown.violations() == []


def test_what_is_typed_while_python_loads_is_kept_and_then_answered(fresh: Callable[..., Calculator]) -> None:
    shown = fresh()
    held: list[Any] = []
    shown.page.route("**/core.zip", lambda route: held.append(route))
    shown.page.goto(shown.address)
    shown.page.locator("#fit-model").fill("gemma-3-27b")
    shown.page.locator("#fit-context").fill("8k")
    wait_for(lambda: bool(held) or shown.page.wait_for_timeout(20), "the core is asked for")
    assert "what you type meanwhile is kept" in shown.status()
    held[0].continue_()
    step = shown.ready().settled()
    assert shown.asked()["fields"]["model"] == "gemma-3-27b"
    assert step["answer"]["cache"]["context_tokens"] == 8192
    assert shown.answer_text().count("gemma-3-27b")


# ── offline ──────────────────────────────────────────────────────────────────────────────────────


def test_after_loading_every_view_answers_without_a_network_and_so_does_a_reload(
    fresh: Callable[..., Calculator],
) -> None:
    shown = fresh()
    shown.page.goto(shown.address)
    shown.ready().settled()
    controller = "async () => Boolean((await navigator.serviceWorker.ready).active)"
    wait_for(lambda: shown.page.evaluate(controller), "the page is kept for offline")
    shown.page.context.set_offline(True)
    asked: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url))
    assert shown.type("on", "own")["answer"]["machine"]
    assert shown.type("engine", "vllm")["answer"]
    assert shown.type("model", "deepseek-v3")["answer"]
    for view in ("roofline", "plan", "article"):
        assert "error" not in shown.open(f"#{view}").settled(view), view
    assert "error" not in shown.open(SMALL_RUN + "&engine=vllm").settled("simulate")
    assert asked == []
    shown.page.goto(shown.address + "#fit?model=gemma-3-27b")
    shown.page.reload()
    assert "gemma-3-27b" in shown.ready().settled()["status"]
    for view in ("roofline", "plan"):
        assert "error" not in shown.open(f"#{view}").settled(view), view


def test_under_a_path_of_a_host_without_headers_of_its_own_it_works_the_same(
    fresh: Callable[..., Calculator], page_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(page_folder, tmp_path / "some" / "path")
    with plain_host(tmp_path) as host:
        shown = fresh(f"{host}some/path/")
        outside: list[str] = []
        shown.page.on("request", lambda request: outside.append(request.url))
        shown.page.goto(shown.address + "index.html#fit?model=Qwen3-8B&context=8k")
        assert shown.ready().settled() == in_cpython(shown.asked())
        shown.page.wait_for_timeout(300)
        assert [url for url in outside if not url.startswith(shown.address)] == []
        assert shown.violations() == []


# ── changing what is asked ───────────────────────────────────────────────────────────────────────


def test_a_change_is_answered_in_place(calculator: Calculator) -> None:
    step = calculator.type("context", "8k")
    assert step["answer"]["cache"]["bytes"] == 8192 * 147_456  # bytes a token, worked by hand in tests/accounting
    assert "8,192 tokens" in calculator.answer_text()
    assert calculator.status() == step["status"]


def test_another_model_or_machine_empties_what_belongs_to_the_example(calculator: Calculator) -> None:
    assert calculator.values()["compute"] == "fp8"
    step = calculator.type("model", "gemma-3-27b")
    assert calculator.values()["compute"] == ""
    assert step == in_cpython({"view": "fit", "fields": calculator.values(), "width": "wide"})


def test_a_slider_moves_its_field_over_powers_of_two(calculator: Calculator) -> None:
    slider = calculator.page.locator("#fit-sequences-power")
    slider.focus()
    for _ in range(5):
        calculator.page.keyboard.press("ArrowRight")
    step = calculator.settled()
    assert calculator.values()["sequences"] == "32"
    assert step["answer"]["cache"]["sequences"] == 32
    calculator.type("sequences", "8")
    assert slider.input_value() == "3"


def test_own_numbers_of_a_machine_are_asked_for_when_own_is_chosen(calculator: Calculator) -> None:
    memory = calculator.page.locator("#fit-memory")
    assert not memory.is_visible()
    calculator.type("on", "own")
    assert memory.is_visible()
    calculator.type("memory", "10GB")
    step = calculator.type("bandwidth", "100 GB/s")
    assert step["answer"]["fits"] is False
    assert step["answer"]["machine"]["memory_bytes"] == 10_000_000_000
    assert calculator.answer_text().startswith("does not fit")
    assert "--suggest" in step["command"]


def test_a_pasted_config_json_is_answered_and_goes_into_the_link(calculator: Calculator) -> None:
    step = calculator.type("config", json.dumps(REFERENCE_CONFIG, indent=2))
    assert step["answer"]["model"]["params_total"] == 9_550_729_216  # worked by hand in tests/cli
    wait_for(lambda: "config=" in calculator.href(), "the address holds the config")


def test_the_same_model_and_machine_are_asked_about_in_every_view(calculator: Calculator) -> None:
    calculator.type("model", "gemma-3-27b")
    calculator.page.locator("nav [data-view=roofline]").click()
    step = calculator.settled("roofline")
    assert calculator.values("roofline")["model"] == "gemma-3-27b"
    assert "gemma-3-27b" in json.dumps(step["answer"])
    assert calculator.page.locator("nav [aria-current]").inner_text() == calculator.text("nav [data-view=roofline]")
    calculator.page.go_back()
    wait_for(lambda: calculator.page.locator("#view-fit").is_visible(), "the way back leads to the first view")


@pytest.mark.parametrize("view", LIVE)
def test_every_view_shows_what_the_core_says_in_cpython(calculator: Calculator, view: str) -> None:
    calculator.open(f"#{view}")
    step = calculator.settled(view)
    assert "error" not in step
    assert step == in_cpython(calculator.asked(view))
    assert calculator.page.locator(f"#view-{view}").is_visible()
    assert len(calculator.answer_text(view)) > 300


def test_the_article_is_counted_anew_and_sorted_by_the_core(calculator: Calculator) -> None:
    calculator.open("#article?length=8k")
    calculator.settled("article")
    calculator.page.locator("#answer-article th button[data-order=model]").first.click()
    step = wait_for(
        lambda: (
            (found := calculator.settled("article"))
            and calculator.asked("article")["fields"]["order"] == "model"
            and found
        ),
        "the order is asked for",
    )
    assert step == in_cpython(calculator.asked("article"))


# ── what can be taken along ──────────────────────────────────────────────────────────────────────


def clipboard(calculator: Calculator, kind: str, view: str = "fit") -> str:
    """What a button copies."""
    calculator.page.evaluate("() => navigator.clipboard.writeText('nothing')")
    calculator.page.locator(f"#view-{view} [data-take={kind}]").click()
    found: str = wait_for(
        lambda: (text := calculator.page.evaluate("() => navigator.clipboard.readText()")) != "nothing" and text,
        "something is copied",
        10,
    )
    return found


def test_a_link_opens_the_same_answer_in_another_browser(
    calculator: Calculator, fresh: Callable[..., Calculator]
) -> None:
    calculator.type("model", "gemma-3-27b")
    calculator.type("on", "own")
    calculator.type("memory", "48 GB & more?")
    calculator.type("memory", "48GB")
    first = calculator.type("sequences", "3")
    link = clipboard(calculator, "link")
    wait_for(lambda: calculator.href() == link, "the address is the link")
    other = fresh()
    other.page.goto(link)
    assert other.ready().settled() == first
    assert other.values() == calculator.values()


def test_copied_json_is_the_answer_of_the_core_in_cpython(calculator: Calculator) -> None:
    calculator.type("context", "32k")
    copied = json.loads(clipboard(calculator, "json"))
    assert copied == in_cpython(calculator.asked())["answer"]


@pytest.mark.parametrize(
    "state",
    [
        "#fit?model=gemma-3-27b&context=8k&sequences=4&kv=q8_0",
        "#fit?model=Qwen3-8B&on=own&memory=24GB&bandwidth=1TB%2Fs&weights=q4_k_m&engine=llama.cpp",
        f"#fit?config={quote(json.dumps({**REFERENCE_CONFIG, 'notes': 'EOF'}))}&on=own&memory=80GB",
        "#roofline?model=gpt-oss-120b&on=H100&batch=16&prompt=2k",
        "#plan?model=Qwen3-8B&on=H100&devices=1",
        SMALL_RUN,
    ],
    ids=["fit", "own machine", "pasted", "roofline", "plan", "simulate"],
)
def test_the_command_that_is_shown_gives_the_same_answer_when_a_shell_runs_it(
    calculator: Calculator, tmp_path: Path, state: str
) -> None:
    view = state[1:].partition("?")[0]
    calculator.open(state)
    step = calculator.settled(view)
    assert "error" not in step
    shown = calculator.page.locator(f"#view-{view} .same code").text_content()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", f"{shown} --json"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) in {(0, ""), (1, "")}
    assert json.loads(done.stdout) == step["answer"]


def downloaded(calculator: Calculator, selector: str, tmp_path: Path) -> tuple[str, bytes]:
    with calculator.page.expect_download(timeout=20_000) as expected:
        calculator.page.locator(selector).first.click()
    path = tmp_path / "downloaded"
    expected.value.save_as(path)
    return expected.value.suggested_filename, path.read_bytes()


@pytest.mark.parametrize("view", LIVE)
def test_tables_can_be_taken_along_as_csv(calculator: Calculator, tmp_path: Path, view: str) -> None:
    import csv

    calculator.open(f"#{view}")
    step = calculator.settled(view)
    name, content = downloaded(calculator, f"#view-{view} [data-take=csv]", tmp_path)
    assert name == f"inference-bench-{view}.csv"
    rows = list(csv.reader(content.decode().splitlines()))
    expected = [row for title, table in step["tables"].items() for row in ([title], *table)]
    assert [row for row in rows if row] == expected


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_chart_can_be_saved_as_svg_with_its_colours_written_out(
    calculator: Calculator, tmp_path: Path, scheme: str
) -> None:
    calculator.page.emulate_media(color_scheme=scheme)
    name, content = downloaded(calculator, "#answer-fit [data-save=svg]", tmp_path)
    assert name == "inference-bench-fit.svg"
    root = ElementTree.fromstring(content)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"var(--" not in content
    paper = root[0].get("fill")
    assert paper == PALETTE["paper"][scheme == "dark"]
    assert float(root.get("width", "0")) > 300


def test_a_chart_can_be_saved_as_png_at_twice_its_size(calculator: Calculator, tmp_path: Path) -> None:
    box = calculator.page.evaluate(
        "() => (({ width, height }) => [width, height])(document.querySelector('#answer-fit .wide svg').viewBox.baseVal)"
    )
    name, content = downloaded(calculator, "#answer-fit [data-save=png]", tmp_path)
    assert name == "inference-bench-fit.png"
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    size = [int.from_bytes(content[at : at + 4], "big") for at in (16, 20)]
    assert size == pytest.approx([2 * side for side in box], abs=2)


# ── the scheduler ────────────────────────────────────────────────────────────────────────────────


def test_a_simulation_says_how_far_it_is_and_other_questions_are_answered_meanwhile(calculator: Calculator) -> None:
    calculator.open("#simulate?requests=400&rates=1,2,3,4")
    bar = calculator.page.locator("#form-simulate progress")
    wait_for(lambda: float(bar.evaluate("(bar) => bar.value")) > 0, "the bar moves")
    assert re.match(r"run \d+ of \d+: ", calculator.status())
    calculator.page.locator("nav [data-view=fit]").click()
    step = calculator.type("context", "16k")
    assert step["answer"]["cache"]["context_tokens"] == 16384
    assert calculator.page.locator("#form-simulate progress").get_attribute("hidden") is None, "it was over too soon"
    found = calculator.settled("simulate")
    assert found == in_cpython(calculator.asked("simulate"))
    assert calculator.page.locator("#form-simulate progress").get_attribute("hidden") is not None


def test_a_simulation_can_be_cancelled_and_the_last_answer_stays(calculator: Calculator) -> None:
    calculator.open(SMALL_RUN)
    calculator.settled("simulate")
    before = calculator.answer_text("simulate")
    calculator.open(LONG_RUN)
    wait_for(lambda: calculator.status().startswith("run "), "it runs")
    cancel = calculator.page.locator("#form-simulate .cancel")
    cancel.click()
    wait_for(lambda: calculator.status() == "Cancelled; the last answer stays.", "it is cancelled")
    assert calculator.answer_text("simulate") == before
    assert not cancel.is_visible()
    assert "error" not in calculator.open("#fit?model=Qwen3-8B&context=8k").settled(patience_s=20)


def test_a_simulation_that_is_asked_for_anew_takes_the_place_of_the_old_one(calculator: Calculator) -> None:
    calculator.open(LONG_RUN)
    wait_for(lambda: calculator.status().startswith("run "), "it runs")
    step = calculator.open(SMALL_RUN).settled("simulate")
    assert step == in_cpython(calculator.asked("simulate"))
