"""What was recorded, as a schedule that can be sent again: a run folder, or a trace of times and lengths.

In:   a run folder of `load` or `shadow`; a trace file; a speed, a number of requests, a time
Out:  Replay: a Workload (an open loop at the recorded times), and the records that it was made from
Leaves out: what the requests said, which nobody kept: prompts are made anew, of the same lengths
Read next by: shadow.

Times are those that the run planned, to the last bit where its folder remembers them, so that the shadow's schedule is the same. A
closed loop's times are those at which its requests were sent: replayed as they came, they no longer wait for answers, and the shadow
is not compared with them. Turns of a conversation share the prompts before them, as they did.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import RequestError, RunFolderError
from inference_bench.loadtest.workload_memory import Asked, asked_in
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.records import RequestRecord
from inference_bench.workload import ClosedLoop, OpenLoop, Requests, Segment, Workload
from inference_bench.workload.checks import MOST_TOKENS, require_count, require_positive
from inference_bench.workload.traces import REPLAY, read_trace

META_KEY: Final = "shadow"  # in meta.json of a run that replays another
_LONGEST_NAMED: Final = 120


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a recording is replayed, and how fast.

    Where:  speed 2 is twice as many requests a second; for_s is time of the replay, not of the recording
    Unit:   seconds
    """

    speed: float = 1.0
    max_requests: int | None = None
    for_s: float | None = None

    def __post_init__(self) -> None:
        require_positive(self.speed, "speed")
        if self.max_requests is not None:
            require_count(self.max_requests, "number of requests")
        if self.for_s is not None:
            require_positive(self.for_s, "time to replay", "s")


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording as it is to be sent.

    Where:  records are those that the first requests were made from, in order, empty for a trace; target is where they went;
            why_apart says why what comes of it cannot be compared with them, None where it can
    """

    source: str
    workload: Workload
    records: tuple[RequestRecord, ...] = field(default=(), repr=False)
    target: str | None = None
    group: str | None = None
    why_apart: str | None = None


def replay_trace(path: Path, limits: Limits, trace_format: str | None = None, *, sort: bool = False) -> Replay:
    """A trace as it is to be sent.

    Raises:   TraceError for a file that cannot be read as one, such as one whose clock goes back; RequestError
    """
    workload = read_trace(path, trace_format, limit=limits.max_requests, sort=sort)
    return Replay(path.name, _limited(workload, limits), why_apart="a trace holds no latencies")


def replay_run(path: Path, limits: Limits, group: str | None = None) -> Replay:
    """The measured requests of a run as they are to be sent again.

    Where:    group is the part of a run that has several
    Raises:   RunFolderError; RequestError for a run without requests whose lengths are known, or of several parts
    """
    meta = RunFolder.open(path).read_meta()
    name, records = _part(path, group)
    asked = asked_in(meta).get(name)
    workload = _workload(path.name, records, asked)
    limited = _limited(workload, limits)
    target = meta.get("target")
    apart = None
    if asked is None or isinstance(asked.arrival, ClosedLoop):
        apart = "the recorded requests waited for answers (a closed loop), and replayed ones do not"
    if limits.speed != 1:
        apart = f"at {limits.speed:g} times the speed it is another load"
    kept = tuple(records[: len(limited)])
    return Replay(path.name, limited, kept, target if isinstance(target, str) else None, name, apart)


def _part(path: Path, group: str | None) -> tuple[str, list[RequestRecord]]:
    """The measured records of one part, in order."""
    parts = read_records(path).parts
    if not parts:
        raise RunFolderError(f"{path} holds no measured request; there is nothing to replay")
    named = ", ".join(sorted(parts))[:_LONGEST_NAMED]
    if group is None and len(parts) > 1:
        raise RequestError(f"{path} has several parts: {named}; say which one to replay")
    if group is not None and group not in parts:
        raise RequestError(f"{path} has no part {group[:40]!r}; there is {named}")
    name = next(iter(parts)) if group is None else group
    return name, sorted(parts[name], key=lambda record: (record.planned_s, record.index or 0))


def _workload(name: str, records: Sequence[RequestRecord], asked: Asked | None) -> Workload:
    """The requests that were measured, the first one at 0 unless the schedule began before it."""
    prompts, notes = _prompt_lengths(records, asked)
    outputs = [record.requested_output_tokens or record.output_tokens for record in records]
    lengths = [_both(index, pair) for index, pair in enumerate(zip(prompts, outputs, strict=True))]
    prompt_tokens, output_tokens = (array("q", column) for column in zip(*lengths, strict=True))
    times_s = _times_s(records, asked)
    requests = Requests(prompt_tokens, output_tokens, **_talk_columns(records, prompt_tokens, output_tokens))
    return Workload(name, requests, OpenLoop(times_s, REPLAY), notes=tuple(notes))


def _both(index: int, lengths: tuple[int | None, int | None]) -> tuple[int, int]:
    for length, what in zip(lengths, ("prompt", "output"), strict=True):
        if length is None or not 1 <= length <= MOST_TOKENS:
            raise RequestError(
                f"the {what} length of the recorded request {index} (counted from 0) is not known: the server counted no tokens; "
                "record it with a server that does, or replay a trace"
            )
    prompt, output = lengths
    return (prompt or 0), (output or 0)


def _prompt_lengths(records: Sequence[RequestRecord], asked: Asked | None) -> tuple[list[int | None], list[str]]:
    """As they were asked for where all were alike; else as the server counted them, and of one that failed the mean."""
    if asked is not None and asked.prompt_tokens.least == asked.prompt_tokens.most:
        return [asked.prompt_tokens.least] * len(records), []
    counted = [record.prompt_tokens for record in records]
    known = [count for count in counted if count]
    num_unknown = len(counted) - len(known)
    if not known or not num_unknown:
        return list(counted), []
    usual = round(sum(known) / len(known))
    note = f"{num_unknown} recorded requests have no prompt length, as they failed; they are sent with the mean, {usual} tokens"
    return [count or usual for count in counted], [note]


def _times_s(records: Sequence[RequestRecord], asked: Asked | None) -> array[float]:
    """To the last bit where the schedule is remembered; else as they were planned."""
    arrival = None if asked is None else asked.arrival
    indices = [record.index for record in records]
    if isinstance(arrival, OpenLoop) and all(index is not None and index < len(arrival) for index in indices):
        times_s = [arrival.times_s[index or 0] for index in indices]
        if indices[0] == 0:
            return array("d", times_s)
    else:
        times_s = [record.planned_s for record in records]
    return array("d", [time_s - times_s[0] for time_s in times_s])


def _talk_columns(
    records: Sequence[RequestRecord], prompt_tokens: Sequence[int], output_tokens: Sequence[int]
) -> dict[str, Any]:
    """Conversations: each turn's prompt begins with the one before it and its answer; nothing where there are none."""
    if any(record.session is None or record.turn is None for record in records):
        return {}
    prompts: list[tuple[Segment, ...]] = []
    so_far: dict[int, tuple[Segment, ...]] = {}
    number = len(records)
    for index, record in enumerate(records):
        session = record.session or 0
        before = so_far.get(session, ())
        rest = prompt_tokens[index] - sum(segment.num_tokens for segment in before)
        if rest < 1:  # a turn that is shorter than what came before it is not its continuation
            before, rest = (), prompt_tokens[index]
        prompt = (*before, Segment(number + index, rest))
        prompts.append(prompt)
        so_far[session] = (*prompt, Segment(index, output_tokens[index]))
    return {
        "prompts": tuple(prompts),
        "answers": array("q", range(number)),
        "session": array("q", [record.session or 0 for record in records]),
        "turn": array("q", [record.turn or 0 for record in records]),
    }


def _limited(workload: Workload, limits: Limits) -> Workload:
    found = workload if limits.speed == 1 else workload.scaled(1 / limits.speed)
    if limits.max_requests is not None and limits.max_requests < len(found):
        count = limits.max_requests
        arrival = found.arrival
        cut = replace(arrival, times_s=arrival.times_s[:count]) if isinstance(arrival, OpenLoop) else arrival
        found = replace(found, requests=found.requests.first(count), arrival=cut)
    return found if limits.for_s is None else found.until(limits.for_s)
