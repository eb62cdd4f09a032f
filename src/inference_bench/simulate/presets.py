"""The schedulers of real engines as settings, and the memory that their cache gets of a machine.

In:   an engine's name; or ServedModel, the memory of a device and what else is in it
Out:  EnginePreset with SchedulerSettings; KvMemory
Leaves out: how long a step takes (step_sources), and what an engine does beyond the rules named here
Read next by: cli, calibrate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.accounting.allocation.vllm_limits import LARGE_CARD, SMALL_CARD, VllmLimits
from inference_bench.accounting.cache import LOGICAL_STATE, CacheFormat, StateFormat, count_cache, count_kept
from inference_bench.accounting.parallel import rank_model, rank_weights
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.models import ModelSpec
from inference_bench.simulate.settings import (
    AdmissionCheck,
    BudgetRule,
    KvMemory,
    Policy,
    SchedulerSettings,
    WindowCache,
)
from inference_bench.units import format_bytes

DEFAULT_OVERHEAD_BYTES: Final = 2_500_000_000
VLLM_BLOCK_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class EnginePreset:
    """An engine's scheduler as settings.

    Where:  mirrors names the version whose rules these are, limits its own limits; left_out what of it is not simulated;
            memory_share is how much of a device the engine takes for weights, cache and its own buffers together
    """

    name: str
    scheduler: SchedulerSettings
    block_size: int
    memory_share: float
    mirrors: str
    limits: str
    left_out: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result says of it at its own limits."""
        return self._noted(self.limits)

    def notes_at(self, scheduler: SchedulerSettings, why: str) -> tuple[str, ...]:
        """What a result says of it where the limits may be others, and why they are."""
        own = self.scheduler
        if (own.max_running, own.budget) == (scheduler.max_running, scheduler.budget):
            return self.notes
        return self._noted(f"{scheduler.max_running} sequences and {scheduler.budget} positions a step, {why}")

    def _noted(self, limits: str) -> tuple[str, ...]:
        return (f"scheduler: {self.mirrors}: {limits}", *(f"not simulated: {each}" for each in self.left_out))


def vllm_settings(
    max_running: int = SMALL_CARD.sequences,
    token_budget: int = SMALL_CARD.batched_tokens,
    *,
    prefix_cache: bool = False,
    chunked_prefill: bool = True,
) -> SchedulerSettings:
    """The scheduler of vLLM: running sequences first, then prompts in order of arrival with what is left of the budget.

    Where:   a request is admitted while budget is left, if all it has to read fits beside the step, and nobody in a step in
             which one gave way; the newest gives way and is read again; a running server states them as max_num_seqs,
             max_num_batched_tokens, enable_prefix_caching and enable_chunked_prefill (off: a prompt that the rest of the
             budget does not hold waits, and all behind it)
    Source:  vLLM 0.19.0 vllm/v1/core/sched/scheduler.py and vllm/config/scheduler.py (scheduler_reserve_full_isl, on by
             default)
    """
    return SchedulerSettings(
        policy=Policy.CHUNKED,
        max_running=max_running,
        token_budget=token_budget,
        admission_share=1.0,
        admission_check=AdmissionCheck.WHOLE_BESIDE_STEP,
        budget_rule=BudgetRule.SHARED,
        cuts_prompts=chunked_prefill,
        prefix_cache=prefix_cache,
    )


def llama_cpp_settings(
    num_slots: int,
    batch_tokens: int = 2048,
    micro_batch: int = 512,
    *,
    unified: bool = False,
    prefix_cache: bool = False,
) -> SchedulerSettings:
    """The scheduler of the llama.cpp server: a request waits for a slot; decoding first, then prompts, in batches.

    Where:   a running server states them as n_parallel, n_batch, n_ubatch and kv_unified; with a stream of cache a slot
             (unified off) micro-batches are of equally many positions of neighbouring slots, with one cache for all they are
             plain cuts; each stream is an equal share of the cache, and nobody gives way; first tokens of a batch are given once
             all of it is computed
    Ignores: prompts that slots keep for those that begin alike; what becomes of requests where one cache for all slots is full
    Source:  llama.cpp of 2026, tools/server (update_slots, get_available_slot) and src/llama-batch.cpp
    """
    return SchedulerSettings(
        policy=Policy.CHUNKED,
        max_running=num_slots,
        token_budget=batch_tokens,
        admission_share=1.0,
        admission_check=AdmissionCheck.WHOLE_PROMPT,
        budget_rule=BudgetRule.MICRO_BATCHES if unified else BudgetRule.EQUAL_BATCHES,
        micro_batch=micro_batch,
        prefix_cache=prefix_cache,
    )


def _step_words(limits: VllmLimits) -> str:
    return f"{limits.sequences} sequences and {limits.batched_tokens} positions a step"


