"""What came of all the tokens? Each attempt's are of use, or wasted for one reason; sums of that.

In:   Entries
Out:  Sums: of all of them, of each application, team, model, endpoint or hour
Leaves out: money (money)
Read next by: flow.

For every sum: computed = useful + wasted, in input and in output tokens, exactly. Input that came from a prefix cache was not
computed; where nobody said how much was cached, all of it counts as computed, and those answers are counted. An attempt whose tokens
nobody counted adds none and is counted as uncounted: sums are then lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.ledger.entry import Entry, EntryAttempt
from inference_bench.records import RequestStatus

UNKNOWN: Final = "not said"
REST: Final = "all others"
MOST_GROUPS: Final = 2_000
_HOUR_CHARS: Final = 13  # of 2026-11-30T19
_DAY_CHARS: Final = 10


class By(StrEnum):
    """What sums may be told apart by."""

    APPLICATION = "application"
    TEAM = "team"
    MODEL = "model"
    ENDPOINT = "endpoint"
    MANIFEST = "manifest"
    HOUR = "hour"
    DAY = "day"


class Waste(StrEnum):
    """Why tokens were computed and were of no use."""

    FAILED = "attempts that failed"
    INTERRUPTED = "answers cut short"
    CANCELLED = "cancelled by the caller"
    HEDGE = "hedges that were not needed"
    NOT_USEFUL = "answers the application could not use"
    WARM_UP = "warm-up and cool-down"


class Share(NamedTuple):
    """What one attempt made a server compute, and why that was wasted; None for what was of use."""

    attempt: EntryAttempt
    waste: Waste | None
    is_answer: bool
    input_tokens: int
    output_tokens: int

    @property
    def has_tokens(self) -> bool:
        """Whether it made a server compute anything, as far as anybody counted."""
        return self.input_tokens > 0 or self.output_tokens > 0


def shares_of(entry: Entry) -> Iterator[Share]:
    """The attempts of a request with their tokens."""
    answer = entry.answering()
    for attempt in entry.attempts:
        is_answer = attempt is answer
        output, prompt = attempt.output_tokens, attempt.prompt_tokens
        if is_answer:
            output = entry.output_tokens if entry.output_tokens is not None else output
            prompt = entry.prompt_tokens if entry.prompt_tokens is not None else prompt
        elif prompt is None and output:  # tokens came, so that the prompt had been read
            prompt = entry.prompt_tokens
        cached = (entry.cached_prompt_tokens or 0) if is_answer else 0
        fresh = max(0, (prompt or 0) - cached)
        yield Share(attempt, _waste(entry, attempt, is_answer=is_answer), is_answer, fresh, output or 0)


def _waste(entry: Entry, attempt: EntryAttempt, *, is_answer: bool) -> Waste | None:
    if entry.is_warm_up:
        return Waste.WARM_UP
    if entry.is_completed:
        if is_answer:
            return None if entry.is_useful else Waste.NOT_USEFUL
        if attempt.end in (AttemptEnd.CANCELLED, AttemptEnd.COMPLETED):
            return Waste.HEDGE
    if attempt.end is AttemptEnd.CANCELLED:
        return Waste.HEDGE if attempt.is_hedge else Waste.CANCELLED
    return Waste.INTERRUPTED if is_answer or attempt.end is AttemptEnd.INTERRUPTED else Waste.FAILED


@dataclass(frozen=True, slots=True)
class WasteSum:
    """Tokens wasted for one reason, in so many attempts."""

    waste: Waste
    num_attempts: int
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Sums:
    """Requests, attempts and tokens; added to while reading, and only read afterwards.

    Unit:   tokens; in_flight_s is seconds, of all attempts together
    Where:  input_tokens, cached_input_tokens, output_tokens and reasoning_tokens are of the answers that callers got, whole or in part,
            of which there are num_answers; cached and reasoning are of those that said it, None where none did; num_without_cached
            and num_without_reasoning did not, and input_without_cached and output_without_reasoning are their tokens;
            num_computed_attempts had tokens, num_refused_attempts were turned away or reached nobody and had none; computed are of
            every attempt, completed of whole answers, useful of those that users could use, each without what came from a prefix
            cache; num_judged are completed requests of which the application said whether it could use them; num_lower_bounds are
            counts of pieces, each of which holds one token or more; num_without_input are attempts that gave tokens and whose input
            nobody counted
    """

    num_requests: int = 0
    num_warm_up: int = 0
    num_completed: int = 0
    num_useful: int = 0
    num_judged: int = 0
    num_at_length: int = 0
    num_fallback: int = 0
    num_attempts: int = 0
    num_computed_attempts: int = 0
    num_refused_attempts: int = 0
    num_failed_attempts: int = 0
    num_hedges: int = 0
    num_uncounted: int = 0
    num_without_input: int = 0
    num_lower_bounds: int = 0
    num_answers: int = 0
    num_without_cached: int = 0
    num_without_reasoning: int = 0
    input_tokens: int = 0
    cached_input_tokens: int | None = 0
    input_without_cached: int = 0
    output_tokens: int = 0
    reasoning_tokens: int | None = 0
    output_without_reasoning: int = 0
    computed_input_tokens: int = 0
    computed_output_tokens: int = 0
    completed_input_tokens: int = 0
    completed_output_tokens: int = 0
    useful_input_tokens: int = 0
    useful_output_tokens: int = 0
    billed_input_tokens: int = 0
    billed_cached_tokens: int = 0
    billed_output_tokens: int = 0
    num_billed: int = 0
    num_billed_without_cached: int = 0
    in_flight_s: float = 0.0
    by_status: dict[RequestStatus, int] = field(default_factory=dict)
    wasted: dict[Waste, list[int]] = field(default_factory=dict)

    @property
    def cached_input_fraction(self) -> float | None:
        """The share of input that was cached, of the answers that said it; None where none did, or had any."""
        return _share(self.cached_input_tokens, self.input_tokens - self.input_without_cached)

    @property
    def reasoning_fraction(self) -> float | None:
        """The share of output that was reasoning, of the answers that said it; None where none did, or had any."""
        return _share(self.reasoning_tokens, self.output_tokens - self.output_without_reasoning)

    @property
    def wasted_output_fraction(self) -> float | None:
        """The share of the output tokens computed that was of no use; None where none were."""
        computed = self.computed_output_tokens
        return (computed - self.useful_output_tokens) / computed if computed else None

    @property
    def wasted_input_fraction(self) -> float | None:
        """The share of the input tokens computed that was of no use; None where none were."""
        computed = self.computed_input_tokens
        return (computed - self.useful_input_tokens) / computed if computed else None

    def wastes(self) -> tuple[WasteSum, ...]:
        """What was wasted by reason, the largest first."""
        found = [WasteSum(waste, *numbers) for waste, numbers in self.wasted.items()]
        return tuple(sorted(found, key=lambda each: (-each.output_tokens, -each.input_tokens, each.waste)))

    def add_request(self, entry: Entry) -> None:
        """A request, as its caller saw it."""
        self.num_requests += 1
        self.by_status[entry.status] = self.by_status.get(entry.status, 0) + 1
        self.num_warm_up += entry.is_warm_up
        self.num_completed += entry.is_completed
        self.num_useful += entry.is_useful
        self.num_judged += entry.is_completed and entry.user_success is not None
        self.num_at_length += entry.is_completed and entry.finish_reason == "length"
        self.num_fallback += entry.is_fallback
        self.num_lower_bounds += entry.is_lower_bound
        if entry.prompt_tokens is not None or entry.output_tokens is not None:
            self._add_answer(entry)
        if entry.is_completed:
            self._add_bill(entry)

    def _add_answer(self, entry: Entry) -> None:
        """What a caller got, and what its server did not say of it."""
        prompt, output, cached, reasoning = (
            entry.prompt_tokens,
            entry.output_tokens,
            _cached(entry),
            entry.reasoning_tokens,
        )
        self.num_answers += 1
        self.input_tokens += prompt or 0
        self.output_tokens += output or 0
        is_first = self.num_answers == 1
        self.cached_input_tokens = _said(self.cached_input_tokens, cached, is_first=is_first)
        self.reasoning_tokens = _said(self.reasoning_tokens, reasoning, is_first=is_first)
        if cached is None:
            self.num_without_cached += 1
            self.input_without_cached += prompt or 0
        if reasoning is None:
            self.num_without_reasoning += 1
            self.output_without_reasoning += output or 0

    def _add_bill(self, entry: Entry) -> None:
        """What a host that charges by the token would count: whole answers whose tokens are known."""
        if entry.prompt_tokens is not None and entry.output_tokens is not None:
            self.num_billed += 1
            self.billed_input_tokens += entry.prompt_tokens
            cached = _cached(entry)
            self.num_billed_without_cached += cached is None
            self.billed_cached_tokens += cached or 0
            self.billed_output_tokens += entry.output_tokens

    def add_share(self, entry: Entry, share: Share) -> None:
        """An attempt, and what it made a server compute."""
        attempt, fresh, output = share.attempt, share.input_tokens, share.output_tokens
        self.num_attempts += attempt.end is not AttemptEnd.BREAKER_OPEN
        self.num_computed_attempts += share.has_tokens
        self.num_refused_attempts += attempt.is_turned_away and not share.has_tokens
        self.num_failed_attempts += attempt.end not in (
            AttemptEnd.COMPLETED,
            AttemptEnd.CANCELLED,
            AttemptEnd.BREAKER_OPEN,
        )
        self.num_hedges += attempt.is_hedge
        self.num_uncounted += not attempt.is_counted and not (share.is_answer and entry.output_tokens is not None)
        self.num_without_input += output > 0 and attempt.prompt_tokens is None and entry.prompt_tokens is None
        self.in_flight_s += attempt.in_flight_s
        self.computed_input_tokens += fresh
        self.computed_output_tokens += output
        if share.is_answer and entry.is_completed:
            self.completed_input_tokens += fresh
            self.completed_output_tokens += output
        if share.waste is None:
            self.useful_input_tokens += fresh
            self.useful_output_tokens += output
        elif share.has_tokens:
            numbers = self.wasted.setdefault(share.waste, [0, 0, 0])
            for index, value in enumerate((1, fresh, output)):
                numbers[index] += value


def _cached(entry: Entry) -> int | None:
    """How much of the input was cached; None where nobody said, or the input itself is not known."""
    if entry.cached_prompt_tokens is None or entry.prompt_tokens is None:
        return None
    return min(entry.cached_prompt_tokens, entry.prompt_tokens)


def _said(total: int | None, more: int | None, *, is_first: bool) -> int | None:
    """A sum over those that said it: None as long as none did."""
    if more is None:
        return None if is_first else total
    return (total or 0) + more


def _share(part: int | None, whole: int) -> float | None:
    return part / whole if part is not None and whole > 0 else None


class Groups:
    """Sums told apart by one thing.

    Where:    requests stand with whoever answered them, attempts with whoever got them; beyond so many names, what is new is REST
    """

    def __init__(self, by: By, most: int = MOST_GROUPS) -> None:
        self.by = by
        self._most = most
        self._sums: dict[str, Sums] = {}

    def add(self, entry: Entry, shares: list[Share]) -> None:
        """One request."""
        name = self._name(entry)
        self._of(name).add_request(entry)
        for share in shares:
            self._of(self._attempt_name(share.attempt, name)).add_share(entry, share)

    def sums(self) -> dict[str, Sums]:
        """By name: times in order, anything else with the most output tokens first."""
        if self.by in (By.HOUR, By.DAY):
            return dict(sorted(self._sums.items()))
        return dict(sorted(self._sums.items(), key=lambda item: (-item[1].computed_output_tokens, item[0])))

    def _of(self, name: str) -> Sums:
        if name not in self._sums and len(self._sums) >= self._most:
            name = REST
        return self._sums.setdefault(name, Sums())

    def _name(self, entry: Entry) -> str:
        if self.by is By.HOUR or self.by is By.DAY:
            return _time_name(entry.at, self.by)
        first = entry.attempts[0] if entry.attempts else None
        found = {
            By.APPLICATION: entry.application,
            By.TEAM: entry.team,
            By.MODEL: entry.model or (first.model if first else None),
            By.ENDPOINT: entry.endpoint or (first.endpoint if first else None),
            By.MANIFEST: entry.manifest_sha256 or (first.manifest_sha256 if first else None),
        }[self.by]
        return found or UNKNOWN

    def _attempt_name(self, attempt: EntryAttempt, of_request: str) -> str:
        if self.by is By.ENDPOINT:
            return attempt.endpoint or of_request
        if self.by is By.MODEL:
            return attempt.model or of_request
        if self.by is By.MANIFEST:
            return attempt.manifest_sha256 or of_request
        return of_request


def _time_name(at: datetime | None, by: By) -> str:
    if at is None:
        return UNKNOWN
    text = at.isoformat()
    return f"{text[:_HOUR_CHARS]}Z".replace("T", " ") if by is By.HOUR else text[:_DAY_CHARS]
