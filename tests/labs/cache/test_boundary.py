"""What of a prefix may be reused, with a tokenizer that merges across the boundary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.cache.boundary import reusable_prefix

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def encode() -> Callable[[str], list[int]]:
    """A byte-pair tokenizer whose merges are ours: "a b" → ab, "ab c" → abc, and a space joins the letter after it."""
    letters = {letter: index for index, letter in enumerate(" abc")}
    vocab = {**letters, "ab": 4, "abc": 5, " a": 6}
    model = tokenizers.models.BPE(vocab=vocab, merges=[("a", "b"), ("ab", "c"), (" ", "a")])
    tokenizer: Any = tokenizers.Tokenizer(model)
    return lambda text: list(tokenizer.encode(text).ids)


def test_where_nothing_merges_all_of_the_prefix_may_be_reused(encode: Callable[[str], list[int]]) -> None:
    found = reusable_prefix(encode, "ab", "ab")
    assert found.whole_ids == found.apart_ids == (4, 4)
    assert found.num_reusable_tokens == 2 - 1  # the prefix is one token
    assert found.first_difference is None
    assert found.warning is None


def test_a_merge_across_the_boundary_leaves_the_tokens_before_it(encode: Callable[[str], list[int]]) -> None:
    """c, ab | c is c, abc when it is tokenised whole: only the c may be reused."""
    found = reusable_prefix(encode, "cab", "c")
    assert found.prefix_ids == (3, 4)
    assert found.apart_ids == (3, 4, 3)
    assert found.whole_ids == (3, 5)
    assert (found.num_reusable_tokens, found.first_difference) == (1, 1)
    assert found.warning is not None
    assert "first 1 of 2" in found.warning


def test_a_trailing_space_joins_what_follows(encode: Callable[[str], list[int]]) -> None:
    found = reusable_prefix(encode, "c ", "ac")
    assert found.whole_ids == (3, 6, 3)
    assert (found.num_reusable_tokens, found.first_difference) == (1, 1)


def test_where_the_first_token_already_merges_nothing_may_be_reused(encode: Callable[[str], list[int]]) -> None:
    assert reusable_prefix(encode, "a", "bc").num_reusable_tokens == 0


def test_a_tokenizer_that_ends_in_fewer_tokens_differs_at_the_end() -> None:
    """The whole has the same tokens as far as it goes, and one less: that is a difference too."""
    found = reusable_prefix(lambda text: [1] * min(len(text), 3), "aaa", "a")
    assert (found.whole_ids, found.apart_ids) == ((1, 1, 1), (1, 1, 1, 1))
    assert (found.num_reusable_tokens, found.first_difference) == (3, 3)


@pytest.mark.parametrize(("prefix", "suffix"), [("", "a"), ("a", "")])
def test_an_empty_text_has_no_boundary(encode: Callable[[str], list[int]], prefix: str, suffix: str) -> None:
    with pytest.raises(RequestError, match="at least one character"):
        reusable_prefix(encode, prefix, suffix)
