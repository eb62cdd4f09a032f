from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.accounting.work import SequenceStep
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import hardware, hardware_from_description
from inference_bench.facts.load import known_loaded_model, model_from_description
from inference_bench.origin import Origin
from inference_bench.predict.capacity import Demand, FullLoad
from inference_bench.predict.cost import (
    HostedPrices,
    break_even_requests_per_day,
    joules_per_token,
    owned_usd_per_million_tokens,
    usd_per_million_tokens,
)
from inference_bench.predict.deployment import Deployment, Limit, deploy
from inference_bench.predict.fit import cache_format
from inference_bench.predict.plan import plan
from inference_bench.predict.queueing import interactive_users, mm1_mean_time_s
from inference_bench.predict.scenario import Objectives, scenario_from_mapping
from inference_bench.predict.speculation import best_draft_tokens, break_even_acceptance, expected_tokens, speed_up
from inference_bench.predict.step_cost import is_decode_step
from predict.scenarios import REFERENCE, changed, planned

LIGHT = ("prices", "owned", "speculation")


def deployment(**sections: object) -> Deployment:
    values = changed(drop=LIGHT, **sections)
    machine = hardware_from_description(values["machine"], "a test")
    return deploy(scenario_from_mapping(values), model_from_description(values["model"]), machine)


@settings(deadline=None)
@given(
    memory=st.integers(9, 400),
    prompt=st.integers(1, 20_000),
    output=st.integers(1, 8_000),
    prefix=st.integers(0, 19_000),
    kv=st.sampled_from(["bf16", "int8", "q8_0"]),
)
def test_the_largest_batch_fits_and_one_more_does_not(
    memory: int, prompt: int, output: int, prefix: int, kv: str
) -> None:
    traffic = {"prompt": prompt, "output": output, "prefix": min(prefix, prompt - 1)}
    placed = deployment(machine={"memory": f"{memory} GB"}, traffic=traffic, kv=kv)
    for cached in (False, traffic["prefix"] > 0):
        most = placed.max_sequences(cached)
        assert most == 0 or placed.cache_bytes(most, cached) <= placed.free_bytes
        assert placed.cache_bytes(most + 1, cached) > placed.free_bytes


@settings(deadline=None)
@given(tpot_ms=st.integers(6, 60), judged_by=st.sampled_from(["step", "full_load"]))
def test_the_batch_keeps_the_objective_and_one_more_would_not(tpot_ms: int, judged_by: str) -> None:
    placed = deployment(objectives={"tpot": tpot_ms / 1000, "judged_by": judged_by})
    batch, limit = placed.largest_batch(prefix_cached=False)
    assert batch == 0 or placed.pace_s(batch, False) <= tpot_ms / 1000 * (1 + 1e-9)
    if limit is Limit.TPOT:
        assert placed.pace_s(batch + 1, False) > tpot_ms / 1000
    else:
        assert (limit, batch) == (Limit.MEMORY, 18)


@settings(deadline=None)
@given(
    memory=st.integers(8, 12),
    objectives=st.fixed_dictionaries(
        {},
        optional={
            "ttft": st.floats(0.5, 1.5),
            "tpot": st.floats(0.004, 0.02),
            "e2e": st.floats(8, 30),
            "judged_by": st.sampled_from(["step", "full_load"]),
        },
    ),
    output=st.sampled_from([1, 2, 500]),
    at_the_limit=st.booleans(),
)
def test_a_deployment_works_exactly_where_some_batch_does(
    memory: int, objectives: dict[str, object], output: int, at_the_limit: bool
) -> None:
    if "ttft" in objectives and "e2e" in objectives:
        objectives.pop("ttft")
    placed = deployment(machine={"memory": f"{memory} GB"}, objectives=objectives, traffic={"output": output})
    if at_the_limit:
        exactly = Objectives(e2e_s=placed.solo_e2e_s(False), tpot_s=placed.step_s(1))
        placed = replace(placed, scenario=replace(placed.scenario, objectives=exactly))
    for cached in (False, True):
        assert placed.works(cached) == (placed.largest_batch(cached)[0] > 0)


