"""What stands on a page, and that nothing unknown becomes a zero. Pages: those of three servers in tests/measure/metrics_pages.py."""

from __future__ import annotations

import pytest

from inference_bench.operate.watch.page import read_metrics
from measure.metrics_pages import LLAMA_CPP, SGLANG, VLLM
from operate.watch.fake_servers import vllm_page


@pytest.mark.parametrize(
    ("text", "engine", "waiting", "used"),
    [(VLLM, "vLLM", 3.0, 0.75), (SGLANG, "SGLang", 7.0, 0.28), (LLAMA_CPP, "llama.cpp", 3.0, None)],
)
def test_the_same_figures_come_from_the_names_of_each_engine(
    text: str, engine: str, waiting: float, used: float | None
) -> None:
    page = read_metrics(text, 1.0, 0.01)
    assert (page.engine, page.trouble) == (engine, None)
    assert page.sample is not None
    assert (page.sample.waiting, page.sample.cache_used_fraction) == (waiting, used)


def test_names_of_another_version_are_named_as_unknown_and_give_no_figure() -> None:
    page = read_metrics('vllm:requests_in_line{engine="0"} 3\n', 0.0, 0.0)
    assert (page.engine, page.sample) == (None, None)
    assert page.trouble is not None
    assert "names of vLLM, none of which is known here" in page.trouble


def test_a_page_of_another_program_and_one_of_nothing_are_told_apart_and_give_no_figure() -> None:
    other, nothing = read_metrics("go_goroutines 7\n", 0.0, 0.0), read_metrics("<html>hello</html>", 0.0, 0.0)
    assert (other.sample, nothing.sample) == (None, None)
    assert other.trouble is not None
    assert "of no server that is known here" in other.trouble
    assert nothing.trouble is not None
    assert "holds no series" in nothing.trouble


def test_nan_is_no_value() -> None:
    page = read_metrics(vllm_page(waiting=float("nan"), running=2), 0.0, 0.0)
    assert page.sample is not None
    assert (page.sample.waiting, page.sample.running) == (None, 2.0)


def test_a_page_with_a_broken_line_or_too_large_is_trouble_and_no_error() -> None:
    broken = read_metrics("vllm:num_requests_running{engine=0} 1\n", 0.0, 0.0)
    huge = read_metrics("a 1\n" * 3_000_000, 0.0, 0.0)
    assert broken.trouble == "line 1 of the page of metrics has labels that cannot be read"
    assert huge.trouble == "the page of metrics is longer than 8 MiB"


def test_the_cache_of_vllm_is_its_blocks_and_that_of_sglang_its_tokens() -> None:
    assert read_metrics(vllm_page(), 0.0, 0.0).cache_tokens == 16_000  # 1,000 blocks of 16
    two = SGLANG + "".join(f'sglang:max_total_num_tokens{{tp_rank="{rank}"}} 5000\n' for rank in (0, 1))
    assert read_metrics(two, 0.0, 0.0).cache_tokens == 5_000  # devices of one scheduler say the same
    stated = 'vllm:cache_config_info{kv_cache_size_tokens="777",num_gpu_blocks="None",block_size="16"} 1\n'
    assert read_metrics(vllm_page().replace("cache_config_info", "other") + stated, 0.0, 0.0).cache_tokens == 777


def test_requests_that_were_turned_away_are_added_up() -> None:
    turned = "".join(
        f'vllm:admission_rejections_total{{reason="{reason}"}} {count}\n' for reason, count in (("x", 3), ("y", 2))
    )
    assert read_metrics(vllm_page() + turned, 0.0, 0.0).rejected == 5.0


def test_prompts_that_are_computed_are_no_tokens_that_came_out() -> None:
    lines = "".join(
        f'sglang:realtime_tokens_total{{mode="{mode}"}} {count}\n'
        for mode, count in (("decode", 5), ("prefill_compute", 900))
    )
    without = read_metrics(SGLANG, 0.0, 0.0).progress
    assert without is not None
    assert read_metrics(SGLANG + lines, 0.0, 0.0).progress == without + 5


def test_the_models_are_those_of_the_labels_each_once() -> None:
    assert read_metrics(vllm_page(model="a"), 0.0, 0.0).models == ("a",)
    assert read_metrics(LLAMA_CPP, 0.0, 0.0).models == ()


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1.1e18", "+Inf", "NaN"])
def test_a_value_that_no_server_can_mean_is_not_known(value: str) -> None:
    for name in ("vllm:num_requests_waiting", "vllm:generation_tokens_total", "vllm:admission_rejections_total"):
        lines = "".join(f'{name}{{engine="{engine}"}} {value}\n' for engine in (0, 1))
        found = read_metrics(f"vllm:num_requests_running 3\n{lines}", 0.0, 0.0)
        assert found.sample is not None
        assert (found.sample.running, found.sample.waiting, found.sample.output_tokens_total) == (3, None, None)
        assert (found.rejected, found.progress) == (None, None)
    said = read_metrics(f"sglang:num_running_reqs 3\nsglang:max_total_num_tokens {value}\n", 0.0, 0.0)
    assert said.cache_tokens is None
