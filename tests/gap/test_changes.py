"""What a change gains: by hand where the formula is simple, and in the right order always."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gap.sample import (
    BANDWIDTH,
    MAXIMUM_SHARES,
    PEAK,
    VECTOR_SHARES,
    decode_step,
    mixed_step,
    prompt_step,
    sample_calibration,
)
from inference_bench.calibrate.steps.observations import StepObservation
from inference_bench.errors import RequestError
from inference_bench.gap.changes import changes, signed
from inference_bench.gap.parts import Change
from inference_bench.gap.proposals import Choices, usual_choices
from inference_bench.simulate.step_sources import Shares

# bytes of tensor data of the model file, as written and loaded by llama.cpp, by format
BYTES = {"q4_1": 96_576_768, "q8_0": 143_025_408, "f16": 269_100_288}
READING = Shares(bandwidth=0.8, compute=1.0)  # a maximum: reading alone is seen, at 80 % of the bandwidth


def found_at(step: StepObservation, shares: Shares, choices: Choices | None = None) -> dict[str, Change]:
    calibration = sample_calibration(shares, steps=[step])
    return {each.name: each for each in changes(calibration, step, choices)}


# ── formats ────────────────────────────────────────────────────────────────────────────────────────


def test_where_reading_is_all_other_weights_gain_what_their_bytes_promise() -> None:
    found = found_at(decode_step(1, 1), READING)
    for name, title in (("q8_0", "weights in Q8_0"), ("f16", "weights in fp16")):
        expected = BYTES["q4_1"] / BYTES[name] - 1
        assert found[title].gain == pytest.approx(expected, rel=2e-3)
        assert found[title].ceiling_gain == pytest.approx(expected, rel=2e-3)
        assert found[title].is_assumed
    assert found["weights in Q8_0"].after_s == pytest.approx(BYTES["q8_0"] / BANDWIDTH / 0.8, rel=2e-3)


def test_where_computing_is_all_fewer_bytes_gain_nothing() -> None:
    found = found_at(decode_step(8, 42), MAXIMUM_SHARES)
    assert found["weights in Q4_0"].gain == pytest.approx(0, abs=1e-12)
    assert found["cache in q8_0"].gain == pytest.approx(0, abs=1e-12)
    assert "the fitted formula says 0 %" in found["weights in Q4_0"].words


def test_a_step_of_sums_keeps_less_of_what_the_bytes_promise() -> None:
    step = decode_step(1, 1)
    shares = Shares(bandwidth=0.5, compute=0.1, serial=1.0)
    found = found_at(step, shares)["weights in Q8_0"]
    # 9.4 ms of reading become 13.9 ms; about 15.4 ms of computing stay
    assert found.ceiling_gain < found.gain < 0
    assert found.gain == pytest.approx((9.377 + 15.46) / (13.886 + 15.46) - 1, abs=0.005)


def test_the_present_format_is_no_change_and_a_measured_one_is_no_assumption() -> None:
    choices = Choices(weight_formats=("q4_1", "q8_0"), measured={"q8_0": replace(READING, bandwidth=0.4)})
    found = found_at(decode_step(1, 1), READING, choices)
    assert "weights in Q4_1" not in found
    assert not found["weights in Q8_0"].is_assumed
    assert found["weights in Q8_0"].gain == pytest.approx(BYTES["q4_1"] / BYTES["q8_0"] / 2 - 1, rel=2e-3)


def test_a_quantised_cache_is_read_in_its_blocks_bytes() -> None:
    step = decode_step(4, 20_001)
    found = found_at(step, READING)["cache in q8_0"]
    weights, cache = BYTES["q4_1"], 4 * 20_002 * 23_040
    expected = (weights + cache) / (weights + cache * 34 / 64) - 1
    assert found.gain == pytest.approx(expected, rel=1e-3)


# ── load ───────────────────────────────────────────────────────────────────────────────────────────


def test_twice_the_batch_is_twice_the_tokens_where_the_weights_are_read_once() -> None:
    found = found_at(decode_step(1, 1), READING, Choices(max_batch=4))
    assert found["batch of 2"].gain == pytest.approx(1, rel=2e-3)
    assert found["batch of 2"].after_s == pytest.approx(found["batch of 2"].before_s, rel=2e-3)
    assert "batch of 4" in found


def test_by_the_vector_kernel_twice_the_batch_gains_next_to_nothing_though_the_bytes_promise_much() -> None:
    found = found_at(decode_step(1, 42), replace(VECTOR_SHARES, fixed_s=0.0, sequence_s=0.0))["batch of 2"]
    assert found.gain == pytest.approx(0, abs=1e-3)
    assert found.ceiling_gain > 0.9


@pytest.mark.parametrize(
    ("most", "names"), [(None, {"batch of 8"}), (4, set()), (6, {"batch of 6"}), (16, {"batch of 8", "batch of 16"})]
)
def test_a_batch_grows_to_the_slots_there_are(most: int | None, names: set[str]) -> None:
    found = found_at(decode_step(4, 42), READING, Choices(max_batch=most))
    assert {name for name in found if name.startswith("batch of")} == names


def test_neighbouring_slots_save_the_second_read() -> None:
    found = found_at(decode_step(2, 1, cuts=(1, 1)), READING)["neighbouring slots"]
    assert found.gain == pytest.approx(1, rel=2e-3)
    assert found.ceiling_gain == 0


def test_a_prompt_in_one_micro_batch_keeps_its_tokens() -> None:
    shares = Shares(bandwidth=0.5, compute=0.5, serial=1.0)
    found = found_at(prompt_step(768), shares)["a larger micro-batch"]
    read_s = BYTES["q4_1"] / BANDWIDTH / 0.5
    cache_s, head_s = 512 * 23_040 / BANDWIDTH / 0.5, 2 * 49_152 * 576 / PEAK / 0.5  # the head once a batch
    assert found.before_s - found.after_s == pytest.approx(read_s + cache_s + head_s, rel=2e-3)


# ── drafts ─────────────────────────────────────────────────────────────────────────────────────────


def test_drafts_verified_for_nothing_gain_the_expected_tokens() -> None:
    choices = Choices(acceptance=0.7, draft_tokens=(1,))
    found = found_at(decode_step(1, 1), READING, choices)["speculation, 1 drafted"]
    assert found.gain == pytest.approx(0.7, rel=2e-3)  # (1 - 0.7²) / (1 - 0.7) = 1.7 tokens from one read
    assert found.is_assumed


def test_the_best_draft_length_is_told_and_a_draft_that_costs_gains_less() -> None:
    free = [name for name in found_at(decode_step(1, 1), READING) if name.startswith("speculation")]
    costly = found_at(decode_step(1, 1), READING, Choices(draft_s=0.01))
    (name,) = [name for name in costly if name.startswith("speculation")]
    assert free == ["speculation, 4 drafted"] or free == ["speculation, 3 drafted"]
    assert name == "speculation, 1 drafted"
    assert costly[name].gain < 0
    assert "10.0 ms each" in costly[name].words


def test_by_the_vector_kernel_drafts_gain_nothing() -> None:
    found = found_at(decode_step(1, 42), VECTOR_SHARES, Choices(draft_tokens=(1,)))["speculation, 1 drafted"]
    assert found.gain < 0 < found.ceiling_gain


# ── what the engine reaches ────────────────────────────────────────────────────────────────────────


def test_all_of_the_bandwidth_gains_what_is_lacking_and_moves_no_bound() -> None:
    found = found_at(decode_step(1, 1), READING)["all of the bandwidth"]
    assert found.gain == pytest.approx(1 / 0.8 - 1)
    assert found.ceiling_gain == 0
    assert not found.is_choice
    assert "the bound does not move" in found.words


def test_without_overhead_a_step_is_so_much_shorter() -> None:
    found = found_at(decode_step(4, 42), replace(READING, fixed_s=0.002, sequence_s=0.001))["no overhead"]
    assert found.before_s - found.after_s == pytest.approx(0.006)


def test_weights_read_once_by_the_vector_kernel_save_all_reads_but_one() -> None:
    found = found_at(decode_step(2, 266), VECTOR_SHARES)["weights read once a step"]
    assert found.before_s - found.after_s == pytest.approx(BYTES["q4_1"] / BANDWIDTH / 0.785, rel=1e-3)
    assert "weights read once a step" not in found_at(decode_step(1, 266), VECTOR_SHARES)
    assert "weights read once a step" not in found_at(decode_step(8, 266), VECTOR_SHARES)


# ── all ────────────────────────────────────────────────────────────────────────────────────────────

share = st.floats(0.05, 1.0)
formulas = st.builds(
    Shares, bandwidth=share, compute=share, fixed_s=st.floats(0, 1e-3), serial=st.sampled_from((0.0, 1.0)),
    cache=st.none() | share, vector=st.none() | share,
)  # fmt: skip
steps = st.builds(decode_step, st.integers(1, 16), st.integers(1, 4000)) | st.builds(prompt_step, st.integers(2, 1500))


@given(shares=formulas, step=steps)
@settings(max_examples=30, deadline=None)
def test_changes_come_best_first_and_begin_with_the_formulas_own_time(shares: Shares, step: StepObservation) -> None:
    calibration = sample_calibration(shares, steps=[step])
    found = changes(calibration, step)
    assert len(found) > 3
    assert [each.gain for each in found] == sorted((each.gain for each in found), reverse=True)
    assert len({each.name for each in found}) == len(found)
    assert all(each.before_s == pytest.approx(calibration.observations[0].predicted_s) for each in found)
    assert all(each.after_s > 0 and each.words for each in found)
    assert all(each.gain > -1e-9 for each in found if not each.is_choice)  # what a better engine reaches is no loss


def test_a_mixed_step_is_refused_in_one_line() -> None:
    with pytest.raises(
        RequestError, match=r"mixed, 103 positions, 3 of them decoding: .* ask for decoding or for a prompt"
    ):
        changes(sample_calibration(), mixed_step(100, 3, 266))


def test_engines_have_their_own_formats() -> None:
    assert usual_choices("llama.cpp (embedded)").weight_formats == ("f16", "q8_0", "q4_0")
    assert "fp8" in usual_choices("vllm").weight_formats


@pytest.mark.parametrize(("gain", "said"), [(0.5, "+50.0 %"), (-0.0312, "−3.1 %"), (1e-4, "0 %"), (2.02, "+202 %")])
def test_a_gain_is_said_with_its_sign(gain: float, said: str) -> None:
    assert signed(gain) == said
