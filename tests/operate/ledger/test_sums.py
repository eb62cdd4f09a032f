"""What was paid for, computed, completed and of use are four different numbers, and every token is in the right ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.operate.answers import Answer, AttemptEnd
from inference_bench.operate.ledger.entry import Entry, EntryAttempt
from inference_bench.operate.ledger.totals import REST, By, Groups, Sums, Waste, shares_of
from inference_bench.records import RequestStatus
from operate.ledger.made import (
    FIRST,
    HEAD,
    RELEASE_A,
    RELEASE_B,
    SECOND,
    attempt,
    kept,
    line,
    record,
    whole,
    write_lines,
)


def failed(number: int, end: AttemptEnd, status: RequestStatus, **more: Any) -> Answer:
    nothing = dict.fromkeys(
        (
            "answered_by",
            "ttft_s",
            "finish_reason",
            "prompt_tokens",
            "cached_prompt_tokens",
            "output_tokens",
            "reasoning_tokens",
        )
    )
    return whole(number, status=status, attempts=(attempt(end),), **{**nothing, **more})


def sums_of(tmp_path: Path, *answers: Answer) -> Sums:
    record(tmp_path, *answers)
    return kept(tmp_path).sums


def wasted(sums: Sums) -> dict[str, tuple[int, int, int]]:
    return {each.waste.name: (each.num_attempts, each.input_tokens, each.output_tokens) for each in sums.wastes()}


def test_input_from_a_prefix_cache_was_read_by_the_caller_and_not_computed(tmp_path: Path) -> None:
    sums = sums_of(tmp_path, whole(1))
    assert (sums.input_tokens, sums.cached_input_tokens, sums.computed_input_tokens) == (500, 300, 200)
    assert (sums.output_tokens, sums.reasoning_tokens, sums.computed_output_tokens) == (100, 20, 100)


def test_attempts_that_failed_before_the_answer_are_in_what_was_computed(tmp_path: Path) -> None:
    broken = attempt(AttemptEnd.GARBAGE, prompt_tokens=500, output_tokens=30)
    good = attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100)
    sums = sums_of(tmp_path, whole(1, attempts=(broken, good), answered_by=SECOND, is_fallback=True))
    assert (sums.num_attempts, sums.num_failed_attempts, sums.num_fallback) == (2, 1, 1)
    assert (sums.computed_output_tokens, sums.completed_output_tokens, sums.useful_output_tokens) == (130, 100, 100)
    assert wasted(sums) == {"FAILED": (1, 500, 30)}


def test_an_answer_that_was_cut_short_was_computed_and_is_of_no_use(tmp_path: Path) -> None:
    cut = attempt(AttemptEnd.INTERRUPTED, prompt_tokens=500, output_tokens=40)
    sums = sums_of(
        tmp_path, whole(1, status=RequestStatus.TRUNCATED, attempts=(cut,), output_tokens=40, finish_reason=None)
    )
    assert (sums.num_completed, sums.num_useful, sums.computed_output_tokens, sums.completed_output_tokens) == (
        0,
        0,
        40,
        0,
    )
    assert wasted(sums) == {"INTERRUPTED": (1, 200, 40)}


def test_a_hedge_that_lost_is_waste_of_its_own_kind_whichever_of_the_two_it_was(tmp_path: Path) -> None:
    lost = attempt(AttemptEnd.CANCELLED, prompt_tokens=500, output_tokens=7)
    won = attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100, is_hedge=True)
    sums = sums_of(tmp_path, whole(1, attempts=(lost, won), answered_by=SECOND))
    assert (sums.num_hedges, wasted(sums)) == (1, {"HEDGE": (1, 500, 7)})


def test_what_the_caller_cancelled_is_no_failure_and_still_was_computed(tmp_path: Path) -> None:
    stopped = attempt(AttemptEnd.CANCELLED, prompt_tokens=500, output_tokens=12)
    sums = sums_of(tmp_path, whole(1, status=RequestStatus.CANCELLED, attempts=(stopped,), output_tokens=12))
    assert (sums.num_failed_attempts, sums.num_useful, wasted(sums)) == (0, 0, {"CANCELLED": (1, 200, 12)})


def test_a_whole_answer_that_the_application_refused_was_completed_and_is_of_no_use(tmp_path: Path) -> None:
    sums = sums_of(tmp_path, whole(1, user_success=False), whole(2, user_success=True), whole(3))
    assert (sums.num_completed, sums.num_useful, sums.num_judged) == (3, 2, 2)
    assert (sums.completed_output_tokens, sums.useful_output_tokens) == (300, 200)
    assert wasted(sums) == {"NOT_USEFUL": (1, 200, 100)}


def test_tokens_that_nobody_counted_add_nothing_and_make_the_sums_lower_bounds(tmp_path: Path) -> None:
    late = failed(1, AttemptEnd.TIMED_OUT, RequestStatus.TIMED_OUT)
    refused = failed(2, AttemptEnd.REFUSED, RequestStatus.REJECTED)
    sums = sums_of(tmp_path, late, refused)
    assert (sums.num_uncounted, sums.computed_output_tokens, sums.computed_input_tokens) == (1, 0, 0)
    assert sums.by_status == {RequestStatus.TIMED_OUT: 1, RequestStatus.REJECTED: 1}


def test_attempts_that_computed_are_those_with_tokens_and_the_refused_are_apart(tmp_path: Path) -> None:
    turned_away = (
        attempt(AttemptEnd.REFUSED, http_status=503),
        attempt(AttemptEnd.NOT_REACHED),
        attempt(AttemptEnd.BREAKER_OPEN),
    )
    good = attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100)
    late = failed(2, AttemptEnd.TIMED_OUT, RequestStatus.TIMED_OUT)
    sums = sums_of(tmp_path, whole(1, attempts=(*turned_away, good), answered_by=SECOND), late)
    assert (sums.num_attempts, sums.num_computed_attempts, sums.num_refused_attempts, sums.num_uncounted) == (
        4,
        1,
        2,
        1,
    )


def test_an_open_breaker_sent_nothing(tmp_path: Path) -> None:
    held = attempt(AttemptEnd.BREAKER_OPEN)
    good = attempt(AttemptEnd.COMPLETED, SECOND, prompt_tokens=500, output_tokens=100)
    sums = sums_of(tmp_path, whole(1, attempts=(held, good), answered_by=SECOND))
    assert (sums.num_attempts, sums.num_failed_attempts, sums.in_flight_s) == (1, 0, 1.0)


def test_without_any_request_there_is_no_share(tmp_path: Path) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD)
    ledger = kept(tmp_path)
    assert (ledger.sums.wasted_output_fraction, ledger.paid.busy_fraction) == (None, None)


# ── told apart ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("by", "requests", "output_tokens"),
    [
        (By.APPLICATION, {"chat": 1, "search": 1}, {"chat": 130, "search": 100}),
        (By.TEAM, {"core": 2}, {"core": 230}),
        (By.MODEL, {"model-a": 1, "model-b": 1}, {"model-a": 130, "model-b": 100}),
        (By.ENDPOINT, {"first": 1, "second": 1}, {"first": 130, "second": 100}),
        (By.MANIFEST, {RELEASE_A: 1, RELEASE_B: 1}, {RELEASE_A: 130, RELEASE_B: 100}),
    ],
)
def test_a_request_stands_with_who_answered_it_and_an_attempt_with_who_got_it(
    tmp_path: Path, by: By, requests: dict[str, int], output_tokens: dict[str, int]
) -> None:
    broken = attempt(AttemptEnd.GARBAGE, FIRST, output_tokens=30)
    good = attempt(AttemptEnd.COMPLETED, SECOND, output_tokens=100)
    answers = whole(1, attempts=(broken, good), answered_by=SECOND), whole(2, application="search")
    record(tmp_path, *answers)
    groups = kept(tmp_path, by=(by,)).groups[by]
    assert {group.name: group.sums.num_requests for group in groups} == requests
    assert {group.name: group.sums.computed_output_tokens for group in groups} == output_tokens


@pytest.mark.parametrize(("by", "names"), [(By.HOUR, ["2026-11-30 12Z", "2026-11-30 13Z"]), (By.DAY, ["2026-11-30"])])
def test_hours_and_days_are_those_of_the_wall_clock_in_order(tmp_path: Path, by: By, names: list[str]) -> None:
    write_lines(tmp_path / "ledger-a.jsonl", HEAD, line(1, began_s=3700.0), line(2, began_s=10.0))
    assert [group.name for group in kept(tmp_path, by=(by,)).groups[by]] == names


def test_names_without_end_are_put_together(tmp_path: Path) -> None:
    groups = Groups(By.APPLICATION, most=3)
    for number in range(10):
        groups.add(Entry("s", number, "id", RequestStatus.FAILED, 0.0, 0.0, (), application=f"a{number}"), [])
    assert {name: sums.num_requests for name, sums in groups.sums().items()} == {"a0": 1, "a1": 1, "a2": 1, REST: 7}


# ── whatever comes ─────────────────────────────────────────────────────────────────────────────────

counts = st.none() | st.integers(0, 1000)
attempts = st.builds(
    EntryAttempt,
    endpoint=st.sampled_from(["first", "second"]),
    model=st.none(),
    end=st.sampled_from(AttemptEnd),
    started_s=st.floats(0, 1),
    ended_s=st.floats(0, 9),
    prompt_tokens=counts,
    output_tokens=counts,
    is_hedge=st.booleans(),
)
requests = st.builds(
    Entry,
    source=st.just("s"),
    sequence=st.integers(0, 9),
    request_id=st.just("id"),
    status=st.sampled_from(RequestStatus),
    began_s=st.floats(0, 9),
    e2e_s=st.floats(0, 9),
    attempts=st.lists(attempts, max_size=4).map(tuple),
    prompt_tokens=counts,
    cached_prompt_tokens=counts,
    output_tokens=counts,
    reasoning_tokens=counts,
    endpoint=st.none() | st.sampled_from(["first", "second"]),
    user_success=st.none() | st.booleans(),
    is_warm_up=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(requests, max_size=5))
def test_computed_is_of_use_or_wasted_and_no_stage_is_larger_than_the_one_before(found: list[Entry]) -> None:
    sums, num_useful_attempts = Sums(), 0
    for entry in found:
        sums.add_request(entry)
        for share in shares_of(entry):
            sums.add_share(entry, share)
            num_useful_attempts += share.waste is None and share.has_tokens
    wastes = sums.wastes()
    assert sums.num_computed_attempts == num_useful_attempts + sum(each.num_attempts for each in wastes)
    assert sums.num_computed_attempts + sums.num_refused_attempts <= sum(len(entry.attempts) for entry in found)
    assert sums.computed_output_tokens == sums.useful_output_tokens + sum(each.output_tokens for each in wastes)
    assert sums.computed_input_tokens == sums.useful_input_tokens + sum(each.input_tokens for each in wastes)
    assert sums.useful_output_tokens <= sums.completed_output_tokens <= sums.computed_output_tokens
    assert sums.useful_input_tokens <= sums.completed_input_tokens <= sums.computed_input_tokens
    assert sums.num_useful <= sums.num_completed <= sums.num_requests
    assert Waste.WARM_UP in {each.waste for each in wastes} or not any(
        entry.is_warm_up and any(share.output_tokens for share in shares_of(entry)) for entry in found
    )