def test_an_objective_sets_the_batch_and_the_cost_follows_from_it() -> None:
    free, bound = planned(REFERENCE), planned(changed(objectives={"tpot": "12 ms"}))
    # 5.5 GB of weights and 737.28 MB a sequence at 1 TB/s: 8 sequences take 11.40 ms, 9 take 12.14 ms
    assert (bound.load.batch, bound.load.limited_by) == (8, Limit.TPOT)
    assert free.cost is not None
    assert bound.cost is not None
    assert free.cost.rented
    assert bound.cost.rented
    assert bound.cost.rented.usd_per_million_busy > free.cost.rented.usd_per_million_busy
    (check,) = bound.objectives
    assert check.met
    assert check.met_at_full_load is False


def test_an_objective_for_the_whole_request_sets_the_batch_too() -> None:
    found = planned(changed(objectives={"e2e": "20 s"}))
    assert found.load.limited_by is Limit.E2E
    # (20 - 0.923) / 1999 = 9.543 ms a step: (9.543 - 5.5) / 0.73728 = 5.48 sequences
    assert found.load.batch == 5


def test_what_the_engine_allows_at_most_is_a_limit() -> None:
    found = planned(changed(assumptions={"max_batch": 4}))
    assert (found.load.batch, found.load.limited_by) == (4, Limit.MAX_BATCH)


def test_a_model_that_does_not_fit_is_a_no_with_changes_that_were_tried() -> None:
    found = planned(changed(machine={"memory": "8.8 GB"}))
    assert not found.verdict.answer
    assert found.verdict.limited_by is Limit.MEMORY
    assert found.load.full is None
    assert found.cost is None
    assert found.demand is None
    assert "8.88 GB are needed" in found.verdict.reason
    assert any("cache" in fix for fix in found.verdict.fixes)
    assert any("prompt of at most" in fix for fix in found.verdict.fixes)
    assert any("2 devices" in fix for fix in found.verdict.fixes)
    assert any("another machine" in fix for fix in found.verdict.fixes)


@pytest.mark.parametrize(
    ("objectives", "limit", "said"),
    [
        ({"tpot": "5 ms"}, Limit.TPOT, "6.24 ms"),
        ({"ttft": "0.5 s"}, Limit.TTFT, "923 ms"),
        ({"e2e": "10 s"}, Limit.E2E, "13.4 s"),
    ],
)
def test_a_promise_that_no_batch_keeps_is_a_no_that_names_it(
    objectives: dict[str, str], limit: Limit, said: str
) -> None:
    verdict = planned(changed(objectives=objectives)).verdict
    assert (verdict.answer, verdict.limited_by) == (False, limit)
    assert said in verdict.reason
    assert verdict.fixes


def test_a_cached_prefix_can_turn_the_answer_to_yes() -> None:
    objectives = {"ttft": "0.5 s"}
    assert not planned(changed(objectives=objectives)).verdict.answer
    assert planned(changed(objectives=objectives, traffic={"prefix_cache": True})).verdict.answer


def test_a_single_output_token_has_no_steps_and_no_pace() -> None:
    found = planned(changed(traffic={"output": 1}, objectives={"tpot": "1 ms"}))
    assert found.load.full is not None
    assert found.load.full.effective_step_s is None
    assert found.load.full.machine_seconds_per_request == found.latency.ttft_s == found.latency.e2e_s
    assert found.little is None
    assert found.objectives == ()


@dataclass(frozen=True)
class Constant:
    seconds: float

    def step_s(self, sequences: Sequence[SequenceStep]) -> float:
        return self.seconds


def test_a_request_of_one_token_is_its_prompt_and_any_batch_keeps_what_that_keeps() -> None:
    within = planned(changed(traffic={"output": 1}, objectives={"e2e": "0.93 s"}))
    assert within.latency.e2e_s == pytest.approx(0.923, rel=0.001)
    assert within.load.limited_by is Limit.MEMORY
    assert within.load.batch == within.memory.max_sequences
    beyond = planned(changed(traffic={"output": 1}, objectives={"e2e": "0.92 s"}))
    assert (beyond.load.batch, beyond.load.limited_by) == (0, Limit.E2E)


