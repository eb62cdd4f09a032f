"""The reference scenario gives the published figures: every expectation comes from golden/published/capacity.json."""

from __future__ import annotations

from typing import Any

import pytest

from inference_bench.accounting.params import count_params
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_model, model_from_description
from inference_bench.origin import Origin
from inference_bench.predict.cost import (
    HostedPrices,
    always_on_usd_per_request,
    break_even_requests_per_day,
    depreciation_usd_per_hour,
    energy_usd_per_hour,
    joules_per_token,
)
from inference_bench.predict.fit import loaded_weights
from inference_bench.predict.queueing import little_mean_number, mm1_mean_time_s
from inference_bench.predict.speculation import expected_tokens, speed_up
from predict.scenarios import GOLDEN, REFERENCE, changed, planned

REFERENCE_PLAN = planned(REFERENCE)
CACHED_PLAN = planned(changed(traffic={"prefix_cache": True}))


def is_golden(section: str, name: str, value: Any) -> None:
    expected, _unit, tolerance = GOLDEN[section][name]
    assert value == pytest.approx(expected, rel=tolerance or 1e-12, abs=0)


def test_the_reference_plan_gives_every_published_figure() -> None:
    plan, cold = REFERENCE_PLAN, REFERENCE_PLAN.loads[0]
    assert cold.full is not None
    found = {
        "artifact_bytes": loaded_weights(model_from_description(REFERENCE["model"]), REFERENCE["weights"]).total,
        "kv_bytes_6000_tokens": plan.memory.bytes_per_sequence,
        "full_length_requests_bf16": plan.memory.max_sequences,
        "full_length_requests_int8_cache": dict(plan.memory.by_cache_format)["int8"],
        "shared_prefix_requests": plan.memory.max_sequences_shared_prefix,
        "prefill_4000_s": plan.latency.ttft_s,
        "warm_prefix_1000_of_4000_s": plan.latency.ttft_cached_s,
        "solo_step_s": plan.latency.solo_step_s,
        "low_load_e2e_s": plan.latency.e2e_s,
        "batch18_step_s": cold.full.step_s,
        "batch18_tokens_per_s": cold.step_tokens_per_s,
        "gpu_seconds_per_request": cold.full.machine_seconds_per_request,
        "requests_per_hour": cold.full.requests_per_hour,
        "output_tokens_per_hour": cold.full.output_tokens_per_hour,
        "prefill_share": cold.full.prefill_share,
        "effective_step_s": cold.full.effective_step_s,
    }
    assert set(found) == set(GOLDEN["reference_case"])
    for name, value in found.items():
        is_golden("reference_case", name, value)


def test_an_int8_cache_and_a_cached_prefix_can_be_planned_for() -> None:
    is_golden("reference_case", "full_length_requests_int8_cache", planned(changed(kv="int8")).memory.max_sequences)
    is_golden("reference_case", "shared_prefix_requests", CACHED_PLAN.load.batch)
    assert CACHED_PLAN.load.full is not None
    is_golden("reference_case", "warm_prefix_1000_of_4000_s", CACHED_PLAN.load.full.prefill_s)


OTHER_WEIGHTS = "on 24GB-1.0 with other weights"
PROFILES = [name for name in GOLDEN["profiles"] if name not in ("columns", "rounding", OTHER_WEIGHTS)]


@pytest.mark.parametrize("name", PROFILES)
def test_each_hardware_profile_gives_the_printed_figures(name: str) -> None:
    row = dict(zip(GOLDEN["profiles"]["columns"], GOLDEN["profiles"][name], strict=True))
    machine = {
        "name": name,
        "memory": f"{row['memory_GB']} GB",
        "bandwidth": f"{row['bandwidth_TB_s']} TB/s",
        "peak": {"bf16": f"{row['dense_TFLOP_s']} TFLOPS"},
    }
    plan = planned(changed(machine=machine))
    rate = plan.machine.peak_flops_per_s["bf16"] / (plan.machine.bandwidth_bytes_per_s or 0)
    assert rate == pytest.approx(row["ridge_FLOP_per_byte"], abs=0.05)
    assert plan.memory.free_bytes == row["free_GB"] * 10**9
    assert plan.memory.max_sequences == plan.load.batch == row["sequences"]
    assert plan.latency.ttft_s == pytest.approx(row["ttft_s"], abs=0.0005)
    assert plan.latency.solo_tokens_per_s == pytest.approx(row["solo_tokens_s"], abs=0.05)
    assert plan.load.step_tokens_per_s == pytest.approx(row["batch_tokens_s"], abs=0.05)


@pytest.mark.parametrize("weights", GOLDEN["profiles"][OTHER_WEIGHTS])
def test_the_first_profile_with_other_weights_gives_the_printed_figures(weights: str) -> None:
    row = GOLDEN["profiles"][OTHER_WEIGHTS][weights]
    artifact = {"bf16": 19_101_458_432, "int8": 9_550_729_216}[weights]  # 2 bytes and 1 byte a parameter
    plan = planned(changed(weights=weights, assumptions={"weight_bytes": artifact}))
    assert plan.memory.max_sequences == row["sequences"]
    assert plan.latency.solo_tokens_per_s == pytest.approx(row["solo_tokens_s"], abs=0.05)


