"""When does a paced stream send? Modes of the truth server that are asked for by numbers rather than by name.

In:   the first path segment, such as paced,first=0.05,gap=0.01, and the length that the request asks for
Out:  each Step with its absolute deadline on the server's clock
Leaves out: waiting and sending (server)
Read next by: server.

Deadlines are absolute, so that a late send delays no later one. `paced` streams run from their own request on;
`lockstep` streams send on ticks that all share, as the steps of a batch; `firehose` sends as fast as the socket
takes it; `null` answers at once with one token; `pausing` is `paced`, except that the whole server stands still for
the first `pause` seconds of every `period`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from inference_bench.conform.script import LAST_CHUNK, Step, Story, framed, usage_of
from inference_bench.errors import RequestError
from inference_bench.units import GIGA

PACED: Final = "paced"
LOCKSTEP: Final = "lockstep"
FIREHOSE: Final = "firehose"
NULL: Final = "null"
PAUSING: Final = "pausing"
MODES: Final = (PACED, LOCKSTEP, FIREHOSE, NULL, PAUSING)

_EVENTS_A_SEND: Final = 16  # of the firehose
_MOST_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How a paced stream runs. Unit: seconds."""

    mode: str
    first: float = 0.05
    gap: float = 0.01
    period: float = 2.0
    pause: float = 0.5


def parse_pace(segment: str) -> Pace | None:
    """The pace that a path segment asks for; None when it names no mode.

    Raises:   RequestError for a number that is missing or cannot be
    """
    mode, *settings = segment.split(",")
    if mode not in MODES:
        return None
    values: dict[str, float] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in ("first", "gap", "period", "pause"):
            raise RequestError(f"a pace has first, gap, period and pause, not {name!r}")
        values[name] = _seconds(text)
    pace = Pace(mode, **values)
    if pace.gap <= 0 or pace.period <= 0 or pace.pause >= pace.period:
        raise RequestError("a pace needs a gap and a period above 0, and pauses shorter than the period")
    return pace


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST_S:
        raise RequestError(f"a pace is told in seconds from 0 to {_MOST_S:g}, not {text!r}")
    return value


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for: so many tokens, on this route, for a prompt of so many."""

    max_tokens: int
    is_chat: bool
    prompt_tokens: int


def paced_steps(pace: Pace, asked: Asked, begin_ns: int, epoch_ns: int) -> Iterator[tuple[int, Step]]:
    """Every send of one stream and its deadline; the server's own beginning is `epoch_ns`."""
    story = Story(is_chat=asked.is_chat)
    token = framed(story.encode(story.chunk()))
    count = 1 if pace.mode == NULL else asked.max_tokens
    at_once = _EVENTS_A_SEND if pace.mode == FIREHOSE else 1
    due_ns = begin_ns
    for number in range(0, count, at_once):
        due_ns = _due_ns(pace, number, begin_ns, epoch_ns)
        num_events = min(at_once, count - number)
        yield due_ns, Step(0.0, token * num_events, chunks=(1,) * num_events)
    closing = story.encode(story.chunk("", "length", usage=usage_of(count, asked.prompt_tokens))) + story.encode(
        "[DONE]"
    )
    yield due_ns, Step(0.0, framed(closing) + LAST_CHUNK)


def _due_ns(pace: Pace, number: int, begin_ns: int, epoch_ns: int) -> int:
    if pace.mode in (FIREHOSE, NULL):
        return begin_ns
    gap_ns, first_ns = round(pace.gap * GIGA), begin_ns + round(pace.first * GIGA)
    if pace.mode == LOCKSTEP:
        tick = -((epoch_ns - first_ns) // gap_ns)  # the first tick not before the first token is due
        return epoch_ns + (tick + number) * gap_ns
    due_ns = first_ns + number * gap_ns
    return _after_pause(pace, due_ns, epoch_ns) if pace.mode == PAUSING else due_ns


def _after_pause(pace: Pace, due_ns: int, epoch_ns: int) -> int:
    """The deadline, or the end of the pause that it falls into."""
    period_ns, pause_ns = round(pace.period * GIGA), round(pace.pause * GIGA)
    into_ns = (due_ns - epoch_ns) % period_ns
    return due_ns if into_ns >= pause_ns else due_ns - into_ns + pause_ns