FORMATS = {"vllm": ("fp8",), "sglang": ("fp8",), "llama.cpp": ("q8_0", "q4_0"), "mlx": ("int8", "fp8")}


@pytest.mark.parametrize("engine", FORMATS)
def test_only_formats_the_engine_can_store_are_offered(engine: str) -> None:
    values = changed(engine=engine, speed="shares", machine={"memory": "8.8 GB"}, traffic={"prompt": 8000})
    found = planned(values)
    assert tuple(name for name, _ in found.memory.by_cache_format) == FORMATS[engine]
    caches = [fix.removeprefix("a cache in ") for fix in found.verdict.fixes if fix.startswith("a cache in ")]
    assert len(caches) == 1
    assert caches[0] in FORMATS[engine]


def test_a_smaller_format_goes_without_the_bytes_that_were_stated_and_says_so() -> None:
    short = {"memory": "11 GB"}
    stated = planned(changed(weights="fp8", machine=short, assumptions={"weight_bytes": "9.6 GB"}))
    assert "weights in int4-g128, without the stated weight bytes" in stated.verdict.fixes
    counted = planned(changed(weights="fp8", machine=short, drop=("assumptions.weight_bytes",)))
    assert "weights in int4-g128" in counted.verdict.fixes
    no_more = planned(changed(machine=short, assumptions={"weight_bytes": "3.5 GB", "overhead": "8 GB"}))
    assert not any(fix.startswith("weights") for fix in no_more.verdict.fixes)


def test_as_many_devices_as_a_large_model_needs_are_offered_up_to_64() -> None:
    small = hardware("rtx-4090")
    for model, devices in (("llama-3.1-70b", "8"), ("llama-3.1-405b", "64")):
        values = changed(weights="bf16", drop=("assumptions.weight_bytes", "speculation"))
        fixes = plan(scenario_from_mapping(values), known_loaded_model(model), small).verdict.fixes
        assert f"{devices} devices" in fixes


def test_what_was_given_is_no_remedy() -> None:
    values = changed(objectives={"ttft": "0.922 s"}, compute="fp32")
    scenario, machine = scenario_from_mapping(values), hardware("rtx-4090")
    fixes = plan(scenario, model_from_description(values["model"]), machine).verdict.fixes
    assert fixes
    for fix in fixes:
        assert "RTX 4090," not in f"{fix},"
        assert "at most 5,000 tokens" not in fix


def test_another_cost_of_a_step_can_be_passed_in() -> None:
    machine = hardware_from_description(REFERENCE["machine"], "a test")
    found = plan(
        scenario_from_mapping(changed(drop=LIGHT)), model_from_description(REFERENCE["model"]), machine, Constant(0.05)
    )
    assert found.load.full is not None
    # a prefill of 50 ms and 1999 steps of 50 ms over 18 sequences
    assert found.load.full.machine_seconds_per_request == pytest.approx(0.05 + 1999 * 0.05 / 18)
    assert found.times_origin is Origin.PREDICTED


def test_expected_speed_is_that_of_an_engine_on_a_machine_whose_rates_are_known() -> None:
    with pytest.raises(RequestError, match="engine"):
        planned(changed(speed="expected"))
    with pytest.raises(RequestError, match="bandwidth or its compute rate"):
        planned(changed(speed="expected", engine="vllm", machine={"peak": {}}))


def test_a_machine_whose_memory_or_rate_is_not_known_is_refused() -> None:
    scenario, model = scenario_from_mapping(changed(drop=LIGHT)), model_from_description(REFERENCE["model"])
    with pytest.raises(RequestError, match="memory"):
        plan(scenario, model, hardware("Desktop DDR5-5600 x2"))
    with pytest.raises(RequestError, match="compute rate"):
        planned(changed(machine={"peak": {}}))


