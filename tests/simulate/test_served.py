"""What serves a workload: memory by who says it, step times, prices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.errors import RequestError
from inference_bench.facts.hardware import hardware
from inference_bench.simulate.candidates import candidates_named
from inference_bench.simulate.served import Hosting, MemoryChoice, allowing, reach_of, serve_reference, serve_table
from inference_bench.simulate.step_sources import BOUND_SHARES
from inference_bench.workload import reference_workload
from simulate.fleets import steps_of, workload_of
from simulate.served_models import served_model

NOTHING = MemoryChoice()
LLAMA_WEIGHTS = 16_060_522_496


def hosting(devices: int = 1) -> Hosting:
    return Hosting(served_model("Meta-Llama-3.1-8B"), hardware("H100"), devices)


def test_the_reference_profile_brings_its_memory_and_price() -> None:
    found = serve_reference("h100-bf16", candidates_named(["paged", "vllm"]), NOTHING)
    assert found.usd_per_hour == 2.5
    paged, vllm = (each.setup.memory for each in found.contenders)
    assert (paged.budget_bytes, paged.block_size, vllm.block_size) == (72_000_000_000, 1, 16)
    assert serve_reference("H100-bf16", candidates_named(["paged"]), NOTHING, 3.0).usd_per_hour == 3.0


def test_stated_memory_takes_the_place_of_the_profiles() -> None:
    (by_bytes,) = serve_reference("24GB-bf16", candidates_named(["paged"]), MemoryChoice(budget_bytes=10**9)).contenders
    assert by_bytes.setup.memory.budget_bytes == 10**9
    (by_blocks,) = serve_reference("24GB-bf16", candidates_named(["paged"]), MemoryChoice(num_blocks=100)).contenders
    assert by_blocks.setup.memory.budget_bytes == 100 * 16 * 147_456
    with pytest.raises(RequestError, match="no overhead"):
        serve_reference("24GB-bf16", candidates_named(["paged"]), MemoryChoice(overhead_bytes=1))


def test_a_policy_gets_all_that_is_left_and_an_engine_its_share() -> None:
    paged, vllm = candidates_named(["paged", "vllm"])
    whole = hardware("H100").memory_bytes
    assert whole is not None
    assert hosting().memory(paged, NOTHING).budget_bytes == whole - LLAMA_WEIGHTS - 2_500_000_000
    assert hosting().memory(vllm, NOTHING).budget_bytes == int(0.9 * whole) - LLAMA_WEIGHTS - 1_500_000_000
    stated = MemoryChoice(overhead_bytes=0)
    assert hosting().memory(vllm, stated).budget_bytes == int(0.9 * whole) - LLAMA_WEIGHTS


def test_several_devices_hold_a_part_each_and_cost_as_many_times() -> None:
    (paged,) = candidates_named(["paged"])
    one, two = hosting(1).memory(paged, NOTHING), hosting(2).memory(paged, NOTHING)
    assert two.bytes_per_position == one.bytes_per_position // 2
    pair = hosting(2)
    assert pair.serve(pair.at_shares(BOUND_SHARES), (paged,), NOTHING, 2.0).usd_per_hour == 4.0


def test_a_machine_whose_memory_is_not_known_needs_it_stated() -> None:
    unknown = replace(hosting(), machine=replace(hardware("H100"), memory_bytes=None))
    (paged,) = candidates_named(["paged"])
    with pytest.raises(RequestError, match="state what the cache may take"):
        unknown.memory(paged, NOTHING)
    assert unknown.memory(paged, MemoryChoice(num_blocks=10)).budget_bytes == 10 * 16 * 131_072


def test_a_table_without_a_model_counts_positions() -> None:
    (one,) = serve_table(steps_of(), candidates_named(["paged"]), MemoryChoice(num_blocks=10, block_size=4)).contenders
    assert (one.setup.memory.budget_bytes, one.setup.memory.bytes_per_position) == (40, 1)
    with pytest.raises(RequestError, match="number of blocks"):
        serve_table(steps_of(), candidates_named(["paged"]), NOTHING)


@pytest.mark.parametrize(
    "choice", [{"budget_bytes": 0}, {"num_blocks": 0}, {"block_size": 0}, {"budget_bytes": 1, "num_blocks": 1}]
)
def test_memory_that_cannot_be_is_refused(choice: dict[str, int]) -> None:
    with pytest.raises(RequestError):
        MemoryChoice(**choice)


def test_a_scheduler_knows_the_longest_answer_that_clients_allow() -> None:
    (reserve,) = candidates_named(["reserve"])
    assert allowing(reserve, reference_workload(1.0)).scheduler.max_output_tokens == 4000
    assert allowing(reserve, workload_of((0.0, 5, 7), (1.0, 5, 9))).scheduler.max_output_tokens == 9


def test_a_table_of_times_reaches_as_far_as_the_workload() -> None:
    workload = workload_of((0.0, 100, 10), (0.0, 300, 50))
    reach = reach_of(workload, candidates_named(["paged", "static"]))
    assert (reach.max_batch, reach.max_context, reach.max_chunk, reach.prompt_tokens) == (2, 350, 400, 200)
    assert reach_of(workload, candidates_named(["chunked"])).max_chunk == 256
