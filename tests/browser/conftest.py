"""One built page a session, one Chromium a module, and in it one open calculator that tests take in turns: it loads for seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from browser.calculator import FLAGS, LISTEN, WIDE, Calculator, Complaints, chromium, origin_of
from inference_bench.page.serve import serve_page
from page.sample import built_page


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """Ended with its module: while it runs, nothing else in this process may have an event loop."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = chromium()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        try:
            yield running
        finally:
            running.close()


@pytest.fixture(scope="session")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_page(tmp_path_factory).folder


@pytest.fixture(scope="session")
def address(page_folder: Path) -> Iterator[str]:
    with serve_page(page_folder) as where:
        yield where


@pytest.fixture
def fresh(chrome: Any, address: str) -> Iterator[Callable[..., Calculator]]:
    """Makes calculators in contexts of their own, not opened yet; what they complain of fails the test, unless told not to."""
    with ExitStack() as stack:
        made: list[Calculator] = []

        def make(where: str = address, *, listens: bool = True, minds: bool = True, **options: Any) -> Calculator:
            context = chrome.new_context(**{"viewport": WIDE, "accept_downloads": True, **options})
            stack.callback(context.close)
            context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin_of(where))
            if listens:
                context.add_init_script(LISTEN)
            calculator = Calculator(context.new_page(), where, Complaints())
            if minds:
                made.append(calculator)
            return calculator

        yield make
        for calculator in made:
            assert calculator.complaints == []


@pytest.fixture(scope="module")
def opened(chrome: Any, address: str) -> Iterator[Calculator]:
    context = chrome.new_context(viewport=WIDE, accept_downloads=True)
    try:
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin_of(address))
        context.add_init_script(LISTEN)
        calculator = Calculator(context.new_page(), address, Complaints())
        calculator.page.goto(address)
        calculator.ready().settled()
        assert calculator.complaints == []
        yield calculator
    finally:
        context.close()


@pytest.fixture
def calculator(opened: Calculator) -> Iterator[Calculator]:
    """The open calculator with the example in it; any complaint fails the test."""
    opened.reset()
    yield opened
    assert opened.complaints == []
    assert opened.violations() == []
