"""The fast engine: a workload into arrays, the loop over them, an Outcome out.

In:   Workload, ServerSetup, StepTime, Objective; compiled or plain
Out:  Outcome; the same as the readable loop's but for the times of single tokens
Read next by: run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.kernel import state as at
from inference_bench.simulate.kernel.batch_steps import advance_batches
from inference_bench.simulate.kernel.state import State
from inference_bench.simulate.kernel.steps import advance
from inference_bench.simulate.outcome import TIMELINE_POINTS, Gaps, Outcome, Progress, Timeline
from inference_bench.simulate.settings import AdmissionCheck, Policy, ServerSetup, never_admitted
from inference_bench.simulate.step_time import StepTime
from inference_bench.workload import OpenLoop, Workload

PLAIN: Final = "plain"
COMPILED: Final = "compiled"
_GAP_ROOM: Final = 1 << 16
_REQUESTS_A_CALL: Final = 20_000
_EVERYTHING: Final = 1 << 62
_BY_CHUNK: Final = {
    AdmissionCheck.WHOLE_PROMPT: 0,
    AdmissionCheck.FIRST_CHUNK: 1,
    AdmissionCheck.WHOLE_BESIDE_STEP: at.ASKS_WHOLE,
}


class Arrays:
    """How arrays are made: lists in plain Python, NumPy's where the loop is compiled."""

    def __init__(self, is_compiled: bool) -> None:
        self._numpy: Any = None
        if is_compiled:
            import numpy

            self._numpy = numpy

    def ints(self, values: Iterable[int]) -> Any:
        """Whole numbers, a copy."""
        return list(values) if self._numpy is None else self._numpy.array(_buffer(values, "q"), dtype=self._numpy.int64)

    def floats(self, values: Iterable[float]) -> Any:
        """Numbers, a copy."""
        return (
            list(values) if self._numpy is None else self._numpy.array(_buffer(values, "d"), dtype=self._numpy.float64)
        )

    def filled(self, count: int, value: int) -> Any:
        """The same whole number so many times."""
        return [value] * count if self._numpy is None else self._numpy.full(count, value, dtype=self._numpy.int64)

    def zeros(self, count: int) -> Any:
        """Zeros that will hold numbers."""
        return [0.0] * count if self._numpy is None else self._numpy.zeros(count, dtype=self._numpy.float64)


def _buffer(values: Iterable[Any], code: str) -> Any:
    return values if isinstance(values, array) else array(code, values)


def simulate_arrays(
    workload: Workload,
    setup: ServerSetup,
    step_time: StepTime,
    objective: Objective,
    *,
    is_compiled: bool,
    progress: Progress | None = None,
) -> Outcome:
    """A workload on one server, over arrays.

    Raises:  RequestError naming a request that can never run; MissingExtraError for a compiled run without numba
    """
    loop = _loop(setup, is_compiled)
    state = _state(workload, setup, step_time, objective, Arrays(is_compiled))
    taken = _Taken(is_compiled)
    while True:
        stopped = loop(state, _REQUESTS_A_CALL)
        taken.take(state)
        if progress is not None:
            progress(int(state.counter[at.DONE]), int(state.counter[at.TOTAL]))
        if stopped == at.FINISHED:
            return _outcome(workload, setup, state, taken, COMPILED if is_compiled else PLAIN)
        if stopped != at.MORE:
            raise _refusal(setup, state, stopped)


def _loop(setup: ServerSetup, is_compiled: bool) -> Callable[[State, int], int]:
    if is_compiled:
        from inference_bench.simulate.kernel.compiled import compiled_loop

        return compiled_loop(setup.scheduler.is_batched)
    return advance_batches if setup.scheduler.is_batched else advance


class _Taken:
    """The pauses taken away from the loop so far."""

    def __init__(self, is_compiled: bool) -> None:
        self._is_compiled = is_compiled
        self.values = array("d")
        self.counts = array("q")

    def take(self, state: State) -> None:
        """Empty the loop's room for pauses."""
        count = int(state.counter[at.NUM_GAPS])
        gaps, counts = state.gaps[:count], state.gap_counts[:count]
        if self._is_compiled:
            self.values.frombytes(memoryview(gaps).cast("B"))  # type: ignore[arg-type]
            self.counts.frombytes(memoryview(counts).cast("B"))  # type: ignore[arg-type]
        else:
            self.values.extend(gaps)
            self.counts.extend(counts)
        state.counter[at.NUM_GAPS] = 0