def test_devices_share_weights_cache_and_price() -> None:
    one, two = planned(REFERENCE), planned(changed(devices=2))
    assert two.memory.weight_bytes == pytest.approx(one.memory.weight_bytes / 2, rel=2e-4)  # norms are on both
    assert two.latency.solo_step_s == pytest.approx(one.latency.solo_step_s / 2)
    assert one.cost is not None
    assert two.cost is not None
    assert one.cost.rented
    assert two.cost.rented
    assert two.cost.rented.usd_per_hour == 2 * one.cost.rented.usd_per_hour


def test_a_plan_of_a_hybrid_model_counts_each_layer_type() -> None:
    values = changed(drop=("weights", *LIGHT)) | {"model": "gemma-3-27b", "kv": "fp16"}
    values["assumptions"] = {}
    found = plan(scenario_from_mapping(values), known_loaded_model("gemma-3-27b"), hardware("H100 SXM5 80GB"))
    # 10 full layers keep 6000 positions, 52 sliding ones 1024, each 16 heads of 128 twice in 2 bytes
    assert found.memory.bytes_per_sequence == (10 * 6000 + 52 * 1024) * 2 * 16 * 128 * 2


@given(volume=st.floats(1, 1e9), factor=st.floats(1, 50), target=st.floats(0.01, 1), rate=st.floats(0.001, 1000))
def test_the_replicas_carry_the_peak_within_the_target_and_one_fewer_does_not(
    volume: float, factor: float, target: float, rate: float
) -> None:
    demand = Demand(volume, factor, target, rate)
    assert demand.peak_utilisation <= target * (1 + 1e-6)
    assert demand.replicas == 1 or demand.peak_requests_per_s > (demand.replicas - 1) * rate * target * (1 - 1e-6)
    assert demand.headroom_fraction == pytest.approx(1 - demand.peak_utilisation)
    assert demand.busy_hours_per_day == pytest.approx(24 * demand.mean_utilisation * demand.replicas)


def test_replicas_by_hand() -> None:
    # 864000 a day are 10/s, 30/s at the peak; replicas of 4/s at 75 % carry 3/s
    demand = Demand(864_000, 3, 0.75, 4)
    assert (demand.replicas, demand.headroom_fraction) == (10, pytest.approx(0.25))


@given(hourly=st.floats(0.01, 100), tokens=st.floats(1e3, 1e9), low=st.floats(0.01, 0.98), more=st.floats(0.01, 1))
def test_a_token_costs_less_the_busier_the_machine(hourly: float, tokens: float, low: float, more: float) -> None:
    high = min(1.0, low + more)
    assert usd_per_million_tokens(hourly, tokens, high) < usd_per_million_tokens(hourly, tokens, low)
    owned = [owned_usd_per_million_tokens(hourly, 0.1, tokens, share) for share in (high, low)]
    assert owned[0] < owned[1]


@given(
    hourly=st.floats(0.01, 100), fresh=st.floats(0.01, 10), prompt=st.integers(1, 10**5), output=st.integers(1, 10**4)
)
def test_at_the_break_even_both_cost_the_same_and_a_cached_prefix_moves_it_up(
    hourly: float, fresh: float, prompt: int, output: int
) -> None:
    hosted = HostedPrices(fresh, 4 * fresh, fresh / 10)
    plain, cached = hosted.usd_per_request(prompt, output), hosted.usd_per_request(prompt, output, prompt // 2)
    volume, volume_cached = (break_even_requests_per_day(hourly, price) for price in (plain, cached))
    assert volume is not None
    assert volume_cached is not None
    assert volume * plain == pytest.approx(24 * hourly)
    assert volume_cached >= volume


def test_a_free_hosted_model_never_breaks_even_and_cached_input_without_a_price_is_input() -> None:
    assert break_even_requests_per_day(1.0, 0.0) is None
    assert HostedPrices(1.0, 1.0).usd_per_request(100, 10, 50) == HostedPrices(1.0, 1.0).usd_per_request(100, 10)


def test_a_break_even_beyond_what_a_replica_serves_is_said_to_be_never_reached() -> None:
    cost = planned(changed(prices={"usd_per_hour": 10})).cost
    assert cost is not None
    assert cost.hosted is not None
    assert cost.hosted.is_reached(cost.hosted.break_even_requests_per_day) is False


@given(alpha=st.floats(0, 1), gamma=st.integers(0, 32))
def test_a_round_emits_between_one_token_and_the_whole_draft_and_one_more(alpha: float, gamma: int) -> None:
    emitted = expected_tokens(alpha, gamma)
    assert 1 <= emitted <= gamma + 1 + 1e-9
    if alpha < 0.999:
        assert emitted == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha))


