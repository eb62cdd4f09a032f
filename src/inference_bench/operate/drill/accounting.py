"""Is every request accounted for, by two books that were kept apart? The client's answers held to what the proxies handed on.

In:   Outcomes of the traffic, Deliveries of the proxies, what undisturbed servers say
Out:  Tally; Requests, when each was under way; when a fault was first seen and when its server first answered again
Leaves out: playing anything (stage, soak)
Read next by: stage, soak, flow.

Text is compared here and kept nowhere: what leaves this module is counts, times and the names of servers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inference_bench.operate.answers import Attempt, AttemptEnd
from inference_bench.operate.drill.proxy import Delivery
from inference_bench.operate.drill.results import Requests, RequestSpan, Tally
from inference_bench.operate.drill.traffic import HUNG_AFTER_S, CallerEnd, Outcome

LEAST_TOLERANCE_S: Final = 0.25
_LOST: Final = "lost"
_MOST_LISTED: Final = 4_000  # requests
_EARLY_S: Final = 0.02  # that clocks may be read apart
_NOT_SPOILED: Final = frozenset({AttemptEnd.COMPLETED, AttemptEnd.CANCELLED, AttemptEnd.BREAKER_OPEN})
_ANSWERED: Final = frozenset({AttemptEnd.COMPLETED, AttemptEnd.INTERRUPTED})

Baselines = Mapping[str, Mapping[int, frozenset[str]]]
"""What each server says undisturbed, by its name and the number of the question."""


@dataclass(frozen=True, slots=True)
class Books:
    """Both accounts of the same requests."""

    outcomes: Sequence[Outcome] = field(repr=False)
    deliveries: Sequence[Delivery] = field(repr=False)
    lag_s: float = 0.0
    strays: int = 0


def tally(books: Books, baselines: Baselines) -> Tally:
    """What came of all of them."""
    by_key: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in books.deliveries:
        by_key[delivery.key].append(delivery)
    judged = [_judge(outcome, by_key[outcome.request_id], baselines) for outcome in books.outcomes]
    tolerance_s = max(LEAST_TOLERANCE_S, 2 * books.lag_s)
    attempts = [each for outcome in books.outcomes for answer in outcome.answers for each in answer.attempts]
    took_s = [outcome.ended_s - outcome.began_s for outcome in books.outcomes if outcome.ended_s is not None]
    ends = Counter(end for end, _ in judged)
    found = Counter(name for _, names in judged for name in names)
    return Tally(
        sent=len(books.outcomes),
        completed=ends[CallerEnd.COMPLETED],
        failed=ends[CallerEnd.FAILED],
        interrupted=ends[CallerEnd.INTERRUPTED],
        lost=ends[_LOST],
        duplicated=found["duplicated"] + books.strays,
        wrong=found["wrong"],
        over_budget=sum(1 for outcome in books.outcomes if _is_over_budget(outcome, tolerance_s)),
        early=_count_early(books.deliveries),
        differs=found["differs"],
        computed_twice=sum(1 for each in by_key.values() if sum(1 for one in each if one.num_events) > 1),
        attempts=sum(1 for each in attempts if each.end is not AttemptEnd.BREAKER_OPEN),
        answered_by=_count(_who(outcome) for outcome in books.outcomes),
        attempt_ends=_count(str(each.end) for each in attempts),
        reasons=_count(outcome.reason for outcome in books.outcomes),
        longest_s=max(took_s, default=None),
        budget_s=max((outcome.budget_s for outcome in books.outcomes), default=None),
        tolerance_s=tolerance_s,
    )


def _count(names: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in names if name is not None).items()))


def _judge(outcome: Outcome, deliveries: Sequence[Delivery], baselines: Baselines) -> tuple[str, list[str]]:
    """How one request ended, and what there is against it."""
    end = _end(outcome)
    if end == _LOST:
        return end, []
    found = []
    if len(outcome.answers) > 1 or _is_repeated(outcome, deliveries):
        found.append("duplicated")
    if outcome.text and not _is_said(outcome, baselines):
        by_server = any(_covers(each.text, outcome) for each in deliveries)
        found.append("differs" if by_server else "wrong")
    return end, found


def _end(outcome: Outcome) -> str:
    """One of ENDS."""
    is_late = outcome.ended_s is not None and outcome.ended_s - outcome.began_s > outcome.budget_s + HUNG_AFTER_S
    is_lost = outcome.end in (CallerEnd.OPEN, CallerEnd.UNTYPED) or not outcome.answers or is_late
    return _LOST if is_lost else str(outcome.end)


def list_requests(outcomes: Sequence[Outcome], since_s: float, most: int = _MOST_LISTED) -> Requests:
    """When each request was under way since a moment; where they are more than `most`, every n-th of those that ended alike."""
    ends = [_end(outcome) for outcome in outcomes]
    every, seen = _every(Counter(ends), most), Counter[str]()
    listed: list[RequestSpan] = []
    for outcome, end in zip(outcomes, ends, strict=True):
        if seen[end] % every[end] == 0:
            ended_s = None if outcome.ended_s is None else outcome.ended_s - since_s
            listed.append(RequestSpan(outcome.began_s - since_s, ended_s, end, _who(outcome)))
        seen[end] += 1
    left_out = seen - Counter(each.outcome for each in listed)
    return Requests(tuple(listed), every.get(CallerEnd.COMPLETED, 1), dict(left_out))


def _every(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """For each end the n of which every n-th fits: of a rare end all are listed, and the rest of the room is for others."""
    room, every = most, dict[str, int]()
    for index, (end, number) in enumerate(sorted(counts.items(), key=lambda item: (item[1], item[0]))):
        part = max(1, room // (len(counts) - index))
        every[end] = math.ceil(number / part)
        room -= math.ceil(number / every[end])
    return every


def _is_repeated(outcome: Outcome, deliveries: Sequence[Delivery]) -> bool:
    """Whether the text is of more than one reply, more than one attempt is booked as answered, or more arrived than are booked.

    Ignores:  a reply that was handed on and that the client had given up by then: it is booked as such, and computed twice
    """
    attempts = [
        each for answer in outcome.answers for each in answer.attempts if each.end is not AttemptEnd.BREAKER_OPEN
    ]
    booked = Counter(each.endpoint.name for each in attempts)
    arrived = Counter(each.endpoint for each in deliveries)
    if sum(1 for each in attempts if each.end in _ANSWERED) > 1 or any(
        arrived[name] > booked[name] for name in arrived
    ):
        return True
    is_of_one = not outcome.text or any(_covers(each.text, outcome) for each in deliveries)
    return not is_of_one and any(each.text and outcome.text.startswith(each.text) for each in deliveries)


def _covers(said: str, outcome: Outcome) -> bool:
    """Whether a text is what the caller got: all of it where the answer is whole, else its beginning."""
    return said == outcome.text if outcome.end is CallerEnd.COMPLETED else said.startswith(outcome.text)


def _is_said(outcome: Outcome, baselines: Baselines) -> bool:
    known = baselines.get(_who(outcome) or "", {}).get(outcome.question, frozenset())
    return any(_covers(text, outcome) for text in known)


def _who(outcome: Outcome) -> str | None:
    who = outcome.answers[0].answered_by if outcome.answers else None
    return None if who is None or outcome.end is CallerEnd.OPEN else who.name


def _is_over_budget(outcome: Outcome, tolerance_s: float) -> bool:
    return outcome.ended_s is not None and outcome.ended_s - outcome.began_s > outcome.budget_s + tolerance_s


def _count_early(deliveries: Sequence[Delivery]) -> int:
    """Attempts of one request that came back to a server before the time that it had asked for."""
    not_before: dict[tuple[str, str], float] = {}
    early = 0
    for each in sorted(deliveries, key=lambda one: one.at_s):
        place = each.endpoint, each.key
        early += 1 if each.at_s < not_before.get(place, 0.0) - _EARLY_S else 0
        if each.retry_after_s is not None:
            not_before[place] = each.at_s + each.retry_after_s
    return early


def _attempts_at(outcomes: Sequence[Outcome], names: frozenset[str]) -> list[tuple[Outcome, Attempt]]:
    return [
        (outcome, attempt)
        for outcome in outcomes
        for answer in outcome.answers
        for attempt in answer.attempts
        if attempt.endpoint.name in names
    ]


def first_spoiled_s(outcomes: Sequence[Outcome], names: frozenset[str], since_s: float) -> float | None:
    """From a moment to the end of the first attempt at one of these servers that it spoiled."""
    ended_s = [
        outcome.began_s + attempt.ended_s - since_s
        for outcome, attempt in _attempts_at(outcomes, names)
        if attempt.end not in _NOT_SPOILED
    ]
    return min((each for each in ended_s if each >= 0), default=None)


def first_answer_s(outcomes: Sequence[Outcome], names: frozenset[str], since_s: float) -> float | None:
    """From a moment to the end of the first attempt at one of these servers that began after it and was answered whole."""
    ended_s = [
        outcome.began_s + attempt.ended_s - since_s
        for outcome, attempt in _attempts_at(outcomes, names)
        if attempt.end is AttemptEnd.COMPLETED and outcome.began_s + attempt.started_s >= since_s
    ]
    return min(ended_s, default=None)