def test_the_plan_costs_what_was_published() -> None:
    cost, demand = REFERENCE_PLAN.cost, REFERENCE_PLAN.demand
    assert cost is not None
    assert cost.rented
    assert cost.always_on
    assert cost.hosted
    assert cost.owned
    assert demand is not None
    assert demand.replicas == 1
    break_evens = (cost.hosted.break_even_requests_per_day, cost.hosted.break_even_requests_per_day_cached)
    found = {
        "usd_per_million_busy": cost.rented.usd_per_million_busy,
        "at 30% utilisation": cost.rented.usd_per_million_at_utilisation,
        "2000 requests/day busy GPU-hours": demand.busy_hours_per_day,
        "always-on usd/request": cost.always_on.usd_per_request,
        "always-on usd/million output": cost.always_on.usd_per_million_output_tokens,
        "hosted usd/request (0.20 in, 0.80 out per million)": cost.hosted.usd_per_request,
        "cached 3000 at one tenth": cost.hosted.usd_per_request_cached,
        "break-even requests/day uncached, cached": break_evens,
        "owned 2000 usd over 3 years usd/h": cost.owned.depreciation_usd_per_hour,
        "0.45 kW at 0.20 usd/kWh": cost.owned.energy_usd_per_hour,
        "450 W at 665 tokens/s, J/token": cost.owned.joules_per_output_token,
    }
    assert set(found) == set(GOLDEN["cost"])
    for name, value in found.items():
        is_golden("cost", name, value)
    assert all(cost.hosted.is_reached(volume) for volume in break_evens)


def test_the_cost_functions_alone_give_what_was_published() -> None:
    hosted = HostedPrices(0.20, 0.80, 0.02)
    is_golden("cost", "hosted usd/request (0.20 in, 0.80 out per million)", hosted.usd_per_request(4000, 2000))
    is_golden("cost", "cached 3000 at one tenth", hosted.usd_per_request(4000, 2000, 3000))
    is_golden(
        "cost",
        "break-even requests/day uncached, cached",
        (break_even_requests_per_day(1.0, 0.0024), break_even_requests_per_day(1.0, 0.00186)),
    )
    is_golden("cost", "always-on usd/request", always_on_usd_per_request(1.0, 2000))
    is_golden("cost", "owned 2000 usd over 3 years usd/h", depreciation_usd_per_hour(2000, 3))
    is_golden("cost", "0.45 kW at 0.20 usd/kWh", energy_usd_per_hour(450, 0.20))
    is_golden("cost", "450 W at 665 tokens/s, J/token", joules_per_token(450, 665))


def test_the_queueing_laws_give_what_was_published() -> None:
    expected = GOLDEN["queueing"]["M/M/1 mean time in S at rho .5 .8 .9 .95"]
    assert [mm1_mean_time_s(1.0, rho) for rho in (0.5, 0.8, 0.9, 0.95)] == pytest.approx(expected)
    is_golden("queueing", "little 0.332/s x 54.2 s", little_mean_number(0.332, 54.2))
    little = REFERENCE_PLAN.little
    assert little is not None
    is_golden("queueing", "little 0.332/s x 54.2 s", little.mean_requests)
    assert (little.requests_per_s, little.residence_s) == pytest.approx((0.332, 54.2), rel=0.002)


def test_speculation_gives_what_was_published() -> None:
    is_golden("speculation", "E[K] alpha .865 gamma 4", expected_tokens(0.865, 4))
    is_golden("speculation", "speed-up c .447 v 1.224", speed_up(0.865, 4, 0.447, 1.224))
    for name, alpha, gamma, verify in (
        ("alpha .850 gamma 2 v 1.188", 0.850, 2, 1.188),
        ("alpha .864 gamma 6 v 1.281", 0.864, 6, 1.281),
    ):
        is_golden("speculation", name, [expected_tokens(alpha, gamma), speed_up(alpha, gamma, 0.447, verify)])
    found = REFERENCE_PLAN.speculation
    assert found is not None
    is_golden("speculation", "E[K] alpha .865 gamma 4", found.expected_tokens)
    is_golden("speculation", "speed-up c .447 v 1.224", found.rows[0].speed_up)
    assert found.rows[0].origin is Origin.GIVEN


def test_a_desktop_processor_gives_what_was_published() -> None:
    golden = GOLDEN["cpu_example"]
    bandwidth = hardware("Desktop DDR5-5600 x2").bandwidth_bytes_per_s
    assert bandwidth == golden["dual-channel DDR5-5600 bytes/s"]
    machine = {"name": "desktop", "memory": "64 GB", "bandwidth": bandwidth, "peak": {"bf16": "0.5 TFLOPS"}}
    plan = planned(changed(machine=machine, assumptions={"mfu": 1.0}))
    is_golden("cpu_example", "solo tokens/s at peak", plan.latency.solo_tokens_per_s)
    is_golden("cpu_example", "prefill 4000 at 0.5 TFLOP/s", plan.latency.ttft_s)
    assert plan.times_origin is Origin.BOUND


def test_a_sparse_model_at_4_9_bits_takes_what_was_published() -> None:
    params = count_params(known_model("Mixtral-8x7B-v0.1"))
    is_golden("moe", "46.7B params at 4.9 bits, bytes", params.total * 4.9 / 8)
    is_golden("moe", "12.9B active at 4.9 bits, bytes", params.active * 4.9 / 8)
