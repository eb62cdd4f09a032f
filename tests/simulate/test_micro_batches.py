"""How llama.cpp cuts a step, slot by slot, by hand and on random steps."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.simulate.micro_batches import equal_batches, micro_batches
from inference_bench.simulate.presets import llama_cpp_settings
from inference_bench.simulate.run import simulate
from inference_bench.simulate.settings import BudgetRule, KvMemory, ServerSetup
from inference_bench.simulate.slots import Slots
from inference_bench.simulate.step_time import Coefficients, StepPart, StepTime
from inference_bench.workload import OpenLoop, Requests, Workload
from simulate.fleets import workload_of


def decoding(*slots: int) -> list[tuple[int, StepPart]]:
    """Each with ten times its slot cached, so that it can be told apart."""
    return [(slot, StepPart(10 * slot, 1, True)) for slot in slots]


def prompt(slot: int, new: int) -> tuple[int, StepPart]:
    return slot, StepPart(0, new, False)


def shape(parts: Sequence[tuple[int, StepPart]], size: int = 512) -> list[list[tuple[int, int]]]:
    """Of each batch (cached, new) of each part."""
    return [[(part.cached, part.new) for part in batch] for batch in equal_batches(parts, size)]


class TestEqualBatches:
    def test_neighbours_decode_together(self) -> None:
        assert shape(decoding(0, 1, 2, 3)) == [[(0, 1), (10, 1), (20, 1), (30, 1)]]

    def test_a_gap_is_another_read_of_the_weights(self) -> None:
        assert shape(decoding(0, 1, 3, 4)) == [[(0, 1), (10, 1)], [(30, 1), (40, 1)]]
        assert shape(decoding(0, 2, 4)) == [[(0, 1)], [(20, 1)], [(40, 1)]]

    def test_they_need_not_begin_at_the_first_slot(self) -> None:
        assert shape(decoding(5, 6, 7)) == [[(50, 1), (60, 1), (70, 1)]]

    def test_a_prompt_beside_decoders_gives_one_position_first(self) -> None:
        assert shape([*decoding(0, 1, 2), prompt(3, 100)]) == [[(0, 1), (10, 1), (20, 1), (0, 1)], [(1, 99)]]

    def test_a_prompt_that_is_no_neighbour_is_computed_alone(self) -> None:
        assert shape([*decoding(0, 1), prompt(3, 100)]) == [[(0, 1), (10, 1)], [(0, 100)]]

    def test_a_prompt_between_decoders_keeps_those_behind_it_out(self) -> None:
        # in the order of the batch: slots 0, 2, then the prompt in slot 1, which joins 0; 2 is no neighbour of what came last
        assert shape([*decoding(0, 2), prompt(1, 5)]) == [[(0, 1), (0, 1)], [(20, 1)], [(1, 4)]]

    def test_two_prompts_go_together_as_far_as_the_shorter(self) -> None:
        assert shape([prompt(0, 30), prompt(1, 50)]) == [[(0, 30), (0, 30)], [(30, 20)]]

    def test_prompts_that_are_no_neighbours_do_not(self) -> None:
        assert shape([prompt(0, 30), prompt(2, 50)]) == [[(0, 30)], [(0, 50)]]

    def test_a_batch_holds_so_many(self) -> None:
        assert shape([prompt(0, 1_200)]) == [[(0, 512)], [(512, 512)], [(1_024, 176)]]
        # three prompts of 300: 512 // 3 = 170 of each, then the 130 that are left of each
        three = [prompt(slot, 300) for slot in range(3)]
        assert shape(three) == [[(0, 170)] * 3, [(170, 130)] * 3]

    def test_more_neighbours_than_it_holds_take_several(self) -> None:
        assert shape(decoding(0, 1, 2, 3, 4), 2) == [[(0, 1), (10, 1)], [(20, 1), (30, 1)], [(40, 1)]]

    def test_who_brings_nothing_is_not_there(self) -> None:
        assert shape([(0, StepPart(0, 0, False)), *decoding(1)]) == [[(10, 1)]]
        assert shape([]) == []

    def test_what_cannot_be_is_refused(self) -> None:
        with pytest.raises(RequestError, match="in one slot"):
            list(equal_batches(decoding(1, 1), 512))
        for cut in (lambda: equal_batches(decoding(1), 0), lambda: micro_batches([], 0)):
            with pytest.raises(RequestError, match="at least 1"):
                list(cut())

    @given(st.data(), st.sets(st.integers(0, 12), min_size=1), st.integers(1, 40))
    def test_every_position_is_computed_once_and_in_order(
        self, data: st.DataObject, slots: set[int], size: int
    ) -> None:
        # so far apart are the slots' positions that each part says whose it is
        parts = [
            (
                slot,
                StepPart(
                    1_000 * slot + data.draw(st.integers(0, 9)), data.draw(st.integers(1, 60)), data.draw(st.booleans())
                ),
            )
            for slot in slots
        ]
        done = {slot: part.cached for slot, part in parts}
        for batch in equal_batches(parts, size):
            assert 0 < sum(part.new for part in batch) <= size
            assert len({part.new for part in batch}) == 1
            members = [part.cached // 1_000 for part in batch]
            assert members == list(range(members[0], members[0] + len(members)))
            for slot, part in zip(members, batch, strict=True):
                assert part.cached == done[slot]
                done[slot] += part.new
        assert done == {slot: part.cached + part.new for slot, part in parts}


class TestSlots:
    def test_unused_ones_come_first_from_the_top_and_then_the_longest_idle(self) -> None:
        slots = Slots(3)
        assert [slots.take(), slots.take()] == [2, 1]
        slots.leave(2)
        assert slots.take() == 0  # nobody has used it yet
        slots.leave(0)
        slots.leave(1)
        assert [slots.take(), slots.take(), slots.take()] == [2, 0, 1]


# a read of the weights takes a second, and nothing else any time
READS = StepTime(Coefficients(1, 0, 0, 0, 1, 1))
MEMORY = KvMemory(10**9, 1)


def setup(slots: int, **more: bool) -> ServerSetup:
    return ServerSetup(llama_cpp_settings(slots, **more), MEMORY)


class TestServer:
    def test_holes_between_slots_cost_reads(self) -> None:
        # three at once in slots 2, 1, 0, of 1-token prompts: one read a step; then the one in slot 1 ends and leaves a hole
        workload = workload_of((0.0, 1, 4), (0.0, 1, 2), (0.0, 1, 4))
        found = simulate(workload, setup(3), READS)
        assert list(found.first_token_s) == [1.0, 1.0, 1.0]
        assert found.token_times_s is not None
        assert found.token_times_s[0] == (1.0, 2.0, 4.0, 6.0)
        assert list(found.last_token_s) == [6.0, 2.0, 6.0]

    def test_one_cache_for_all_has_no_holes(self) -> None:
        workload = workload_of((0.0, 1, 4), (0.0, 1, 2), (0.0, 1, 4))
        found = simulate(workload, setup(3, unified=True), READS)
        assert list(found.last_token_s) == [4.0, 2.0, 4.0]

    def test_who_comes_later_takes_the_slot_that_was_left_longest_ago(self) -> None:
        # slots 1 and 0; at 2 s both are free again, slot 1 left a step earlier: the third gets it, its neighbour 0 goes to the
        # fourth, and both decode in one read
        workload = workload_of((0.0, 1, 1), (0.0, 1, 2), (5.0, 1, 2), (5.0, 1, 2))
        found = simulate(workload, setup(2), READS)
        assert list(found.last_token_s) == [1.0, 2.0, 7.0, 7.0]

    def test_a_prompt_beside_a_decoder_takes_two_reads(self) -> None:
        # the second comes during the first's decoding: one position of both, then the prompt's other nine
        workload = workload_of((0.0, 1, 3), (0.5, 10, 1))
        found = simulate(workload, setup(2), READS)
        assert found.token_times_s == ((1.0, 3.0, 4.0), (3.0,))

    def test_who_finds_no_slot_waits(self) -> None:
        found = simulate(workload_of((0.0, 1, 3), (0.0, 1, 1)), setup(1), READS)
        assert list(found.first_token_s) == [1.0, 4.0]

    def test_only_the_readable_loop_cuts_like_this(self) -> None:
        workload = workload_of((0.0, 1, 3))
        assert simulate(workload, setup(1), READS).engine == "reference"
        with pytest.raises(RequestError, match=BudgetRule.EQUAL_BATCHES):
            simulate(workload, setup(1), READS, engine="plain")

    def test_thousands_of_requests_take_seconds(self) -> None:
        count = 2_000
        asked = Requests(array("q", [100] * count), array("q", [30] * count))
        workload = Workload("many", asked, OpenLoop(array("d", [0.1 * at for at in range(count)]), "ticks"))
        steps = StepTime(Coefficients(1, 0, 0, 0, 100, 1))
        began = time.perf_counter()
        found = simulate(workload, setup(4), steps)
        assert time.perf_counter() - began < 20  # a tenth of it on a quiet machine
        assert len(found.first_token_s) == count

    def test_each_slot_has_its_share_of_the_cache_and_nobody_gives_way(self) -> None:
        # two slots of 500 positions; the prompts are read a part at a time, by slot, whoever came first
        tight = ServerSetup(llama_cpp_settings(2, 64, 32), KvMemory(1_000, 1))
        full = workload_of(*((0.0, 490, 11) for _ in range(6)))
        found = simulate(full, tight, READS)
        assert found.num_preemptions == 0
        assert found.peak_bytes <= 1_000
        with pytest.raises(
            RequestError, match=r"request 0 .* need 501 bytes of cache, there are 500 for each of 2 slots"
        ):
            simulate(workload_of((0.0, 490, 12)), tight, READS)
