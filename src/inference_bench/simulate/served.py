"""What is simulated but for the workload: schedulers with their memory, how long steps take, what it costs.

In:   Candidates; a reference profile, a model on a machine, a fitted profile or a measured table; MemoryChoice
Out:  Served
Leaves out: what is asked (workload), and how several servers share it (fleet_plan)
Read next by: study, capacity, cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.candidates import Candidate
from inference_bench.simulate.presets import (
    DEFAULT_OVERHEAD_BYTES,
    VLLM_BLOCK_TOKENS,
    kv_memory_of,
    memory_of_blocks,
    memory_of_bytes,
)
from inference_bench.simulate.reference_profiles import reference_profile
from inference_bench.simulate.settings import REFERENCE_MAX_OUTPUT, KvMemory, ServerSetup, said_request_s
from inference_bench.simulate.step_sources import (
    Shares,
    StepRange,
    engine_step_time,
    rank_of,
    step_time_of,
)
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import format_bytes, format_count, format_fraction

if TYPE_CHECKING:
    from inference_bench.simulate.step_profile import StepProfile
    from inference_bench.workload import Workload

ENGINE_OVERHEAD_BYTES: Final = (
    1_500_000_000  # beside weights and cache, within the share of memory that an engine takes
)
_MOST_CHUNK: Final = (
    131_072  # positions of a step that a table of times is worked out for; longer steps follow its line
)


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """What is stated of the memory that the cache may take; None leaves it to the profile or the machine.

    Where:   as_stated says by whom
    Unit:    bytes of one device; blocks of block_size positions
    Raises:  RequestError for bytes and blocks at once
    """

    budget_bytes: int | None = None
    num_blocks: int | None = None
    block_size: int | None = None
    overhead_bytes: int | None = None
    as_stated: str = "as stated"

    def __post_init__(self) -> None:
        if self.budget_bytes is not None and self.num_blocks is not None:
            raise RequestError("the cache's memory is stated both in bytes and in blocks; give one of them")
        for value, what in ((self.budget_bytes, "memory of the cache"), (self.num_blocks, "number of blocks")):
            if value is not None and value < 1:
                raise RequestError(f"the {what} is {value}; it must be at least 1")
        if self.block_size is not None and self.block_size < 1:
            raise RequestError(f"a block of {self.block_size} positions cannot be; it must hold at least 1")

    def block_of(self, candidate: Candidate) -> int:
        """Positions of a block: as stated, else the engine's own; 16 where blocks are counted or shared, else 1."""
        if self.block_size is not None:
            return self.block_size
        if candidate.preset is not None:
            return candidate.preset.block_size
        return VLLM_BLOCK_TOKENS if self.num_blocks is not None or candidate.scheduler.prefix_cache else 1


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheduler with its memory, under its name."""

    name: str
    setup: ServerSetup


@dataclass(frozen=True, slots=True)
class Served:
    """One server in as many ways as it is compared in.

    Where:  usd_per_hour is of all its devices; notes are assumptions beside those of the step times
    """

    contenders: tuple[Contender, ...]
    step_time: StepTime
    usd_per_hour: float | None = None
    notes: tuple[str, ...] = ()

    def priced_for(self, num_servers: int) -> float | None:
        """What so many of it cost an hour.

        Unit:  US dollars; None without a price
        """
        return None if self.usd_per_hour is None else self.usd_per_hour * num_servers

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What all that follows rests on."""
        return tuple(dict.fromkeys((*self.step_time.notes, *self.notes)))


def reached_after(served: Served, request_s: float) -> Served:
    """It where so much time passes before a request reaches the scheduler.

    Unit:  seconds
    """
    if not request_s:
        return served
    contenders = (replace(each, setup=replace(each.setup, request_s=request_s)) for each in served.contenders)
    return replace(served, contenders=tuple(contenders), notes=(*served.notes, said_request_s(request_s)))


def allowing(candidate: Candidate, workload: Workload) -> Candidate:
    """A scheduler that knows the longest answer its clients allow, as the workload states it."""
    longest = workload.max_output_tokens or max(workload.requests.output_tokens, default=REFERENCE_MAX_OUTPUT)
    return replace(candidate, scheduler=replace(candidate.scheduler, max_output_tokens=longest))


def serve_reference(
    name: str, candidates: Sequence[Candidate], choice: MemoryChoice, usd_per_hour: float | None = None
) -> Served:
    """The reference case on one of its machines, at its price unless another is given.

    Raises:  UnknownNameError; RequestError for an overhead, which the profile's cache has been freed of already
    """
    profile = reference_profile(name)
    if choice.overhead_bytes is not None:
        raise RequestError("a reference profile says what its cache may take: no overhead comes off it")
    return _served(
        [(each, _resized(profile.memory, choice, each)) for each in candidates],
        profile.step_time,
        profile.usd_per_hour if usd_per_hour is None else usd_per_hour,
        (f"cache: {_said_memory(profile.memory, choice, 'the profile')}",),
    )


def serve_table(
    step_time: StepTime, candidates: Sequence[Candidate], choice: MemoryChoice, usd_per_hour: float | None = None
) -> Served:
    """A server whose steps were measured and whose model is not named: its cache is counted in positions.

    Raises:  RequestError where nothing says how many positions the cache holds
    """
    if choice.num_blocks is None:
        raise RequestError(
            "a table of step times does not say what the cache holds; give its number of blocks, or the model and machine"
        )
    pairs = [(each, KvMemory.of_blocks(choice.num_blocks, choice.block_of(each), 1)) for each in candidates]
    note = f"cache: {format_count(choice.num_blocks)} blocks as stated, counted as one byte a position"
    return _served(pairs, step_time, usd_per_hour, (note,))


