"""What does the load client run on: uvloop where it is installed, and ahead of other programs where it may.

In:   the coroutine of a load
Out:  its result, and the name of the loop, which stands in every result
Leaves out: what runs on it, and how it gets ahead (own_priority)
Read next by: load, client_health.

uvloop spends less time between two reads, and its timers wake earlier (docs/decisions.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from inference_bench.measure.own_priority import served_first

UVLOOP: Final = "uvloop"
ASYNCIO: Final = "asyncio"

_Result = TypeVar("_Result")


def run_client(client: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a load to its end; not for use inside an event loop."""
    with asyncio.Runner(loop_factory=find_loop_factory()) as runner, served_first():
        return runner.run(client)


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the fastest event loop there is; None stands for asyncio's own."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop  # type: ignore[no-any-return]


def name_of_loop() -> str:
    """The event loop that runs now; outside of one, asyncio's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return ASYNCIO
    return UVLOOP if type(loop).__module__.partition(".")[0] == UVLOOP else ASYNCIO
