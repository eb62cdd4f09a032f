"""Numbers that no server can mean are no numbers, and lose nothing that stands beside them."""

from __future__ import annotations

from typing import Any

import pytest

from inference_bench.operate.contract.reading import cached_tokens, logprobs_of, usage_count

HUGE = 10**400  # JSON allows it, and no float holds it


def test_a_log_probability_of_400_digits_is_none() -> None:
    content = [{"token": "a", "logprob": -HUGE, "top_logprobs": []}]
    assert logprobs_of({"choices": [{"logprobs": {"content": content}}]}) == ()
    columns = {"tokens": ["a"], "token_logprobs": [-HUGE], "top_logprobs": [None]}
    assert logprobs_of({"choices": [{"logprobs": columns}]}) == ()


def test_a_listed_one_of_400_digits_is_left_out() -> None:
    columns = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -HUGE, "c": -2}]}
    (found,) = logprobs_of({"choices": [{"logprobs": columns}]})
    assert found.top == (("a", -0.5), ("c", -2.0))


@pytest.mark.parametrize("count", [HUGE, -1, True, 1.5], ids=["huge", "negative", "bool", "part"])
def test_a_count_that_is_none_is_not_known(count: Any) -> None:
    usage = {"completion_tokens": count, "prompt_tokens_details": {"cached_tokens": count}}
    assert usage_count({"usage": usage}, "completion_tokens") is None
    assert cached_tokens({"usage": usage}) is None
