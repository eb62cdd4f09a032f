from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_bench.accounting.params import count_params
from inference_bench.predict.efficiency.question import Phase
from inference_bench.predict.efficiency.setting import DeviceSplit
from inference_bench.score.query import MAX_REASON_CHARS, case
from inference_bench.score.rows import METRICS_OF_PHASE, UNIT_OF_METRIC, MeasuredRow, read_rows
from inference_bench.score.scoring import ask_each, score_row
from score.tables import PROMPTS, SERVING, WHOLE, the_case, write_table

TOKENS = {"unit": "tok/s"}

# what a row says → its phase and the seconds it took, worked out by hand
TIMES = [
    ({"metric": "tpot_ms", "value": "25"}, Phase.DECODE, 0.025),
    ({"metric": "decode_tok_s", "batch_or_concurrency": "4", "value": "80", **TOKENS}, Phase.DECODE, 4 / 80),
    ({"metric": "output_tok_s", "batch_or_concurrency": "8", "value": "160", **TOKENS}, Phase.DECODE, 8 / 160),
    ({**PROMPTS, "value": "250"}, Phase.PREFILL, 0.25),
    (
        {
            **PROMPTS,
            "metric": "prefill_tok_s",
            "batch_or_concurrency": "2",
            "input_len": "512",
            "value": "4096",
            **TOKENS,
        },
        Phase.PREFILL,
        2 * 512 / 4096,
    ),
    ({**WHOLE, "value": "3"}, Phase.E2E, 3.0),
    (
        {**WHOLE, "metric": "output_tok_s", "batch_or_concurrency": "8", "output_len": "100", "value": "400", **TOKENS},
        Phase.E2E,
        8 * 100 / 400,
    ),
    (SERVING, Phase.SERVING_TPOT, 0.007),
    ({**PROMPTS, **SERVING}, Phase.SERVING_TTFT, 0.04),
    ({"notes": "x; batch column = concurrency", "output_len": "9"}, Phase.SERVING_TPOT, 0.007),
]


@pytest.mark.parametrize(("row", "phase", "seconds"), TIMES, ids=lambda value: str(value)[:50])
def test_a_row_times_a_phase_in_seconds(tmp_path: Path, row: dict[str, str], phase: Phase, seconds: float) -> None:
    found = the_case(tmp_path, **row)
    assert found.question is not None
    assert (found.question.phase, found.seconds) == (phase, pytest.approx(seconds))


LAYOUTS = [
    ("", "4", (DeviceSplit.TENSOR, 4, 1, 4)),
    ("TP4", "4", (DeviceSplit.TENSOR, 4, 1, 4)),
    ("TP8 moeTP2/EP4", "8", (DeviceSplit.TENSOR, 8, 1, 8)),
    ("TP1xDP8 moeTP1/EP8", "8", (DeviceSplit.TENSOR, 1, 8, 8)),
    ("TP2xDP4 moeTP1/EP8", "8", (DeviceSplit.TENSOR, 2, 4, 8)),
    ("TP32 (NeuronCores)", "1", (DeviceSplit.TENSOR, 1, 1, 1)),
    ("layer-split", "2", (DeviceSplit.LAYER, 1, 1, 2)),
    ("row-split", "2", (DeviceSplit.ROW, 2, 1, 2)),
    ("PP2", "2", (DeviceSplit.LAYER, 1, 1, 2)),
    ("TP4xPP2", "8", (DeviceSplit.TENSOR, 4, 1, 4)),
    ("moeTP4", "4", (DeviceSplit.TENSOR, 4, 1, 4)),
]


@pytest.mark.parametrize(("text", "devices", "layout"), LAYOUTS)
def test_how_devices_share_a_model_is_read_from_the_words_for_it(
    tmp_path: Path, text: str, devices: str, layout: tuple[DeviceSplit, int, int, int]
) -> None:
    found = the_case(tmp_path, parallelism=text, n_devices=devices).question
    assert found is not None
    setting = found.setting
    assert (setting.split, setting.tensor, setting.replicas, setting.devices) == layout


FORMATS = [
    ("FP16", "vLLM", "fp16"),
    ("BF16", "vLLM", "bf16"),
    ("FP8", "vLLM", "fp8"),
    ("W4A16", "vLLM", "int4-g128"),
    ("4bit", "mlx", "int4-g128"),
    ("4.65bpw", "ExLlamaV2", "int5-g128"),
    ("8.0bpw", "ExLlamaV2", "int8"),
    ("NVFP4", "TensorRT-LLM", "nvfp4"),
    ("MXFP4", "vLLM", "mxfp4"),
    ("Q8_0", "llama.cpp", "Q8_0"),
    ("Q4_K_M", "llama.cpp CUDA", "Q4_K_M"),
]


