"""Two attempts at once: the first to have a token is kept, the other is dropped and still accounted for.

In:   an attempt, a way to start another one beside it, and when
Out:  what the quicker one returned
Leaves out: what an attempt is, and writing down what came of it: each does that itself, also when it is cancelled
Read next by: attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def race(
    first: Coroutine[Any, Any, _Result],
    start_second: Callable[[], Coroutine[Any, Any, _Result] | None],
    after_s: float,
    drop: Callable[[_Result], Awaitable[None]],
) -> _Result:
    """The result of whichever succeeds first; start_second is asked once, after after_s without a result.

    Raises:   what the first attempt raised, when none succeeds
    """
    tasks = [asyncio.create_task(first)]
    kept: asyncio.Task[_Result] | None = None
    try:
        await asyncio.wait(tasks, timeout=after_s)
        if not tasks[0].done() and (second := start_second()) is not None:
            tasks.append(asyncio.create_task(second))
        kept = await _first_success(tasks)
        return kept.result() if kept is not None else tasks[0].result()
    finally:
        await _drop_all([task for task in tasks if task is not kept], drop)


async def _first_success(tasks: list[asyncio.Task[_Result]]) -> asyncio.Task[_Result] | None:
    pending = set(tasks)
    while pending:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is None:
                return task
    return None


async def _drop_all(tasks: list[asyncio.Task[_Result]], drop: Callable[[_Result], Awaitable[None]]) -> None:
    """Cancel them, wait until they have ended, and drop what they had."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(ended, BaseException):
            await drop(ended)
