"""How fast is the page? Measured in headless Chromium, on loopback, beside its targets.

Method:
  - The page is built into a temporary folder and served by `page serve`'s own server, which compresses.
  - Each cold visit is a new browser context (no cache, no service worker). First paint is the browser's own entry
    first-contentful-paint; the document holds the default answer, so that paint is a meaningful one. Interactive is the
    time from the start of navigation until the core has answered its first question and the answer is in place.
  - A change is a new text in a field. It ends when the answer's HTML is in the document (answered), and again when its charts
    are drawn (drawn); both are taken by an observer inside the page, on the page's clock.
  - The simulation is 300 requests of the reference workload through one scheduler at one rate, from the press of the button.
  - Baselines in the same run: a blank page's paint; Pyodide alone, started in a cold visit of its own; the same questions
    answered by the same code in CPython.
The machine is shared, so read ratios to the baselines before absolute times. Needs Chromium and the dev packages.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from inference_bench import bridge
from inference_bench.page.build import build_page, transfer_bytes
from inference_bench.page.serve import serve_page
from inference_bench.stats import median, quantile

VISITS = 5
CHANGES = 120
PATIENCE_S = 60.0
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SIMULATION = {"policies": "chunked", "rates": "2", "requests": "300"}
# when an answer is put in place, and when its charts are: on the page's own clock
WATCH = """
(() => {
  globalThis.marks = [];
  const watch = () => {
    const observer = new MutationObserver((changes) => {
      for (const { target, attributeName } of changes) marks.push([attributeName, performance.now()]);
    });
    for (const view of document.querySelectorAll("section.view")) {
      observer.observe(view, { attributes: true, attributeFilter: ["data-answered", "data-drawn"] });
    }
  };
  document.addEventListener("DOMContentLoaded", watch);
})();
"""
BARE_PYTHON = """async () => {
  const { files } = await (await fetch("files.json")).json();
  const script = new URL(Object.keys(files).find((name) => name.endsWith("/pyodide.mjs")), location.href);
  const begin = performance.now();
  const { loadPyodide } = await import(script.href);
  await loadPyodide({ indexURL: new URL(".", script).href });
  return performance.now() - begin;
}"""


def main() -> int:
    """Print one line a figure; nothing is asserted."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        print("page: no Chromium on this machine; nothing was measured")
        return 0
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        built = build_page(Path(scratch) / "page")
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        try:
            with serve_page(built.folder) as address:
                measure(browser, address)
        finally:
            browser.close()
        sizes(built.folder)
    return 0


def measure(browser: Browser, address: str) -> None:
    """Visits, changes and a simulation."""
    blank = [paint_s(visit(browser, "data:text/html,<p>blank", waits=False)) for _ in range(VISITS)]
    visits = [visit(browser, address) for _ in range(VISITS)]
    paints, starts = [paint_s(page) for page in visits], [mark_s(page, "data-answered") for page in visits]
    said = f"median of {VISITS} cold visits"
    blank_s, paint = [value for value in blank if value], median([value for value in paints if value])
    line("first meaningful paint", paint, 0.5, f"{said}; blank page {ms(blank_s)}, so {paint / median(blank_s):.1f}x")
    bare_s = median([bare_python_s(browser, address) for _ in range(VISITS)])
    start_s = median(starts)
    line("interactive", start_s, 3.0, f"{said}; Pyodide alone {bare_s * 1e3:.0f} ms, so {start_s / bare_s:.2f}x")
    page = visits[-1]
    for view, field, value in (
        ("fit", "context", lambda i: str(20000 + 131 * i)),
        ("roofline", "batch", lambda i: str(1 + i)),
    ):
        changes(page, view, field, value)
    simulation(page)


def visit(browser: Browser, address: str, *, waits: bool = True) -> Page:
    """A cold visit, until its first answer is in place, or else until something is painted."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(WATCH)
    page = context.new_page()
    page.goto(address)
    if waits:
        wait(page, "() => marks.some(([name]) => name === 'data-drawn')")
    else:
        wait(page, "() => performance.getEntriesByName('first-contentful-paint').length > 0")
    return page


def bare_python_s(browser: Browser, address: str) -> float:
    """How long the page's Python takes to start by itself, without the core, in a cold visit."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(address + "licences.txt")
        return float(page.evaluate(BARE_PYTHON)) / 1e3
    finally:
        context.close()


