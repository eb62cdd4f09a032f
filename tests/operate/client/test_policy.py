"""What is refused before anything is sent."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.operate.answers import AttemptEnd, end_of_status
from inference_bench.operate.client import BreakerPolicy, Client, Policy, Request, Upstream
from inference_bench.operate.client.policy import RULES, Health, health_of

MESSAGES = [{"role": "user", "content": "the words of the caller"}]
SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    "name", ["budget_s", "connect_s", "first_token_s", "stall_s", "backoff_base_s", "backoff_most_s"]
)
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "5"])
def test_a_time_that_cannot_be_is_refused_and_said(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match="must be above 0"):
        Policy(**{name: value})


@pytest.mark.parametrize("name", ["tries_each", "most_attempts", "max_reply_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_count_that_cannot_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match="whole number"):
        Policy(**{name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"hedge_after_s": 0},
        {"idempotency_header": "two words"},
        {"idempotency_header": "X: y\r\n"},
        {"least_left_s": -1},
        {"keep_alive_s": -1},
        {"keep_alive_s": math.nan},
        {"keep_alive_s": False},
    ],
)
def test_other_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        Policy(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"failure_fraction": 0},
        {"failure_fraction": 1.1},
        {"window_s": 0},
        {"open_s": -1},
        {"num_probes": 0},
        {"least_failures": 0},
    ],
)
def test_a_breaker_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="breaker"):
        BreakerPolicy(**wrong)


def test_a_client_needs_endpoints_and_each_a_name_of_its_own() -> None:
    one = Upstream("one", Target("http://127.0.0.1:1"))
    with pytest.raises(RequestError, match="no endpoint"):
        Client([])
    with pytest.raises(RequestError, match="two endpoints have the name one"):
        Client([one, Upstream("one", Target("http://127.0.0.1:2"))])


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(RequestError) as caught:
        Upstream("one", Target(f"http://user:{SECRET}@127.0.0.1:1"))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "-a", None, 3])
def test_a_name_that_could_not_stand_in_a_label_is_refused(name: Any) -> None:
    with pytest.raises(RequestError, match="name"):
        Upstream(name, Target("http://127.0.0.1:1"))


def test_only_routes_of_openai_are_asked() -> None:
    with pytest.raises(RequestError, match=r"route llama\.cpp"):
        Upstream("one", Target("http://127.0.0.1:1", endpoint=Endpoint.LLAMA_CPP))


def test_an_address_of_the_other_route_is_refused_when_the_request_is_known() -> None:
    upstream = Upstream("one", Target("http://127.0.0.1:1/api/v3/completions"))
    assert upstream.path_for(Endpoint.COMPLETIONS) == "/completions"  # below /api/v3
    with pytest.raises(RequestError, match="the request is for chat"):
        upstream.path_for(Endpoint.CHAT)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": MESSAGES, "prompt": "x"},
        {"messages": MESSAGES, "stream": False},
        {"messages": MESSAGES, "model": "other"},
        {"messages": MESSAGES, "n": 2},
        {"prompt": "x", "best_of": 3},
        "text",
    ],
)
def test_fields_that_the_client_sets_or_that_ask_for_several_answers_are_refused(fields: Any) -> None:
    with pytest.raises(RequestError) as caught:
        Request(fields)
    assert "the words" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget_s": 0},
        {"budget_s": -2},
        {"idempotency_key": "a b"},
        {"request_id": "a\r\nX: y"},
        {"team": "a\nb"},
        {"application": ""},
    ],
)
def test_names_and_budgets_of_a_request_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        Request({"messages": MESSAGES}, **wrong)


def test_neither_words_nor_keys_show_in_a_repr_and_a_client_is_not_pickled() -> None:
    upstream = Upstream("one", Target("http://127.0.0.1:1", api_key=ApiKey(SECRET)))
    assert "the words" not in repr(Request({"messages": MESSAGES}))
    assert SECRET not in repr(upstream)
    with pytest.raises(TypeError):
        pickle.dumps(upstream)


def test_a_header_that_both_sides_would_set_is_refused() -> None:
    upstream = Upstream("one", Target("http://127.0.0.1:1", extra_headers={"idempotency-key": "mine"}))
    with pytest.raises(RequestError, match="header Idempotency-Key of its own"):
        Client([upstream])


def test_every_way_to_end_has_a_rule_and_statuses_mean_what_the_table_says() -> None:
    assert set(RULES) == set(AttemptEnd)
    retried = {status for status in range(300, 600) if RULES[end_of_status(status)].is_retried}
    assert retried == {408, 429, *range(500, 600)}
    assert [health_of(AttemptEnd.REFUSED, status, is_cut_short=False) for status in (429, 503)] == [
        Health.UNKNOWN,
        Health.BAD,
    ]
    assert health_of(AttemptEnd.TIMED_OUT, None, is_cut_short=True) is Health.UNKNOWN
