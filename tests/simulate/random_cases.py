"""Small random servers and workloads, by seed: enough of every kind to meet the corners of every policy.

Times are often multiples of a power of two, so that arrivals fall exactly on the end of a step and pauses are exactly as long as
is allowed; memory is often barely enough.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from random import Random

from inference_bench.metrics import Objective
from inference_bench.simulate.kernel.pricing import NO_TABLE
from inference_bench.simulate.settings import (
    AdmissionCheck,
    KvMemory,
    Policy,
    SchedulerSettings,
    ServerSetup,
    WindowCache,
)
from inference_bench.simulate.step_time import Coefficients, StepTime, WindowWork
from inference_bench.workload import ClosedLoop, OpenLoop, Requests, Workload

TICK_S = 0.125


@dataclass(frozen=True, slots=True)
class Case:
    """All that a run depends on."""

    workload: Workload
    setup: ServerSetup
    step_time: StepTime
    objective: Objective


def seeded_case(policy: Policy, seed: int) -> Case:
    """The case of a seed."""
    return random_case(policy, Random(f"{policy}-{seed}"))


def random_case(policy: Policy, draw: Random) -> Case:
    """A case from these draws, of which small ones make a small case."""
    requests = random_requests(draw)
    limits = draw.sample(range(1, 60), draw.choice((0, 0, 0, 1, 2)))
    max_output = random_max_output(draw, requests)
    memory = random_memory(draw, policy, requests, limits, max_output)
    return Case(
        Workload("random", requests, random_arrival(draw, len(requests))),
        ServerSetup(random_settings(draw, policy, max_output), memory),
        random_steps(draw, limits),
        Objective(draw.choice((0.5, 2.0, 20.0)), draw.choice((TICK_S, 2 * TICK_S, 1.0, draw.uniform(0.01, 1)))),
    )


def random_requests(draw: Random) -> Requests:
    count = draw.randint(1, 28) if draw.random() < 0.8 else draw.randint(1, 3)
    longest_prompt, longest_output = draw.choice((1, 8, 40, 90)), draw.choice((1, 3, 12, 40))
    prompts = array("q", [draw.randint(1, longest_prompt) for _ in range(count)])
    outputs = array("q", [draw.randint(1, longest_output) for _ in range(count)])
    return Requests(prompts, outputs)


def random_arrival(draw: Random, count: int) -> OpenLoop | ClosedLoop:
    kind = draw.choice(("poisson", "poisson", "bursts", "ticks", "at once", "closed", "closed"))
    if kind == "closed":
        return ClosedLoop(draw.randint(1, count), count, draw.choice((0.0, 0.0, TICK_S, 2.0, draw.uniform(0, 3))))
    if kind == "poisson":
        rate = draw.choice((0.3, 2.0, 10.0))
        gaps = [round(-math.log1p(-draw.random()) / rate, 9) for _ in range(count)]  # no schedule has less
    elif kind == "bursts":
        gaps = [draw.choice((0.0, 0.0, 0.0, 8 * TICK_S, 3.3)) for _ in range(count)]
    elif kind == "ticks":
        gap = TICK_S * draw.choice((1, 1, 2, 5, 16))
        gaps = [gap] * count
    else:
        gaps = [0.0] * count
    times, now = array("d"), 0.0
    for gap in gaps:
        now += gap
        times.append(now)
    return OpenLoop(times, kind)


def random_max_output(draw: Random, requests: Requests) -> int:
    """As long as the longest answer, far longer, or shorter: the scheduler is not told."""
    longest = max(requests.output_tokens)
    return draw.choice((longest, longest, 3 * longest, longest + 1, max(1, longest // 2), 4000))


def random_memory(draw: Random, policy: Policy, requests: Requests, limits: list[int], max_output: int) -> KvMemory:
    """From hardly enough for the longest request to enough for all."""
    windows = tuple(WindowCache(limit, draw.choice((0, 1, 6))) for limit in limits if draw.random() < 0.8)
    if windows and draw.random() < 0.2:  # layers that keep so many, and none that computes so
        windows += (WindowCache(draw.randint(1, 60), 2),)
    state = draw.choice((0, 0, 5, 64))
    per_position = draw.choice((0, 1, 3, 7)) if state else draw.choice((1, 3, 7))
    ample = KvMemory(1, per_position, draw.choice((1, 4, 16)), windows, state)
    kept_free = max_output if policy in (Policy.RESERVE, Policy.STATIC_MEMORY, Policy.DYNAMIC) else 0
    needs = [
        ample.sequence_bytes(prompt + (kept_free or output))
        for prompt, output in zip(requests.prompt_tokens, requests.output_tokens, strict=True)
    ]
    room = draw.choice((0.97, 1.0, 1.02, 1.1, 1.3, 1.3, 1.7, 1.7, 2.0, 2.5, 4.0, 1000.0))
    budget = max(1, int(max(needs) * room) + draw.choice((0, 0, 1, 17)))
    return KvMemory(budget, ample.bytes_per_position, ample.block_size, windows, state)


def random_settings(draw: Random, policy: Policy, max_output: int) -> SchedulerSettings:
    """What the fast engine does: at least as many positions a step as sequences that run."""
    max_running = draw.choice((1, 2, 3, 5, 8, 256))
    budget = draw.choice((max_running, max_running + 1, max_running + 7, 2 * max_running, 64 + max_running))
    return SchedulerSettings(
        policy=policy,
        max_running=max_running,
        token_budget=budget if policy is Policy.CHUNKED or draw.random() < 0.1 else None,
        admission_share=draw.choice((0.99, 0.99, 1.0, 1.0, 0.9, 0.7)),
        max_output_tokens=max_output,
        max_batch=draw.choice((1, 2, 3, 4, 16)),
        dispatch_timeout_s=draw.choice((0.0, TICK_S, 2.0, 2.0, 50.0, draw.uniform(0, 5))),
        admission_check=draw.choice(tuple(AdmissionCheck)),
    )


def random_steps(draw: Random, limits: list[int]) -> StepTime:
    """Steps of a tick or so: by the formula, or by a table."""
    windows = tuple(
        WindowWork(limit, draw.choice((0.0, 3.0, 11.0)), draw.choice((0.0, 2.0)))
        for limit in limits
        if draw.random() < 0.8
    )
    if draw.random() < 0.15:
        windows += (WindowWork(draw.randint(1, 60), 5.0, 1.0),)
    if draw.random() < 0.3:  # every step ends on a tick
        return StepTime(Coefficients(0, 0, 0, 0, 1, 1, fixed_s=TICK_S * draw.choice((1, 2))), windows)
    return StepTime(random_coefficients(draw), windows, random_table(draw) if draw.random() < 0.2 else NO_TABLE)


def random_coefficients(draw: Random) -> Coefficients:
    return Coefficients(
        weight_bytes=draw.choice((0.0, 500.0, draw.uniform(1, 2000))),
        read_bytes=draw.choice((0.0, 1.0, draw.uniform(0, 8))),
        flops_per_position=draw.choice((0.0, 20.0, draw.uniform(1, 60))),
        flops_per_pair=draw.choice((0.0, 0.25, draw.uniform(0, 1))),
        bandwidth_bytes_per_s=draw.choice((4096.0, draw.uniform(1000, 20000))),
        compute_flops_per_s=draw.choice((2048.0, draw.uniform(500, 20000))),
        expert_bytes=draw.choice((0.0, 0.0, draw.uniform(1, 3000))),
        expert_miss=draw.choice((0.5, draw.uniform(0.3, 1.0))),
        write_bytes=draw.choice((0.0, 1.0, draw.uniform(0, 8))),
        state_bytes=draw.choice((0.0, 0.0, draw.uniform(0, 50))),
        flops_per_sequence=draw.choice((0.0, 0.0, draw.uniform(0, 50))),
        serial_share=draw.choice((0.0, 0.0, 1.0, draw.random())),
        fixed_s=draw.choice((1 / 1024, 1 / 64, draw.uniform(0.001, 0.2))),
        sequence_s=draw.choice((0.0, 0.0, draw.uniform(0, 0.01))),
        position_s=draw.choice((0.0, 0.0, 1 / 256, draw.uniform(0, 0.01))),
        vector_s=draw.choice((0.0, 0.0, 1 / 128, draw.uniform(0, 0.1))),
    )


def random_table(draw: Random) -> tuple[float, ...]:
    """A grid of decode times by (sequences, mean context) and one of prompt times by (new, cached) positions, all growing."""
    values = [draw.choice((0.0, 0.01, 0.2))]
    for rows, columns in ((draw.randint(1, 3), draw.randint(1, 3)), (draw.randint(1, 4), draw.randint(1, 2))):
        values += [rows, columns, *growing_axis(draw, rows), *growing_axis(draw, columns)]
        base = [draw.uniform(0.01, 0.1) for _ in range(rows)]
        more = [draw.uniform(0.01, 0.1) for _ in range(columns)]
        values += [sum(base[: row + 1]) + sum(more[: column + 1]) for row in range(rows) for column in range(columns)]
    return tuple(map(float, [len(values) + 1, *values]))


def growing_axis(draw: Random, count: int) -> list[int]:
    return [0, *sorted(draw.sample(range(1, 100), count - 1))]
