"""Prompts: of the length that was asked, the same for the same seed, and never alike."""

from __future__ import annotations

from itertools import pairwise

import pytest

from inference_bench.errors import MeasurementError
from inference_bench.measure.prompts import WORDS, PromptMaker, TokenFit, calibrate
from inference_bench.workload import Segment


def test_the_word_list_is_large_plain_and_without_repeats() -> None:
    assert len(WORDS) > 300
    assert len(set(WORDS)) == len(WORDS)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


def test_the_same_seed_gives_the_same_prompts_and_another_seed_or_salt_does_not() -> None:
    def texts(seed: int, salt: str = "") -> list[str]:
        maker = PromptMaker(seed, salt=salt)
        return [maker.make(20).text for _ in range(5)]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)
    assert texts(1) != texts(1, "second run")


def test_no_two_prompts_of_a_run_begin_with_the_same_word() -> None:
    maker = PromptMaker(seed=0)
    prompts = [maker.make(10) for _ in range(len(WORDS))]
    assert len({prompt.text.split()[0] for prompt in prompts}) == len(WORDS)
    assert [prompt.serial for prompt in prompts] == list(range(len(WORDS)))


def test_the_length_is_the_number_of_words_until_a_server_says_otherwise() -> None:
    assert len(PromptMaker(0).make(128).text.split()) == 128


@pytest.mark.parametrize("num_tokens", [1, 5, 30])
def test_a_prompt_has_at_least_one_word(num_tokens: int) -> None:
    assert len(PromptMaker(0, TokenFit(overhead_tokens=30)).make(num_tokens).text.split()) == 1


def test_two_lengths_tell_template_and_words_apart() -> None:
    # a server that counts 1.25 tokens a word and 30 for its template
    fit = calibrate([(20, 55), (120, 180)])
    assert (fit.tokens_per_word, fit.overhead_tokens) == (1.25, 30.0)
    prompt = PromptMaker(0, fit).make(512)
    assert abs(1.25 * prompt.num_words + 30 - 512) <= 1.25


def test_one_length_gives_a_ratio() -> None:
    assert calibrate([(100, 130), (100, 130)]) == TokenFit(1.3, 0.0)


@pytest.mark.parametrize("samples", [[], [(10, 0)], [(10, 1000)], [(10, 50), (100, 40)], [(0, 5)]])
def test_counts_that_cannot_be_are_refused(samples: list[tuple[int, int]]) -> None:
    with pytest.raises(MeasurementError):
        calibrate(samples)


def test_prompts_of_the_same_leading_segments_begin_with_the_same_words_whatever_a_word_is() -> None:
    shared, own, other = Segment(0, 101), Segment(1, 33), Segment(2, 57)
    for fit in (TokenFit(), TokenFit(1.37, 11.0), TokenFit(0.4, 0.0)):
        maker = PromptMaker(0, fit)
        short, long, alone = (maker.make_of(segments) for segments in ((shared, own), (shared, other), (shared,)))
        num_shared = fit.num_words_up_to(101)
        assert short.text.split()[:num_shared] == long.text.split()[:num_shared] == alone.text.split()
        assert short.num_words == len(short.text.split()) == fit.num_words(134)
        assert short.text.split()[num_shared:][:5] != long.text.split()[num_shared:][:5]
        assert [prompt.serial for prompt in (short, long, alone)] == [0, 1, 2]


def test_a_conversation_grows_by_its_segments_alone() -> None:
    maker = PromptMaker(0, TokenFit(1.3, 7.0))
    segments = [Segment(number, 10 + number) for number in range(12)]
    texts = [maker.make_of(segments[: length + 1]).text for length in range(12)]
    assert all(after.startswith(before) for before, after in pairwise(texts))


def test_a_prompt_of_fewer_tokens_than_the_template_still_has_a_word() -> None:
    assert PromptMaker(0, TokenFit(1.0, 30.0)).make_of([Segment(0, 5)]).num_words == 1
