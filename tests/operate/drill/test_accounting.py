"""What fails a drill: each of these counts has to be seen in books that were written to hold it."""

from __future__ import annotations

import pytest

from inference_bench.operate.answers import AttemptEnd
from inference_bench.operate.drill.accounting import Books, first_answer_s, first_spoiled_s, list_requests, tally
from inference_bench.operate.drill.proxy import Delivery
from inference_bench.operate.drill.results import RequestSpan, Tally
from inference_bench.operate.drill.traffic import CallerEnd, Outcome
from operate.drill.fakes import BASELINES, TEXT, answer, attempt, delivery, outcome


def judged(outcomes: list[Outcome], deliveries: list[Delivery], **more: float) -> Tally:
    return tally(Books(outcomes, deliveries, **more), BASELINES)


def test_a_whole_answer_that_one_server_gave_once_has_nothing_against_it() -> None:
    found = judged([outcome()], [delivery()])
    assert (found.sent, found.completed, found.broken, found.differs) == (1, 1, (), 0)
    assert found.answered_by == {"primary": 1}


@pytest.mark.parametrize(
    "missing",
    [
        outcome(answers=[]),
        outcome(CallerEnd.OPEN, "", ended_s=None),
        outcome(CallerEnd.UNTYPED, ""),
        outcome(ended_s=10.0 + 3.0 + 5.1),
    ],
    ids=["no answer", "never returned", "an error of no known kind", "hung"],
)
def test_a_request_without_an_account_is_lost(missing: Outcome) -> None:
    found = judged([missing], [delivery()])
    assert found.lost == 1
    assert found.sent == found.completed + found.failed + found.interrupted + found.lost
    assert "lost" in found.broken


def test_a_listed_request_says_when_how_and_by_whom_and_one_that_never_returned_has_no_end() -> None:
    hung = outcome(CallerEnd.OPEN, "", ended_s=None)
    part = outcome(CallerEnd.INTERRUPTED, " a", answers=[answer("one", "fallback")])
    assert list_requests([outcome(), part, hung], 9.0).listed == (
        RequestSpan(1.0, 1.5, "completed", "primary"),
        RequestSpan(1.0, 1.5, "interrupted", "fallback"),
        RequestSpan(1.0, None, "lost", None),
    )


def test_failed_and_interrupted_requests_with_a_reason_are_accounted_for() -> None:
    failed = outcome(CallerEnd.FAILED, "", reason="refused", answers=[answer("one", None)])
    part = outcome(CallerEnd.INTERRUPTED, " a a", reason="lost")
    found = judged([failed, part], [delivery(" a a", is_whole=False)])
    assert (found.failed, found.interrupted, found.broken) == (1, 1, ())
    assert found.reasons == {"lost": 1, "refused": 1}


def test_a_request_with_two_answers_is_duplicated() -> None:
    assert judged([outcome(answers=[answer(), answer()])], [delivery()]).duplicated == 1


def test_a_text_joined_from_two_replies_is_duplicated() -> None:
    joined = outcome(text=" a a" + TEXT)
    retried = [attempt(AttemptEnd.GARBAGE, 0.0, 0.1), attempt(AttemptEnd.COMPLETED, 0.1, 0.2)]
    joined.answers = [answer("one", "primary", *retried)]
    parts = [delivery(" a a", is_whole=False), delivery(TEXT)]
    assert judged([joined], parts).duplicated == 1


def test_an_attempt_that_arrived_and_is_not_in_the_clients_book_is_duplicated() -> None:
    assert judged([outcome()], [delivery(), delivery()]).duplicated == 1


def test_two_attempts_that_were_answered_are_duplicated() -> None:
    twice = [attempt(AttemptEnd.INTERRUPTED, 0.0, 0.1), attempt(AttemptEnd.COMPLETED, 0.1, 0.2)]
    replies = [delivery(" a", is_whole=False), delivery()]
    assert judged([outcome(answers=[answer("one", "primary", *twice)])], replies).duplicated == 1


def test_a_whole_reply_that_the_client_had_given_up_is_computed_twice_and_no_duplicate() -> None:
    retried = [attempt(AttemptEnd.TIMED_OUT, 0.0, 0.5), attempt(AttemptEnd.COMPLETED, 0.5, 0.6)]
    found = judged([outcome(answers=[answer("one", "primary", *retried)])], [delivery(), delivery()])
    assert (found.duplicated, found.computed_twice) == (0, 1)


def test_an_answer_to_a_request_that_nobody_made_is_duplicated() -> None:
    assert tally(Books([], [], 0.0, 1), BASELINES).duplicated == 1


def test_a_text_that_no_server_said_is_wrong() -> None:
    assert judged([outcome(text=" b")], [delivery()]).wrong == 1


def test_a_partial_text_that_is_no_beginning_is_wrong() -> None:
    assert judged([outcome(CallerEnd.INTERRUPTED, " a b")], [delivery(" a a", is_whole=False)]).wrong == 1


def test_a_whole_answer_that_is_only_the_beginning_is_wrong() -> None:
    assert judged([outcome(text=" a a")], [delivery()]).wrong == 1


def test_a_server_that_says_something_else_itself_is_named_and_is_not_the_clients_mistake() -> None:
    found = judged([outcome(text=" c c")], [delivery(" c c")])
    assert (found.wrong, found.differs) == (0, 1)


def test_a_request_over_its_budget_is_seen_beyond_what_a_late_loop_explains() -> None:
    late = outcome(ended_s=10.0 + 3.0 + 0.3)
    assert judged([late], [delivery()]).over_budget == 1
    assert judged([late], [delivery()], lag_s=0.2).over_budget == 0


def test_coming_back_before_the_time_a_server_asked_for_is_seen() -> None:
    refused = delivery("", is_whole=False, retry_after_s=2.0)
    for back_s, early in ((11.0, 1), (12.1, 0)):
        assert judged([outcome()], [refused, delivery(at_s=back_s)]).early == early
    elsewhere = delivery(at_s=10.1, endpoint="fallback")
    assert judged([outcome()], [refused, elsewhere]).early == 0


def test_times_count_from_the_fault_and_only_what_the_broken_server_did() -> None:
    names = frozenset({"primary"})
    spoiled = outcome(answers=[answer("one", "primary", attempt(AttemptEnd.TIMED_OUT, 0.0, 0.8))])
    other = outcome(answers=[answer("one", "fallback", attempt(AttemptEnd.TIMED_OUT, 0.0, 0.2, "fallback"))])
    good = outcome(answers=[answer("one", "primary", attempt(AttemptEnd.COMPLETED, 0.5, 0.9))])
    assert first_spoiled_s([spoiled, other, good], names, 10.0) == pytest.approx(0.8)
    assert first_answer_s([spoiled, other, good], names, 10.4) == pytest.approx(0.5)
    assert first_answer_s([good], names, 10.6) is None  # it began before the fault was over
    assert first_spoiled_s([spoiled], names, 10.9) is None
