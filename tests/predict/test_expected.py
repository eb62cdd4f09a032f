"""What `fit` and `plan` say of an engine: expectations apart from bounds, with intervals that say what they rest on."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from inference_bench.accounting.work import decode_batch
from inference_bench.errors import RequestError, ScenarioError
from inference_bench.facts.hardware import HardwareSpec, hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.origin import Origin
from inference_bench.predict.efficiency import (
    Observation,
    OwnMeasurements,
    Pace,
    Phase,
    Question,
    engine_setting,
    expect,
    own_measurements,
)
from inference_bench.predict.engine_choice import EngineChoice, choose_engine
from inference_bench.predict.fit import FitAnswer, FitRequest, fit
from inference_bench.predict.latency import PLANNING_ASSUMPTION
from inference_bench.predict.placement import Split
from inference_bench.predict.plan import Plan, plan
from inference_bench.predict.scenario import Scenario, Speed, scenario_from_mapping
from inference_bench.predict.step_cost import PeakShares
from inference_bench.report.plan_report import plan_text
from inference_bench.roofline import roof
from predict.scenarios import changed, planned

MODEL = known_loaded_model("llama-3.1-8b")
TRAFFIC = {"prompt": 4000, "output": 500, "prefix": 1000, "requests_per_day": 100_000}


def corrected(engine: str, machine: str, **offsets: float) -> OwnMeasurements:
    """Measurements that say this much of both paces, of which no row is shown."""
    named = {name.replace("_", "/", 1): value for name, value in offsets.items()}
    return OwnMeasurements(engine, hardware(machine).name, (), "mine.csv", alone=named, in_service=named)


OWN = corrected("vllm", "h100", bandwidth=0.2, overhead=0.1)


def fitting(machine: str | HardwareSpec = "h100", **changes: Any) -> FitAnswer:
    where = hardware(machine) if isinstance(machine, str) else machine
    return fit(MODEL, where, FitRequest(context_tokens=2048, **changes))


def scenario(**changes: Any) -> Scenario:
    values = {"model": "x", "machine": "h100", "engine": "vllm", "traffic": TRAFFIC, "prices": {"usd_per_hour": 2.0}}
    return scenario_from_mapping(values | changes)


def planning(machine: str = "h100", own: OwnMeasurements | None = None, **changes: Any) -> Plan:
    asked = replace(scenario(**changes), own=own)
    return plan(asked, MODEL, hardware(machine), usd_per_device_hour=2.0)


# ── which engine ───────────────────────────────────────────────────────────────────────────────────


def test_an_engine_whose_cache_rule_is_not_known_is_one_for_speeds_alone() -> None:
    assert choose_engine("none") == EngineChoice("none", None)
    assert choose_engine("llama.cpp") == EngineChoice("llama.cpp", "llama.cpp")
    assert choose_engine("SGLang 0.5") == EngineChoice("none", "sglang")
    assert choose_engine("ollama") == EngineChoice("llama.cpp", "llama.cpp")
    with pytest.raises(
        RequestError, match=r"'tgi' is not known; known: none, llama.cpp, vllm; for speeds alone .*sglang"
    ):
        choose_engine("tgi")


# ── fit ────────────────────────────────────────────────────────────────────────────────────────────


def test_without_an_engine_planning_factors_stay_and_have_no_middle() -> None:
    found = fitting()
    assert found.decode is not None
    assert found.decode.seconds is not None
    assert found.decode_expected_s is not None
    assert found.decode_expected_s.low == pytest.approx(found.decode.seconds / 0.9)
    assert (found.decode_middle_s, found.expected_from) == (None, None)
    assert PLANNING_ASSUMPTION in found.assumptions


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp"])
def test_an_engine_is_expected_to_do_what_was_fitted(engine: str) -> None:
    found = fitting(engine=engine, sequences=4)
    setting = engine_setting(_served(found), hardware("h100"), engine)
    decode = expect(Question(setting, Phase.DECODE, 4, 2048))
    prefill = expect(Question(setting, Phase.PREFILL, 1, 2048))
    assert found.decode_expected_s is not None
    assert (found.decode_expected_s.low, found.decode_middle_s) == (decode.low_s, decode.seconds)
    assert found.prefill_middle_s == prefill.seconds
    assert found.decode is not None
    assert decode.seconds > (found.decode.seconds or 0)
    assert found.expected_from == engine
    assert PLANNING_ASSUMPTION not in found.assumptions
    assert any("published rows" in line and f"{engine} on" in line for line in found.assumptions)


@pytest.mark.parametrize("engine", ["ollama", "vllm", "mlc", "nobody's"])
@pytest.mark.parametrize("machine", ["rtx-4090", "h100", "m2 max"])
def test_no_end_of_an_interval_is_faster_than_the_bound(engine: str, machine: str) -> None:
    family = choose_engine(engine).family if engine != "nobody's" else engine
    fitted, planned = fitting(machine, served_by=family), planning(machine, engine="vllm").interval
    assert fitted.decode is not None
    assert fitted.decode_expected_s is not None
    assert fitted.decode_expected_s.low >= (fitted.decode.seconds or 0) * (1 - 1e-12)
    assert fitted.decode_middle_s is not None
    assert fitted.decode_expected_s.low <= fitted.decode_middle_s <= fitted.decode_expected_s.high
    bounds = PeakShares(_served(fitted), roof(hardware(machine), fitted.weights.linear_format))
    assert planned is not None
    for end in (planned.fast, planned.slow):
        assert end.latency.solo_step_s >= bounds.step_s(decode_batch(4250, 1)) * (1 - 1e-12)


def test_the_fast_end_is_cut_off_at_the_bound_where_the_interval_reaches_beyond() -> None:
    qwen = known_loaded_model("qwen3-8b")
    found = fit(qwen, hardware("rtx-4090"), FitRequest(engine="llama.cpp"))
    assert found.decode is not None
    assert found.decode_expected_s is not None
    wide = corrected("llama.cpp", "rtx-4090", bandwidth=-0.5)
    cut = fit(qwen, hardware("rtx-4090"), FitRequest(engine="llama.cpp", own=wide))
    assert cut.decode_expected_s is not None
    assert cut.decode_expected_s.low == pytest.approx(found.decode.seconds)


def test_planning_factors_are_not_cut_off() -> None:
    found = fitting()
    assert found.decode_expected_s is not None
    assert found.decode is not None
    assert found.decode_expected_s.high == pytest.approx((found.decode.seconds or 0) / 0.7)


@pytest.mark.parametrize(("machine", "is_said"), [("rtx-4090", True), ("h100", False)])
def test_a_prefill_below_the_bound_of_32_bit_sums_is_explained_in_plan_as_in_fit(machine: str, is_said: bool) -> None:
    values = {"model": "x", "machine": machine, "engine": "ollama", "traffic": TRAFFIC}
    qwen = known_loaded_model("qwen3-8b")
    fast = corrected("llama.cpp", machine, compute_prefill=-2.0)
    found = plan(replace(scenario_from_mapping(values), own=fast), qwen, hardware(machine))
    line = "what is expected of prefill lies below the bound, which takes 32-bit accumulation"
    for answer in (found, fit(qwen, hardware(machine), FitRequest(engine="llama.cpp", own=fast))):
        assert any(said.startswith(line) for said in answer.assumptions) == is_said


def _served(found: FitAnswer) -> Any:
    from inference_bench.predict.step_cost import ServedModel
    from shapes import cache_in

    return ServedModel(found.model, found.weights, cache_in("fp16"))


def test_more_devices_are_faster_in_tensor_but_not_in_pipeline_split() -> None:
    one, four = fitting(engine="vllm"), fitting(engine="vllm", devices=4)
    dealt = fitting(engine="vllm", devices=4, split=Split.PIPELINE)
    assert one.decode_middle_s is not None
    assert four.decode_middle_s is not None
    assert dealt.decode_middle_s is not None
    assert four.decode_middle_s < one.decode_middle_s
    assert dealt.decode_middle_s > 0.8 * one.decode_middle_s


def test_an_engine_for_speeds_alone_counts_the_logical_cache_and_says_so() -> None:
    found = fitting(served_by="sglang")
    assert found.allocation is None
    assert found.needed_bytes == fitting().needed_bytes
    assert found.expected_from == "sglang"
    assert any("how sglang lays its cache out is not known" in line for line in found.assumptions)


def test_a_machine_whose_rates_are_not_known_falls_back_on_planning_factors_and_says_so() -> None:
    found = fitting(replace(hardware("h100"), peak_flops_per_s={}), engine="vllm")
    assert found.decode_expected_s is not None
    assert found.decode_middle_s is None
    assert PLANNING_ASSUMPTION in found.assumptions
    assert any("efficiencies of vllm were not taken" in line for line in found.assumptions)


def test_an_engine_or_machine_that_was_not_fitted_is_said_to_be_new() -> None:
    def said(machine: str, engine: str) -> str:
        return next(line for line in fitting(machine, served_by=engine).assumptions if "published rows" in line)

    assert "was among them" in said("h100", "vllm")
    assert "on other machines like it" in said("h200", "vllm")
    assert "taken from other engines" in said("m2 max", "mlx")


def test_no_measurement_takes_what_is_expected_below_the_bound() -> None:
    fast = corrected("vllm", "h100", bandwidth=-2.0, overhead=-3.0)
    for own in (fast, None):
        found = fitting(engine="vllm", own=own)
        assert not any("below the bound" in line for line in found.assumptions)


def test_measured_ceilings_are_said_to_be_other_than_published_peaks() -> None:
    here = replace(hardware("h100"), origin=Origin.MEASURED)
    assert any("over the measured ceilings" in line for line in fitting(here, engine="vllm").assumptions)


def test_own_measurements_move_and_narrow_what_is_expected() -> None:
    before, after = fitting(engine="vllm"), fitting(engine="vllm", own=OWN)
    assert before.decode_middle_s is not None
    assert after.decode_middle_s is not None
    assert after.decode_middle_s > 1.1 * before.decode_middle_s
    assert any("bandwidth efficiency ×0.82" in line and "overhead ×1.11" in line for line in after.assumptions)


# ── plan ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_engine_alone_asks_for_its_expected_speed_and_stated_shares_for_theirs() -> None:
    assert scenario().speed is Speed.EXPECTED
    assert scenario(engine="none").speed is Speed.SHARES
    assert scenario(assumptions={"mfu": 0.4}).speed is Speed.SHARES
    assert scenario(assumptions={"mfu": 0.4}, speed="expected").speed is Speed.EXPECTED
    assert scenario(engine="sglang").served_by == "sglang"
    with pytest.raises(ScenarioError, match="engine"):
        scenario(engine="none", speed="expected")


def test_the_reference_scenario_is_a_plan_at_stated_shares() -> None:
    found = planned(changed())
    assert (found.interval, found.serving, found.scenario.speed) == (None, None, Speed.SHARES)


def test_both_ends_of_the_interval_lie_around_every_figure() -> None:
    found = planning()
    assert found.interval is not None
    fast, slow = found.interval.fast, found.interval.slow
    assert found.times_origin is Origin.PREDICTED
    assert fast.latency.ttft_s < found.latency.ttft_s < slow.latency.ttft_s
    assert fast.latency.e2e_s < found.latency.e2e_s < slow.latency.e2e_s
    assert fast.load.batch == found.load.batch == slow.load.batch
    full = [end.load.full for end in (fast, slow)]
    assert full[0] is not None
    assert full[1] is not None
    assert found.load.full is not None
    assert full[0].output_tokens_per_s > found.load.full.output_tokens_per_s > full[1].output_tokens_per_s
    assert slow.latency.solo_step_s == pytest.approx(found.latency.solo_step_s * found.interval.decode_factor)
    assert fast.latency.ttft_s == pytest.approx(found.latency.ttft_s / found.interval.ttft_factor)
    assert slow.latency.prefill_s == pytest.approx(found.latency.prefill_s * found.interval.prefill_factor)
    costs = [end.cost.rented.usd_per_million_busy for end in (fast, slow) if end.cost and end.cost.rented]
    assert found.cost is not None
    assert found.cost.rented is not None
    assert costs[0] < found.cost.rented.usd_per_million_busy < costs[1]


def test_objectives_are_judged_on_the_middle_and_the_slow_end_is_said() -> None:
    middle = planning().latency.ttft_s
    tight, loose = (planning(objectives={"ttft": middle * factor}).objectives[0] for factor in (1.05, 5))
    assert (tight.met, tight.met_at_slow_end) == (True, False)
    assert (loose.met, loose.met_at_slow_end) == (True, True)
    assert planned(changed(objectives={"ttft": 3})).objectives[0].met_at_slow_end is None


def test_served_engines_show_what_servers_show_and_others_do_not() -> None:
    found = planning()
    assert found.serving is not None
    assert found.serving.concurrency == found.load.batch
    assert found.serving.tpot is not None
    assert found.load.full is not None
    assert found.serving.tpot.seconds > found.load.full.step_s  # other prompts are read in between
    assert found.serving.ttft.seconds > found.latency.ttft_s / 2
    assert planning(engine="llama.cpp").serving is None
    one_token = planning(traffic={"prompt": 4000, "output": 1})
    assert one_token.serving is not None
    assert one_token.serving.tpot is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_a_row_as_the_answer_says_moves_nothing_and_a_slower_one_moves_both_answers(engine: str) -> None:
    family = {"served_by": engine}
    fitted, planned = fitting(**family), planning(engine=engine)
    setting = engine_setting(_served(fitted), hardware("h100"), engine)
    name, longest = hardware("h100").name, planned.latency.mean_context_tokens
    at_fit, at_plan = (Question(setting, Phase.DECODE, 1, context) for context in (2048, longest))
    assert fitted.decode_middle_s is not None

    def own(question: Question, seconds: float) -> OwnMeasurements:
        return own_measurements(engine, name, [Observation(question, seconds)], "mine.csv")

    same = own(at_fit, fitted.decode_middle_s)
    assert fitting(**family, own=same).decode_middle_s == pytest.approx(fitted.decode_middle_s)
    assert "within half a percent" in same.describe(setting)
    same = own(at_plan, planned.latency.solo_step_s)
    assert planning(engine=engine, own=same).latency.solo_step_s == pytest.approx(planned.latency.solo_step_s)
    assert "within half a percent" in same.describe(setting, Pace.IN_SERVICE)
    whole = Question(setting, Phase.PREFILL, 1, TRAFFIC["prompt"])
    same = own(whole, planned.latency.prefill_s)
    assert planning(engine=engine, own=same).latency.prefill_s == pytest.approx(planned.latency.prefill_s)
    slow = own(at_fit, 2 * max(fitted.decode_middle_s, planned.latency.solo_step_s))
    after = fitting(**family, own=slow).decode_middle_s
    assert after is not None
    assert after > 1.3 * fitted.decode_middle_s
    assert planning(engine=engine, own=slow).latency.solo_step_s > 1.3 * planned.latency.solo_step_s


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_first_token_of_a_plan_is_that_of_a_server_with_one_request(engine: str) -> None:
    found = planning(engine=engine, objectives={"ttft": 10})
    setting = engine_setting(_served(fitting()), hardware("h100"), engine)
    assert found.interval is not None
    for cached, seconds in ((0, found.latency.ttft_s), (1000, found.latency.ttft_cached_s)):
        shown = expect(Question(setting, Phase.SERVING_TTFT, 1, 4000 - cached, 500, cached))
        assert seconds == pytest.approx(shown.seconds)
        if not cached:
            ends = found.interval.fast.latency.ttft_s, found.interval.slow.latency.ttft_s
            assert ends == pytest.approx((shown.low_s, shown.high_s))
    assert found.latency.prefill_s < found.latency.ttft_s
    assert found.objectives[0].planned_s in (found.latency.ttft_s, found.latency.ttft_cached_s)
    assert found.load.full is not None
    assert found.load.full.prefill_s in (found.latency.prefill_s, found.latency.prefill_cached_s)
    assert "prompt and first steps" in plan_text(found)
    assert "the prompt's own time" in plan_text(found)
    assert "first steps" not in plan_text(planning(engine="llama.cpp"))


def test_own_measurements_count_on_their_own_machine_alone() -> None:
    assert planning(own=OWN).latency.solo_step_s > planning().latency.solo_step_s
    assert planning("h200", own=OWN).latency == planning("h200").latency
    assert any("own row(s)" in line for line in planning(own=OWN).assumptions)


def test_shares_of_the_scenario_that_are_not_used_are_said() -> None:
    found = planning(speed="expected", assumptions={"mfu": 0.4})
    assert any("mfu of the scenario are not used" in line for line in found.assumptions)


def test_a_plan_that_cannot_be_names_what_would_help_at_the_expected_speed() -> None:
    found = planning("rtx-4090", traffic={"prompt": 100_000, "output": 500})
    assert not found.verdict.answer
    assert found.verdict.fixes
    assert found.interval is not None


def test_a_plan_at_the_expected_speed_takes_at_most_50_ms() -> None:
    planning()  # loads what is loaded once
    took = []
    for _ in range(3):
        started = time.perf_counter()
        planning(objectives={"tpot": 0.03, "judged_by": "full_load"})
        took.append(time.perf_counter() - started)
    assert min(took) < 0.05
