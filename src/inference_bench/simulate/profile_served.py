"""The server that a profile was fitted to, simulated from the profile alone: no model is loaded, no machine is asked.

In:   StepProfile that holds the work of its own model; Candidates, MemoryChoice
Out:  Served; None where the profile does not hold it
Leaves out: other models at the profile's efficiencies (served.Hosting)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.simulate.candidates import Candidate
from inference_bench.simulate.profile_work import OwnWork
from inference_bench.simulate.served import Contender, MemoryChoice, Served
from inference_bench.simulate.settings import KvMemory, ServerSetup
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.units import format_bytes

_MOST_POSITIONS: Final = 1 << 40  # where a sequence takes the same memory however long it is


def serve_own(
    profile: StepProfile, candidates: Sequence[Candidate], choice: MemoryChoice, usd_per_hour: float | None = None
) -> Served | None:
    """The profile's own model on its own machine; None where the profile does not say what a step of it takes.

    Raises:  RequestError where nothing says what the cache may take, or an overhead is to come off it
    """
    work, step_time = profile.served, profile.own_step_time()
    if work is None or step_time is None:
        return None
    if choice.overhead_bytes is not None:
        raise RequestError("the profile says what its server's cache may take: no overhead comes off it")
    contenders = tuple(
        Contender(each.name, ServerSetup(each.scheduler, _memory(work, choice, each), each.notes))
        for each in candidates
    )
    sizes = {each.setup.memory.budget_bytes: None for each in contenders}
    notes = tuple(f"cache: {format_bytes(size)} a device, {choice.as_stated}" for size in sizes)
    return Served(contenders, step_time, usd_per_hour, notes)


def _memory(work: OwnWork, choice: MemoryChoice, candidate: Candidate) -> KvMemory:
    block = choice.block_of(candidate)
    if choice.num_blocks is not None:
        if work.windows or work.state_bytes:
            raise RequestError(
                "blocks are shared by layers with windows or states here; give the bytes of the cache instead"
            )
        return KvMemory.of_blocks(choice.num_blocks, block, work.bytes_per_position)
    if choice.budget_bytes is None:
        raise RequestError(
            "the profile does not say how much memory its server's cache has; state what the cache may take"
        )
    return work.memory(choice.budget_bytes, block)


def longest_request(setup: ServerSetup) -> int:
    """The most positions that one sequence may hold of the cache.

    Unit:  positions
    """
    memory, budget = setup.memory, setup.sequence_budget_bytes
    if setup.scheduler.keeps_for_longest:
        budget = int(setup.scheduler.admission_share * budget)
    low, high = 0, budget // max(1, memory.bytes_per_position) if memory.bytes_per_position else _MOST_POSITIONS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if memory.sequence_bytes(middle) <= budget else (low, middle - 1)
    return low
