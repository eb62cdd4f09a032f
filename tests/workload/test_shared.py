"""Shared prefixes and conversations: who shares what, and how much a cache could have held."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.workload import (
    Constant,
    Fixed,
    OpenLoop,
    Poisson,
    Requests,
    Segment,
    SharedPrefix,
    UniformLengths,
    Workload,
    closed_loop,
    generate,
    generate_conversations,
    generate_shared,
    leading_block_hits,
    open_loop,
)
from inference_bench.workload.requests import RequestShape


def of_blocks(*prompts: tuple[int, ...]) -> Workload:
    segments = tuple(tuple(Segment(content, 16) for content in prompt) for prompt in prompts)
    lengths = array("q", [16 * len(prompt) for prompt in prompts])
    requests = Requests(lengths, array("q", [1] * len(prompts)), segments)
    return Workload("blocks", requests, open_loop(range(len(prompts))))


def test_every_prompt_starts_with_the_prefix_of_its_group_and_shares_nothing_more() -> None:
    workload = generate_shared(Poisson(1.0), UniformLengths(5, 9), Fixed(3), 200, prefix=SharedPrefix(100, 4))
    prompts = workload.requests.prompts
    assert prompts is not None
    assert {prompt[0] for prompt in prompts} == {Segment(group, 100) for group in range(4)}
    own = [prompt[1].content for prompt in prompts]
    answers = list(workload.requests.answers or ())
    assert len({*own, *answers, *range(4)}) == 404  # no content stands for two things
    assert all(105 <= length <= 109 for length in workload.requests.prompt_tokens)


def test_the_draws_come_in_the_order_gap_prompt_output_group() -> None:
    workload = generate_shared(
        Poisson(2.0), UniformLengths(5, 9), UniformLengths(1, 3), 50, 5, prefix=SharedPrefix(7, 3)
    )
    rng, now_s = Random(5), 0.0
    assert isinstance(workload.arrival, OpenLoop)
    for index, prompt in enumerate(workload.requests.prompts or ()):
        now_s += rng.expovariate(2.0)
        assert workload.arrival.times_s[index] == now_s
        assert prompt[1].num_tokens == rng.randint(5, 9)
        assert workload.requests.output_tokens[index] == rng.randint(1, 3)
        assert prompt[0].content == math.floor(rng.random() * 3)


def test_samples_are_sent_together_with_one_prompt_and_outputs_of_their_own() -> None:
    workload = generate_shared(
        Poisson(2.0), UniformLengths(5, 9), UniformLengths(1, 1000), 50, 5, prefix=SharedPrefix(7, 3), samples=4
    )
    requests, rng, now_s = workload.requests, Random(5), 0.0
    assert isinstance(workload.arrival, OpenLoop)
    assert requests.prompts is not None
    assert requests.sample_of is not None
    for first in range(0, 50, 4):
        members = range(first, min(first + 4, 50))
        now_s += rng.expovariate(2.0)
        length, outputs, group = rng.randint(5, 9), [rng.randint(1, 1000)], math.floor(rng.random() * 3)
        outputs += [rng.randint(1, 1000) for _ in members[1:]]
        assert [requests.output_tokens[index] for index in members] == outputs
        for index in members:
            assert workload.arrival.times_s[index] == now_s
            assert requests.prompts[index] == requests.prompts[first]
            assert [segment.num_tokens for segment in requests.prompts[index]] == [7, length]
            assert requests.prompts[index][0].content == group
            assert requests.sample_of[index] == first
    assert len(requests) == 50
    assert len({*(requests.answers or ())}) == 50
    assert workload.arrival.nominal_rate == 8.0
    assert "prompts of 4 samples" in workload.arrival.process
    assert "sent together" in workload.notes[0]


def test_one_sample_draws_as_if_there_were_none() -> None:
    lengths = UniformLengths(5, 9), UniformLengths(1, 3)
    one, plain = generate_shared(Poisson(2.0), *lengths, 50, 5), generate(Poisson(2.0), *lengths, 50, 5)
    assert replace(one.requests, prompts=None, answers=None) == plain.requests
    assert (one.arrival, one.notes) == (plain.arrival, plain.notes)
    prefix = SharedPrefix(7, 3)
    assert generate_shared(Poisson(2.0), *lengths, 50, 5, prefix=prefix) == generate_shared(
        Poisson(2.0), *lengths, 50, 5, prefix=prefix, samples=1
    )


def test_all_samples_but_the_first_find_the_whole_prompt() -> None:
    hits = leading_block_hits(generate_shared(Poisson(1.0), Fixed(5), Fixed(3), 100, samples=4))
    assert (hits.num_hits, hits.num_segments) == (75, 100)


def test_groups_follow_zipf() -> None:
    prefix, rng = SharedPrefix(1, 3, zipf=1.0), Random(0)
    drawn = Counter(prefix.draw(rng) for _ in range(22_000))  # 1 : 1/2 : 1/3 is 6 : 3 : 2 of 11
    for group, share in enumerate((6 / 11, 3 / 11, 2 / 11)):
        assert drawn[group] == pytest.approx(22_000 * share, abs=6 * math.sqrt(22_000 * share * (1 - share)))


def test_all_requests_after_the_first_of_a_group_find_its_prefix() -> None:
    workload = generate_shared(Poisson(1.0), Fixed(5), Fixed(3), 100, prefix=SharedPrefix(50, 4))
    hits = leading_block_hits(workload)
    assert (hits.num_hits, hits.num_segments, hits.hit_tokens) == (96, 200, 96 * 50)
    assert hits.prompt_tokens == 100 * 55
    assert hits.hit_fraction == 0.48


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 60), num_turns=st.integers(1, 7), think_s=st.floats(0.0, 20.0), seed=st.integers(0, 1000),
    prefix=st.sampled_from([None, SharedPrefix(11, 3)]),
)  # fmt: skip
def test_a_turn_holds_the_whole_conversation_before_it(
    count: int, num_turns: int, think_s: float, seed: int, prefix: SharedPrefix | None
) -> None:
    workload = generate_conversations(
        Poisson(0.5), UniformLengths(1, 50), UniformLengths(1, 9), count, seed,
        num_turns=num_turns, think_s=think_s, prefix=prefix,
    )  # fmt: skip
    requests = workload.requests
    assert len(requests) == count
    assert requests.prompts is not None
    assert requests.answers is not None
    by_conversation: dict[Segment, list[int]] = {}
    for index, prompt in enumerate(requests.prompts):
        by_conversation.setdefault(prompt[1 if prefix else 0], []).append(index)
    assert len(by_conversation) == math.ceil(count / num_turns)
    for turns in by_conversation.values():
        assert len(turns) <= num_turns
        for before, after in pairwise(turns):
            answer = Segment(requests.answers[before], requests.output_tokens[before])
            assert requests.prompts[after][:-1] == (*requests.prompts[before], answer)
    assert len(set(requests.answers)) == count


def test_conversations_ask_at_their_rate_times_their_turns() -> None:
    workload = generate_conversations(Constant(1.0), Fixed(10), Fixed(5), 400, num_turns=4, think_s=2.0)
    assert isinstance(workload.arrival, OpenLoop)
    assert workload.arrival.nominal_rate == 4.0
    assert workload.arrival.realised_rate == pytest.approx(4.0, rel=0.1)
    assert list(workload.arrival.times_s) == sorted(workload.arrival.times_s)
    assert "planned time" in workload.notes[0]


def test_turns_without_a_pause_are_sent_together_in_their_order() -> None:
    workload = generate_conversations(Constant(1.0), Fixed(10), Fixed(5), 3, num_turns=3, think_s=0.0)
    assert isinstance(workload.arrival, OpenLoop)
    assert list(workload.arrival.times_s) == [1.0, 1.0, 1.0]
    assert list(workload.requests.prompt_tokens) == [10, 25, 40]


def test_the_same_seed_gives_the_same_conversations() -> None:
    first, again, other = (
        generate_conversations(
            Poisson(1.0), UniformLengths(1, 50), UniformLengths(1, 9), 30, seed, num_turns=3, think_s=2.0
        )
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_hits_stop_at_the_first_block_that_was_not_seen() -> None:
    assert leading_block_hits(of_blocks((1, 2, 3), (1, 2, 3, 4), (1, 9, 3), (2, 3))).num_hits == 3 + 1
    assert leading_block_hits(of_blocks((1, 1, 1), (1, 1))).num_hits == 2
    assert leading_block_hits(of_blocks((1, 1, 1))).num_hits == 0


def test_a_block_counts_only_behind_the_same_blocks() -> None:
    assert leading_block_hits(of_blocks((1, 2), (3, 2), (3, 2))).num_hits == 2


def test_requests_that_share_nothing_have_no_hit() -> None:
    hits = leading_block_hits(closed_loop("loop", [RequestShape(8, 1)], 1, 5))
    assert (hits.num_hits, hits.num_segments, hits.prompt_tokens, hits.hit_fraction) == (0, 0, 40, 0.0)


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", None])
def test_prefixes_and_turns_are_whole_numbers_above_zero(value: Any) -> None:
    for build in (
        lambda: SharedPrefix(value),
        lambda: SharedPrefix(10, value),
        lambda: generate_shared(Poisson(1.0), Fixed(1), Fixed(1), value, prefix=SharedPrefix(1)),
        lambda: generate_shared(Poisson(1.0), Fixed(1), Fixed(1), 1, samples=value),
        lambda: generate_conversations(Poisson(1.0), Fixed(1), Fixed(1), value, num_turns=1, think_s=0.0),
        lambda: generate_conversations(Poisson(1.0), Fixed(1), Fixed(1), 1, num_turns=value, think_s=0.0),
    ):
        with pytest.raises(RequestError, match="whole number of at least 1"):
            build()


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_think_times_and_exponents_are_finite_and_not_negative(value: float) -> None:
    with pytest.raises(RequestError, match="finite number, 0 or more"):
        generate_conversations(Poisson(1.0), Fixed(1), Fixed(1), 1, num_turns=1, think_s=value)
    with pytest.raises(RequestError, match="finite number, 0 or more"):
        SharedPrefix(1, 2, value)