def _presets() -> tuple[EnginePreset, ...]:
    vllm = EnginePreset(
        name="vllm",
        scheduler=vllm_settings(),
        block_size=VLLM_BLOCK_TOKENS,
        memory_share=0.9,
        mirrors="vLLM 0.19.0, V1",
        limits=f"{_step_words(SMALL_CARD)}, as its server sets on cards below 70 GiB and on the A100",
        left_out=("prefix caching unless asked for", "groups of layers that share one pool of blocks"),
    )
    return (
        vllm,
        replace(
            vllm,
            name="vllm-large",
            scheduler=vllm_settings(*LARGE_CARD),
            limits=f"{_step_words(LARGE_CARD)}, as its server sets on cards of 70 GiB or more",
        ),
        EnginePreset(
            name="sglang",
            scheduler=SchedulerSettings(
                policy=Policy.CHUNKED,
                max_running=256,
                token_budget=8192,
                admission_share=1.0,
                admission_check=AdmissionCheck.WHOLE_PROMPT,
                budget_rule=BudgetRule.PREFILL_FIRST,
                new_token_ratio=0.7,
            ),
            block_size=1,
            memory_share=0.88,
            mirrors="SGLang 0.5, prompts before decoding, 0.7 of the rest of each answer kept free",
            limits="256 sequences and 8192 positions a chunk",
            left_out=("the decay of the share kept free", "the radix cache unless asked for", "overlap of scheduling"),
        ),
        EnginePreset(
            name="llama.cpp",
            scheduler=llama_cpp_settings(4),
            block_size=1,
            memory_share=1.0,
            mirrors="llama.cpp server of 2026 with a stream of cache for each slot (kv_unified off), decoding first, batches "
            "computed 512 positions at a time, equally many of neighbouring slots",
            limits="4 slots, each with a quarter of the cache, and batches of 2048, as where the number of slots is stated; left to "
            "itself the server shares one cache among 4 and cuts plainly",
            left_out=(
                "prompts kept in slots",
                "context shift",
                "the last tokens of a prompt that are read apart for a checkpoint, of models with windows or states",
            ),
        ),
    )


def engine_presets() -> tuple[str, ...]:
    """The names of the engines whose schedulers are known."""
    return tuple(preset.name for preset in _presets())


def engine_preset(name: str) -> EnginePreset:
    """The scheduler of an engine.

    Raises:  UnknownNameError
    """
    folded = name.strip().casefold()
    for preset in _presets():
        if preset.name == folded:
            return preset
    raise UnknownNameError(f"no scheduler is known by the name {name[:80]!r}; known: {', '.join(engine_presets())}")


def kv_memory_of(
    model: ModelSpec,
    weights: WeightCount,
    cache_format: CacheFormat,
    memory_bytes: int,
    overhead_bytes: int = DEFAULT_OVERHEAD_BYTES,
    block_size: int = 1,
    devices: int = 1,
    state_format: StateFormat = LOGICAL_STATE,
) -> KvMemory:
    """What the cache gets of a device beside the weights, and what a sequence takes of it, window by window.

    Formula:  memory - weights - overhead, of one tensor-parallel rank
    Where:    rows that stand for several positions take their share of each position
    Unit:     bytes of one device
    Ignores:  pages that an engine makes equal across layers (see accounting.allocation)
    Raises:   RequestError where nothing is left for the cache
    """
    if devices > 1:
        weights = rank_weights(model, weights, devices)
        model = rank_model(model, devices)
    budget = memory_bytes - weights.total - overhead_bytes
    if budget < 1:
        raise RequestError(
            f"{model.name} leaves no memory for its cache: {format_bytes(weights.total)} of weights and "
            f"{format_bytes(overhead_bytes)} of overhead on a device of {format_bytes(memory_bytes)}"
        )
    return memory_of_bytes(model, cache_format, budget, block_size, state_format)


def memory_of_blocks(
    model: ModelSpec,
    cache_format: CacheFormat,
    num_blocks: int,
    block_size: int = VLLM_BLOCK_TOKENS,
    devices: int = 1,
    state_format: StateFormat = LOGICAL_STATE,
) -> KvMemory:
    """The memory of an engine that says how many blocks it has, each of so many positions of a model without windows.

    Unit:    bytes of one device
    Raises:  RequestError for a model whose layers keep windows or states: a block of theirs is no number of positions
    """
    rank = rank_model(model, devices)
    whole = memory_of_bytes(rank, cache_format, 1, block_size, state_format)
    if whole.windows or whole.state_bytes or not whole.bytes_per_position:
        raise RequestError(
            f"blocks of {model.name} are shared by layers with windows or states; give the bytes of its cache instead"
        )
    return replace(whole, budget_bytes=num_blocks * block_size * whole.bytes_per_position)


def memory_of_bytes(
    model: ModelSpec,
    cache_format: CacheFormat,
    budget_bytes: int,
    block_size: int = 1,
    state_format: StateFormat = LOGICAL_STATE,
) -> KvMemory:
    """A cache of so many bytes for a model.

    Unit:  bytes
    """
    growing, windows = 0, dict[int, int]()
    for mixer, count in model.mixer_groups():
        for kept in count_kept(mixer):
            row = count * kept.row_bytes(cache_format)
            if kept.limit is None:
                growing += -(-row // kept.stride)
            else:
                reach = kept.limit * kept.stride
                windows[reach] = windows.get(reach, 0) + -(-row // kept.stride)
    fixed = count_cache(model, cache_format, 1, 1, state_format).fixed_bytes_per_sequence
    return KvMemory(budget_bytes, growing, block_size, _window_caches(windows.items()), fixed)


def _window_caches(windows: Iterable[tuple[int, int]]) -> tuple[WindowCache, ...]:
    return tuple(WindowCache(reach, num_bytes) for reach, num_bytes in sorted(windows) if num_bytes)
