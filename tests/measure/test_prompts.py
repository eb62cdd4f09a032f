"""Prompts: of the length that was asked, the same for the same seed, and never alike."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise

import pytest

from inference_bench.errors import MeasurementError, RequestError
from inference_bench.measure.prompt_sources import PromptTemplate, read_corpus
from inference_bench.measure.prompts import WORDS, PromptMaker, TokenFit, calibrate, conversation_roles
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


def test_a_prompt_made_by_number_is_the_one_made_in_turn_in_any_order_and_in_another_process() -> None:
    in_turn = [maker.make(30).text for maker in [PromptMaker(3, salt="run")] for _ in range(50)]
    by_number = PromptMaker(3, salt="run")
    assert [by_number.make(30, serial).text for serial in reversed(range(50))] == in_turn[::-1]
    elsewhere = pickle.loads(pickle.dumps(PromptMaker(3, TokenFit(1.5, 4.0), "run", read_corpus())))
    here = PromptMaker(3, TokenFit(1.5, 4.0), "run", read_corpus())
    assert [elsewhere.make(40, serial).text for serial in range(5)] == [
        here.make(40, serial).text for serial in range(5)
    ]


def test_numbers_that_were_reserved_are_not_made_in_turn() -> None:
    maker = PromptMaker(0)
    assert (maker.reserve(10), maker.make(5).serial, maker.reserve(2), maker.make(5).serial) == (0, 10, 11, 13)


def test_neighbouring_segments_begin_with_different_words_and_come_anew_in_another_part_of_a_run() -> None:
    maker = PromptMaker(0)
    firsts = [maker.make_of([Segment(content, 8)]).text.split()[0] for content in range(300)]
    assert len(set(firsts)) == 300
    assert maker.make_of([Segment(0, 8)]).text == maker.make_of([Segment(0, 8)]).text
    assert maker.make_of([Segment(0, 8)]).text != maker.make_of([Segment(0, 8)], part=300).text


def test_what_a_prompt_says_shows_in_no_repr() -> None:
    segments = [Segment(0, 20), Segment(1, 20)]
    shown = repr([PromptMaker(0).make(40), PromptMaker(0).make_of(segments, roles=("system", "user"))])
    assert "serial=0" in shown
    assert not any(f"{word} " in shown or f" {word}" in shown for word in WORDS if len(word) > 6)


def test_a_conversation_is_messages_whose_words_follow_each_other() -> None:
    prefix, question, answer, next_question = Segment(0, 40), Segment(1, 10), Segment(9, 25), Segment(2, 10)
    segments = (prefix, question, answer, next_question)
    roles = conversation_roles(segments, {9})
    assert roles == ("system", "user", "assistant", "user")
    maker = PromptMaker(0, TokenFit(1.0, 8.0, 4.0, -3.0))
    prompt = maker.make_of(segments, roles=roles)
    assert [message.role for message in prompt.messages] == list(roles)
    assert prompt.said == prompt.messages
    # of 85 tokens 8 go to the template, 3 less for a system message, and 4 each to the third and fourth message
    assert sum(len(message.content.split()) for message in prompt.messages) == 85 - 8 + 3 - 2 * 4
    assert maker.make_of(segments[:2], roles=roles[:2]).messages == prompt.messages[:2]
    talk = maker.make_of(segments[1:], roles=roles[1:])
    assert sum(len(message.content.split()) for message in talk.messages) == 45 - 8 - 2 * 4


def test_messages_are_never_empty_and_are_not_put_into_a_template() -> None:
    short = PromptMaker(0, TokenFit(1.0, 50.0)).make_of([Segment(0, 2), Segment(1, 2)], roles=("user", "assistant"))
    assert all(message.content for message in short.messages)
    with pytest.raises(RequestError, match="template"):
        PromptMaker(0, template=PromptTemplate("{prompt}")).make_of([Segment(0, 5)], roles=("user",))


def test_a_template_is_filled_and_nothing_else_in_it_is_read() -> None:
    maker = PromptMaker(0, template=PromptTemplate("[{id}] {0} {prompt!r} {prompt}\n{{x}}"))
    first, second = maker.make(3), maker.make(3)
    assert re.fullmatch(r"\[[0-9a-f]{8}\] \{0\} \{prompt!r\} \w+ \w+ \w+\n\{\{x\}\}", first.text)
    assert first.text[:10] != second.text[:10]
    assert PromptTemplate("{id}: {prompt}").fill("say {id} {prompt}", "7") == "7: say {id} {prompt}"
    with pytest.raises(RequestError, match=r"no \{prompt\}"):
        PromptTemplate("only {id}")
