from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.engines.base import (
    Buffer,
    EngineFigures,
    EngineIdentity,
    KVBuffer,
    KVCacheKind,
    PrintedSize,
    RunningServer,
)

FULL = KVBuffer(KVCacheKind.FULL, 1024, 4, 2, 2, "q8_0", "f16", PrintedSize("2.00"))
SLIDING = KVBuffer(KVCacheKind.SLIDING, 512, 20, 2, 2, "q8_0", "f16", PrintedSize("5.50"))


def test_a_printed_size_knows_its_bytes_and_how_coarse_it_is() -> None:
    # 90 MiB = 94,371,840; one hundredth of a MiB is 10,485.76 bytes
    size = PrintedSize("90.00")
    assert (size.nearest_bytes, size.resolution_bytes, str(size)) == (94_371_840, 10_486, "90.00 MiB")
    assert PrintedSize("92").resolution_bytes == 1_048_576


@pytest.mark.parametrize(
    ("text", "num_bytes", "agrees"),
    [
        ("47.81", 50_135_040, True),  # 4096 tokens of 12,240 bytes: 47.8125 MiB
        ("47.82", 50_135_040, False),
        ("92.10", 96_576_768, True),  # 92.1028 MiB
        ("90.00", 94_371_840, True),
        ("90.00", 94_371_840 + 23_040, False),  # one token more
        ("0.00", 5_000, True),
        ("0.00", 6_000, False),
        ("15", 15 * 1_048_576 + 500_000, True),
    ],
)
def test_an_exact_count_agrees_only_with_the_text_it_would_be_printed_as(
    text: str, num_bytes: int, agrees: bool
) -> None:
    assert PrintedSize(text).agrees_with(num_bytes) is agrees


@given(st.integers(0, 10**13), st.integers(0, 3))
def test_every_count_agrees_with_its_own_print_and_with_no_other(num_bytes: int, decimals: int) -> None:
    printed = f"{num_bytes / 1_048_576:.{decimals}f}"
    assert PrintedSize(printed).agrees_with(num_bytes)
    assert not PrintedSize(printed).agrees_with(num_bytes + (num_bytes >> 20) + 2 * 1_048_576)


def test_full_and_sliding_caches_are_summed_in_bytes_and_kept_apart_in_cells() -> None:
    figures = EngineFigures(kv_buffers=(FULL, SLIDING))
    assert figures.kv_bytes == 7_864_320  # 7.5 MiB
    assert figures.kv_printed == "2.00 MiB + 5.50 MiB"
    assert (figures.kv_cells, figures.sliding_kv_cells, figures.kv_layers) == (2048, 1024, 24)
    assert (figures.cache_type_k, figures.cache_type_v) == ("q8_0", "f16")


def test_figures_that_were_not_read_are_none() -> None:
    figures = EngineFigures()
    derived = (figures.kv_bytes, figures.kv_printed, figures.kv_cells, figures.sliding_kv_cells, figures.kv_layers)
    assert derived == (None,) * 5
    assert (figures.cache_type_k, figures.cache_type_v, figures.compute_buffer_bytes) == (None,) * 3


def test_working_buffers_of_several_devices_are_summed() -> None:
    buffers = (Buffer("CPU", PrintedSize("1.00")), Buffer("GPU0", PrintedSize("2.00")))
    assert EngineFigures(compute_buffers=buffers).compute_buffer_bytes == 3 * 1_048_576


def test_one_reading_fills_only_the_gaps_of_another_and_every_figure_keeps_its_source() -> None:
    log = EngineFigures(num_slots=4, kv_unified=False, read_from={"num_slots": "log", "kv_unified": "log"})
    http = EngineFigures(
        num_slots=9, kv_unified=True, num_params=7, read_from={"num_slots": "/slots", "num_params": "/m"}
    )
    both = log.filled_from(http)
    assert (both.num_slots, both.kv_unified, both.num_params) == (4, False, 7)
    assert both.read_from == {"num_slots": "log", "kv_unified": "log", "num_params": "/m"}


@pytest.mark.parametrize(
    ("cache_dtype", "dtype", "stored"),
    [("auto", "float32", "float32"), ("fp8", "bfloat16", "fp8"), ("auto", None, None), (None, "float32", None)],
)
def test_a_cache_of_blocks_is_stored_in_its_own_format_or_in_the_models(
    cache_dtype: str | None, dtype: str | None, stored: str | None
) -> None:
    figures = EngineFigures(cache_dtype=cache_dtype, dtype=dtype)
    assert (figures.cache_type_k, figures.cache_type_v) == (stored, stored)
    printed = replace(figures, kv_buffers=(FULL,))
    assert (printed.cache_type_k, printed.cache_type_v) == ("q8_0", "f16"), "what was allocated counts more"


def test_limits_of_sequences_are_the_same_question_to_every_engine() -> None:
    assert EngineFigures(num_slots=4, context_tokens_per_slot=1024).max_sequences == 4
    assert EngineFigures(max_running=128).max_sequences == 128
    assert EngineFigures(context_tokens_per_slot=1024, max_model_len=2048).max_sequence_tokens == 1024
    assert EngineFigures(max_model_len=2048).max_sequence_tokens == 2048
    assert (EngineFigures().max_sequences, EngineFigures().max_sequence_tokens) == (None, None)


class FakeServer(RunningServer):
    def __init__(self) -> None:
        self.base_url, self.identity, self.figures = "http://x", EngineIdentity("x", "test"), EngineFigures()
        self.stops = 0

    def is_running(self) -> bool:
        return not self.stops

    def stop(self) -> None:
        self.stops += 1


def test_leaving_the_context_stops_the_server_after_success_and_after_an_error() -> None:
    with FakeServer() as first:
        assert first.is_running()
    with pytest.raises(ZeroDivisionError), FakeServer() as second:
        raise ZeroDivisionError
    assert (first.stops, second.stops) == (1, 1)


def test_values_are_plain_and_can_be_changed_only_by_making_new_ones() -> None:
    changed = replace(FULL, cells=1)
    assert (changed.total_cells, FULL.total_cells) == (2, 2048)
    with pytest.raises(AttributeError):
        FULL.cells = 3  # type: ignore[misc]
