"""Every lab's page as a reader runs it: the whole of it, within the time and memory that the quick mode promises."""

from __future__ import annotations

import pytest

from inference_bench.cli.lab_options import LABS
from inference_bench.labs.checks import missed
from inference_bench.notebook import Shown
from real.lab_pages import PAGE_TIMEOUT_S, page_run

pytestmark = [pytest.mark.labs, pytest.mark.timeout(PAGE_TIMEOUT_S), pytest.mark.parametrize("lab", LABS)]


def test_the_page_runs_to_its_end_and_shows_the_result_it_defines(lab: str) -> None:
    run = page_run(lab)
    assert run.result.head.lab == lab
    assert run.result.head.is_quick
    shown = [each for each in run.shown if isinstance(each, Shown)]
    assert len(shown) == 1
    assert "<iframe" in shown[0]._repr_html_()


def test_no_check_of_the_page_was_missed(lab: str) -> None:
    result = page_run(lab).result
    assert result.checks
    assert missed(result.checks) == ()


def test_the_page_stays_within_what_the_quick_mode_promises(lab: str) -> None:
    run = page_run(lab)
    assert (
        run.cpu_s < 90 * 2
    )  # 90 s on two cores, told by processor time: a busy machine takes longer and is not the page's fault
    assert run.peak_memory_bytes is not None
    assert run.peak_memory_bytes < 6e9
