"""Did two runs do the same work? Only then does a difference of their times say anything.

In:   two Sides
Out:  the steps and parts in which they did; the reasons why not, in words
Leaves out: what may differ (engine, version, settings, machine, formats of weights and cache): that is what is compared
Read next by: flow, decide.

The same work of two loads is the same parts, each with the same schedule (to the last bit of every arrival time), the same
requested lengths, and prompts of as many tokens, request by request, where both servers count with the same tokenizer.

A verification chooses its loads by what it measured, and sends as many waves of a step as it has time for. So of two
verifications the same steps are compared, and of their parts those alone that were the same work; the others are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from inference_bench.compare import Phase
from inference_bench.compare_runs.side import Side, SidePoint
from inference_bench.errors import RequestError
from inference_bench.loadtest.workload_memory import Asked
from inference_bench.records import RequestRecord
from inference_bench.workload import ClosedLoop, OpenLoop

_TOKENS_APART: Final = 0.02  # of all prompt tokens: more is another workload, less is a template's doing
_FLOPS_APART: Final = 0.1  # of a step: more is another model, less is prompts that came out a little longer
_MOST_NAMED: Final = 3
_MOST_REASONS: Final = 4


class SharedParts(NamedTuple):
    """The parts of two runs.

    Where:  same are those that were the same work, apart the reasons of each that both have and was not, alone those of one run
    """

    same: tuple[str, ...]
    apart: Mapping[str, tuple[str, ...]]
    alone: tuple[str, ...]


class SharedSteps(NamedTuple):
    """The measured steps of two runs: pairs of the same work, and how many of the same name were not, or are of one run alone."""

    pairs: tuple[tuple[SidePoint, SidePoint], ...]
    num_apart: int
    num_alone: int


def require_same_work(first: Side, second: Side) -> None:
    """Refuse two runs whose times say nothing about each other.

    Raises:  RequestError with the reasons
    """
    reasons = why_not_the_same(first, second)
    if reasons:
        raise RequestError(
            f"{first.name} and {second.name} did not do the same work, so their times say nothing about each other: "
            f"{'; '.join(reasons[:_MOST_REASONS])}{'; and more' if len(reasons) > _MOST_REASONS else ''}"
        )


def why_not_the_same(first: Side, second: Side) -> tuple[str, ...]:
    """The reasons why two runs must not be compared; empty where they did the same work."""
    if first.is_verify != second.is_verify:
        kinds = ["a verification" if side.is_verify else "a load" for side in (first, second)]
        return (f"one is {kinds[0]} and the other {kinds[1]}",)
    parts, steps = shared_parts(first, second), shared_steps(first, second)
    reasons = tuple(reason for found in parts.apart.values() for reason in found)
    if first.is_verify and (steps.pairs or parts.same):
        return ()
    if steps.num_apart:
        return (f"{steps.num_apart} steps of the same name compute other FLOPs, as of another model", *reasons)
    if first.points and second.points:
        return (f"no step was measured in both ({_contexts(first)} and {_contexts(second)})", *reasons)
    return reasons if parts.same or parts.apart else ("they have no part in common",)


def _contexts(side: Side) -> str:
    """At which contexts a verification measured decoding: a slow server's are cut short."""
    found = sorted({point.context_tokens for point in side.points if point.phase == Phase.DECODE})
    return f"decode at {', '.join(map(str, found)) or 'no'} tokens"


def shared_steps(first: Side, second: Side) -> SharedSteps:
    """The measured steps that both runs have, by phase, batch and nominal context."""
    others = {point.key: point for point in second.points}
    common = [(point, others[point.key]) for point in first.points if point.key in others]
    pairs = tuple(pair for pair in common if abs(pair[1].flops / pair[0].flops - 1) <= _FLOPS_APART)
    alone = {point.key for point in first.points} ^ others.keys()
    return SharedSteps(pairs, len(common) - len(pairs), len(alone))


def shared_parts(first: Side, second: Side) -> SharedParts:
    """The parts that both runs have, whether they were the same work, and those that only one has."""
    names = [*first.parts, *(name for name in second.parts if name not in first.parts)]
    both = [name for name in names if name in first.parts and name in second.parts]
    reasons = {name: tuple(_in_part(name, first, second)) for name in both}
    return SharedParts(
        tuple(name for name in both if not reasons[name]),
        {name: found for name, found in reasons.items() if found},
        tuple(name for name in names if name not in both),
    )