@given(gamma=st.integers(1, 16), cost=st.floats(0, 1), verify=st.floats(1, 4))
def test_speculation_gains_above_the_acceptance_that_breaks_even_and_not_below(
    gamma: int, cost: float, verify: float
) -> None:
    alpha = break_even_acceptance(gamma, cost, verify)
    if alpha is None:
        assert speed_up(1.0, gamma, cost, verify) <= 1
        return
    assert speed_up(alpha, gamma, cost, verify) == pytest.approx(1) or alpha == 0
    assert speed_up(min(1.0, alpha + 0.05), gamma, cost, verify) >= 1 - 1e-9


@given(alpha=st.floats(0, 1), cost=st.floats(0.01, 1), slope=st.floats(0, 0.3))
def test_no_draft_length_is_faster_than_the_best(alpha: float, cost: float, slope: float) -> None:
    def verify(tokens: int) -> float:
        return 1 + slope * tokens

    best = best_draft_tokens(alpha, cost, verify)
    top = speed_up(alpha, best, cost, verify(best))
    assert all(speed_up(alpha, tokens, cost, verify(tokens)) <= top for tokens in range(1, 16))
    assert is_decode_step((SequenceStep(100, best + 1),))


def test_a_placer_with_something_else_in_it_shares_no_placements() -> None:
    placer = deployment().placer
    one = placer.place(100, 1)
    other = replace(placer, fmt=cache_format("fp32"))
    assert other.placed == {}
    assert other.place(100, 1).cache_bytes > one.cache_bytes


def test_verifying_costs_more_in_a_batch_that_nears_the_compute_limit() -> None:
    found = planned(changed(machine={"memory": "400 GB"}, speculation={"gamma": 8})).speculation
    assert found is not None
    given_row, alone, batched = found.rows
    assert given_row.batch is None
    assert alone.verify_cost < batched.verify_cost
    assert alone.speed_up > batched.speed_up


def test_the_laws_refuse_what_has_no_steady_state_or_no_meaning() -> None:
    with pytest.raises(RequestError, match="steady state"):
        mm1_mean_time_s(1.0, 1.0)
    with pytest.raises(RequestError, match="probability"):
        expected_tokens(1.5, 4)
    with pytest.raises(RequestError, match="utilisation"):
        usd_per_million_tokens(1.0, 1.0, 1.5)
    with pytest.raises(RequestError, match="tokens"):
        joules_per_token(1.0, 0.0)
    with pytest.raises(RequestError, match="not part of a prompt"):
        HostedPrices(1, 1).usd_per_request(10, 1, 11)


def test_users_who_think_are_those_inside_and_those_thinking() -> None:
    found = planned(REFERENCE)
    assert found.load.full is not None
    assert found.load.e2e_s is not None
    rate = found.load.full.requests_per_s
    assert found.load.users == pytest.approx(rate * found.load.e2e_s + rate * 60)
    assert interactive_users(0.5, 10, 30) == 20


@given(prefill=st.floats(0.001, 10), step=st.floats(0.001, 1), batch=st.integers(1, 500), output=st.integers(2, 5000))
def test_littles_law_holds_at_full_load(prefill: float, step: float, batch: int, output: int) -> None:
    load = FullLoad(prefill, step, batch, output)
    assert load.requests_per_s * load.residence_s == pytest.approx(batch)
