"""Which schedulers are held beside each other: policies and engines by name, with what a person changes of them.

In:   names of policies and engines, Changes
Out:  Candidates: a name, a scheduler, and what it mirrors
Leaves out: memory and step times (server_choice, step_sources)
Read next by: served, cli.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from inference_bench.accounting.allocation.vllm_limits import LARGE_CARD, vllm_limits
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.names import find_name
from inference_bench.simulate.presets import EnginePreset, engine_preset, engine_presets
from inference_bench.simulate.settings import Order, Policy, Preemption, SchedulerSettings, Speculation

ALL: Final = "all"
_UNLESS_ASKED: Final = "unless asked for"  # how a preset's note on prefix caching ends


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scheduler under a name of its own.

    Where:  preset is the engine that it mirrors; None for a plain policy
    """

    name: str
    scheduler: SchedulerSettings
    preset: EnginePreset | None = None

    @property
    def is_engine(self) -> bool:
        """Whether it mirrors an engine."""
        return self.preset is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result says of it."""
        if self.preset is None:
            return ()
        own, here = self.preset.scheduler, self.scheduler
        notes = tuple(note for note in self.preset.notes if not (here.prefix_cache and note.endswith(_UNLESS_ASKED)))
        if own.budget_rule is not here.budget_rule:
            notes = (*notes, f"here positions are spent by the rule {here.budget_rule}, as stated")
        if (own.max_running, own.budget) == (here.max_running, here.budget):
            return notes
        return (*notes, f"here {here.max_running} sequences and {here.budget} positions a step, as stated")


@dataclass(frozen=True, slots=True)
class Changes:
    """What is other than a scheduler's own settings; None leaves those as they are.

    Where:  each concerns some schedulers only: batches, those that join at any step, or those that cut long prompts
    """

    max_running: int | None = None
    token_budget: int | None = None
    max_batch: int | None = None
    dispatch_timeout_s: float | None = None
    preemption: Preemption | None = None
    order: Order | None = None
    prefix_cache: bool | None = None
    speculation: Speculation | None = None


_WORDS: Final[Mapping[str, str]] = {
    "max_running": "a limit of running sequences",
    "token_budget": "a budget of positions a step",
    "max_batch": "a largest batch",
    "dispatch_timeout_s": "a dispatch timeout",
    "preemption": "a way of giving way",
    "order": "an order of admission",
    "prefix_cache": "a prefix cache",
    "speculation": "speculation",
}
_OF_BATCHES: Final = frozenset({"max_batch", "dispatch_timeout_s"})
_OF_CHUNKS: Final = frozenset({"token_budget"})


def scheduler_names() -> tuple[str, ...]:
    """Every name that a scheduler can be asked for by."""
    return (*Policy, *engine_presets())


def candidates_named(names: Sequence[str], changes: Changes | None = None) -> tuple[Candidate, ...]:
    """The schedulers of these names, in order; `all` stands for every policy.

    Raises:  UnknownNameError with the nearest names; RequestError for none, or for a change that concerns none of them
    """
    listed = [name for each in names for name in (tuple(Policy) if each.strip().casefold() == ALL else (each,))]
    if not listed:
        raise RequestError(f"no scheduler is named; known: {', '.join(scheduler_names())}, or {ALL} for every policy")
    return _changed(tuple(dict.fromkeys(_candidate(name) for name in listed)), changes or Changes())


def stated_candidate(engine: str, scheduler: SchedulerSettings, changes: Changes | None = None) -> Candidate:
    """The scheduler that a server states of itself, under the name of its engine.

    Raises:  RequestError for a change that does not concern it
    """
    name = engine.strip().casefold()
    preset = engine_preset(name) if name in engine_presets() else None
    return _changed((Candidate(name, scheduler, preset),), changes or Changes())[0]


def _candidate(name: str) -> Candidate:
    known = find_name("policy or engine's scheduler", name, {str(each): str(each) for each in scheduler_names()}, {})
    if known in set(Policy):
        return Candidate(known, SchedulerSettings(policy=Policy(known)))
    preset = engine_preset(known)
    return Candidate(known, preset.scheduler, preset)


def _changed(candidates: tuple[Candidate, ...], changes: Changes) -> tuple[Candidate, ...]:
    given = {each.name: getattr(changes, each.name) for each in fields(changes)}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if not any(_concerns(name, candidate.scheduler) for candidate in candidates):
            raise RequestError(
                f"{_WORDS[name]} concerns none of {', '.join(each.name for each in candidates)}; leave it out"
            )
    return tuple(_with(candidate, given) for candidate in candidates)


def _with(candidate: Candidate, given: Mapping[str, object]) -> Candidate:
    own = {name: value for name, value in given.items() if _concerns(name, candidate.scheduler)}
    return replace(candidate, scheduler=replace(candidate.scheduler, **own))  # type: ignore[arg-type]  # names and values of fields


def _concerns(name: str, scheduler: SchedulerSettings) -> bool:
    if name in _OF_BATCHES:
        return scheduler.is_batched
    if name in _OF_CHUNKS:
        return scheduler.policy is Policy.CHUNKED
    return not scheduler.is_batched


def engine_scheduler(engine: str, machine: HardwareSpec) -> str | None:
    """The scheduler that an engine sets by itself on a machine (vLLM: vllm_limits); None where it is not known."""
    name = engine.strip().casefold()
    if name not in engine_presets():
        return None
    return "vllm-large" if name == "vllm" and vllm_limits(machine) is LARGE_CARD else name


def describe_changes(candidates: Iterable[Candidate], changes: Changes) -> tuple[str, ...]:
    """What each given change is of, where it does not concern all."""
    every = tuple(candidates)
    said = []
    for each in fields(changes):
        left = [one.name for one in every if not _concerns(each.name, one.scheduler)]
        if getattr(changes, each.name) is not None and left:
            said.append(f"{_WORDS[each.name]} does not concern {', '.join(left)}")
    return tuple(said)
