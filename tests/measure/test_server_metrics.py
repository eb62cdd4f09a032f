"""Three servers' names come to the same figures, and what a run folder holds is read back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.errors import RunFolderError, ServerError
from inference_bench.measure.server_metrics import (
    SERVER_METRICS_FILE,
    ServerMetrics,
    ServerSample,
    read_page,
    read_server_metrics,
    sample_from_json,
    sample_to_json,
    summarise_server,
)
from measure.metrics_pages import LLAMA_CPP, SGLANG, VLLM


def test_vllm_s_engines_are_added_up_and_the_fullest_cache_counts() -> None:
    assert read_page(VLLM, 1.5, 0.25) == (
        "vLLM",
        ServerSample(
            1.5, 0.25, running=21, waiting=3, cache_used_fraction=0.75, prompt_tokens_total=4100, output_tokens_total=900,
            prefix_hit_tokens=1000, prefix_asked_tokens=4000, preemptions=2, ttft_sum_s=2.0, ttft_count=8,
        ),
    )  # fmt: skip


def test_sglang_s_ranks_that_say_the_same_count_once() -> None:
    assert read_page(SGLANG, 0.0, 0.0) == (
        "SGLang",
        ServerSample(
            0.0, 0.0, running=5, waiting=7, cache_used_fraction=0.28, prompt_tokens_total=8128902,
            output_tokens_total=7557572, prefix_hit_tokens=120, preemptions=1, output_tokens_per_s=86.5,
            cache_hit_fraction=0.0075, ttft_sum_s=3.5, ttft_count=7,
        ),
    )  # fmt: skip


def test_llama_cpp_s_prompt_tokens_are_those_it_computed_and_those_it_found() -> None:
    assert read_page(LLAMA_CPP, 0.0, 0.0) == (
        "llama.cpp",
        ServerSample(
            0.0, 0.0, running=4, waiting=3, prompt_tokens_total=1600, output_tokens_total=769, prefix_hit_tokens=63
        ),
    )


def test_the_newest_of_two_names_is_read_and_never_both() -> None:
    both = "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.9\nvllm:num_requests_running 1\n"
    read = read_page(both, 0.0, 0.0)
    assert read is not None
    assert read[1].cache_used_fraction == 0.5
    old = read_page("vllm:gpu_cache_usage_perc 0.9\n", 0.0, 0.0)
    assert old is not None
    assert old[1].cache_used_fraction == 0.9


def test_names_without_a_colon_are_the_same_names() -> None:
    assert read_page(SGLANG.replace("sglang:", "sglang_"), 0.0, 0.0) == read_page(SGLANG, 0.0, 0.0)


def test_what_is_not_a_number_is_not_a_figure() -> None:
    read = read_page("llamacpp:requests_processing NaN\nllamacpp:tokens_predicted_total 5\n", 0.0, 0.0)
    assert read is not None
    assert (read[1].running, read[1].output_tokens_total) == (None, 5)


def test_a_page_of_another_server_is_none_and_a_broken_one_an_error() -> None:
    assert read_page("tgi_queue_size 3\n", 0.0, 0.0) is None
    assert read_page("", 0.0, 0.0) is None
    with pytest.raises(ServerError):
        read_page("vllm:num_requests_running{ 3\n", 0.0, 0.0)


# ── of a run ───────────────────────────────────────────────────────────────────────────────────────

RUN = (
    ServerSample(
        0.0, 0.1, running=0, waiting=0, output_tokens_total=100, prefix_hit_tokens=50, prefix_asked_tokens=100
    ),
    ServerSample(
        1.0, 0.1, running=4, waiting=6, output_tokens_total=110, prefix_hit_tokens=60, prefix_asked_tokens=180
    ),
    ServerSample(
        3.0, 0.1, running=2, waiting=0, output_tokens_total=150, prefix_hit_tokens=70, prefix_asked_tokens=180
    ),
)


def test_means_are_over_time_and_counters_are_differences() -> None:
    found = summarise_server(RUN)
    assert found is not None
    # 0 for a second and 4 for two; the last sample ends the time
    assert (found.mean_running, found.peak_running) == (pytest.approx(8 / 3), 4)
    assert (found.mean_waiting, found.peak_waiting) == (pytest.approx(4.0), 6)
    assert found.output_tokens == 50
    assert found.prefix_hit_fraction == pytest.approx(20 / 80)
    assert (found.prompt_tokens, found.preemptions, found.mean_ttft_s, found.peak_cache_fraction) == (None,) * 4
    assert summarise_server(()) is None


def test_hits_are_a_share_of_all_prompt_tokens_where_lookups_are_not_counted() -> None:
    samples = [
        ServerSample(float(i), 0.0, prompt_tokens_total=1000 + 200 * i, prefix_hit_tokens=50.0 * i) for i in (0, 1)
    ]
    found = summarise_server(samples)
    assert found is not None
    assert found.prefix_hit_fraction == 0.25


def test_a_counter_that_fell_says_nothing_as_the_server_began_anew() -> None:
    restarted = [*RUN, ServerSample(4.0, 0.1, output_tokens_total=3)]
    found = summarise_server(restarted)
    assert found is not None
    assert found.output_tokens is None


# ── as lines of a file ─────────────────────────────────────────────────────────────────────────────


def write(folder: Path, text: str) -> Path:
    (folder / SERVER_METRICS_FILE).write_text(text, encoding="ascii")
    return folder


def test_a_run_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    lines = "".join(f"{sample_to_json('vLLM', sample)}\n" for sample in RUN)
    assert read_server_metrics(write(tmp_path, lines)) == ServerMetrics("vLLM", RUN)
    assert read_server_metrics(tmp_path / "nothing") is None


def test_a_last_line_cut_short_is_left_out_and_another_is_an_error(tmp_path: Path) -> None:
    whole = f"{sample_to_json('vLLM', RUN[0])}\n"
    found = read_server_metrics(write(tmp_path, whole + whole[:-9]))
    assert found is not None
    assert found.samples == RUN[:1]
    with pytest.raises(RunFolderError, match="line 1"):
        read_server_metrics(write(tmp_path, f"{whole[:-9]}\n{whole}"))
    (tmp_path / SERVER_METRICS_FILE).unlink()
    (tmp_path / SERVER_METRICS_FILE).mkdir()
    with pytest.raises(RunFolderError, match="regular file"):
        read_server_metrics(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        *("", "[]", "3", "{}", '{"server":"vLLM"}', '{"server":"vLLM","at_s":1}'),
        '{"server":"vLLM","at_s":1,"took_s":NaN}',
        '{"server":"vLLM","at_s":1,"took_s":1e999}',
        '{"server":"vLLM","at_s":true,"took_s":1}',
        '{"server":"vLLM","at_s":1,"took_s":"1"}',
        '{"server":"other","at_s":1,"took_s":1}',
        '{"server":["vLLM"],"at_s":1,"took_s":1}',
        '{"server":"vLLM","at_s":1,"took_s":1,"else":1}',
    ],
)
def test_a_line_that_this_version_does_not_write_is_refused(line: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        sample_from_json(line)


def test_what_a_server_does_not_say_takes_no_room() -> None:
    assert sample_to_json("llama.cpp", replace(RUN[0], prefix_asked_tokens=None)) == (
        '{"server":"llama.cpp","at_s":0.0,"took_s":0.1,"running":0,"waiting":0,"output_tokens_total":100,"prefix_hit_tokens":50}'
    )


def test_two_engines_that_say_what_no_server_can_mean_say_nothing() -> None:
    lines = "".join(f'vllm:num_requests_waiting{{engine="{engine}"}} 1e308\n' for engine in (0, 1))
    read = read_page(f"{lines}vllm:num_requests_running 1\n", 0.0, 0.0)
    assert read == ("vLLM", ServerSample(0.0, 0.0, running=1))


@pytest.mark.parametrize("value", ["1e308", "1" + "0" * 400, "-1e19"])
def test_a_kept_value_that_no_server_can_mean_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="waiting"):
        sample_from_json(f'{{"server":"vLLM","at_s":1,"took_s":1,"waiting":{value}}}')
