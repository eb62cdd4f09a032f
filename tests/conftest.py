"""What every test can rely on."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# A shell that starts tests in the background has Ctrl-C ignored, and programs started from there would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Hypothesis looks through every loaded module once, at its first draw; a test's own draws are then as quick as they should be."""
    _draw_once()


@settings(max_examples=1, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers() | st.floats() | st.text() | st.binary())
def _draw_once(_value: object) -> None:
    pass
