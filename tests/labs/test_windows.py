from __future__ import annotations

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.windows import Windows, cut_windows, require_disjoint


def test_windows_follow_one_another_and_share_no_token() -> None:
    cut = cut_windows(range(10), num_windows=3, start=1, window_tokens=3)
    assert cut.ids == ((1, 2, 3), (4, 5, 6), (7, 8, 9))
    assert (cut.start, cut.end) == (1, 10)


def test_a_text_that_is_one_token_too_short_is_refused_with_both_lengths() -> None:
    cut_windows(range(9), 3, window_tokens=3)
    with pytest.raises(RequestError, match="has 8 tokens, and 3 windows of 3 from token 0 on need 9"):
        cut_windows(range(8), 3, window_tokens=3)


@pytest.mark.parametrize(("num", "start", "tokens"), [(0, 0, 4), (1, -1, 4), (1, 0, 1), (-2, 0, 4)])
def test_windows_that_cannot_be_cut_are_refused(num: int, start: int, tokens: int) -> None:
    with pytest.raises(RequestError, match="cannot be cut"):
        cut_windows(range(100), num, start, tokens)


@pytest.mark.parametrize("start", [8, 9, 20])
def test_windows_apart_may_judge(start: int) -> None:
    require_disjoint(Windows(0, 4, ((0, 1, 2, 3), (4, 5, 6, 7))), cut_windows(range(100), 2, start, 4))


@pytest.mark.parametrize("start", [0, 7])
def test_windows_that_overlap_by_a_token_may_not(start: int) -> None:
    with pytest.raises(RequestError, match=r"share \d tokens .* begin at token 8"):
        require_disjoint(Windows(0, 4, ((0, 1, 2, 3), (4, 5, 6, 7))), cut_windows(range(100), 2, start, 4))


def test_evaluation_before_calibration_is_apart_too() -> None:
    require_disjoint(cut_windows(range(100), 2, 50, 4), cut_windows(range(100), 2, 0, 4))


def test_the_same_words_at_another_place_may_not_judge_either() -> None:
    repeated = [1, 2, 3, 4] * 10
    with pytest.raises(RequestError, match="share 1 windows"):
        require_disjoint(cut_windows(repeated, 1, 0, 4), cut_windows(repeated, 1, 20, 4))
