"""How does a second server do under the load that the first one had? Recorded arrivals sent to it, and to it alone.

In:   a Replay, an address that is not the primary's
Out:  ShadowRun: the load that was measured, in a run folder that says what it shadows, and the records it stands beside
Leaves out: what differs between the two (compare_runs)
Read next by: compare_runs, report, cli.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from inference_bench.loadtest.flow import LoadRequest, LoadRun, measure_load
from inference_bench.measure.store import RunFolder
from inference_bench.operate.rollout.replay import META_KEY, Limits, Replay
from inference_bench.operate.rollout.same_server import require_another_server

_NO_PRIMARY: Final = "nothing says where the recorded requests went, so that the shadow could not be held against it"


@dataclass(frozen=True, slots=True)
class ShadowRun:
    """What came back.

    Where:    replay's records are the recorded run's, in the order of the load's own
    """

    replay: Replay
    limits: Limits
    load: LoadRun = field(repr=False)
    notes: tuple[str, ...] = ()


def measure_shadow(
    request: LoadRequest,
    replay: Replay,
    limits: Limits,
    primaries: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> ShadowRun:
    """Send the recorded arrivals to a second server.

    Where:    primaries are addresses that serve people, beside the one that the recording names
    Raises:   RequestError where the server is one of those, before anything is sent; see `measure_load`
    """
    known = [*primaries, *([replay.target] if replay.target is not None else [])]
    for primary in known:
        require_another_server(request.url, primary)
    notes = (*replay.workload.notes, *_prompt_notes(replay), *(() if known else (_NO_PRIMARY,)))
    load = measure_load(replace(request, workload=replay.workload), progress)
    about = {"of": replay.source, "part": replay.group, "speed": limits.speed, "num_requests": len(replay.workload)}
    RunFolder.open(load.run_dir).update_meta({META_KEY: about})
    return ShadowRun(replay, limits, load, notes)


def _prompt_notes(replay: Replay) -> tuple[str, ...]:
    """What of the prompts is as it was, and what is not."""
    shared = replay.workload.requests.prompts is not None
    said = (
        "prompts share the tokens that the recording says they shared"
        if shared
        else "no prompt shares a token with another: the recording does not say which did"
    )
    cached = sum(bool(record.cached_prompt_tokens) for record in replay.records)
    found = [f"prompts are made anew, of the recorded lengths; {said}"]
    if cached and not shared:
        found.append(
            f"{cached} of the recorded requests found a part of their prompt cached, which the shadow's cannot: its first tokens may be "
            "later for that alone"
        )
    return tuple(found)