def _classes(setup: ServerSetup, step_time: StepTime) -> list[tuple[int, int, float, float]]:
    """Layers by how far they look: (positions, bytes of a block, bytes read and FLOPs a position); the first: everything."""
    memory = setup.memory
    kept = {window.max_positions: 0 for window in memory.windows}
    for window in memory.windows:
        kept[window.max_positions] += window.bytes_per_position * memory.block_size
    found = [(_EVERYTHING >> 2, memory.bytes_per_position * memory.block_size, 0.0, 0.0)]
    found += [
        (work.max_positions, kept.pop(work.max_positions, 0), work.read_bytes, work.flops_per_pair)
        for work in step_time.windows
    ]
    return found + [(positions, num_bytes, 0.0, 0.0) for positions, num_bytes in kept.items()]


def _state(workload: Workload, setup: ServerSetup, step_time: StepTime, objective: Objective, make: Arrays) -> State:
    """All arrays at their start."""
    asked, count = workload.requests, len(workload.requests)
    classes = _classes(setup, step_time)
    block, longest = setup.memory.block_size, longest_request(workload)
    ring = 1 << (max(asked.output_tokens) + 1).bit_length()
    window_ring = max((limit for limit, *_ in classes if limit <= longest), default=0) + 2
    gap_room = max(_GAP_ROOM, 2 * max(asked.output_tokens), 4 * min(count, setup.scheduler.max_running))
    points = TIMELINE_POINTS
    return State(
        counter=make.ints(_counters(workload, setup, len(classes), ring, window_ring, longest, gap_room)),
        clock=make.floats(_clocks(workload, setup, objective)),
        coefficients=make.floats(step_time.vector),
        table=make.floats(step_time.table),
        arrival=make.floats(_arrivals(workload)),
        prompt=make.ints(asked.prompt_tokens),
        output=make.ints(asked.output_tokens),
        generated=make.filled(count, 0),
        filled=make.filled(count, 0),
        offset=make.filled(count, 0),
        began=make.filled(count, 0),
        phase=make.filled(count, at.IS_WAITING),
        before=make.filled(count, at.NONE),
        after=make.filled(count, at.NONE),
        bucket_before=make.filled(count, at.NONE),
        bucket_after=make.filled(count, at.NONE),
        stamp=make.filled(count, 0),
        first_s=make.zeros(count),
        last_s=make.zeros(count),
        late=make.filled(count, 0),
        preempted=make.filled(count, 0),
        stack=make.filled(min(count, setup.scheduler.max_running) + count, 0),
        bucket=make.filled(ring, at.NONE),
        limit=make.ints(each[0] for each in classes),
        block_bytes=make.ints(each[1] for each in classes),
        read_bytes=make.floats(each[2] for each in classes),
        pair_flops=make.floats(each[3] for each in classes),
        context=make.filled(len(classes), 0),
        blocks=make.filled(len(classes), 0),
        within=make.filled(len(classes), 0),
        phases=make.filled(len(classes) * block, 0),
        leaving=make.filled(len(classes) * window_ring, 0),
        reads=make.filled(len(classes), 0),
        pairs=make.filled(len(classes), 0),
        gaps=make.zeros(gap_room),
        gap_counts=make.filled(gap_room, 0),
        point_time=make.zeros(points),
        point_waiting=make.filled(points, 0),
        point_running=make.filled(points, 0),
        point_bytes=make.filled(points, 0),
    )


def longest_request(workload: Workload) -> int:
    """Positions of the request that is longest when it ends."""
    asked = workload.requests
    return max(prompt + output for prompt, output in zip(asked.prompt_tokens, asked.output_tokens, strict=True))