@pytest.mark.parametrize(("label", "engine", "ours"), FORMATS)
def test_a_weight_format_is_ours_under_the_names_that_tables_use(
    tmp_path: Path, label: str, engine: str, ours: str
) -> None:
    found = the_case(tmp_path, weight_format=label, engine=engine)
    assert found.question is not None, found.reason
    assert found.question.setting.served.weights.format_name.casefold() == ours.casefold()


def test_a_published_size_wins_over_the_counted_one(tmp_path: Path) -> None:
    """Llama 3.1 8B counts 8,030,261,248 parameters of 2 bytes: 14.957 GiB."""
    scales = []
    for notes in ("", "weights_gib=7.4787", "size weights_gib=0", "weights_gib=99999999999999"):
        question = the_case(tmp_path, notes=notes).question
        assert question is not None
        scales.append(question.setting.weight_scale)
    assert scales == [1.0, pytest.approx(0.5, rel=1e-4), 1.0, 1.0]


def test_depth_and_threads_are_read_from_notes_and_an_undated_row_is_recent(tmp_path: Path) -> None:
    found = the_case(tmp_path, **PROMPTS, notes="depth=4096; threads=4", hardware="Ryzen 9 7950X", date="").question
    assert found is not None
    assert found.cached_tokens == 4096
    assert found.setting.threads_fraction == pytest.approx(4 / 16)
    assert not found.setting.is_early
    early = the_case(tmp_path, date="2024-09").question
    assert early is not None
    assert early.setting.is_early


def test_a_model_that_is_not_known_is_answered_by_one_as_large(tmp_path: Path) -> None:
    found = the_case(tmp_path, model="Surely-Unknown-7B", params="7.2").question
    assert found is not None
    total = count_params(found.setting.served.model).total
    assert total * found.setting.weight_scale == pytest.approx(7.2e9)
    assert total == pytest.approx(7.2e9, rel=0.05)


REASONS = [
    ({"batch_or_concurrency": "Offline"}, "the batch or concurrency is not a number", "Offline"),
    ({"batch_or_concurrency": ""}, "the batch or concurrency is not a number", ""),
    ({"hardware": "Abacus 9000"}, "the machine is not known", "Abacus 9000"),
    (
        {"model": "Surely-Unknown-7B", "params": ""},
        "the model is not known and its size is not given",
        "Surely-Unknown-7B",
    ),
    ({"weight_format": "INT5.5ish"}, "the weight format is not known", "INT5.5ish"),
    ({"weight_format": ""}, "the weight format is not known", "none given"),
    ({"kv_format": "Q9"}, "the cache format is not known", "Q9"),
    ({"input_len": "", "output_len": ""}, "neither length is given", ""),
    ({**WHOLE, "output_len": ""}, "the output length is not given", ""),
    ({**PROMPTS, "input_len": "0", "output_len": "5"}, "the prompt length is not given", ""),
    ({"phase": "e2e"}, "the metric says nothing about the phase", "tpot_ms of e2e"),
]


@pytest.mark.parametrize(("row", "reason", "detail"), REASONS, ids=lambda value: str(value)[:50])
def test_a_row_that_cannot_be_asked_says_why_the_same_way_for_its_kind(
    tmp_path: Path, row: dict[str, str], reason: str, detail: str
) -> None:
    found = the_case(tmp_path, **row)
    assert (found.question, found.seconds, found.reason, found.detail) == (None, None, reason, detail)
    assert len(reason) <= MAX_REASON_CHARS


# Llama 3.1 8B: 8,030,261,248 parameters, of which a step reads all but the input table of 128,256 x 4,096
READ = 2 * (8_030_261_248 - 128_256 * 4_096)
LLAMA_TOKEN = 32 * 2 * 8 * 128 * 2  # bytes of cache a token in 16 bits
LATENT_TOKEN = 61 * (512 + 64) * 2  # DeepSeek-V3: one latent and one rotary key a layer


def bound_s(folder: Path, **row: str) -> float:
    asked, left = ask_each([the_case(folder, **row)])
    assert not left
    return score_row(*asked[0]).bound_s


def test_the_bound_of_a_decode_row_is_bytes_over_bandwidth(tmp_path: Path) -> None:
    assert bound_s(tmp_path) == pytest.approx((READ + 1024 * LLAMA_TOKEN) / 3.35e12, rel=1e-3)


