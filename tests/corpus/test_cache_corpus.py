"""What each layer of every shared configuration keeps equals the index beside the files, and published figures."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from corpus.model_configs import CONFIGS, MISSING, config_names, index_rows, read_model
from inference_bench.accounting.cache import count_cache, count_cross_rows, count_kept, count_state
from inference_bench.facts.models import LayerType, ModelSpec
from shapes import cache_in

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CONFIGS.is_dir(), reason=MISSING)]
GIB = 2**30

Row = tuple[object, ...]


def attention_row(heads: int, keys: int, values: int, limit: int | None) -> Row:
    return ("rows", ((heads * keys, limit, 1), (heads * values, limit, 1)))


def expected_row(text: str) -> Row:
    """One entry of the index as (kind, what is kept)."""
    if match := re.fullmatch(
        r"full attention, (\d+) KV heads x K(\d+)/V(\d+)( \+ cross-attention \((\d+) positions\))?", text
    ):
        heads, keys, values = (int(match[group]) for group in (1, 2, 3))
        return (*attention_row(heads, keys, values, None), int(match[5]) if match[5] else 0)
    if match := re.fullmatch(r"sliding window (\d+), (\d+) KV heads x K(\d+)/V(\d+)", text):
        return (*attention_row(int(match[2]), int(match[3]), int(match[4]), int(match[1])), 0)
    if match := re.fullmatch(r"chunked local (\d+), (\d+) KV heads x (\d+)", text):
        return (*attention_row(int(match[2]), int(match[3]), int(match[3]), int(match[1])), 0)
    if match := re.fullmatch(r"MLA latent (\d+)\+(\d+)( \+ index key (\d+))?", text):
        latent = (int(match[1]) + int(match[2]), None, 1)
        return ("rows", (latent, (int(match[4]), None, 1)) if match[4] else (latent,), 0)
    if match := re.fullmatch(r"shared K=V (\d+), window (\d+), compression (\d+)( \+ index key (\d+))?", text):
        width, window, ratio = (int(match[group]) for group in (1, 2, 3))
        rows = [(width, window, 1), (width, None, ratio)] + ([(int(match[5]), None, ratio)] if match[5] else [])
        return ("rows", tuple(rows), 0)
    if match := re.fullmatch(r"recurrent state \(conv (\d+) ch x (\d+) taps, recurrent (\d+) elements\)", text):
        return ("state", tuple(int(match[group]) for group in (1, 2, 3)), 0)
    assert text == "no cache"
    return ("none", (), 0)


def expected_rows(text: str) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for entry in text.split("; "):
        count, _, what = entry.partition("x ")
        counts[expected_row(what)] += int(count)
    return counts


def counted_rows(model: ModelSpec) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for layer in model.layers:
        kept = [row for mixer in layer.mixers for row in count_kept(mixer)]
        states = [state for mixer in layer.mixers if (state := count_state(mixer))]
        cross = [rows for mixer in layer.mixers if (rows := count_cross_rows(mixer))]
        if states:
            assert not kept
            (state,) = states
            counts[("state", (state.conv_channels, state.conv_kernel, state.recurrent_elements), 0)] += 1
        elif kept:
            rows = tuple((row.row_values, row.limit, row.stride) for row in kept)
            counts[("rows", rows, cross[0][0] if cross else 0)] += 1
        else:
            counts[("none", (), 0)] += 1
    return counts


def test_every_file_has_a_row_in_the_index() -> None:
    assert set(index_rows()) == set(config_names())
    assert len(index_rows()) >= 66


@pytest.mark.parametrize("name", config_names())
def test_what_each_layer_keeps_equals_the_index(name: str) -> None:
    assert counted_rows(read_model(name)) == expected_rows(index_rows()[name])


# GiB of one sequence in 16 bits, recurrent state in float32: the column "right" of the published comparison of sizers
RIGHT = [
    ("google--gemma-3-27b-it", 32768, 2.906),
    ("google--gemma-3-27b-it", 131072, 10.406),
    ("openai--gpt-oss-20b", 131072, 3.003),
    ("Qwen--Qwen3-Next-80B-A3B-Instruct", 32768, 0.822),
    ("deepseek-ai--DeepSeek-V3", 32768, 2.145),
    ("deepseek-ai--DeepSeek-V3.2", 32768, 2.621),
    ("google--gemma-2-2b", 32768, 1.828),
    ("google--gemma-3-1b-it", 32768, 0.136),
    ("nvidia--Gemma-4-31B-IT-NVFP4", 32768, 3.281),
    ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 32768, 2.625),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 32768, 0.233),
    ("nvidia--Nemotron-H-56B-Base-8K", 32768, 2.100),
    ("LGAI-EXAONE--EXAONE-4.0-32B", 32768, 2.750),
    ("mistralai--Mistral-7B-v0.1", 32768, 0.500),
    ("mistralai--Mamba-Codestral-7B-v0.1", 32768, 0.254),
    ("tiiuae--falcon-40b", 32768, 3.750),
    ("Qwen--Qwen3-8B", 32768, 4.5),
    ("meta-llama--Meta-Llama-3.1-8B", 32768, 4.0),
    # printed by others for full contexts
    ("Qwen--Qwen3.5-27B", 262144, 16.0 + 48 * (10240 * 3 * 2 + 786432 * 4) / GIB),
]


@pytest.mark.parametrize(("name", "tokens", "gib"), RIGHT)
def test_cache_and_state_equal_the_published_comparison(name: str, tokens: int, gib: float) -> None:
    cache = count_cache(read_model(name), cache_in("bf16"), tokens)
    assert (cache.num_bytes + cache.state_bytes) / GIB == pytest.approx(gib, abs=0.0005001)


# what the layer-count formula says for the same models, from the columns of tools that use it
NAIVE = [
    ("google--gemma-3-27b-it", 32768, 15.500),
    ("openai--gpt-oss-20b", 131072, 6.000),
    ("Qwen--Qwen3-Next-80B-A3B-Instruct", 32768, 3.000),
    ("deepseek-ai--DeepSeek-V3", 32768, 53.375),
    ("deepseek-ai--DeepSeek-V3.2", 32768, 53.375),
    ("google--gemma-2-2b", 32768, 3.250),
    ("google--gemma-3-1b-it", 32768, 0.8125),
    ("nvidia--Gemma-4-31B-IT-NVFP4", 32768, 30.000),
    ("meta-llama--Llama-4-Scout-17B-16E-Instruct", 32768, 6.000),
    ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 32768, 1.625),
    ("nvidia--Nemotron-H-56B-Base-8K", 32768, 14.750),
    ("mistralai--Mistral-7B-v0.1", 32768, 4.000),
    ("mistralai--Mamba-Codestral-7B-v0.1", 32768, None),
]


@pytest.mark.parametrize(("name", "tokens", "gib"), NAIVE)
def test_the_usual_formula_says_what_tools_that_use_it_print(name: str, tokens: int, gib: float | None) -> None:
    naive = count_cache(read_model(name), cache_in("bf16"), tokens).naive_bytes
    assert (None if naive is None else naive / GIB) == gib


@pytest.mark.parametrize("name", config_names())
def test_one_more_token_adds_what_the_slope_says_and_sequences_add_up(name: str) -> None:
    model, fmt = read_model(name), cache_in("bf16")
    for tokens in (0, 1, 127, 128, 511, 4096, 8191, 32768):
        here, next_ = count_cache(model, fmt, tokens), count_cache(model, fmt, tokens + 1)
        assert next_.num_bytes - here.num_bytes == here.next_token_bytes >= 0
        assert next_.state_bytes == here.state_bytes
        three = count_cache(model, fmt, tokens, 3)
        assert (three.num_bytes, three.state_bytes) == (3 * here.num_bytes, 3 * here.state_bytes)
        assert sum(layer.num_bytes for layer in here.layers) == here.num_bytes
        assert all(layer.layer_type in set(LayerType) for layer in here.layers)
