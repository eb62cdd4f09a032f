"""What a server with a prefix cache need not read again, by hand and under random loads."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.metrics import Objective
from inference_bench.simulate.server import simulate_steps
from inference_bench.simulate.settings import (
    AdmissionCheck,
    KvMemory,
    Policy,
    Preemption,
    SchedulerSettings,
    ServerSetup,
    Speculation,
)
from inference_bench.workload import Workload, open_loop, reference_workload
from simulate.block_oracle import SECOND_A_POSITION, pool_of, serve, setup_of, workload_of

ROOMY = setup_of(100, 4)


def cached_tokens(workload: Workload) -> list[int]:
    """Prompt tokens that each request found, in a cache with room for all."""
    server = serve(workload, ROOMY)
    return [server.journeys[index].cached_prompt_tokens for index in range(len(workload))]


# which blocks are found: by hand, four positions a block


def test_prompts_with_ten_tokens_in_common_share_two_blocks_of_four() -> None:
    first, second = ((0, 10), (1, 6)), ((0, 10), (2, 6))
    assert cached_tokens(workload_of([first, second], gap_s=100)) == [0, 8]


@pytest.mark.parametrize(("length", "expected"), [(4, 0), (5, 4), (12, 8), (16, 12), (17, 16), (19, 16)])
def test_a_prompt_known_as_a_whole_still_reads_its_last_block(length: int, expected: int) -> None:
    prompt = ((0, length),)
    assert cached_tokens(workload_of([prompt, prompt], gap_s=100)) == [0, expected]


def test_a_warm_prompt_takes_the_time_of_what_was_not_cached() -> None:
    prompt = ((0, 10),)
    server = serve(workload_of([prompt, prompt], gap_s=100), ROOMY)
    assert server.journeys[0].token_times_s == [10.0]
    assert server.journeys[1].token_times_s == [100.0 + 10 - 8]
    assert (pool_of(server).query_tokens, pool_of(server).hit_tokens) == (20, 8)


@pytest.mark.parametrize("column", ["tenant", "adapter"])
def test_tenants_and_adapters_never_share(column: str) -> None:
    prompts = [((0, 10),)] * 4
    assert cached_tokens(workload_of(prompts, gap_s=100, **{column: [0, 1, 0, 1]})) == [0, 0, 8, 8]


def test_a_later_turn_finds_the_answer_before_it() -> None:
    first = ((10, 6),)
    second = ((10, 6), (11, 7), (12, 5))
    # the answer's last token is never read: 6 + 7 - 1 = 12 positions, three full blocks
    assert cached_tokens(workload_of([first, second], [7, 1], [11, 13], gap_s=100)) == [0, 12]
    assert cached_tokens(workload_of([first, second], [7, 1], gap_s=100)) == [0, 4]  # an answer without a name


def test_requests_without_content_share_nothing() -> None:
    nameless = workload_of([((0, 10),)] * 3, [9] * 3, gap_s=100)
    assert cached_tokens(replace(nameless, requests=replace(nameless.requests, prompts=None))) == [0, 0, 0]


def test_prompts_that_start_in_the_same_step_each_read_for_themselves() -> None:
    prompt = ((0, 10),)
    server = serve(workload_of([prompt] * 3), ROOMY)
    assert [server.journeys[index].cached_prompt_tokens for index in range(3)] == [0, 0, 0]
    # three copies of two full blocks are idle, each with the same key
    assert (pool_of(server).num_idle, pool_of(server).num_used) == (6, 0)


def test_a_cache_that_is_too_small_forgets_the_oldest_prompt() -> None:
    a, b, c = ((1, 8),), ((2, 8),), ((3, 8),)
    workload = workload_of([a, b, a, c, a, b], gap_s=100)
    server = serve(workload, setup_of(5, 4))
    # b's blocks are the oldest when c comes; only a, used again in between, is still there
    assert [server.journeys[index].cached_prompt_tokens for index in range(6)] == [0, 0, 4, 0, 4, 0]
    assert pool_of(server).evictions > 0


# behind a scheduler


def conversation_of(seed: int) -> Workload:
    """Some conversations with a common prefix, of one or two tenants."""
    draws = Random(seed)
    prompts: list[tuple[tuple[int, int], ...]] = []
    outputs, answers, tenant = [], [], []
    for talk in range(draws.randint(1, 4)):
        so_far: tuple[tuple[int, int], ...] = ((0, 5),)
        who = draws.randrange(2)
        for turn in range(draws.randint(1, 3)):
            so_far = (*so_far, (100 * talk + 2 * turn + 1, draws.randint(1, 9)))
            prompts.append(so_far)
            outputs.append(draws.randint(1, 8))
            answers.append(100 * talk + 2 * turn + 2)
            tenant.append(who)
            so_far = (*so_far, (answers[-1], outputs[-1]))
    return workload_of(prompts, outputs, answers, tenant, gap_s=draws.choice([0.0, 1.0, 8.0]))


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 20), st.sampled_from([None, 3, 8]),
    st.sampled_from(list(Preemption)), st.sampled_from(list(AdmissionCheck)),
    st.sampled_from([None, Speculation(2, 0.5)]),
)  # fmt: skip
def test_every_answer_is_given_whole_and_nothing_is_held_in_the_end(
    seed: int, block_size: int, room: int, budget: int | None, preemption: Preemption, check: AdmissionCheck,
    speculation: Speculation | None,
) -> None:  # fmt: skip
    workload = conversation_of(seed)
    asked = workload.requests
    longest = max(map(sum, zip(asked.prompt_tokens, asked.output_tokens, strict=True)))
    scheduler = SchedulerSettings(
        admission_share=1.0, token_budget=budget, preemption=preemption, admission_check=check,
        speculation=speculation, prefix_cache=True,
    )  # fmt: skip
    blocks = -(-(longest + 2) // block_size) + room
    cached = serve(workload, setup_of(blocks, block_size, scheduler))
    plain = serve(workload, setup_of(blocks, block_size, replace(scheduler, prefix_cache=False)))
    for server in (cached, plain):
        assert [len(server.journeys[index].token_times_s) for index in range(len(workload))] == list(
            asked.output_tokens
        )
        assert server.peak_bytes <= blocks * block_size
    pool = pool_of(cached)
    assert pool.num_used == 0
    assert pool.num_idle + pool.num_free == pool.num_blocks
    assert 0 <= pool.hit_tokens <= pool.query_tokens


@pytest.mark.parametrize("policy", [Policy.PAGED, Policy.CHUNKED])
def test_where_nothing_is_shared_a_prefix_cache_changes_nothing(policy: Policy) -> None:
    workload = reference_workload(0.5, 20)
    memory = KvMemory(16 * 10**9, 147456, 16)
    with_cache, without = (
        simulate_steps(
            workload, ServerSetup(SchedulerSettings(policy, prefix_cache=on), memory), SECOND_A_POSITION, Objective()
        )
        for on in (True, False)
    )
    assert with_cache.num_preemptions == 0
    assert with_cache.token_times_s == without.token_times_s
    assert with_cache.peak_bytes == without.peak_bytes
    assert with_cache.cached_prompt_tokens == 0


def test_a_sequence_that_gave_way_finds_its_own_blocks_again() -> None:
    workload = workload_of([((1, 8),), ((2, 8),)], [9, 9])
    nameless = replace(workload, requests=replace(workload.requests, prompts=None))
    for each in (workload, nameless):
        cached, plain = (
            serve(each, setup_of(6, 4, SchedulerSettings(Policy.PAGED, admission_share=1.0, prefix_cache=on)))
            for on in (True, False)
        )
        assert cached.num_preemptions == plain.num_preemptions == 1
        assert cached.busy_s < plain.busy_s
        assert pool_of(cached).query_tokens == 16  # one that comes back is not a query


def test_a_common_prefix_makes_room_for_more_at_once() -> None:
    # one request warms the cache, five come together later: 40 blocks hold 3 of 12 blocks each, or 10 + 5 · 2
    prompts = [((0, 40), (index + 1, 4)) for index in range(6)]
    workload = replace(workload_of(prompts, [3] * 6), arrival=open_loop([0.0] + [100.0] * 5))
    alone, shared = (
        serve(workload, setup_of(40, 4, SchedulerSettings(prefix_cache=is_on, admission_share=1.0)))
        for is_on in (False, True)
    )
    assert max(running for _, _, running, _ in alone.timeline.points) == 3
    assert max(running for _, _, running, _ in shared.timeline.points) == 5
    assert shared.peak_bytes == 4 * (10 + 5 * 2)
    assert alone.busy_s == 6 * 44 + 6 * 2
    assert shared.busy_s == 44 + 5 * 4 + 6 * 2  # a whole prompt, five times what is new, two more tokens each
