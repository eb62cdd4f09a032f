"""Each distribution of lengths is held to the mean that it states."""

from __future__ import annotations

import math
import statistics
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import QuantityError, RequestError
from inference_bench.workload import (
    ClippedLognormal,
    Empirical,
    Fixed,
    Lengths,
    LongDocuments,
    UniformLengths,
    parse_lengths,
)


def ranges(most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, most), st.integers(1, most)).map(lambda pair: (min(pair), max(pair)))


SIMPLE: st.SearchStrategy[Lengths] = st.one_of(
    st.builds(Fixed, st.integers(1, 100_000)),
    ranges(10_000).map(lambda pair: UniformLengths(*pair)),
    st.builds(
        lambda median, sigma, pair: ClippedLognormal(median, sigma, *pair),
        st.floats(0.5, 5000.0),
        st.floats(0.05, 2.0),
        ranges(20_000),
    ),
    st.lists(st.integers(1, 10_000), min_size=1, max_size=20).map(lambda values: Empirical(tuple(values))),
)
ALL: st.SearchStrategy[Lengths] = st.one_of(SIMPLE, st.builds(LongDocuments, SIMPLE, SIMPLE, st.floats(0.0, 1.0)))


@settings(deadline=None, max_examples=60)
@given(lengths=ALL, seed=st.integers(0, 2**32))
def test_the_mean_of_what_is_drawn_is_the_mean_that_is_stated(lengths: Lengths, seed: int) -> None:
    rng = Random(seed)
    drawn = [lengths.draw(rng) for _ in range(4000)]
    assert 1 <= min(drawn) <= max(drawn) <= lengths.longest
    # a rare value of a heavy tail may not be among the draws: what it is worth is at most its length / number of draws
    error = 6 * statistics.pstdev(drawn) / math.sqrt(len(drawn)) + 10 * 20_000 / len(drawn) * (min(drawn) != max(drawn))
    assert abs(statistics.fmean(drawn) - lengths.mean) <= error + 1e-9 * lengths.mean or len(set(drawn)) == 1


def test_a_mean_of_clipped_lognormal_lengths_is_the_sum_over_every_length() -> None:
    lengths = ClippedLognormal(20.0, 0.7, 5, 60)

    def below(length: int) -> float:
        return 0.5 * (1 + math.erf((math.log(length) - math.log(20.0)) / (0.7 * math.sqrt(2))))

    # clipped to 5: everything below 6; clipped to 60: everything from 60 on; else rounded down
    mean = 5 * below(6) + sum(k * (below(k + 1) - below(k)) for k in range(6, 60)) + 60 * (1 - below(60))
    assert lengths.mean == pytest.approx(mean, rel=1e-12)


def test_the_mean_of_the_reference_outputs_agrees_with_a_million_draws() -> None:
    lengths, rng = ClippedLognormal(1500, 0.6, 16, 4000), Random(0)
    drawn = [lengths.draw(rng) for _ in range(200_000)]
    assert lengths.mean == pytest.approx(statistics.fmean(drawn), abs=6 * statistics.pstdev(drawn) / math.sqrt(200_000))


def test_a_very_high_limit_costs_no_time_and_changes_nothing() -> None:
    unclipped = 1500 * math.exp(0.6**2 / 2)  # the lognormal mean; rounding down takes half a token
    assert ClippedLognormal(1500, 0.6, 1, 10_000_000).mean == pytest.approx(unclipped - 0.5, abs=1e-3)


def test_long_documents_come_as_often_as_their_share() -> None:
    lengths, rng = LongDocuments(Fixed(10), Fixed(1000), 0.25), Random(0)
    drawn = [lengths.draw(rng) for _ in range(10_000)]
    assert drawn.count(1000) == pytest.approx(2500, abs=6 * math.sqrt(10_000 * 0.25 * 0.75))
    assert lengths.mean == 257.5


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("128", Fixed(128)),
        ("32k", Fixed(32768)),
        ("fixed:128", Fixed(128)),
        ("uniform:2000:6000", UniformLengths(2000, 6000)),
        (" Uniform : 1k : 2k ", UniformLengths(1024, 2048)),
        ("lognormal:1500:0.6:16:4000", ClippedLognormal(1500, 0.6, 16, 4000)),
        ("values:10,20,20", Empirical((10, 20, 20))),
        ("mix:0.1:32k:uniform:500:2000", LongDocuments(UniformLengths(500, 2000), Fixed(32768), 0.1)),
        (
            "mix:5%:uniform:10000:20000:lognormal:1500:0.6:16:4000",
            LongDocuments(ClippedLognormal(1500, 0.6, 16, 4000), UniformLengths(10000, 20000), 0.05),
        ),
    ],
)
def test_lengths_are_read_as_a_person_writes_them(text: str, lengths: Lengths) -> None:
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "length '' is not understood; write one of N, uniform:LOW:HIGH"),
        ("normal:3:4", "is not understood; write one of"),
        ("uniform:3", "ends too early"),
        ("uniform:3:4:5", "has fields left over"),
        ("uniform:6:3", "longest length, 3, is below the shortest, 6"),
        ("0", "at least 1"),
        ("-5", "negative"),
        ("1e30", "at most"),
        ("mix:0.1:128", "ends too early"),
        ("mix:1.5:128:64", "between 0 and 1"),
        ("lognormal:1500:nan:16:4000", "finite number above 0"),
        ("lognormal:1500:x:16:4000", "has 'x' for a number"),
        ("lognormal:0:1:16:4000", "finite number above 0"),
        ("lognormal:1500:6:16:4000", "sigma of at most 5"),
        ("lognormal:1500:1:16:400000000", "at most 16777216"),
        ("values:", "not a number"),
        ("values:3,0", "at least 1"),
        ("12x", "unknown suffix"),
    ],
)
def test_lengths_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises((RequestError, QuantityError), match=message):
        parse_lengths(text)


@pytest.mark.parametrize("value", [0, -3, 2.5, "7", True, None])
def test_a_length_is_a_whole_number_above_zero(value: Any) -> None:
    for build in (
        lambda: Fixed(value),
        lambda: UniformLengths(value, 10),
        lambda: UniformLengths(1, value),
        lambda: Empirical((5, value)),
        lambda: ClippedLognormal(10.0, 1.0, value, 10),
    ):
        with pytest.raises(RequestError, match=r"whole number of at least 1|below the shortest"):
            build()


def test_no_length_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="has no length"):
        Empirical(())


@pytest.mark.parametrize(
    "lengths",
    [Fixed(3), UniformLengths(1, 2), ClippedLognormal(9, 1, 1, 20), Empirical((1, 2)),
     LongDocuments(Fixed(1), Fixed(2), 0.5)],
)  # fmt: skip
def test_lengths_say_what_they_are(lengths: Lengths) -> None:
    assert "tokens" in str(lengths)
