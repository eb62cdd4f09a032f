"""Where step times come from, held against the exact count of work, the bounds and the expectation of an engine."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.accounting.work import SequenceStep
from inference_bench.errors import RequestError, UnknownNameError
from inference_bench.facts.hardware import hardware
from inference_bench.origin import Origin
from inference_bench.predict.efficiency import EngineCost, Pace, Phase, engine_setting, fitted, step_parameters
from inference_bench.predict.step_cost import PeakShares
from inference_bench.roofline import roof
from inference_bench.simulate.reference_profiles import reference_profile, reference_profiles
from inference_bench.simulate.step_sources import (
    BOUND_SHARES,
    Link,
    Shares,
    StepRange,
    engine_step_time,
    link_of,
    step_time_of,
)
from inference_bench.simulate.step_time import StepPart, StepTime
from inference_bench.simulate.step_work import probe_errors, work_form
from simulate.served_models import served_model

LINEAR = (
    "Meta-Llama-3.1-8B",
    "gemma-3-27b-it",
    "gemma-2-9b",
    "gpt-oss-20b",
    "Mixtral-8x7B-v0.1",
    "Qwen3-30B-A3B",
    "Qwen3-Next-80B-A3B-Instruct",
    "mamba-2.8b-hf",
    "SmolLM2-135M",
)


def parts_of(steps: tuple[SequenceStep, ...]) -> list[StepPart]:
    return [StepPart(step.num_cached, step.num_new, step.num_new == 1) for step in steps for _ in range(step.count)]


def random_steps(draws: random.Random, *, decode_only: bool = False) -> tuple[SequenceStep, ...]:
    steps = [SequenceStep(draws.randrange(20_000), 1, draws.randint(1, 20)) for _ in range(draws.randint(1, 8))]
    if not decode_only:
        steps += [
            SequenceStep(draws.choice((0, 700, 5_000)), draws.randint(2, 3_000)) for _ in range(draws.randrange(3))
        ]
    return tuple(steps)


class TestReference:
    def test_decoding_reads_the_weights_and_the_cache(self) -> None:
        step_time, memory, usd = reference_profile("24GB-bf16")
        assert step_time.step_s([StepPart(4_000, 1, True)] * 2) == pytest.approx((5.5e9 + 147_456 * 8_000) / 1e12)
        assert (memory.budget_bytes, memory.bytes_per_position, usd) == (16_000_000_000, 147_456, 1.0)

    def test_a_prompt_takes_its_products_and_its_attention(self) -> None:
        flops = 2 * 8_927_875_072 * 4_000 + 4 * 36 * 4_096 * 4_000 * 4_001 / 2
        assert reference_profile("H100-bf16").step_time.step_s([StepPart(0, 4_000, False)]) == pytest.approx(
            flops / (0.5 * 989e12)
        )

    def test_the_profiles_are_those_of_the_golden_search(self) -> None:
        golden = json.loads(
            (Path(__file__).parents[1] / "golden/published/slo_capacity.json").read_text(encoding="utf-8")
        )
        for name, row in golden["profiles"].items():
            step_time, memory, usd = reference_profile(name)
            rates = (step_time.coefficients.bandwidth_bytes_per_s, step_time.coefficients.compute_flops_per_s)
            assert rates == (row["bandwidth"], row["compute"])
            assert (memory.budget_bytes, memory.bytes_per_position) == (
                row["kv_budget_bytes"],
                row["kv_bytes_per_token"],
            )
            assert usd == row["usd_per_hour"]

    def test_other_names_are_refused_with_those_that_are_known(self) -> None:
        assert reference_profiles() == ("24GB-bf16", "H100-bf16")
        with pytest.raises(UnknownNameError, match="24GB-bf16, H100-bf16"):
            reference_profile("A100")


class TestWorkForm:
    @pytest.mark.parametrize("name", LINEAR)
    def test_the_form_is_the_exact_count(self, name: str) -> None:
        served, draws = served_model(name), random.Random(1)
        form = work_form(served)
        assert form.notes == ()
        for _ in range(40):
            errors = probe_errors(served, form.coefficients, form.windows, random_steps(draws))
            assert max(errors) < 1e-9

    def test_latent_attention_is_exact_in_decoding_and_says_how_far_off_prompts_are(self) -> None:
        served, draws = served_model("DeepSeek-V3"), random.Random(2)
        form = work_form(served)
        for _ in range(40):
            steps = random_steps(draws, decode_only=True)
            assert max(probe_errors(served, form.coefficients, form.windows, steps)) < 1e-9
        assert len(form.notes) == 1
        assert "FLOPs of a step are approximated" in form.notes[0]
        assert form.bytes_error < 1e-9

    def test_chunked_attention_is_exact_within_a_chunk_and_said_to_be_approximate(self) -> None:
        served = served_model("Llama-4-Scout-17B-16E-Instruct")
        form = work_form(served)
        inside = (SequenceStep(5_000, 1, 7), SequenceStep(0, 2_000))
        assert max(probe_errors(served, form.coefficients, form.windows, inside)) < 1e-9
        assert any("approximated" in note for note in form.notes)

    def test_windows_are_those_of_the_layers(self) -> None:
        assert [window.max_positions for window in work_form(served_model("gemma-3-27b-it")).windows] == [1024]
        assert work_form(served_model("Meta-Llama-3.1-8B")).windows == ()

    def test_correlated_experts_are_counted_as_they_are(self) -> None:
        served = replace(served_model("Mixtral-8x7B-v0.1"), expert_correlation=0.3)
        form, draws = work_form(served), random.Random(3)
        for _ in range(20):
            assert max(probe_errors(served, form.coefficients, form.windows, random_steps(draws))) < 1e-9


class TestSharesOfPeaks:
    @pytest.mark.parametrize("name", ["Meta-Llama-3.1-8B", "gpt-oss-20b", "Qwen3-30B-A3B"])
    @pytest.mark.parametrize("shares", [BOUND_SHARES, Shares(bandwidth=0.8, compute=0.5)])
    def test_a_step_is_that_of_the_planner(self, name: str, shares: Shares) -> None:
        served, machine, draws = served_model(name), hardware("H100"), random.Random(4)
        ceiling = roof(machine, served.weights.linear_format)
        other = PeakShares(served, ceiling, shares.bandwidth, shares.compute)
        mine = step_time_of(served, machine, shares)
        for _ in range(20):
            steps = random_steps(draws)
            assert mine.step_s(parts_of(steps)) == pytest.approx(other.step_s(steps), rel=1e-9)

    def test_only_a_lone_device_at_its_peaks_is_a_bound(self) -> None:
        served, machine = served_model("Meta-Llama-3.1-8B"), hardware("H100")
        assert step_time_of(served, machine).origin is Origin.BOUND
        assert step_time_of(served, machine, Shares(0.8, 0.5)).origin is Origin.PREDICTED
        assert step_time_of(served, machine, devices=2).origin is Origin.PREDICTED

    def test_fixed_time_comes_on_top(self) -> None:
        served, machine, step = served_model("SmolLM2-135M"), hardware("H100"), [StepPart(100, 1, True)]
        bound, more = (
            step_time_of(served, machine),
            step_time_of(served, machine, Shares(fixed_s=0.003, sequence_s=0.001)),
        )
        assert more.step_s(step) - bound.step_s(step) == pytest.approx(0.004)

    def test_ranks_share_the_work_and_send_their_sums(self) -> None:
        served, machine = served_model("Qwen3-32B"), hardware("RTX PRO 6000")
        pair = step_time_of(served, machine, devices=2).coefficients
        alone = step_time_of(served, machine).coefficients
        assert pair.read_bytes == alone.read_bytes / 2
        assert pair.flops_per_pair == alone.flops_per_pair / 2
        assert pair.weight_bytes == pytest.approx(alone.weight_bytes / 2, rel=1e-3)  # norms are on both
        assert pair.fixed_s == pytest.approx(2 * 64 * 20e-6)
        assert pair.position_s == pytest.approx(2 * 64 * 5_120 * 2 / 16e9)

    def test_four_ranks_send_three_halves_of_what_two_do(self) -> None:
        served, machine, link = served_model("Qwen3-32B"), hardware("H100"), Link(1e11, 0.0, "as told")
        two, four = (step_time_of(served, machine, devices=n, link=link).coefficients.position_s for n in (2, 4))
        assert four == pytest.approx(1.5 * two)

    def test_links_are_assumed_from_the_figure_and_said(self) -> None:
        assert link_of(hardware("RTX PRO 6000")).bytes_per_s == 16e9
        assert link_of(hardware("H100")).bytes_per_s == 225e9
        unknown = link_of(replace(hardware("H100"), interconnect_bytes_per_s=None))
        assert (unknown.bytes_per_s, unknown.latency_s) == (16e9, 20e-6)
        notes = step_time_of(served_model("Qwen3-32B"), hardware("RTX PRO 6000"), devices=2).notes
        assert any("16.0 GB/s" in note and "assumed" in note for note in notes)

    def test_unknown_rates_and_impossible_shares_are_refused(self) -> None:
        served, machine = served_model("SmolLM2-135M"), hardware("H100")
        with pytest.raises(RequestError, match="bandwidth of H100"):
            step_time_of(served, replace(machine, bandwidth_bytes_per_s=None))
        with pytest.raises(RequestError, match="compute rate of H100"):
            step_time_of(served, replace(machine, peak_flops_per_s={}))
        with pytest.raises(RequestError, match="at least 1"):
            step_time_of(served, machine, devices=0)
        for wrong in (
            {"bandwidth": 0.0},
            {"compute": -1.0},
            {"fixed_s": -1e-3},
            {"serial": float("nan")},
            {"bandwidth": 1e-320},
            {"compute": 4.1},
            {"fixed_s": 1e6},
            {"serial": 1.5},
        ):
            with pytest.raises(RequestError):
                Shares(**wrong)
        with pytest.raises(RequestError):
            Link(0.0, 1e-6, "broken")
        with pytest.raises(RequestError, match="seconds a message of a link"):
            Link(1e9, 1e9, "broken")


def engine_cost(name: str, machine: str) -> EngineCost:
    setting = engine_setting(served_model(name), hardware(machine), "vllm")
    parameters, in_service = step_parameters(setting, Phase.DECODE, fitted(), Pace.IN_SERVICE)
    return EngineCost(setting, parameters, {}, in_service)


class TestEngine:
    reach = StepRange(max_batch=128, max_context=16_384, max_chunk=4_096)

    def tabulated(self, name: str, machine: str = "H100") -> StepTime:
        return engine_step_time(served_model(name), hardware(machine), "vllm", self.reach)

    @pytest.mark.parametrize("name", ["Meta-Llama-3.1-8B", "Qwen3-30B-A3B", "gemma-3-27b-it", "DeepSeek-V2-Lite"])
    def test_the_table_follows_the_expectation(self, name: str) -> None:
        cost, table, draws = engine_cost(name, "H100"), self.tabulated(name), random.Random(5)
        for _ in range(60):
            batch, context = draws.randint(1, 128), draws.randint(1, 16_384)
            step = (SequenceStep(context - 1, 1, batch),)
            assert table.step_s(parts_of(step)) == pytest.approx(cost.step_s(step), rel=0.03)
            chunk, past = draws.randint(16, 4_096), draws.choice((0, draws.randrange(12_000)))
            step = (SequenceStep(past, chunk),)
            assert table.step_s(parts_of(step)) == pytest.approx(cost.step_s(step), rel=0.05)

    def test_a_mixed_step_shares_one_read_of_the_weights(self) -> None:
        cost, table = engine_cost("Meta-Llama-3.1-8B", "H100"), self.tabulated("Meta-Llama-3.1-8B")
        for batch in (8, 32, 128):
            for chunk in (128, 512, 2_048):
                mixed = (SequenceStep(499, 1, batch), SequenceStep(0, chunk))
                decode, prefill = (table.step_s(parts_of((step,))) for step in mixed)
                both = table.step_s(parts_of(mixed))
                assert max(decode, prefill) <= both < decode + prefill
                assert both == pytest.approx(cost.step_s(mixed), rel=0.12)

    def test_it_is_quick(self) -> None:
        began = time.perf_counter()
        engine_step_time(served_model("DeepSeek-V3"), hardware("H200"), "vllm", StepRange(1_024, 131_072, 16_384), 8)
        assert time.perf_counter() - began < 0.5

    def test_it_says_what_it_rests_on(self) -> None:
        found = self.tabulated("Meta-Llama-3.1-8B")
        assert found.origin is Origin.PREDICTED
        assert "vllm in service" in found.source
        assert any("published rows" in note for note in found.notes)

    def test_several_prompts_in_a_step_attend_less_than_one_as_long(self) -> None:
        many = engine_step_time(
            served_model("Meta-Llama-3.1-8B"),
            hardware("H100"),
            "vllm",
            StepRange(16, 16_384, 16_384, prompt_tokens=500),
        )
        one = engine_step_time(
            served_model("Meta-Llama-3.1-8B"), hardware("H100"), "vllm", StepRange(16, 16_384, 16_384)
        )
        step = [StepPart(0, 16_000, False)]
        assert many.step_s(step) < 0.9 * one.step_s(step)

    def test_a_machine_without_rates_is_refused(self) -> None:
        with pytest.raises(RequestError, match="not known"):
            engine_step_time(
                served_model("SmolLM2-135M"), replace(hardware("H100"), bandwidth_bytes_per_s=None), "vllm"
            )

    def test_an_empty_range_is_refused(self) -> None:
        with pytest.raises(RequestError, match="max_batch"):
            StepRange(max_batch=0)