def _counters(
    workload: Workload,
    setup: ServerSetup,
    num_classes: int,
    ring: int,
    window_ring: int,
    longest: int,
    gap_room: int,
) -> list[int]:
    settings, memory, arrival = setup.scheduler, setup.memory, workload.arrival
    total = len(workload.requests)
    values = {
        at.TOTAL: total,
        at.RELEASED: total if isinstance(arrival, OpenLoop) else min(arrival.concurrency, total),
        at.OLDEST: at.NONE,
        at.NEWEST: at.NONE,
        at.FIRST_PREFILL: at.NONE,
        at.LAST_LATE: at.NONE,
        at.STRIDE: 1,
        at.MAX_RUNNING: min(settings.max_running, len(workload.requests)),
        at.BUDGET: settings.budget,
        at.ADMISSION_LIMIT: int(settings.admission_share * memory.budget_bytes),
        at.MEMORY: memory.budget_bytes,
        at.STATE_OF_SEQUENCE: memory.state_bytes,
        at.BLOCK: memory.block_size,
        at.NUM_CLASSES: num_classes,
        at.RING: ring,
        at.WINDOW_RING: window_ring,
        at.LONGEST: longest,
        at.RESERVES: int(settings.policy is Policy.RESERVE),
        at.BY_CHUNK: _BY_CHUNK[settings.admission_check],
        at.MAX_OUTPUT: settings.max_output_tokens,
        at.GAP_ROOM: gap_room,
        at.POINT_ROOM: TIMELINE_POINTS,
        at.MAX_BATCH: settings.max_batch,
        at.PADS: int(settings.policy is not Policy.DYNAMIC),
        at.CHECKS_MEMORY: int(settings.policy is not Policy.STATIC),
    }
    return [values.get(place, 0) for place in range(at.NUM_COUNTERS)]


def _clocks(workload: Workload, setup: ServerSetup, objective: Objective) -> list[float]:
    arrival = workload.arrival
    think_s = 0.0 if isinstance(arrival, OpenLoop) else arrival.think_s
    values = {at.MAX_GAP: objective.max_gap_s, at.THINK: think_s, at.TIMEOUT: setup.scheduler.dispatch_timeout_s}
    return [float(values.get(place, 0.0)) for place in range(at.NUM_CLOCKS)]


def _arrivals(workload: Workload) -> Iterable[float]:
    arrival = workload.arrival
    return arrival.times_s if isinstance(arrival, OpenLoop) else array("d", bytes(8 * len(workload.requests)))


def _refusal(setup: ServerSetup, state: State, stopped: int) -> RequestError:
    index = int(state.counter[at.CULPRIT])
    tokens = int(state.prompt[index] + state.generated[index])
    if stopped == at.LONE:
        return RequestError(
            f"request {index} cannot fit alone: its {tokens} tokens need {setup.memory.sequence_bytes(tokens)} bytes of "
            f"cache, there are {setup.memory.budget_bytes}"
        )
    longest = setup.scheduler.max_output_tokens if setup.scheduler.keeps_for_longest else None
    held = tokens if longest is None else int(state.prompt[index]) + longest
    return never_admitted(index, tokens, setup.memory.sequence_bytes(held), setup)


def _outcome(workload: Workload, setup: ServerSetup, state: State, taken: _Taken, engine: str) -> Outcome:
    counts, points = state.counter, int(state.counter[at.NUM_POINTS])
    columns: tuple[Any, ...] = (state.point_time, state.point_waiting, state.point_running, state.point_bytes)
    timeline = [array(code, column[:points]) for code, column in zip("dqqq", columns, strict=True)]
    return Outcome(
        workload=workload,
        policy=setup.scheduler.policy.value,
        engine=engine,
        arrival_s=_column(state.arrival),
        first_token_s=_column(state.first_s),
        last_token_s=_column(state.last_s),
        keeps_gaps=[not late for late in state.late],
        gaps=Gaps(taken.values, taken.counts),
        num_preemptions=int(counts[at.PREEMPTIONS]),
        num_steps=int(counts[at.STEP]),
        in_system_s=float(state.clock[at.IN_SYSTEM]),
        busy_s=float(state.clock[at.BUSY]),
        peak_bytes=int(counts[at.PEAK]),
        timeline=Timeline(*timeline),
        preempted=array("q", state.preempted),
        notes=setup.notes,
    )


def _column(values: Any) -> array[float]:
    """Times as an array of doubles, without a Python number each where they are NumPy's."""
    if isinstance(values, list):
        return array("d", values)
    column = array("d")
    column.frombytes(values.tobytes())
    return column
