"""Which failures are played? The list, as data.

In:   nothing
Out:  SCENARIOS; Scenario, with the question that each answers
Leaves out: playing them (stage)
Read next by: stage, flow, cli.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

from inference_bench.errors import UnknownNameError
from inference_bench.operate.drill.faults import Fault, FaultKind
from inference_bench.operate.drill.results import Measured


class Act(StrEnum):
    """What is done to the servers."""

    COLD = "cold"  # the first server refuses connections, and the fallback has answered nothing yet
    FAULT = "fault"  # the proxy before the first server breaks its replies
    KILL = "kill"  # kill -9 of the first server's process, and a start
    SHUT_BOTH = "shut_both"  # both refuse connections
    OVERLOAD = "overload"  # several times the requests that the first server can answer


@dataclass(frozen=True, slots=True)
class Scenario:
    """One failure.

    Where:    fault makes the proxy's from the time limits; holds is how long the failure lasts, in first-token limits; is_always_seen
              says that a failure which nobody notices has not been exercised
    """

    name: str
    question: str
    act: Act
    fault: Callable[[Measured], Fault] | None = None
    holds: float = 1.0
    is_always_seen: bool = True


def _retry_after_s(measured: Measured) -> int:
    """Whole seconds that fit into a budget, with an attempt after them."""
    return max(1, ceil(0.2 * measured.budget_s))


SCENARIOS: Final = (
    Scenario("cold-fallback", "Does a fallback answer that was never asked before?", Act.COLD),
    Scenario(
        "slow-first-token",
        "Is a server left whose first token does not come?",
        Act.FAULT,
        lambda limits: Fault(FaultKind.SLOW_FIRST, delay_s=3 * limits.first_token_s),
        2.0,
    ),
    Scenario(
        "stall",
        "Is a stream that falls silent ended, with the text so far?",
        Act.FAULT,
        lambda _: Fault(FaultKind.STALL, after_events=3),
        2.0,
    ),
    Scenario(
        "reset",
        "Does a broken connection give the text so far, and not the text again?",
        Act.FAULT,
        lambda _: Fault(FaultKind.RESET, after_events=3),
    ),
    Scenario(
        "rate-limited",
        "Is Retry-After waited for?",
        Act.FAULT,
        lambda limits: Fault(FaultKind.TOO_MANY, retry_after_s=_retry_after_s(limits)),
        2.0,
    ),
    Scenario(
        "server-errors",
        "Do many HTTP 500 send requests elsewhere?",
        Act.FAULT,
        lambda _: Fault(FaultKind.SERVER_ERROR),
    ),
    Scenario(
        "garbage",
        "Is an event that is no JSON told from an answer, at the start and within?",
        Act.FAULT,
        lambda _: Fault(FaultKind.GARBAGE, after_events=3),
    ),
    Scenario("killed", "What does a kill -9 cost, and is the server used again once it is back?", Act.KILL),
    Scenario("both-down", "Is there an error in time when nobody can answer?", Act.SHUT_BOTH),
    Scenario(
        "overload", "Are requests beyond capacity answered, sent on or refused in time?", Act.OVERLOAD, None, 2.0, False
    ),
)  # fmt: skip


def scenarios_named(names: Sequence[str] | None) -> tuple[Scenario, ...]:
    """Those of these names, in the order they are played; all of them where none is named.

    Raises:   UnknownNameError
    """
    known = {each.name: each for each in SCENARIOS}
    if wrong := next((name for name in names or () if name not in known), None):
        raise UnknownNameError(f"no scenario {wrong[:60]!r}; scenarios: {', '.join(known)}")
    return tuple(each for each in SCENARIOS if not names or each.name in names)
