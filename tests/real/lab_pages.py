"""A lab's notebook page, run once a test session; what it found, the processor time it took, and the memory that was held by then."""

from __future__ import annotations

import importlib.util
import resource
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inference_bench.labs.session import peak_memory_bytes

PAGES = Path(__file__).parents[2] / "docs" / "labs" / "notebooks"
_NEEDED = ("torch", "transformers", "marimo")
PAGE_TIMEOUT_S = (
    900  # under a minute on quiet cores; threads that wait for one another on busy ones take ten times that
)


@dataclass(frozen=True)
class PageRun:
    """One page, run; cpu_s counts every thread and every process it waited for; peak_memory_bytes is the whole test run's."""

    result: Any
    shown: tuple[Any, ...]
    cpu_s: float
    peak_memory_bytes: int | None


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


@cache
def _run_once(lab: str) -> PageRun | BaseException:
    """What came of the page, an error too: one that fails, or takes too long, is not run for every test again."""
    try:
        return _run(PAGES / f"{lab}.py")
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
    start_cpu_s = _cpu_s()
    outputs, defined = page.app.run()
    return PageRun(defined["result"], tuple(outputs), _cpu_s() - start_cpu_s, peak_memory_bytes())


def _cpu_s() -> float:
    spent = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent)
