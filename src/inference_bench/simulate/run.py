"""One call for every policy: the engine that is fastest for what is asked, and the readable loop for what only that can do.

In:   Workload, ServerSetup, StepTime, Objective, which engine
Out:  Outcome
Read next by: summary, capacity, sweep, calibrate.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from operator import add
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.batches import simulate_batches
from inference_bench.simulate.estimate import work_ahead
from inference_bench.simulate.outcome import MOST_RUN_S, Outcome, Progress, end_of_clock
from inference_bench.simulate.server import simulate_steps
from inference_bench.simulate.settings import (
    MOST_BYTES,
    BudgetRule,
    Order,
    Policy,
    Preemption,
    SchedulerSettings,
    ServerSetup,
    said_request_s,
)
from inference_bench.simulate.step_time import StepTime
from inference_bench.workload import ClosedLoop, Workload


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
    engine: Engine | str = Engine.AUTO,
    progress: Progress | None = None,
) -> Outcome:
    """What this server would do with this workload.

    Where:   progress gets (ended, all) requests
    Raises:  RequestError naming a request that can never run, for an engine that cannot do what is asked, or a run beyond the
             end of the clock;
             MissingExtraError for the compiled engine without numba
    """
    objective, engine = objective or Objective(), known_engine(engine)
    refuse_what_never_fits(workload, setup)
    outcome = _run(seen_by_server(workload, setup.request_s), setup, step_time, objective, engine, progress)
    if setup.request_s:
        outcome = later(outcome, workload, setup.request_s)
    end_s = max(outcome.last_token_s)
    if not end_s <= MOST_RUN_S:
        raise end_of_clock(end_s)
    return outcome


def known_engine(engine: Engine | str) -> Engine:
    """The engine of this name.

    Raises:  RequestError
    """
    if not isinstance(engine, str) or engine not in set(Engine):
        raise RequestError(f"no engine of the simulator is called {str(engine)[:40]!r}; known: {', '.join(Engine)}")
    return Engine(engine)


def seen_by_server(workload: Workload, request_s: float) -> Workload:
    """The workload as it reaches the scheduler, whose clock begins so much later: users think for so much longer."""
    arrival = workload.arrival
    if not request_s or not isinstance(arrival, ClosedLoop):
        return workload
    return replace(workload, arrival=replace(arrival, think_s=arrival.think_s + request_s))


def later(outcome: Outcome, workload: Workload, request_s: float) -> Outcome:
    """A run as its clients saw it: what the server did, so much after each request was sent.

    Unit:  seconds
    """
    moments, times, failed = outcome.timeline, outcome.token_times_s, frozenset(outcome.failed)

    def shifted(each_s: Sequence[float]) -> list[float]:
        return [at if index in failed else at + request_s for index, at in enumerate(each_s)]

    return replace(
        outcome,
        workload=workload,
        first_token_s=shifted(outcome.first_token_s),
        last_token_s=shifted(outcome.last_token_s),
        token_times_s=None if times is None else tuple(tuple(at + request_s for at in each) for each in times),
        in_system_s=outcome.in_system_s + request_s * (len(workload.requests) - len(failed)),
        timeline=replace(moments, time_s=tuple(at + request_s for at in moments.time_s)),
        notes=(*outcome.notes, said_request_s(request_s)),
    )


def _run(
    workload: Workload,
    setup: ServerSetup,
    step_time: StepTime,
    objective: Objective,
    engine: Engine,
    progress: Progress | None,
) -> Outcome:
    reason = needs_reference(setup.scheduler)
    if engine is Engine.REFERENCE or (engine is Engine.AUTO and reason is not None):
        run = simulate_batches if setup.scheduler.is_batched else simulate_steps
        return run(workload, setup, step_time, objective, progress)
    if reason is not None:
        raise RequestError(f"the {engine} engine does not do {reason}; the reference engine does")
    from inference_bench.simulate.kernel.engine import simulate_arrays

    is_compiled = _compiles(engine, workload, setup.scheduler)
    return simulate_arrays(workload, setup, step_time, objective, is_compiled=is_compiled, progress=progress)


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
        (not settings.cuts_prompts, "prompts that are never cut"),
        (settings.new_token_ratio > 0, "room kept free for new tokens"),
        (settings.budget < settings.max_running, "fewer positions a step than sequences"),
    ):
        if asked:
            return what
    return None


def _compiles(engine: Engine, workload: Workload, settings: SchedulerSettings) -> bool:
    """Whether to run compiled: where asked; else where that is ready and worth loading, or where compiling surely pays."""
    if engine is not Engine.AUTO:
        return engine is Engine.COMPILED
    count, steps = len(workload.requests), work_ahead(workload, settings).expected_steps
    if count < _WORTH_LOADING and steps < _STEPS_WORTH_LOADING:
        return False
    from inference_bench.simulate.kernel.compiled import is_available, is_ready

    return is_ready() or ((count >= _WORTH_COMPILING or steps >= _STEPS_WORTH_COMPILING) and is_available())


_WORTH_LOADING: Final = 5_000  # requests
_WORTH_COMPILING: Final = 1_000_000
_STEPS_WORTH_LOADING: Final = 1_000_000  # a second or two of the plain engine
_STEPS_WORTH_COMPILING: Final = 200_000_000


def _refuse_longer_than_allowed(workload: Workload, settings: SchedulerSettings) -> None:
    """Where memory is kept for the longest answer allowed, none may be longer."""
    if not settings.keeps_for_longest:
        return
    outputs, allowed = workload.requests.output_tokens, settings.max_output_tokens
    if max(outputs) > allowed:
        index = next(index for index, length in enumerate(outputs) if length > allowed)
        raise RequestError(
            f"request {index} (counted from 0) answers with {outputs[index]} tokens, and the policy {settings.policy} keeps memory "
            f"for answers of up to {allowed}; allow longer answers"
        )


def refuse_what_never_fits(workload: Workload, setup: ServerSetup) -> None:
    """A request whose cache is larger than all of it, or whose answer is longer than is allowed, is named first.

    Raises:  RequestError
    """
    memory, asked = setup.memory, workload.requests
    is_unchecked = setup.scheduler.policy is Policy.STATIC
    answer = max(max(asked.output_tokens), setup.scheduler.max_output_tokens)
    most = memory.sequence_bytes(max(asked.prompt_tokens) + answer)
    if most * (min(setup.scheduler.max_batch, len(asked)) if is_unchecked else 1) > MOST_BYTES:
        raise RequestError(
            f"the longest prompt with the longest answer allowed takes {most} bytes of cache, too much to be added up; give fewer "
            "bytes a position, or shorter answers"
        )
    if is_unchecked:
        return
    totals = array("q", map(add, asked.prompt_tokens, asked.output_tokens))
    longest = max(totals)
    needed = memory.sequence_bytes(longest - 1)
    room = setup.sequence_budget_bytes
    if needed > room:
        index, slots = totals.index(longest), ""
        if room < memory.budget_bytes:
            slots = f" for each of {setup.scheduler.max_running} slots"
        raise RequestError(
            f"request {index} can never fit: its {asked.prompt_tokens[index]} prompt and {asked.output_tokens[index]} output "
            f"tokens need {needed} bytes of cache, there are {room}{slots}"
        )
    if not setup.scheduler.cuts_prompts and longest - 1 > setup.scheduler.budget:
        raise RequestError(
            f"request {totals.index(longest)} has up to {longest - 1} tokens to read at once, and prompts are not cut: a step of "
            f"{setup.scheduler.budget} positions cannot hold it; allow more positions a step"
        )
    _refuse_longer_than_allowed(workload, setup.scheduler)