@dataclass(frozen=True, slots=True)
class Hosting:
    """A model on so many of a machine."""

    served: ServedModel
    machine: HardwareSpec
    devices: int = 1

    def memory(self, candidate: Candidate, choice: MemoryChoice) -> KvMemory:
        """What a scheduler's cache gets of one device.

        Raises:  RequestError where nothing is left, or the machine's memory is not known
        """
        served, block = self.served, choice.block_of(candidate)
        if choice.num_blocks is not None:
            return memory_of_blocks(served.model, served.cache_format, choice.num_blocks, block, self.devices)
        if choice.budget_bytes is not None:
            rank = rank_of(served, self.devices)
            return memory_of_bytes(rank.model, served.cache_format, choice.budget_bytes, block)
        if self.machine.memory_bytes is None:
            raise RequestError(f"how much memory {self.machine.name} has is not known; state what the cache may take")
        share = 1.0 if candidate.preset is None else candidate.preset.memory_share
        return kv_memory_of(
            served.model,
            served.weights,
            served.cache_format,
            int(share * self.machine.memory_bytes),
            self._overhead(candidate, choice),
            block,
            self.devices,
        )

    def _overhead(self, candidate: Candidate, choice: MemoryChoice) -> int:
        if choice.overhead_bytes is not None:
            return choice.overhead_bytes
        return ENGINE_OVERHEAD_BYTES if candidate.is_engine else DEFAULT_OVERHEAD_BYTES

    def notes(self, candidates: Sequence[Candidate], choice: MemoryChoice) -> tuple[str, ...]:
        """Where the cache's memory is from."""
        return tuple(dict.fromkeys(self._note(each, choice) for each in candidates))

    def _note(self, candidate: Candidate, choice: MemoryChoice) -> str:
        memory = self.memory(candidate, choice)
        size = f"{format_bytes(memory.budget_bytes)} a device"
        if choice.num_blocks is not None:
            return f"cache: {format_count(choice.num_blocks)} blocks as stated, {size}"
        if choice.budget_bytes is not None:
            return f"cache: {size}, {choice.as_stated}"
        share = "the memory"
        if candidate.preset is not None:
            share = f"{format_fraction(candidate.preset.memory_share, 2)} of the memory, as {candidate.name} takes,"
        return f"cache: {size}: {share} less weights and {format_bytes(self._overhead(candidate, choice))} of overhead"

    def serve(
        self,
        step_time: StepTime,
        candidates: Sequence[Candidate],
        choice: MemoryChoice,
        usd_per_device_hour: float | None = None,
    ) -> Served:
        """It as a server with these step times, under each scheduler.

        Raises:  RequestError where nothing is left for the cache
        """
        pairs = [(each, self.memory(each, choice)) for each in candidates]
        price = None if usd_per_device_hour is None else usd_per_device_hour * self.devices
        return _served(pairs, step_time, price, self.notes(candidates, choice))

    def at_shares(self, shares: Shares) -> StepTime:
        """Steps at stated shares of the machine's peaks.

        Raises:  RequestError where a rate is not known
        """
        return step_time_of(self.served, self.machine, shares, self.devices)

    def expected_of(self, engine: str, candidates: Sequence[Candidate], workload: Workload) -> StepTime:
        """Steps as they are expected of an engine, tabulated as far as the workload reaches.

        Raises:  RequestError where the machine's rates are not known
        """
        reach = reach_of(workload, candidates)
        return engine_step_time(self.served, self.machine, engine, reach, self.devices)

    def as_fitted(self, profile: StepProfile) -> StepTime:
        """Steps at the efficiencies of a profile.

        Raises:  RequestError for a profile of another machine
        """
        return profile.step_time(self.served, self.machine, self.devices)


def reach_of(workload: Workload, candidates: Sequence[Candidate]) -> StepRange:
    """The steps that a workload can ask of some schedulers."""
    asked = workload.requests
    schedulers = [each.scheduler for each in candidates]
    most = max(each.max_batch if each.is_batched else each.max_running for each in schedulers)
    prompts = sum(asked.prompt_tokens)
    return StepRange(
        max_batch=max(2, min(most, len(workload))),
        max_context=max(map(int.__add__, asked.prompt_tokens, asked.output_tokens)),
        max_chunk=max(1, min(max(each.budget for each in schedulers), prompts, _MOST_CHUNK)),
        prompt_tokens=max(1, round(prompts / len(workload))),
    )


def _served(
    pairs: Sequence[tuple[Candidate, KvMemory]], step_time: StepTime, usd: float | None, notes: tuple[str, ...]
) -> Served:
    contenders = tuple(
        Contender(candidate.name, ServerSetup(candidate.scheduler, memory, candidate.notes))
        for candidate, memory in pairs
    )
    return Served(contenders, step_time, usd, notes)


def _resized(memory: KvMemory, choice: MemoryChoice, candidate: Candidate) -> KvMemory:
    """A profile's memory, with what is stated in its place."""
    block = choice.block_of(candidate)
    if choice.num_blocks is not None:
        return KvMemory.of_blocks(choice.num_blocks, block, memory.bytes_per_position)
    return replace(memory, budget_bytes=choice.budget_bytes or memory.budget_bytes, block_size=block)


def _said_memory(memory: KvMemory, choice: MemoryChoice, profile: str) -> str:
    if choice.num_blocks is not None:
        return f"{format_count(choice.num_blocks)} blocks, as stated"
    if choice.budget_bytes is not None:
        return f"{format_bytes(choice.budget_bytes)}, as stated"
    return (
        f"{format_bytes(memory.budget_bytes)}, as {profile} says, {format_bytes(memory.bytes_per_position)} a position"
    )
