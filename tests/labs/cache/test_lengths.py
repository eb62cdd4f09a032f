"""Times and FLOPs of whole generations: by hand, by formula, and on a tiny model."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.cache.lengths import (
    FlopsCounter,
    Knot,
    cached_s,
    length_points,
    measure_knots,
    summed,
    uncached_s,
)
from inference_bench.labs.cache.toy import ToyShape
from labs.cache.tiny import ids, tiny_network

# a forward takes as many seconds as it has tokens, a step always one
STRAIGHT = (Knot(10, 10.0, 1.0), Knot(30, 30.0, 1.0), Knot(40, 40.0, 1.0))


def test_values_on_a_straight_line_are_summed_exactly() -> None:
    knots = [(knot.context_tokens, knot.forward_s) for knot in STRAIGHT]
    assert summed(knots, 10, 40) == pytest.approx(sum(range(10, 41)))
    assert summed(knots, 17, 17) == pytest.approx(17)
    assert summed(knots, 18, 17) == 0


def test_between_two_knots_a_value_lies_on_the_line_through_them() -> None:
    """1 at 0, 5 at 2, 5 at 4: 1 + 3 + 5 + 5 + 5."""
    assert summed([(0, 1.0), (2, 5.0), (4, 5.0)], 0, 4) == pytest.approx(19.0)


def test_with_a_cache_the_prompt_is_computed_once_and_without_everything_each_time() -> None:
    """Prompt of 10, 5 emitted: 10 s and 4 steps, against 10 + 11 + 12 + 13 + 14."""
    assert cached_s(STRAIGHT, 10, 5) == pytest.approx(14.0)
    assert uncached_s(STRAIGHT, 10, 5) == pytest.approx(60.0)


def test_flops_are_those_of_every_forward_added_up() -> None:
    """The toy's matrices by hand: 2 FLOPs a parameter and position, the head once a forward, 4·N·H FLOPs a pair and layer."""
    layer = 256 * 256 * 2 + 256 * 64 * 2 + 3 * 256 * 256
    norms, head = 4 * 2 * 256 + 256, 512 * 256

    def forward(new: int, pairs: int) -> int:
        return new * 2 * (4 * layer + norms) + 2 * head + 4 * 4 * 8 * 32 * pairs

    counter = FlopsCounter(ToyShape().spec())
    assert counter.cached(3, 2) == forward(3, 6) + forward(1, 4)
    assert counter.uncached(3, 2) == forward(3, 6) + forward(4, 10)


def test_each_length_has_both_times_and_their_ratio() -> None:
    knots = (Knot(16, 16.0, 1.0), Knot(19, 19.0, 1.0), Knot(23, 23.0, 1.0))
    points = length_points(ToyShape().spec(), knots, (4, 8))
    assert [(point.num_emitted, point.context_tokens) for point in points] == [(4, 19), (8, 23)]
    assert points[0].uncached_s == pytest.approx(16 + 17 + 18 + 19)
    assert points[0].cached_s == pytest.approx(16 + 3)
    assert points[0].speedup == pytest.approx(70 / 19)
    assert points[1].flops_ratio > points[0].flops_ratio > 1


def test_forwards_and_steps_are_timed_at_each_context_once() -> None:
    said: list[str] = []
    knots = measure_knots(tiny_network(), ids(20), (4, 20, 4), repeats=1, say=said.append)
    assert [knot.context_tokens for knot in knots] == [4, 20]
    assert all(knot.forward_s > 0 and knot.step_s > 0 for knot in knots)
    assert said[0] == "forward over 20 tokens, 1 of 1"
    assert len(said) == 4
