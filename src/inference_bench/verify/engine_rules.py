"""By which rules does this very server schedule: its slots or sequences, its budget of positions, the memory of its cache.

In:   what the engine says of itself (EngineIdentity, EngineFigures), the model it serves
Out:  EngineRules: the settings that the simulator takes, and in words what they rest on and what is assumed
Leaves out: how long a step takes (calibrate)
Read next by: load_workload, load_check.

What the engine says goes before what is known of engines of its kind, and that before an assumption; the words say which it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.engines.base import LLAMA_CPP, SGLANG, VLLM, EngineFigures, EngineIdentity
from inference_bench.errors import RequestError
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.presets import engine_preset, llama_cpp_settings, memory_of_bytes, vllm_settings
from inference_bench.simulate.settings import KvMemory, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import StepTime
from inference_bench.units import format_count

_BATCH_FLAG: Final = "max_batch_tokens"
_MICRO_BATCH_FLAG: Final = "max_micro_batch_tokens"
_UNIFIED_FLAG: Final = "kv_unified"
_BATCH_TOKENS: Final = 2048  # llama.cpp's own defaults: n_batch, n_ubatch
_MICRO_BATCH_TOKENS: Final = 512
_SAID: Final = "as the server says"
_UNKNOWN_CONTEXT: Final = 1 << 20  # of a server that says nothing of its cache: enough for every request that is sent


@dataclass(frozen=True, slots=True)
class EngineRules:
    """A server's scheduler and memory as the simulator takes them.

    Where:  words say of each rule where it is from; max_context_tokens is the longest that prompt and answer of one request may
            be, None where no limit is known
    """

    setup: ServerSetup
    words: tuple[str, ...]
    max_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ServerModel:
    """All that a load is predicted from: the rules, the time of a step, and what a request takes besides its steps.

    Where:  step_error is how far the step times are off on what they were not fitted to, as a fraction; None where too few
            steps were kept from the fit to say
    Unit:   seconds
    """

    rules: EngineRules
    step_time: StepTime = field(repr=False)
    request_s: float = 0.0
    step_error: float | None = 0.0

    @property
    def setup(self) -> ServerSetup:
        """The rules with what a request takes besides."""
        return replace(self.rules.setup, request_s=self.request_s)


def rules_of(identity: EngineIdentity, figures: EngineFigures, served: ServedModel) -> EngineRules:
    """The scheduler of this server, from what it says of itself.

    Raises:  RequestError for a cache in which not one position has room
    """
    name = identity.kind
    if name == LLAMA_CPP:
        return _llama_cpp(identity, figures, served)
    if name == SGLANG:
        return _in_blocks(
            engine_preset(SGLANG).scheduler, "SGLang's preset", figures, served, engine_preset(SGLANG).notes
        )
    if name == VLLM:
        return _in_blocks(vllm_settings(), "vLLM's defaults", figures, served, engine_preset(VLLM).notes)
    said = f"the rules of {identity.name or 'an engine that does not say its name'} are not known: it is assumed to schedule as vLLM does"
    return _in_blocks(vllm_settings(), "vLLM's defaults", figures, served, (said,))


# ── llama.cpp ──────────────────────────────────────────────────────────────────────────────────────


def _llama_cpp(identity: EngineIdentity, figures: EngineFigures, served: ServedModel) -> EngineRules:
    slots, slots_said = _first_known(
        (figures.num_slots, _SAID),
        (engine_preset(LLAMA_CPP).scheduler.max_running, "assumed: the server does not say"),
    )
    unified = figures.kv_unified if figures.kv_unified is not None else bool(identity.flags.get(_UNIFIED_FLAG, False))
    batch, batch_said = _limit(figures.token_budget, identity, _BATCH_FLAG, _BATCH_TOKENS)
    micro, micro_said = _limit(figures.micro_batch, identity, _MICRO_BATCH_FLAG, _MICRO_BATCH_TOKENS)
    scheduler = llama_cpp_settings(slots, batch, micro, unified=unified)
    per_slot, memory, memory_said = _slot_memory(figures, served, slots, unified)
    computed = (
        "a batch is cut into parts of so many positions, each of which reads the weights"
        if unified
        else "a batch is computed in parts of neighbouring slots with the same number of positions each, and each part reads the "
        "weights"
    )
    return EngineRules(
        ServerSetup(scheduler, memory),
        (
            f"{format_count(slots)} slots ({slots_said}); who comes when all are busy waits in order of arrival",
            f"decoding slots first, then prompts, up to {format_count(batch)} positions a batch ({batch_said}), "
            f"{format_count(micro)} computed at once ({micro_said})",
            f"{'one cache for all slots' if unified else 'a cache for each slot'}: {computed}",
            memory_said,
            "every prompt is new, and nothing of it is taken from a cache (cache_prompt false)",
        ),
        per_slot,
    )


def _slot_memory(
    figures: EngineFigures, served: ServedModel, slots: int, unified: bool
) -> tuple[int | None, KvMemory, str]:
    """The longest context of a slot, and the cells of all of them as memory."""
    per_slot = figures.context_tokens_per_slot
    total = figures.context_tokens_total or figures.kv_cells
    if per_slot is None and total is not None:
        per_slot = total if unified else total // slots
    if per_slot is None:
        return (
            None,
            _memory_of_cells(served, slots, _UNKNOWN_CONTEXT),
            "the size of its cache is not known: assumed to be enough",
        )
    if per_slot < 1:
        raise RequestError(
            f"the server says that {total} positions are shared by {slots} slots, which leaves none; give it more"
        )
    cells = per_slot if not unified else -(-(total or per_slot) // slots)
    said = f"{format_count(per_slot)} positions a slot, as the server says: memory never makes a request wait"
    if unified:
        said = f"{format_count(total or per_slot)} positions for all slots, as the server says"
    return per_slot, _memory_of_cells(served, slots, cells), said


def _memory_of_cells(served: ServedModel, slots: int, cells: int) -> KvMemory:
    """A cache of so many slots of so many positions."""
    one = memory_of_bytes(served.model, served.cache_format, 1)
    return replace(one, budget_bytes=slots * one.sequence_bytes(cells))


def _limit(said: int | None, identity: EngineIdentity, flag: str, default: int) -> tuple[int, str]:
    """A limit as the server says it, as it was started with, or as it is by default."""
    started = identity.flag_count(flag)
    return _first_known((said, _SAID), (started, "as it was started"), (default, "its default, assumed"))


def _first_known(*found: tuple[int | None, str]) -> tuple[int, str]:
    return next((value, said) for value, said in found if value)


# ── engines with blocks ────────────────────────────────────────────────────────────────────────────


def _in_blocks(
    scheduler: SchedulerSettings, whose: str, figures: EngineFigures, served: ServedModel, notes: tuple[str, ...]
) -> EngineRules:
    running, running_said = _first_known((figures.max_running, _SAID), (scheduler.max_running, f"{whose}, assumed"))
    budget, budget_said = _first_known((figures.token_budget, _SAID), (scheduler.budget, f"{whose}, assumed"))
    block = figures.block_tokens or 1
    memory = memory_of_bytes(served.model, served.cache_format, 1, block)
    positions = figures.num_blocks * block if figures.num_blocks else figures.kv_tokens or figures.kv_cells
    if positions:
        memory_said = (
            f"{format_count(positions)} positions of cache in blocks of {format_count(block)}, as the server says"
        )
    else:
        positions = _UNKNOWN_CONTEXT * running
        memory_said = "the size of its cache is not known: assumed to be enough"
    per_position = memory.sequence_bytes(block) / block  # states and windows counted as if a block held them
    return EngineRules(
        ServerSetup(
            replace(scheduler, max_running=running, token_budget=budget),
            replace(memory, budget_bytes=max(1, int(positions * per_position))),
        ),
        (
            f"up to {format_count(running)} sequences run at once ({running_said})",
            f"up to {format_count(budget)} positions a step ({budget_said})",
            memory_said,
            "every prompt is new: a prefix cache finds nothing",
            *notes,
        ),
        figures.max_sequence_tokens,
    )
