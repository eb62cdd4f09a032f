"""A lab's notebook page, run once a test session; what it found, how long it took, and the memory that was held by then."""

from __future__ import annotations

import importlib.util
import resource
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

LABS = ("machine", "cache", "quantise", "speculate", "batch", "grammar")
PAGES = Path(__file__).parents[2] / "docs" / "labs" / "notebooks"
_NEEDED = ("torch", "transformers", "marimo")
_KIBI = 1024
PAGE_TIMEOUT_S = (
    900  # under a minute on quiet cores; threads that wait for one another on busy ones take ten times that
)


@dataclass(frozen=True)
class PageRun:
    """One page, run; cpu_s counts every thread and every process it waited for; peak_memory_bytes is the whole test run's."""

    result: Any
    shown: tuple[Any, ...]
    elapsed_s: float
    cpu_s: float
    peak_memory_bytes: int


def run_page(lab: str) -> Any:
    """The lab's typed result, as its page defines it."""
    return page_run(lab).result


def page_run(lab: str) -> PageRun:
    """The page, run from its first cell to its last; skips the test where a package is not installed."""
    for package in _NEEDED:
        pytest.importorskip(package, reason=f"{package} (extras labs, notebooks) is not installed")
    found = _run_once(lab)
    if isinstance(found, BaseException):
        raise found
    return found


def page_file(lab: str) -> Path:
    return PAGES / f"{lab}.py"


@cache
def _run_once(lab: str) -> PageRun | BaseException:
    """What came of the page, an error too: one that fails, or takes too long, is not run for every test again."""
    try:
        return _run(page_file(lab))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # pytest's own failures, that of a test which takes too long among them
        return error


def _run(path: Path) -> PageRun:
    spec = importlib.util.spec_from_file_location(f"lab_page_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    start_s, start_cpu_s = time.perf_counter(), _cpu_s()
    outputs, defined = page.app.run()
    elapsed_s, cpu_s = time.perf_counter() - start_s, _cpu_s() - start_cpu_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * _KIBI
    return PageRun(defined["result"], tuple(outputs), elapsed_s, cpu_s, peak_bytes)


def _cpu_s() -> float:
    spent = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent)
