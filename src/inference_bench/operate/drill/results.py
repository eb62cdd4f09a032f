"""What a drill finds out: plain values, none of which holds a text that was said.

In:   nothing
Out:  ScenarioResult, SoakResult, DrillResult; MUST_BE_NONE, the counts that fail a drill; the names of the two servers
Leaves out: counting (accounting)
Read next by: accounting, stage, flow, soak, charts, report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MUST_BE_NONE: Final = ("lost", "duplicated", "wrong", "over_budget", "early")
ENDS: Final = ("completed", "failed", "interrupted", "lost")
PRIMARY: Final = "primary"
FALLBACK: Final = "fallback"


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of a number of requests.

    Where:    sent = completed + failed + interrupted + lost. failed has an error that says why and no text, interrupted a part of the
              text and the cause. lost has no account, or more time than it had been given and five seconds. duplicated was answered
              more than once, joins two replies, or arrived more often than the client says. wrong is neither what the undisturbed
              server says nor what one said to this request. over_budget took longer than its budget and tolerance_s. early came back
              to a server sooner than that had asked. differs is what the server itself said otherwise than undisturbed;
              computed_twice had tokens from more than one attempt, which costs and is not seen by the caller
    """

    sent: int = 0
    completed: int = 0
    failed: int = 0
    interrupted: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    over_budget: int = 0
    early: int = 0
    differs: int = 0
    computed_twice: int = 0
    attempts: int = 0
    answered_by: Mapping[str, int] = field(default_factory=dict)
    attempt_ends: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    longest_s: float | None = None
    budget_s: float | None = None
    tolerance_s: float | None = None

    @property
    def broken(self) -> tuple[str, ...]:
        """Which of the counts that must be none are not."""
        return tuple(name for name in MUST_BE_NONE if getattr(self, name))


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time.

    Unit:     seconds since the scenario, or the soak, began
    """

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """When one request was under way, how it ended, and who answered it.

    Unit:     seconds since the scenario, or the soak, began
    Where:    end_s None is one that never returned; outcome is one of ENDS; answered_by None is nobody
    """

    start_s: float
    end_s: float | None
    outcome: str
    answered_by: str | None


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of a scenario or a soak, in the order they were sent.

    Where:    of those that ended alike every n-th is listed; every is that n of the completed ones, left_out how many of each end are
              not listed, empty where all are
    """

    listed: tuple[RequestSpan, ...] = ()
    every: int = 1
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """One way to fail, played.

    Unit:     seconds
    Where:    detected_s is from the begin of the fault to the end of the first attempt that it spoiled, breaker_s to the breaker's
              opening; recovered_s is from the end of the fault to the first answer, whole, of a server that had failed. skipped says
              why it was not played. fault is when it lasted
    """

    name: str
    question: str
    tally: Tally = field(default_factory=Tally)
    detected_s: float | None = None
    breaker_s: float | None = None
    recovered_s: float | None = None
    fault_s: float | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str | None = None
    fault: Span | None = None
    requests: Requests = Requests()

    @property
    def moments_s(self) -> dict[str, float]:
        """When it was detected, the breaker opened and the server was used again, in seconds since the scenario began: what is known."""
        if self.fault is None:
            return {}
        since = (
            ("detected", self.fault.begin_s, self.detected_s),
            ("breaker opened", self.fault.begin_s, self.breaker_s),
            ("recovered", self.fault.end_s, self.recovered_s),
        )
        return {name: from_s + after_s for name, from_s, after_s in since if after_s is not None}

    @property
    def has_passed(self) -> bool:
        """Whether nothing that must not be was there, and the fault was one that could be seen."""
        return not self.tally.broken and not self.problems


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Random kills under a steady load.

    Where:    down_s is the time in all in which the killed server did not answer, down when that was
    """

    tally: Tally
    kills: int
    restarts: int
    duration_s: float
    down_s: float
    seed: int
    problems: tuple[str, ...] = ()
    is_interrupted: bool = False
    down: tuple[Span, ...] = ()
    requests: Requests = Requests()

    @property
    def has_passed(self) -> bool:
        """Whether every request is accounted for, and servers were killed at all."""
        return not self.tally.broken and not self.problems


@dataclass(frozen=True, slots=True)
class Measured:
    """The undisturbed server, and the time limits that follow from it.

    Unit:     seconds
    """

    ttft_s: float
    e2e_s: float
    first_token_s: float
    stall_s: float
    budget_s: float
    interval_s: float


@dataclass(frozen=True, slots=True)
class DrillResult:
    """All that was played.

    Where:    unrecorded is the number of answers that could not be written to the file that was asked for, and why
    """

    servers: Mapping[str, str]
    measured: Measured | None
    scenarios: tuple[ScenarioResult, ...] = ()
    soak: SoakResult | None = None
    seed: int = 0
    is_interrupted: bool = False
    unrecorded: int = 0
    unrecorded_why: str | None = None

    @property
    def has_passed(self) -> bool:
        """Whether anything was played, and all of it went as it must: a drill that showed nothing has not passed."""
        if self.soak is not None:
            return self.soak.has_passed
        return bool(self.played) and all(each.has_passed for each in self.played)

    @property
    def played(self) -> tuple[ScenarioResult, ...]:
        """The scenarios that were not left out."""
        return tuple(each for each in self.scenarios if each.skipped is None)
