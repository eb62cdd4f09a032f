"""A sweep against a server of known law, and against servers that go wrong: what is measured, kept and said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.errors import MeasurementError
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, RequestStatus, Stage
from inference_bench.verify.calibration_limits import EngineLimits, Mixing
from inference_bench.verify.calibration_sweep import Sweep, SweepOptions, run_sweep
from inference_bench.verify.plan import Mixture, Plan
from verify import fake_server
from verify.fake_server import STEP_S, Fake, running

PLAN = Plan(
    batches=(1, 2, 3),
    contexts=(16, 48),
    prompts=(24, 64, 100),
    mixtures=(Mixture(1, 48, 60),),
    held_batches=(2,),
    held_contexts=(),
    held_prompts=(24, 64),
    held_mixtures=(),
    output_tokens=6,
    max_rounds=2,
    budget_s=20.0,
)
PINNED = EngineLimits("llama.cpp", True, 4, 512, None, 512, Mixing.EQUAL)
EXTRA = {"cache_prompt": False, "ignore_eos": True}


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(Fake()) as server:
        yield server


def sweep_of(fake: Fake, plan: Plan = PLAN, limits: EngineLimits = PINNED) -> tuple[Sweep, list[RequestRecord]]:
    kept: list[RequestRecord] = []
    options = SweepOptions(kept.append, lambda _: None, Timeouts(total_s=10.0))
    return run_sweep(Target(fake.url, "m", extra_body=EXTRA), plan, limits, options), kept


def test_every_step_of_the_plan_is_measured_and_every_request_is_kept(fake: Fake) -> None:
    sweep, kept = sweep_of(fake)
    observed = {each.setting: each for each in sweep.observations()}
    assert set(observed) == {point.name for point in sweep.plan.points}
    assert len(kept) == len(fake.asked) >= 40
    assert {record.status for record in kept} == {RequestStatus.COMPLETED}
    assert len({record.request_id for record in kept}) == len(kept)
    for batch in (1, 2, 3):
        step = observed[f"decode-b{batch}-c48"]
        assert STEP_S <= step.seconds < 5 * STEP_S
        assert len(step.batches[0]) == batch
        assert step.is_held_out == (batch == 2)
    assert observed["cached-c16-p32"].batches[0][0][:2] == (16, 32)
    assert [part.new for batch in observed["mixed-b1-c48-p60"].batches for part in batch] == [1, 1, 59]
    assert observed["prefill-p100"].num_positions == 100


def test_requests_name_their_slots_and_continue_only_their_own_text(fake: Fake) -> None:
    sweep, _ = sweep_of(fake)
    measured = [body for body in fake.asked if "id_slot" in body]
    assert {body["id_slot"] for body in measured} == {0, 1, 2}
    decoding = [body for body in measured if body["max_tokens"] == PLAN.output_tokens]
    assert all(body["cache_prompt"] for body in decoding)
    records = [
        record for point in sweep.plan.of_kind(StepKind.DECODE) for wave in sweep.records_of(point) for record in wave
    ]
    assert all(record.cached_prompt_tokens == (record.prompt_tokens or 0) - 1 for record in records)


def test_elsewhere_no_prompt_is_in_any_cache(fake: Fake) -> None:
    fake.owner = "vllm"
    sweep, _ = sweep_of(fake, limits=EngineLimits("vllm", mixing=Mixing.TOGETHER))
    assert not any("id_slot" in body for body in fake.asked)
    for point in sweep.plan.of_kind(StepKind.DECODE):
        assert all((record.cached_prompt_tokens or 0) == 0 for wave in sweep.records_of(point) for record in wave)
    mixed = next(each for each in sweep.observations() if each.kind is StepKind.MIXED)
    assert [part.new for part in mixed.batches[0]] == [1, 60]


def test_a_server_at_rest_has_its_slots_left_from_the_highest_down(fake: Fake) -> None:
    sweep, kept = sweep_of(fake)
    num_before = len(fake.asked)
    sweep.rest()
    assert [body["id_slot"] for body in fake.asked[num_before:]] == [3, 2, 1, 0]
    assert {record.stage for record in kept[num_before:]} == {Stage.WARMUP}


def test_a_sweep_ends_when_its_time_is_over_and_says_what_is_loose(fake: Fake) -> None:
    sweep, _ = sweep_of(fake, replace(PLAN, budget_s=0.5, max_rounds=100))
    assert sweep.num_rounds >= 1
    assert any("are not known to" in note for note in sweep.notes()) or not sweep.plan.points


@pytest.mark.parametrize("budget_s", [0.5, 0.65, 0.8, 0.95, 1.1])
def test_a_text_is_continued_only_where_there_was_time_to_read_it(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, budget_s: float
) -> None:
    monkeypatch.setattr(
        fake_server, "TOKEN_S", 0.005
    )  # reading takes longer than decoding, so that it has no time first
    sweep, _ = sweep_of(fake, replace(PLAN, budget_s=budget_s, max_rounds=100))
    decoded = sweep.plan.of_kind(StepKind.DECODE)
    for point in (*decoded, *sweep.plan.of_kind(StepKind.CACHED_PREFILL)):
        new = {
            (each.prompt_tokens or 0) - (each.cached_prompt_tokens or 0) for each in sum(sweep.records_of(point), ())
        }
        assert new <= {1 if point in decoded else point.prompt_tokens}
    assert sum(len(sweep.records_of(point)) for point in decoded) > len(decoded)


def test_a_first_round_that_does_not_end_in_twice_the_time_says_which_steps_are_missing(fake: Fake) -> None:
    sweep, _ = sweep_of(fake, replace(PLAN, budget_s=0.02))
    note = next(note for note in sweep.notes() if "steps were measured; not:" in note)
    assert "mixed" in note


def test_a_field_that_the_server_refuses_is_left_out_and_said(fake: Fake) -> None:
    fake.refuses = "ignore_eos"
    sweep, _ = sweep_of(fake)
    assert sweep.dropped_fields == ("ignore_eos",)
    assert "ignore_eos" in sweep.notes()[0]
    assert not any("ignore_eos" in body for body in fake.asked if "id_slot" in body)


def test_a_server_that_dies_after_its_warm_up_ends_the_sweep_with_what_was_measured(fake: Fake) -> None:
    fake.dead_after = 20
    kept: list[RequestRecord] = []
    options = SweepOptions(kept.append, lambda _: None, Timeouts(total_s=10.0))
    with pytest.raises(MeasurementError) as error:
        run_sweep(Target(fake.url, "m", extra_body=EXTRA), PLAN, PINNED, options)
    assert "stopped answering" in str(error.value)
    assert "\n" not in str(error.value)
    assert sum(record.status is RequestStatus.COMPLETED for record in kept) == 20


def test_a_server_without_token_counts_is_refused_in_one_line(fake: Fake) -> None:
    fake.says_usage = False
    with pytest.raises(MeasurementError, match="reports no token counts"):
        sweep_of(fake)


def test_a_cache_too_small_for_any_step_is_said_before_anything_is_sent(fake: Fake) -> None:
    with pytest.raises(MeasurementError, match="holds 16 positions"):
        sweep_of(fake, limits=replace(PINNED, context_tokens=16))
    assert fake.asked == []


def test_no_prompt_is_in_what_is_kept(fake: Fake, tmp_path: Path) -> None:
    from inference_bench.measure.store import RunFolder

    folder = RunFolder.create(tmp_path, "verify")
    with folder.open_writer() as writer:
        options = SweepOptions(writer.append, lambda _: None, Timeouts(total_s=10.0))
        run_sweep(Target(fake.url, "m", extra_body=EXTRA), PLAN, PINNED, options)
    stored = (folder.path / "requests.journal").read_bytes()
    assert len(stored) > 1000
    said = [str(body["prompt"]).split() for body in fake.asked if len(str(body["prompt"]).split()) > 5]
    assert said
    assert not any(" ".join(words[:3]).encode() in stored for words in said)