@pytest.mark.parametrize(
    ("row", "bytes_a_token"),
    [
        ({}, LLAMA_TOKEN),
        ({"kv_format": "FP8"}, LLAMA_TOKEN / 2),
        ({"n_devices": "4", "parallelism": "TP4"}, LLAMA_TOKEN / 4),
        ({"model": "DeepSeek-V3", "weight_format": "FP8", "n_devices": "8", "parallelism": "TP8"}, LATENT_TOKEN),
    ],
    ids=["grouped heads", "fp8 cache", "heads over four devices", "a latent is on every device"],
)
def test_a_longer_context_adds_its_cache_to_the_bound(
    tmp_path: Path, row: dict[str, str], bytes_a_token: float
) -> None:
    short, long = (bound_s(tmp_path, **row, batch_or_concurrency="16", input_len=str(n)) for n in (1024, 5120))
    assert long - short == pytest.approx(16 * 4096 * bytes_a_token / 3.35e12, rel=1e-6)


FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
WORDS = st.one_of(
    FIELDS, st.sampled_from(["9" * 400 + "bit", "TP0", "DP9999 TP9999", "Q4_K_M", "FP8", "H100 SXM", "PP0"])
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(WORDS, min_size=7, max_size=7),
    sizes=st.lists(st.one_of(st.none(), st.integers(0, 100_000_000)), min_size=3, max_size=3),
    devices=st.integers(1, 100_000_000),
    kind=st.sampled_from([(phase, metric) for phase, metrics in METRICS_OF_PHASE.items() for metric in metrics]),
    value=st.floats(1e-6, 1e12),
)
def test_whatever_a_row_says_it_is_asked_or_has_a_short_reason(
    words: list[str], sizes: list[int | None], devices: int, kind: tuple[str, str], value: float
) -> None:
    model, weights, cache, machine, layout, engine, notes = words
    row = MeasuredRow(
        file="t.csv", row=2, source="s", date="2026", model=model or "Llama-3.1-8B", params_billions=8.0,
        weight_format=weights if len(weights) % 2 else "BF16", kv_format=cache if len(cache) % 2 else "",
        hardware=machine if len(machine) % 3 == 1 else "B200", devices=devices, parallelism=layout, engine=engine,
        engine_version="1", phase=kind[0], batch_text="", batch=sizes[0] or None, input_tokens=sizes[1],
        output_tokens=sizes[2], metric=kind[1], value=value, notes=notes,
    )  # fmt: skip
    asked, left = ask_each([case(row)])
    assert len(asked) + len(left) == 1
    for item in left:
        assert item.reason
        assert len(item.reason) <= MAX_REASON_CHARS
    for item, form in asked:
        scored = score_row(item, form)
        assert 0 < scored.low_s < scored.predicted_s < scored.high_s < float("inf")
        assert 0 < scored.bound_s < scored.fixed_s


@pytest.mark.parametrize("metric", UNIT_OF_METRIC)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(factor=st.floats(0.01, 100))
def test_a_value_so_many_times_as_large_is_a_time_so_many_times_as_long_or_short(
    tmp_path: Path, metric: str, factor: float
) -> None:
    phase = next(name for name, metrics in METRICS_OF_PHASE.items() if metric in metrics)
    rows = [
        {"phase": phase, "metric": metric, "unit": UNIT_OF_METRIC[metric], "value": repr(value), "output_len": "64"}
        for value in (50.0, 50.0 * factor)
    ]
    one, other = (case(row) for row in read_rows(write_table(tmp_path / "scale.csv", *rows)))
    assert one.question == other.question
    assert one.seconds is not None
    assert other.seconds == pytest.approx(
        one.seconds / factor if UNIT_OF_METRIC[metric] == "tok/s" else one.seconds * factor
    )


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("TP8", "1"),
        ("TP9999", "1"),
        ("TP8xDP4", "8"),
        ("TP4", "6"),
        ("TP4xPP2", "4"),
        ("PP4", "2"),
        ("TP8 moeTP1/EP8", "1"),
    ],
)
def test_a_layout_that_the_devices_cannot_hold_is_not_predicted(tmp_path: Path, text: str, devices: str) -> None:
    found = the_case(tmp_path, parallelism=text, n_devices=devices)
    assert (found.question, found.reason) == (None, "the parallelism does not go with the devices")
    assert found.detail == f"{text} on {devices} device{'s' if devices != '1' else ''}"
