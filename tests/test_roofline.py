from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.accounting.work import count_step_work, decode_batch
from inference_bench.errors import RequestError
from inference_bench.facts.formats import number_format
from inference_bench.facts.hardware import hardware
from inference_bench.predict.phases import roofline_table
from inference_bench.roofline import LimitedBy, Roof, bound, bound_sending, bound_step, roof
from shapes import cache_in, reference_model

amounts = st.integers(1, 10**15)
rates = st.floats(1e6, 1e16)


@given(amounts, amounts, rates, rates)
def test_a_bound_is_no_shorter_than_either_arm_and_equal_to_one(
    flops: int, num_bytes: int, bw: float, peak: float
) -> None:
    seconds = bound("work", flops, num_bytes, Roof(bw, peak, "bf16")).seconds
    assert seconds is not None
    assert seconds >= flops / peak
    assert seconds >= num_bytes / bw
    assert seconds in (flops / peak, num_bytes / bw)


@given(amounts, amounts, rates, rates)
def test_doubling_the_work_doubles_the_time_and_doubling_the_machine_halves_it(
    flops: int, num_bytes: int, bw: float, peak: float
) -> None:
    once = bound("work", flops, num_bytes, Roof(bw, peak, None)).seconds
    assert once is not None
    assert bound("work", 2 * flops, 2 * num_bytes, Roof(bw, peak, None)).seconds == pytest.approx(2 * once)
    assert bound("work", flops, num_bytes, Roof(2 * bw, 2 * peak, None)).seconds == pytest.approx(once / 2)


@given(amounts, amounts, amounts, rates, rates, rates)
def test_sending_is_one_more_arm_and_never_a_summand(
    flops: int, num_bytes: int, sent: int, bw: float, peak: float, link: float
) -> None:
    found = bound("work", flops, num_bytes, Roof(bw, peak, "bf16", link), sent)
    assert found.seconds == max(flops / peak, num_bytes / bw, sent / link)
    assert (found.limited_by is LimitedBy.INTERCONNECT) == (sent / link > max(flops / peak, num_bytes / bw))
    assert bound("work", flops, num_bytes, Roof(bw, peak, "bf16", link)).seconds == max(flops / peak, num_bytes / bw)
    assert bound("work", flops, num_bytes, Roof(bw, peak, "bf16"), sent).seconds == max(flops / peak, num_bytes / bw)


def test_a_device_sends_at_half_of_what_the_data_sheet_sums() -> None:
    assert roof(hardware("h100"), number_format("bf16")).link_bytes_per_s == 450e9
    assert roof(hardware("apple m1"), number_format("bf16")).link_bytes_per_s is None
    found = bound_sending("all-reduce", 900, Roof(1.0, 1.0, None, 450.0))
    assert (found.seconds, found.limited_by, found.intensity) == (2.0, LimitedBy.INTERCONNECT, None)


def test_both_arms_are_equal_at_the_ridge() -> None:
    ceiling = Roof(1e12, 165e12, "bf16")
    assert ceiling.ridge_flops_per_byte == 165.0
    assert ceiling.attainable_flops_per_s(165.0) == 165e12
    assert ceiling.attainable_flops_per_s(1.0) == 1e12


def test_the_larger_batch_never_has_the_shorter_step() -> None:
    model = reference_model()
    weights = count_weights(model, weight_plan("int4-g128"))
    ceiling = Roof(1e12, 165e12, "bf16")
    times = [
        bound_step("d", count_step_work(model, weights, cache_in("bf16"), decode_batch(5000, size)), ceiling).seconds
        for size in range(1, 400)
    ]
    assert None not in times
    assert times == sorted(times, key=lambda seconds: seconds or 0)


def test_an_unknown_rate_leaves_the_other_arm_and_no_fraction_of_peak() -> None:
    only_memory = bound("work", 10, 100, Roof(10.0, None, None))
    assert (only_memory.seconds, only_memory.limited_by, only_memory.fraction_of_peak) == (10.0, LimitedBy.MEMORY, None)
    neither = bound("work", 10, 100, Roof(None, None, None))
    assert (neither.seconds, neither.limited_by) == (None, LimitedBy.UNKNOWN)
    assert Roof(None, 1.0, None).ridge_flops_per_byte is None


def test_weight_only_formats_compute_in_16_bits_and_fp8_in_fp8_where_there_is_one() -> None:
    h100, a100 = hardware("h100"), hardware("a100")
    assert roof(h100, number_format("int4-g128")).compute_format == "bf16"
    assert roof(h100, number_format("q4_1")).peak_flops_per_s == 989.4e12
    assert roof(h100, number_format("fp8")).compute_format == "fp8"
    assert roof(a100, number_format("fp8")).compute_format == "bf16"


def test_a_compute_format_the_machine_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(RequestError, match=r"A100.*no dense fp8.*bf16"):
        roof(hardware("a100"), number_format("bf16"), "fp8")


def test_b200_has_its_fp8_ridge_at_562_5_flops_a_byte() -> None:
    assert roof(hardware("b200"), number_format("fp8")).ridge_flops_per_byte == pytest.approx(562.5, rel=0.001)


def test_the_phases_of_the_table_are_the_sums_of_their_operations() -> None:
    model = reference_model()
    weights = count_weights(model, weight_plan("bf16"))
    table = roofline_table(
        model, weights, cache_in("bf16"), hardware("h100"), context_tokens=4096, batch=8, prompt_tokens=1000
    )
    assert [phase.name for phase in table.phases] == ["prefill", "decode"]
    for phase in table.phases:
        parts = [item for name, item in table.operations if name == phase.name]
        assert phase.flops == sum(part.flops for part in parts)
        assert phase.num_bytes == sum(part.num_bytes for part in parts)
        assert phase.seconds is not None
        assert phase.seconds <= sum(part.seconds or 0 for part in parts)
    assert table.phases[0].limited_by is LimitedBy.COMPUTE
    assert table.phases[1].limited_by is LimitedBy.MEMORY