def _in_part(name: str, first: Side, second: Side) -> Iterator[str]:
    where = f" in part {name}" if len(first.parts) > 1 else ""
    mine, theirs = first.parts[name], second.parts[name]
    asked = first.asked.get(name), second.asked.get(name)
    if asked[0] is not None and asked[1] is not None:
        has_replay = first.is_shadow or second.is_shadow
        yield from (f"{reason}{where}" for reason in _asked_apart(asked[0], asked[1], has_replay))
    elif first.is_verify:
        yield from (f"{reason}{where}" for reason in _waves_apart(mine, theirs))
        return
    yield from (f"{reason}{where}" for reason in _lengths_apart(mine, theirs, asked[0] is None))


def _asked_apart(first: Asked, second: Asked, has_replay: bool) -> Iterator[str]:
    """What was asked for in one and not in the other; of a replay, prompts are as long as the first server counted them."""
    mine, theirs = first.arrival, second.arrival
    if type(mine) is not type(theirs):
        yield "one is an open loop and the other a closed one"
    elif isinstance(mine, OpenLoop) and isinstance(theirs, OpenLoop) and mine.times_s != theirs.times_s:
        yield f"the schedules differ ({_schedule(mine)} and {_schedule(theirs)})"
    elif isinstance(mine, ClosedLoop) and isinstance(theirs, ClosedLoop) and mine != theirs:
        yield f"the concurrency or number of requests differs ({mine.concurrency} and {theirs.concurrency} at once)"
    if first.output_tokens != second.output_tokens:
        yield f"the requested output lengths differ (mean {first.output_tokens.mean:.1f} and {second.output_tokens.mean:.1f})"
    if first.prompt_tokens != second.prompt_tokens and not has_replay:
        yield f"the prompt lengths differ (mean {first.prompt_tokens.mean:.1f} and {second.prompt_tokens.mean:.1f})"


def _schedule(arrival: OpenLoop) -> str:
    rate = "" if arrival.nominal_rate is None else f" at {arrival.nominal_rate:g} a second"
    return f"{len(arrival)} requests{rate}"


def _waves_apart(first: Sequence[RequestRecord], second: Sequence[RequestRecord]) -> Iterator[str]:
    """Waves of one step of a sweep: as many as there was time for, so that only what each request asks for must be alike."""
    if any(record.index is not None for record in (*first, *second)):
        yield "the schedule is not remembered"
        return
    asked = [{record.requested_output_tokens for record in side} for side in (first, second)]
    if asked[0] != asked[1]:
        yield "the requested output lengths differ"
    counted = [[record.prompt_tokens for record in side if record.prompt_tokens] for side in (first, second)]
    mine, theirs = (fmean(lengths) if lengths else None for lengths in counted)
    if mine is not None and theirs is not None and abs(theirs - mine) > max(1.0, _TOKENS_APART * mine):
        yield f"the prompt lengths differ (mean {mine:.1f} and {theirs:.1f})"


def _lengths_apart(
    first: Sequence[RequestRecord], second: Sequence[RequestRecord], must_count_alike: bool
) -> Iterator[str]:
    """Requests of the same number whose lengths differ; where no schedule is remembered, their number too."""
    mine, theirs = _by_index(first), _by_index(second)
    if must_count_alike and len(first) != len(second) and not (mine and theirs):
        yield f"one has {len(first)} requests and the other {len(second)}"
        return
    common = [index for index in mine if index in theirs]
    asked = [i for i in common if mine[i].requested_output_tokens != theirs[i].requested_output_tokens]
    if asked:
        yield f"{len(asked)} of {len(common)} requests asked for another output length ({_named(asked)})"
    counted = [(mine[i].prompt_tokens, theirs[i].prompt_tokens) for i in common]
    known = [(a, b) for a, b in counted if a and b]
    apart = sum(abs(a - b) for a, b in known)
    total = sum(a for a, _ in known)
    if total and apart > _TOKENS_APART * total:
        yield f"the prompts differ by {apart} of {total} tokens"


def _by_index(records: Sequence[RequestRecord]) -> Mapping[int, RequestRecord]:
    return {record.index: record for record in records if record.index is not None}


def _named(indices: Sequence[int]) -> str:
    rest = "" if len(indices) <= _MOST_NAMED else ", ..."
    return f"number {', '.join(map(str, indices[:_MOST_NAMED]))}{rest}"
