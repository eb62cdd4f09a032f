"""One call for every policy: the engine that is fastest for what is asked, and the readable loop for what only that can do.

In:   Workload, ServerSetup, StepTime, Objective, which engine
Out:  Outcome
Read next by: summary, capacity, sweep, calibrate.
"""

from __future__ import annotations

from array import array
from enum import StrEnum
from operator import add

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.batches import simulate_batches
from inference_bench.simulate.outcome import Outcome, Progress
from inference_bench.simulate.server import simulate_steps
from inference_bench.simulate.settings import (
    BudgetRule,
    Order,
    Preemption,
    SchedulerSettings,
    ServerSetup,
)
from inference_bench.simulate.step_time import StepTime
from inference_bench.workload import Workload


class Engine(StrEnum):
    """Who runs the simulation; the answers are the same."""

    AUTO = "auto"  # the fastest that can
    REFERENCE = "reference"  # the readable loop, which keeps every token's time
    PLAIN = "plain"  # arrays, in plain Python
    COMPILED = "compiled"  # the same lines through numba


def simulate(
    workload: Workload,
    setup: ServerSetup,
    step_time: StepTime,
    objective: Objective | None = None,
    engine: Engine = Engine.AUTO,
    progress: Progress | None = None,
) -> Outcome:
    """What this server would do with this workload.

    Where:   progress gets (ended, all) requests
    Raises:  RequestError naming a request that can never run, or for an engine that cannot do what is asked;
             MissingExtraError for the compiled engine without numba
    """
    objective = objective or Objective()
    refuse_what_never_fits(workload, setup)
    reason = needs_reference(setup.scheduler)
    if engine is Engine.REFERENCE or (engine is Engine.AUTO and reason is not None):
        run = simulate_batches if setup.scheduler.is_batched else simulate_steps
        return run(workload, setup, step_time, objective, progress)
    if reason is not None:
        raise RequestError(f"the {engine} engine does not do {reason}; the reference engine does")
    from inference_bench.simulate.kernel.engine import simulate_arrays

    return simulate_arrays(
        workload, setup, step_time, objective, is_compiled=_compiles(engine, workload), progress=progress
    )


def needs_reference(settings: SchedulerSettings) -> str | None:
    """What only the readable loop does of these settings; None where the fast engine does it all."""
    if settings.is_batched:
        return None
    for asked, what in (
        (settings.prefix_cache, "a prefix cache"),
        (settings.preemption is not Preemption.RECOMPUTE, "swapping"),
        (settings.order is not Order.FCFS, f"admission by {settings.order}"),
        (settings.budget_rule is not BudgetRule.SHARED, f"a budget spent {settings.budget_rule}"),
        (settings.speculation is not None, "speculation"),
        (settings.new_token_ratio > 0, "room kept free for new tokens"),
        (settings.budget < settings.max_running, "fewer positions a step than sequences"),
    ):
        if asked:
            return what
    return None


def _compiles(engine: Engine, workload: Workload) -> bool:
    """Whether to run compiled: where asked; else where that is ready and worth loading, or where compiling surely pays."""
    if engine is not Engine.AUTO:
        return engine is Engine.COMPILED
    count = len(workload.requests)
    if count < _WORTH_LOADING:
        return False
    from inference_bench.simulate.kernel.compiled import is_available, is_ready

    return is_ready() or (count >= _WORTH_COMPILING and is_available())


_WORTH_LOADING = 5_000
_WORTH_COMPILING = 1_000_000


def refuse_what_never_fits(workload: Workload, setup: ServerSetup) -> None:
    """A request whose cache is larger than all of it is named before anything runs.

    Raises:  RequestError
    """
    if setup.scheduler.policy.value == "static":
        return
    memory, asked = setup.memory, workload.requests
    totals = array("q", map(add, asked.prompt_tokens, asked.output_tokens))
    longest = max(totals)
    needed = memory.sequence_bytes(longest - 1)
    if needed > memory.budget_bytes:
        index = totals.index(longest)
        raise RequestError(
            f"request {index} can never fit: its {asked.prompt_tokens[index]} prompt and {asked.output_tokens[index]} output "
            f"tokens need {needed} bytes of cache, there are {memory.budget_bytes}"
        )
