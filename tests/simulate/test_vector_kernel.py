"""A kernel that reads the weights anew for every position, and shares of their own for the cache and for attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.facts.hardware import hardware
from inference_bench.simulate.step_sources import Shares, step_time_of
from inference_bench.simulate.step_time import Coefficients, StepPart, StepTime, WindowWork
from inference_bench.units import format_fraction
from simulate.served_models import served_model

# 100 bytes of weights at 10 bytes/s, 2 FLOPs a position at 1 FLOP/s: the matrix way is 10 s + 2 s a position
SUM = Coefficients(
    weight_bytes=100,
    read_bytes=0.5,
    flops_per_position=2,
    flops_per_pair=0.25,
    bandwidth_bytes_per_s=10,
    compute_flops_per_s=1,
    serial_share=1.0,
)
VECTOR = replace(SUM, vector_s=6)


def decoding(*contexts: int) -> list[StepPart]:
    return [StepPart(context, 1, True) for context in contexts]


class TestByHand:
    def test_a_few_positions_are_quicker_one_by_one_and_many_are_not(self) -> None:
        # one:   vector 6,  matrix 10 + 2 = 12;  pairs: 1 at 1/4 s
        # two:   vector 12, matrix 10 + 4 = 14;  three: vector 18, matrix 10 + 6 = 16
        step = StepTime(VECTOR).step_s
        assert step(decoding(0)) == pytest.approx(6 + 0.25)
        assert step(decoding(0, 0)) == pytest.approx(12 + 0.5)
        assert step(decoding(0, 0, 0)) == pytest.approx(16 + 0.75)

    def test_a_prompts_positions_count_like_those_of_sequences(self) -> None:
        # two positions of one prompt: pairs 1 + 2 = 3 at 1/4 s beside 12 s
        assert StepTime(VECTOR).step_s([StepPart(0, 2, False)]) == pytest.approx(12 + 0.75)

    def test_the_cache_what_is_written_and_what_a_step_takes_besides_stay(self) -> None:
        own = replace(VECTOR, write_bytes=3, state_bytes=20, fixed_s=0.01, sequence_s=0.002, position_s=0.0003)
        # reads 40 · 0.5 = 20, written 3, state 20: 43 bytes at 10/s; pairs 41 · 1/4
        by_hand = 6 + 4.3 + 10.25 + 0.01 + 0.002 + 0.0003
        assert StepTime(own).step_s(decoding(40)) == pytest.approx(by_hand)

    def test_windows_stay(self) -> None:
        # a window of 8: 7 positions read at 2 bytes, 8 pairs at 1/2 FLOP
        windows = (WindowWork(8, 2.0, 0.5),)
        assert StepTime(VECTOR, windows).step_s(decoding(40)) == pytest.approx(6 + (20 + 14) / 10 + 41 / 4 + 4)

    def test_what_overlaps_is_the_rest_and_not_the_weights(self) -> None:
        # nothing of the shorter arm: 6 s and the longer of 20/10 s and 41/4 s
        heavy = replace(VECTOR, weight_bytes=1_000, serial_share=0)
        assert StepTime(heavy).step_s(decoding(40)) == pytest.approx(6 + 10.25)

    def test_without_such_a_kernel_a_step_is_what_it_was(self) -> None:
        assert StepTime(SUM).step_s(decoding(40, 3)) == (100 + 0.5 * 43) / 10 + 4 + 0.25 * 45

    def test_less_than_nothing_is_refused(self) -> None:
        with pytest.raises(RequestError, match="vector s of a step"):
            replace(SUM, vector_s=-1)


part = st.tuples(st.integers(0, 300), st.integers(1, 20), st.booleans()).map(lambda each: StepPart(*each))
numbers = st.floats(0, 100)


@given(st.lists(part, min_size=1, max_size=8), st.data(), numbers, numbers, st.floats(0, 1))
def test_a_step_is_never_slower_with_fewer_positions_or_with_one_more_kernel(
    parts: list[StepPart], data: st.DataObject, vector_s: float, weight_bytes: float, serial_share: float
) -> None:
    own = replace(SUM, vector_s=vector_s, weight_bytes=weight_bytes, serial_share=serial_share)
    index = data.draw(st.integers(0, len(parts) - 1))
    cut = parts[index]._replace(new=data.draw(st.integers(0, parts[index].new)))
    fewer = [*parts[:index], *([cut] if cut.new else []), *parts[index + 1 :]]
    whole = StepTime(own).step_s(parts)
    assert StepTime(own).step_s(fewer) <= whole * (1 + 1e-12)
    assert whole <= StepTime(replace(own, vector_s=0)).step_s(parts)


class TestShares:
    served, machine = served_model("SmolLM2-135M"), hardware("H100")

    def test_the_cache_and_attention_have_their_own(self) -> None:
        plain = Shares(bandwidth=0.8, compute=0.6, serial=1.0)
        own = replace(plain, cache=0.2, attention=0.3)
        before, after = (step_time_of(self.served, self.machine, each) for each in (plain, own))
        cached, nothing = decoding(2_001), decoding(1)
        # 2,000 positions more: 4 times the time of reading them, twice that of their pairs
        reads = 2_000 * before.coefficients.read_bytes / before.coefficients.bandwidth_bytes_per_s
        pairs = 2_000 * before.coefficients.flops_per_pair / before.coefficients.compute_flops_per_s
        assert before.step_s(cached) - before.step_s(nothing) == pytest.approx(reads + pairs)
        assert after.step_s(cached) - after.step_s(nothing) == pytest.approx(4 * reads + 2 * pairs)
        assert after.coefficients.weight_bytes == before.coefficients.weight_bytes

    def test_windows_have_them_too(self) -> None:
        served = served_model("gemma-3-27b-it")
        plain, own = (
            step_time_of(served, self.machine, each).windows[0]
            for each in (Shares(0.8, 0.6), Shares(0.8, 0.6, cache=0.4, attention=0.2))
        )
        assert own.max_positions == plain.max_positions == 1024
        assert own.read_bytes == pytest.approx(2 * plain.read_bytes)
        assert own.flops_per_pair == pytest.approx(3 * plain.flops_per_pair)

    def test_a_share_of_a_vector_kernel_is_one_read_of_the_weights_a_position(self) -> None:
        found = step_time_of(self.served, self.machine, Shares(0.8, 0.6, vector=0.5)).coefficients
        rate = self.machine.bandwidth_bytes_per_s
        assert rate is not None
        assert found.vector_s == pytest.approx(found.weight_bytes / (0.5 * rate))
        assert step_time_of(self.served, self.machine, Shares(0.8, 0.6)).coefficients.vector_s == 0

    def test_a_lone_position_reads_its_own_experts(self) -> None:
        served = served_model("Mixtral-8x7B-v0.1")
        found = step_time_of(served, self.machine, Shares(vector=1.0)).coefficients
        one = found.weight_bytes + found.expert_bytes * 2 / 8  # two of eight experts
        assert found.vector_s == pytest.approx(one / found.bandwidth_bytes_per_s)

    def test_they_are_said(self) -> None:
        notes = step_time_of(self.served, self.machine, Shares(0.8, 0.6, cache=0.25, attention=0.5, vector=0.7)).notes
        assert f"{format_fraction(0.25)} of bandwidth where the cache is read" in notes[0]
        assert "in attention" in notes[0]
        assert "once for every position" in notes[0]

    @pytest.mark.parametrize("wrong", [{"cache": 0.0}, {"attention": 5.0}, {"vector": float("nan")}])
    def test_impossible_ones_are_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(RequestError, match="must lie between"):
            Shares(**wrong)
