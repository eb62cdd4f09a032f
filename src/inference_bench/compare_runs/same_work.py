"""Did two runs do the same work? Only then does a difference of their times say anything.

In:   two Sides
Out:  the reasons why not, in words; none where they did
Leaves out: what may differ (engine, version, settings, machine, formats of weights and cache): that is what is compared
Read next by: flow.

The same work is the same parts, each with the same schedule (to the last bit of every arrival time), the same requested
lengths, and prompts of as many tokens, request by request, where both servers count with the same tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from inference_bench.compare_runs.side import Side
from inference_bench.loadtest.workload_memory import Asked
from inference_bench.records import RequestRecord
from inference_bench.workload import ClosedLoop, OpenLoop

_TOKENS_APART: Final = 0.02  # of all prompt tokens: more is another workload, less is a template's doing
_MOST_NAMED: Final = 3


def why_not_the_same(first: Side, second: Side) -> tuple[str, ...]:
    """The reasons why two runs must not be compared; empty where they did the same work."""
    if first.is_verify != second.is_verify:
        kinds = ["a verification" if side.is_verify else "a load" for side in (first, second)]
        return (f"one is {kinds[0]} and the other {kinds[1]}",)
    shared = [name for name in first.parts if name in second.parts]
    if not shared:
        return ("they have no part in common",)
    return tuple(reason for name in shared for reason in _in_part(name, first, second))


def shared_parts(first: Side, second: Side) -> tuple[list[str], list[str]]:
    """The parts that both runs have, and those that only one has."""
    names = [*first.parts, *(name for name in second.parts if name not in first.parts)]
    both = [name for name in names if name in first.parts and name in second.parts]
    return both, [name for name in names if name not in both]


def _in_part(name: str, first: Side, second: Side) -> Iterator[str]:
    where = f" in part {name}" if len(first.parts) > 1 else ""
    asked = first.asked.get(name), second.asked.get(name)
    if asked[0] is not None and asked[1] is not None:
        yield from (f"{reason}{where}" for reason in _asked_apart(asked[0], asked[1]))
    yield from (
        f"{reason}{where}" for reason in _lengths_apart(first.parts[name], second.parts[name], asked[0] is None)
    )


def _asked_apart(first: Asked, second: Asked) -> Iterator[str]:
    mine, theirs = first.arrival, second.arrival
    if type(mine) is not type(theirs):
        yield "one is an open loop and the other a closed one"
    elif isinstance(mine, OpenLoop) and isinstance(theirs, OpenLoop) and mine.times_s != theirs.times_s:
        yield f"the schedules differ ({_schedule(mine)} and {_schedule(theirs)})"
    elif isinstance(mine, ClosedLoop) and isinstance(theirs, ClosedLoop) and mine != theirs:
        yield f"the concurrency or number of requests differs ({mine.concurrency} and {theirs.concurrency} at once)"
    if first.output_tokens != second.output_tokens:
        yield f"the requested output lengths differ (mean {first.output_tokens.mean:.1f} and {second.output_tokens.mean:.1f})"
    if first.prompt_tokens != second.prompt_tokens:
        yield f"the prompt lengths differ (mean {first.prompt_tokens.mean:.1f} and {second.prompt_tokens.mean:.1f})"


def _schedule(arrival: OpenLoop) -> str:
    rate = "" if arrival.nominal_rate is None else f" at {arrival.nominal_rate:g} a second"
    return f"{len(arrival)} requests{rate}"


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
