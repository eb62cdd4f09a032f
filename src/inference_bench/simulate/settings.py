"""How a server is set up: its policy, its limits, and the memory its cache may take.

In:   plain numbers
Out:  SchedulerSettings and KvMemory, which the reference loop and the fast engine both read
Leaves out: how long a step takes (step_time) and what is asked (workload)
Read next by: sequence, scheduler, batches, kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.units import format_seconds
from inference_bench.workload.checks import MOST_SPAN_S, require_count

REFERENCE_MAX_OUTPUT: Final = 4000
UNLIMITED: Final = 1 << 40  # positions of a step that has no budget
MOST_BYTES: Final = 1 << 62  # sums of them stay within 64 bits


class Policy(StrEnum):
    """Who is in a step, from the oldest way of serving to today's."""

    STATIC = "static"  # a batch runs until its longest answer ends, finished slots included; memory is not checked
    STATIC_MEMORY = "static-memory"  # the same, with as many requests as surely fit
    DYNAMIC = "dynamic"  # a batch that finished answers leave, and that nobody joins
    RESERVE = "reserve"  # joins at any step; memory is kept for the longest answer allowed
    PAGED = "paged"  # joins at any step; memory is taken as the context grows, the newest gives way
    CHUNKED = "chunked"  # the same, with so many positions a step at most: long prompts are cut


BATCHED: Final = frozenset({Policy.STATIC, Policy.STATIC_MEMORY, Policy.DYNAMIC})


class Preemption(StrEnum):
    """What becomes of the cache of a sequence that gives way."""

    RECOMPUTE = "recompute"  # dropped: prompt and answer so far are read again
    SWAP = "swap"  # copied to host memory, and back before it goes on


class Order(StrEnum):
    """Who of those that wait is admitted first."""

    FCFS = "fcfs"
    SHORTEST_PROMPT = "shortest-prompt"
    PRIORITY = "priority"


class BudgetRule(StrEnum):
    """How the positions of a step are spent."""

    SHARED = "shared"  # vLLM: running sequences first, one budget for decoding and prompts
    PREFILL_FIRST = "prefill-first"  # SGLang: a step is prompts alone where any can go on, else decoding alone
    MICRO_BATCHES = "micro-batches"  # llama.cpp: one batch, computed in parts that each read the weights
    EQUAL_BATCHES = "equal-batches"  # llama.cpp, a stream of cache a slot: parts of equally many of neighbouring slots


class AdmissionCheck(StrEnum):
    """What must fit before a request is admitted, where memory is taken as the context grows."""

    WHOLE_PROMPT = "whole-prompt"  # all it has to read
    FIRST_CHUNK = "first-chunk"  # what its first step adds, beside what that step adds to those running
    WHOLE_BESIDE_STEP = "whole-beside-step"  # all it has to read, beside what its first step adds to those running


@dataclass(frozen=True, slots=True)
class WindowCache:
    """Layers that keep so many positions at most.

    Unit:  positions, bytes a position of all those layers
    """

    max_positions: int
    bytes_per_position: int


