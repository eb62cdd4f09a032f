"""Several answers to one prompt share its blocks: by hand, and under random loads."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Values
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RequestError
from inference_bench.metrics import Objective
from inference_bench.simulate.run import Engine, simulate
from inference_bench.simulate.server import simulate_steps
from inference_bench.simulate.settings import (
    AdmissionCheck,
    BudgetRule,
    KvMemory,
    Order,
    Policy,
    Preemption,
    SchedulerSettings,
    ServerSetup,
    Speculation,
)
from inference_bench.simulate.summary import check_run
from inference_bench.workload import Poisson, SharedPrefix, UniformLengths, Workload, generate_shared
from simulate.block_oracle import SECOND_A_POSITION, pool_of, serve, setup_of, workload_of

ROOMY = setup_of(100, 4)


def samples_of(outputs: Values[int], num_tokens: int = 10) -> Workload:
    """Answers of these lengths to one prompt, asked for at once."""
    workload = workload_of([((0, num_tokens),)] * len(outputs), outputs)
    return replace(workload, requests=replace(workload.requests, sample_of=array("q", [0] * len(outputs))))


def unrelated(workload: Workload) -> Workload:
    """The same lengths and times, of requests that share nothing."""
    return replace(workload, requests=replace(workload.requests, prompts=None, answers=None, sample_of=None))


# by hand: blocks of 4, a second a position


def test_three_samples_read_their_prompt_once_and_copy_its_last_block_twice() -> None:
    server = serve(samples_of([3, 3, 3]), ROOMY)
    # 10 s for the prompt; then a position each: the parent its answer, the samples the end of the prompt again
    assert [server.journeys[index].token_times_s for index in range(3)] == [
        [10.0, 13.0, 16.0],
        [13.0, 16.0, 18.0],
        [13.0, 16.0, 18.0],
    ]
    assert pool_of(server).copies == 2
    assert server.peak_bytes == (2 + 3) * 4  # 12 positions each: two blocks in common, one of their own
    assert [server.journeys[index].cached_prompt_tokens for index in range(3)] == [0, 9, 9]
    assert pool_of(server).num_used == 0


def test_without_a_block_cache_each_reads_for_itself() -> None:
    server = serve(samples_of([3, 3, 3]), setup_of(100, 4, SchedulerSettings()))
    assert [server.journeys[index].token_times_s[0] for index in range(3)] == [30.0] * 3
    assert server.peak_bytes == 9 * 4


def test_where_the_parent_ends_with_its_first_token_a_sample_takes_its_place() -> None:
    server = serve(samples_of([1, 2, 2]), ROOMY)
    # the second finds two blocks and reads two positions, the third waits for it and shares the third block
    assert [server.journeys[index].token_times_s for index in range(3)] == [[10.0], [12.0, 14.0], [14.0, 15.0]]
    assert pool_of(server).copies == 1


def test_samples_wait_for_a_prompt_that_is_read_in_chunks_and_others_do_not() -> None:
    workload = workload_of([((0, 10),), ((0, 10),), ((1, 4),)], [2, 2, 2])
    workload = replace(workload, requests=replace(workload.requests, sample_of=array("q", [0, 0, 2])))
    server = serve(workload, setup_of(100, 4, SchedulerSettings(token_budget=8, prefix_cache=True)))
    # steps: 8 of the parent; 2 of it and all 4 of the other; a position of each
    times = [server.journeys[index].token_times_s for index in range(3)]
    assert times == [[14.0, 17.0], [17.0, 18.0], [14.0, 17.0]]


def test_a_sample_that_gives_way_and_comes_back_has_its_whole_answer() -> None:
    # 21 positions each in the end: two blocks in common and four of their own, ten of which there are seven
    settings_ = SchedulerSettings(Policy.PAGED, admission_share=1.0, prefix_cache=True)
    server = serve(samples_of([12, 12]), setup_of(7, 4, settings_))
    assert server.num_preemptions > 0
    assert [len(server.journeys[index].token_times_s) for index in range(2)] == [12, 12]
    assert pool_of(server).num_used == 0


# what changes and what does not


@pytest.mark.parametrize("engine", [Engine.REFERENCE, Engine.PLAIN])
@pytest.mark.parametrize("policy", [Policy.STATIC, Policy.PAGED, Policy.CHUNKED])
def test_without_a_block_cache_samples_are_requests_like_any_other(engine: Engine, policy: Policy) -> None:
    workload = generate_shared(Poisson(1.0), UniformLengths(5, 50), UniformLengths(1, 20), 40, samples=4)
    setup = ServerSetup(SchedulerSettings(policy, max_output_tokens=20), KvMemory.of_blocks(60, 4, 1))
    shared, apart = (
        simulate(each, setup, SECOND_A_POSITION, engine=engine) for each in (workload, unrelated(workload))
    )
    assert replace(shared, workload=workload) == replace(apart, workload=workload)


def test_prompts_of_one_sample_are_prompts_without_samples() -> None:
    workload = generate_shared(Poisson(1.0), UniformLengths(5, 50), UniformLengths(1, 20), 40, prefix=SharedPrefix(9))
    alone = replace(workload, requests=replace(workload.requests, sample_of=array("q", range(40))))
    setup = ServerSetup(SchedulerSettings(prefix_cache=True), KvMemory.of_blocks(60, 4, 1))
    plain, marked = (simulate_steps(each, setup, SECOND_A_POSITION, Objective()) for each in (workload, alone))
    assert replace(plain, workload=alone) == marked


def test_samples_take_less_memory_and_wait_less_than_as_many_requests_of_the_same_lengths() -> None:
    workload = generate_shared(Poisson(0.004), UniformLengths(40, 80), UniformLengths(5, 20), 80, samples=4)
    setup = ServerSetup(SchedulerSettings(prefix_cache=True), KvMemory.of_blocks(1000, 4, 1))
    shared, apart = (
        simulate_steps(each, setup, SECOND_A_POSITION, Objective()) for each in (workload, unrelated(workload))
    )
    assert shared.peak_bytes < apart.peak_bytes / 2
    assert shared.busy_s < apart.busy_s / 2
    waits = [
        [first - arrival for first, arrival in zip(each.first_token_s, each.arrival_s, strict=True)]
        for each in (shared, apart)
    ]
    assert sum(waits[0]) < sum(waits[1]) / 2
    assert check_run(shared).are_kept


_BLOCKS_FOR_ALL = 5 * 12 * (3 + 17 + 9 + 2)  # five samples of twelve prompts, a block a position


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 5), st.integers(0, 20), st.sampled_from([None, 3, 8]),
    st.sampled_from(list(Preemption)), st.sampled_from(list(AdmissionCheck)), st.sampled_from(list(Order)),
    st.sampled_from(list(BudgetRule)), st.sampled_from([None, Speculation(2, 0.5)]), st.sampled_from([0.02, 0.2, 5.0]),
)  # fmt: skip
def test_every_sample_has_its_whole_answer_and_nothing_is_held_in_the_end(
    seed: int, block_size: int, samples: int, room: int, budget: int | None, preemption: Preemption,
    check: AdmissionCheck, order: Order, rule: BudgetRule, speculation: Speculation | None, rate: float,
) -> None:  # fmt: skip
    workload = generate_shared(
        Poisson(rate), UniformLengths(1, 17), UniformLengths(1, 9), 12, seed, samples=samples, prefix=SharedPrefix(3, 2)
    )
    asked = workload.requests
    longest = max(map(sum, zip(asked.prompt_tokens, asked.output_tokens, strict=True)))
    scheduler = SchedulerSettings(
        admission_share=1.0, token_budget=budget, preemption=preemption, admission_check=check, order=order,
        budget_rule=rule, speculation=speculation, prefix_cache=True,
    )  # fmt: skip
    # with equal batches each slot owns its cells, as in llama.cpp: there is memory for all, and nobody gives way
    spare = room if rule is not BudgetRule.EQUAL_BATCHES else room + _BLOCKS_FOR_ALL
    blocks = -(-(longest + 2) // block_size) + spare
    server = serve(workload, setup_of(blocks, block_size, scheduler))
    assert [len(server.journeys[index].token_times_s) for index in range(12)] == list(asked.output_tokens)
    assert server.peak_bytes <= blocks * block_size
    pool = pool_of(server)
    assert pool.num_used == 0
    assert pool.num_idle + pool.num_free == pool.num_blocks


def test_slots_that_own_their_cells_never_give_way_to_one_another_for_ever() -> None:
    workload = generate_shared(
        Poisson(5.0), UniformLengths(1, 17), UniformLengths(1, 9), 12, 1, samples=2, prefix=SharedPrefix(3, 2)
    )
    scheduler = SchedulerSettings(
        admission_share=1.0, token_budget=3, budget_rule=BudgetRule.EQUAL_BATCHES, prefix_cache=True
    )
    with pytest.raises(RequestError, match="each slot owns its cells"):
        serve(workload, setup_of(8, 4, scheduler))
