"""Where two greedy answers part, and which gaps are near ties. Expected values are worked out by hand."""

from __future__ import annotations

import pytest

from inference_bench.operate.contract.divergence import Answered, Kind, Parting, judge, part, tie_nats
from inference_bench.operate.contract.reading import TokenLogprob, logprobs_of


def token(name: str, logprob: float, *others: tuple[str, float]) -> TokenLogprob:
    return TokenLogprob(name, logprob, ((name, logprob), *others))


FIRST = Answered("abc", (token("a", -0.1), token("b", -0.7, ("x", -0.72)), token("c", -0.2)))


def test_equal_answers_do_not_part_and_their_largest_shift_is_known() -> None:
    moved = Answered("abc", (token("a", -0.1), token("b", -0.74), token("c", -0.2)))
    found = part("again", 0, FIRST, moved)
    assert found.at is None
    assert found.shift_nats == pytest.approx(0.04)
    assert judge(found, found.shift_nats) is Kind.SAME


def test_the_gap_is_that_of_the_two_tokens_in_the_first_answer_and_the_shift_that_of_tokens_before() -> None:
    other = Answered("axc", (token("a", -0.11), token("x", -0.6), token("c", -3.0)))
    found = part("batch", 2, FIRST, other)
    assert (found.at, found.prompt) == (1, 2)
    assert found.gap_nats == pytest.approx(0.02)
    assert found.top_two_gap_nats == pytest.approx(0.02)
    assert found.shift_nats == pytest.approx(0.01)


def test_a_token_that_was_not_listed_is_at_least_as_far_away_as_the_last_that_was() -> None:
    found = part("batch", 0, FIRST, Answered("ayc", (token("a", -0.1), token("y", -0.5), token("c", -0.2))))
    assert found.gap_nats == pytest.approx(0.02)  # the second, x, is the last that is listed


def test_without_tokens_the_texts_part_at_a_character_and_nothing_says_why() -> None:
    found = part("batch", 0, Answered("hello there"), Answered("hello world"))
    assert (found.at, found.gap_nats) == (6, None)
    assert judge(found, None) is Kind.UNKNOWN


def test_an_answer_that_is_the_beginning_of_the_other_parts_at_its_end() -> None:
    assert part("batch", 0, FIRST, Answered("ab", FIRST.tokens[:2])).at == 2


@pytest.mark.parametrize(
    ("gap", "shift", "kind"),
    [
        (0.05, 0.0, Kind.NEAR_TIE),  # the margin
        (0.06, 0.0, Kind.BUG),
        (0.06, 0.01, Kind.NEAR_TIE),  # 0.05 + 2 * 0.01
        (0.35, 0.2, Kind.NEAR_TIE),  # a shift excuses no more than 0.15
        (0.36, 0.29, Kind.BUG),
        (0.01, 0.31, Kind.BUG),  # no rounding moves that far
    ],
)
def test_a_gap_is_a_near_tie_up_to_the_margin_and_twice_the_shift_which_is_capped(
    gap: float, shift: float, kind: Kind
) -> None:
    assert judge(Parting("batch", 0, 3, gap, gap, shift), shift) is kind


def test_the_threshold_without_any_shift_is_the_margin() -> None:
    assert tie_nats(None) == 0.05


def test_log_probabilities_are_read_in_both_shapes_and_half_a_list_is_none() -> None:
    chat = {
        "choices": [
            {"logprobs": {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{"token": "a", "logprob": -1}]}]}}
        ]
    }
    columns = {
        "choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"b": -2, "a": -1}]}}]
    }
    assert logprobs_of(chat) == (TokenLogprob("a", -1.0, (("a", -1.0),)),)
    assert logprobs_of(columns) == (TokenLogprob("a", -1.0, (("a", -1.0), ("b", -2.0))),)
    assert logprobs_of({"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [None, -1.0]}}]}) == ()
    assert logprobs_of({"choices": "no"}) == ()