@dataclass(frozen=True, slots=True)
class KvMemory:
    """What the cache may take, and what a sequence takes of it.

    Formula:  bytes(t) = k·R(t) + Σ windows k_w·R(min(t, w)) + state, R(t) = t rounded up to whole blocks
    Unit:     bytes
    Ignores:  the cut of a window's blocks at their old end
    Raises:   RequestError for what cannot be
    """

    budget_bytes: int
    bytes_per_position: int
    block_size: int = 1
    windows: tuple[WindowCache, ...] = ()
    state_bytes: int = 0

    def __post_init__(self) -> None:
        for value, what, least in (
            (self.budget_bytes, "memory for the cache", 1),
            (self.bytes_per_position, "bytes of a position", 0),
            (self.block_size, "block size", 1),
            (self.state_bytes, "state of a sequence", 0),
        ):
            require_count(value, what, least, MOST_BYTES)
        if any(window.max_positions < 1 or window.bytes_per_position < 0 for window in self.windows):
            raise RequestError("a window keeps at least 1 position of 0 bytes or more")
        if self.bytes_per_position == 0 and not self.windows and self.state_bytes == 0:
            raise RequestError("a sequence takes no memory at all; give the bytes that a position takes")

    @classmethod
    def of_blocks(cls, num_blocks: int, block_size: int, bytes_per_position: int) -> KvMemory:
        """The memory of an engine that says how many blocks it has."""
        return cls(num_blocks * block_size * bytes_per_position, bytes_per_position, block_size)

    def sequence_bytes(self, positions: int) -> int:
        """What one sequence of so many cached positions takes."""
        total = self.bytes_per_position * self.rounded(positions) + self.state_bytes
        for window in self.windows:
            total += window.bytes_per_position * self.rounded(min(positions, window.max_positions))
        return total

    def rounded(self, positions: int) -> int:
        """Positions of whole blocks."""
        return -(-positions // self.block_size) * self.block_size


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafting: some tokens are guessed and verified in one step of the model.

    Where:  draft_tokens are guessed a step, each accepted with probability `acceptance` as long as those before it were;
            draft_cost is a drafted token's time as a share of a decode step's
    """

    draft_tokens: int
    acceptance: float
    draft_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.draft_tokens < 1 or not 0 <= self.acceptance <= 1 or self.draft_cost < 0:
            raise RequestError(
                f"speculation of {self.draft_tokens} tokens accepted at {self.acceptance} costing {self.draft_cost}: at "
                "least 1 token, an acceptance of 0 to 1 and a cost of 0 or more are needed"
            )


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What the scheduler may do; the defaults are the reference rules.

    Where:  token_budget is positions a step (None: 256 for chunked, no limit elsewhere); admission_share is how much of
            the memory may be taken when one is admitted; max_output_tokens is the longest answer allowed, kept free by
            `reserve`; max_batch, dispatch_timeout_s are of batches; micro_batch is what llama.cpp computes at once;
            cuts_prompts is whether a prompt is admitted that the rest of a step's budget does not hold (it is cut);
            swap_bytes_per_s is the link to host memory; new_token_ratio is the share of the rest of the allowed answer that is
            kept free for each, as SGLang does
    """

    policy: Policy = Policy.CHUNKED
    max_running: int = 256
    token_budget: int | None = None
    admission_share: float = 0.99
    max_output_tokens: int = REFERENCE_MAX_OUTPUT
    max_batch: int = 16
    dispatch_timeout_s: float = 2.0
    preemption: Preemption = Preemption.RECOMPUTE
    swap_bytes_per_s: float = 25e9  # PCIe 4.0 x16, one direction, as copied
    order: Order = Order.FCFS
    budget_rule: BudgetRule = BudgetRule.SHARED
    admission_check: AdmissionCheck = AdmissionCheck.WHOLE_PROMPT
    new_token_ratio: float = 0.0
    micro_batch: int = 512
    cuts_prompts: bool = True
    prefix_cache: bool = False
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        self._require_kinds()
        for value, what in (
            (self.max_running, "sequences that run"),
            (self.max_output_tokens, "longest answer"),
            (self.max_batch, "largest batch"),
            (self.micro_batch, "micro-batch"),
            (self.budget, "positions of a step"),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RequestError(f"the {what}: {value!r}; a whole number of at least 1 is needed")
            if value > UNLIMITED:
                raise RequestError(f"the {what}: {value!r}; at most {UNLIMITED} can be counted")
        if not 0 < self.admission_share <= 1:
            raise RequestError(f"the admission share {self.admission_share} is not above 0 and at most 1")
        if not 0 <= self.dispatch_timeout_s <= MOST_SPAN_S:
            raise RequestError(
                f"the dispatch timeout {self.dispatch_timeout_s} s is not a time of 0 or more, up to {MOST_SPAN_S:g} s"
            )
        if not 0 < self.swap_bytes_per_s < math.inf:
            raise RequestError(f"the link for swapping, {self.swap_bytes_per_s} bytes/s, must be above 0")
        if not 0 <= self.new_token_ratio <= 1:
            raise RequestError(f"the share kept free for new tokens, {self.new_token_ratio}, is not within 0 to 1")

    def _require_kinds(self) -> None:
        for value, kind, what in (
            (self.policy, Policy, "policy"),
            (self.preemption, Preemption, "way of giving way"),
            (self.order, Order, "order of admission"),
            (self.budget_rule, BudgetRule, "rule for the budget"),
            (self.admission_check, AdmissionCheck, "check before admission"),
        ):
            if not isinstance(value, kind):
                known = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
                raise RequestError(f"the {what} is {str(value)[:40]!r}; give one of {known}")
        if self.speculation is not None and not isinstance(self.speculation, Speculation):
            raise RequestError(
                f"the speculation is {str(self.speculation)[:40]!r}; give a Speculation of drafted tokens and acceptance, or None"
            )

    @property
    def keeps_for_longest(self) -> bool:
        """Whether a request is admitted only where the longest answer allowed would fit."""
        return self.policy in (Policy.RESERVE, Policy.STATIC_MEMORY, Policy.DYNAMIC)

    @property
    def budget(self) -> int:
        """Positions of a step."""
        if self.token_budget is not None:
            return self.token_budget
        return _REFERENCE_BUDGET if self.policy is Policy.CHUNKED else UNLIMITED

    @property
    def is_batched(self) -> bool:
        """Whether requests run in batches that nobody joins."""
        return self.policy in BATCHED


_REFERENCE_BUDGET: Final = 256


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """A scheduler with its memory: one server but for the speed of its steps.

    Where:   request_s passes between the sending of a request and its arrival at the scheduler
    Unit:    seconds
    Raises:  RequestError for a time below 0 or of more than 1000 s
    """

    scheduler: SchedulerSettings
    memory: KvMemory
    notes: tuple[str, ...] = field(default=())
    request_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.request_s <= MOST_REQUEST_S:
            raise RequestError(
                f"the time that a request takes besides its steps is {self.request_s!r} s; it must lie between 0 and "
                f"{MOST_REQUEST_S:g}"
            )

    @property
    def sequence_budget_bytes(self) -> int:
        """What one sequence may take of the cache: all of it, or of an engine that keeps a stream of cache a slot its share.

        Where:  so nobody ever gives way there: all slots together hold no more than there is
        """
        if self.scheduler.budget_rule is BudgetRule.EQUAL_BATCHES:
            return self.memory.budget_bytes // self.scheduler.max_running
        return self.memory.budget_bytes


MOST_REQUEST_S: Final = 1_000.0


def said_request_s(request_s: float) -> str:
    """What a result says of the time before a request's first step."""
    return f"{format_seconds(request_s)} pass between the sending of a request and its first step, and are part of TTFT and E2E"


def never_admitted(index: int, num_tokens: int, needed: int, setup: ServerSetup) -> RequestError:
    """The error of a request that no step will ever take.

    Where:  num_tokens are those that it has to read, needed the bytes for which it would have to find room
    """
    settings = setup.scheduler
    allowed = int(settings.admission_share * setup.memory.budget_bytes)
    cause = "it needs"
    if settings.keeps_for_longest:
        cause = f"its prompt and the longest answer allowed ({settings.max_output_tokens} tokens) need"
    return RequestError(
        f"request {index} ({num_tokens} tokens to read) can never be admitted: {cause} {needed} bytes of cache, allowed are {allowed}"
    )