def paint_s(page: Page) -> float | None:
    """The browser's own first contentful paint; None for a page without content."""
    found: float | None = page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
    )
    return None if found is None else found / 1e3


def mark_s(page: Page, name: str) -> float:
    """When something first happened, from the start of the navigation."""
    return float(page.evaluate("(name) => marks.find(([each]) => each === name)[1]", name)) / 1e3


def changes(page: Page, view: str, field: str, value: Callable[[int], str]) -> None:
    """Change one field again and again, each time after the last one's charts are drawn."""
    page.evaluate("(view) => { location.hash = `#${view}`; }", view)
    wait(page, "(view) => document.getElementById(`view-${view}`).dataset.drawn", view)
    answered, drawn, here = [], [], []
    for index in range(CHANGES):
        begin = page.evaluate(
            """([view, field, text]) => {
              marks.length = 0;
              const control = document.getElementById(`${view}-${field}`), begin = performance.now();
              control.value = text;
              control.dispatchEvent(new Event('input', { bubbles: true }));
              return begin;
            }""",
            [view, field, value(index)],
        )
        wait(page, "() => marks.some(([name]) => name === 'data-drawn')")
        marks = dict(page.evaluate("() => marks"))
        answered.append((marks["data-answered"] - begin) / 1e3)
        drawn.append((marks["data-drawn"] - begin) / 1e3)
        asked = {"view": view, "fields": {field: value(index)}, "width": "wide"}
        here.append(timed(lambda asked=asked: bridge.answer(asked)))
    for what, times in (("answer", answered), ("charts too", drawn)):
        said = f"{CHANGES} changes; p50 {ms(times)}; CPython's answer p50 {ms(here)}, so {median(times) / median(here):.1f}x"
        line(f"{view}: change to {what}, p95", quantile(sorted(times), 0.95), 0.05, said)


def simulation(page: Page) -> None:
    """300 requests of the reference workload, one scheduler, one rate."""
    page.evaluate("() => { location.hash = '#simulate'; }")
    wait(page, "() => !document.getElementById('view-simulate').hidden")
    times = []
    for seed in range(5):
        begin = page.evaluate(
            """(fields) => {
              const form = document.getElementById('form-simulate');
              for (const [name, text] of Object.entries(fields)) form.elements[name].value = text;
              marks.length = 0;
              const begin = performance.now();
              form.requestSubmit();
              return begin;
            }""",
            {**SIMULATION, "seed": str(seed)},
        )
        wait(page, "() => marks.some(([name]) => name === 'data-answered')")
        times.append((dict(page.evaluate("() => marks"))["data-answered"] - begin) / 1e3)
    here_s = timed(lambda: bridge.answer({"view": "simulate", "fields": SIMULATION, "width": None}))
    line(
        "simulation of 300 requests",
        median(times),
        2.0,
        f"median of {len(times)} seeds; in CPython {here_s * 1e3:.0f} ms",
    )


def sizes(folder: Path) -> None:
    """What a first visit transfers, by part, as a host that compresses sends it."""
    groups = {"python": "pyodide/", "charts": "vega/", "core": "core.zip"}
    parts: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name.startswith(("assets/", "index.html")):
            group = next((group for group, mark in groups.items() if mark in name), "page")
            parts[group] = parts.get(group, 0) + transfer_bytes(path.read_bytes())
    shown = ", ".join(f"{group} {size / 1e6:.2f} MB" for group, size in parts.items())
    print(f"{'first visit, compressed':42} {sum(parts.values()) / 1e6:8.2f} MB  ({shown})")


def wait(page: Page, look: str, argument: Any = None) -> None:
    """Ask until the answer is yes: the page's policy forbids the code that Playwright's own waiting makes."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(look, argument):
        if time.monotonic() > end:
            raise TimeoutError(f"after {PATIENCE_S:.0f} s still not: {look}")
        time.sleep(0.03)  # seldom: each look takes a moment of the page


def timed(answer: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    begin = time.perf_counter()
    answer()
    return time.perf_counter() - begin


def ms(seconds: list[float]) -> str:
    """The median in milliseconds."""
    return f"{median(seconds) * 1e3:.1f} ms" if seconds else "n/a"


def line(name: str, seconds: float, target_s: float, said: str) -> None:
    """One figure beside its target."""
    print(f"{name:42} {seconds * 1e3:8.1f} ms  target {target_s * 1e3:.0f} ms  ({said})")


if __name__ == "__main__":
    sys.exit(main())
