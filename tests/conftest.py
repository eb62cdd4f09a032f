"""What every test can rely on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_bench.labs.thread_waiting import let_threads_sleep

# A shell that starts tests in the background has Ctrl-C ignored, and programs started from there would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

let_threads_sleep()  # a run of all tests takes minutes longer beside other work where PyTorch's threads spin

# Here real processes and sockets are held to a wall clock, on a machine that may stand still for a moment: such a test is right where one
# of three tries is, and every further try is printed at the end (RERUN). All other tests have one try.
_WALL_CLOCK: Final = frozenset(
    ["browser", "cli", "conform", "engines", "loadtest", "measure", "operate", "page", "real", "verify"]
)
_TESTS: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what is held to a wall clock its further tries; a test that hangs has one all the same."""
    for item in items:
        if item.path.relative_to(_TESTS).parts[0] in _WALL_CLOCK:
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1, rerun_except=["Timeout"]))


def pytest_collection_finish() -> None:
    """Hypothesis looks through every loaded module once, at its first draw; a test's own draws are then as quick as they should be."""
    _draw_once()


@settings(max_examples=1, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers() | st.floats() | st.text() | st.binary())
def _draw_once(_value: object) -> None:
    pass
