"""The usual formula's error: figures from elsewhere, and what must hold for every model in the table."""

from __future__ import annotations

import pytest

from inference_bench.accounting.cache import count_cache
from inference_bench.errors import RequestError
from inference_bench.facts.load import known_model, known_models
from inference_bench.predict.fit import cache_format
from inference_bench.predict.naive_causes import Cause, corrections
from inference_bench.predict.naive_error import count_naive_errors, median_factor
from inference_bench.predict.naive_examples import SHORT_TOKENS
from inference_bench.predict.naive_rows import LENGTHS, Order, ordered, registry
from inference_bench.predict.naive_study import EXAMPLES, NaiveStudy, study_naive_error
from inference_bench.units import GIBI

MODELS = known_models()
# counted outside this program (per-layer calculators and Transformers' caches, research/sizers.md): GiB of one sequence, 16 bits
PUBLISHED = [
    ("gemma-3-27b-it", 32768, 2.906, 15.5),
    ("gemma-3-27b-it", 131072, 10.406, 62.0),
    ("gpt-oss-20b", 131072, 3.003, 6.0),
    ("Qwen3-Next-80B-A3B-Instruct", 32768, 0.822, 3.0),
    ("DeepSeek-V3", 32768, 2.145, 53.375),
    ("DeepSeek-V3.2", 32768, 2.621, 53.375),
    ("gemma-3-1b-it", 32768, 0.136, 0.8125),
    ("gemma-4-31B", 32768, 3.281, 30.0),
    ("Llama-4-Scout-17B-16E-Instruct", 32768, 2.625, 6.0),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 32768, 0.233, 1.625),
    ("EXAONE-4.0-32B", 32768, 2.75, 8.0),
    ("Mistral-7B-v0.1", 32768, 0.5, 4.0),
    ("Qwen3-8B", 32768, 4.5, 4.5),
    ("Meta-Llama-3.1-8B", 32768, 4.0, 4.0),
]


@pytest.fixture(scope="module")
def study() -> NaiveStudy:
    return study_naive_error()


@pytest.mark.parametrize(("name", "context", "true_gib", "usual_gib"), PUBLISHED)
def test_true_and_usual_cache_are_what_others_counted(
    name: str, context: int, true_gib: float, usual_gib: float
) -> None:
    count = count_cache(known_model(name), cache_format(None), context)
    assert count.total_bytes / GIBI == pytest.approx(true_gib, abs=6e-4)
    assert count.naive_bytes == usual_gib * GIBI


@pytest.mark.parametrize("name", ["fp16", "fp8", "q8_0", "q4_0/fp16"])
@pytest.mark.parametrize("context", [1, 100, 4096, 5000, 131072])
def test_the_usual_figure_with_its_corrections_is_the_true_one_to_the_byte(name: str, context: int) -> None:
    fmt, with_a_figure = cache_format(name), 0
    for model in MODELS:
        found, count = corrections(model, fmt, context), count_cache(model, fmt, context)
        assert (found is None) == (count.naive_bytes is None), model.name
        if found is not None and count.naive_bytes is not None:
            assert count.naive_bytes + sum(each.num_bytes for each in found) == count.total_bytes, model.name
            with_a_figure += 1
    assert with_a_figure == len(MODELS) - 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen3-8B", {}),
        ("gemma-3-27b-it", {Cause.WINDOW: (52, -52 * 31744 * 8192)}),  # 32768 - 1024 tokens of 2 · 16 · 128 · 2 bytes
        ("DeepSeek-V3", {Cause.LATENT: (61, 61 * 32768 * (2 * (512 + 64) - 2 * 2 * 128 * 56))}),
        (
            "DeepSeek-V3.2",
            {
                Cause.LATENT: (61, 61 * 32768 * (2 * (512 + 64) - 2 * 2 * 128 * 56)),
                Cause.INDEX: (61, 61 * 32768 * 128 * 2),
            },
        ),
        (  # 36 states: 32 heads · 128 · 128 in float32, and 3 columns of 2 · 2048 + 4096 channels in 16 bits
            "Qwen3-Next-80B-A3B-Instruct",
            {
                Cause.NO_ATTENTION: (36, -36 * 32768 * 2 * 2 * 2 * 256),
                Cause.STATE: (36, 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)),
            },
        ),
    ],
)
def test_corrections_by_hand(name: str, expected: dict[Cause, tuple[int, int]]) -> None:
    found = corrections(known_model(name), cache_format(None), 32768)
    assert found is not None
    assert {each.cause: (each.layers, each.num_bytes) for each in found} == expected


def test_a_model_right_at_every_length_has_no_corrections_anywhere(study: NaiveStudy) -> None:
    uniform = {row.model for row in study.rows if row.is_uniform}
    assert len(uniform) == study.num_right == len(MODELS) - study.num_wrong
    for each in registry():
        if each.model.name in uniform:
            assert corrections(each.model, study.fmt, each.capped(None)) == ()
    assert {"Qwen3-8B", "Meta-Llama-3.1-8B", "Mixtral-8x7B-v0.1"} <= uniform
    assert not uniform & {"gemma-3-27b-it", "gpt-oss-20b", "DeepSeek-V3", "Qwen3-Next-80B-A3B-Instruct", "whisper-tiny"}


def test_no_model_is_counted_past_its_own_limit(study: NaiveStudy) -> None:
    for context in (4096, 131072, None):
        for row in study_naive_error(context).rows:
            asked = context or row.own_limit or LENGTHS[2]
            assert row.count.context_tokens == min(asked, row.own_limit or asked)
            assert row.is_capped == (context is not None and row.count.context_tokens < context)
    phi = next(row for row in study.rows if row.model == "Phi-3-mini-4k-instruct")
    assert (phi.count.context_tokens, phi.is_capped) == (4096, True)


def test_counted_past_their_limits_it_is_what_the_command_line_says(study: NaiveStudy) -> None:
    rows = count_naive_errors(MODELS, cache_format(None))
    assert study.beyond.num_wrong == sum(not row.is_uniform for row in rows)
    assert study.beyond.median_factor == median_factor(rows)
    assert set(study.beyond.only_there) == {row.model for row in rows if not row.is_uniform} - {
        row.model for row in study.rows if not row.is_uniform
    }


def test_rows_are_in_the_order_asked_for(study: NaiveStudy) -> None:
    rows = study.rows
    wrong = [row for row in rows if not row.is_right]
    assert list(rows[: len(wrong)]) == wrong
    factors = [row.factor or 0.0 for row in wrong]
    assert factors == sorted(factors, reverse=True)
    for order, key in (
        (Order.TRUE, lambda row: -row.count.total_bytes),
        (Order.USUAL, lambda row: -(row.count.naive_bytes or 0)),
        (Order.MODEL, lambda row: row.model.casefold()),
    ):
        assert [key(row) for row in ordered(rows, order)] == sorted(map(key, rows))
    dates = [row.as_of for row in ordered(rows, Order.DATE)]
    assert dates == sorted(dates, reverse=True)
    assert {row.model for row in ordered(rows, Order.DATE)} == {model.name for model in MODELS}


def test_a_summary_is_over_the_rows_it_names(study: NaiveStudy) -> None:
    assert [found.context for found in study.by_length] == list(LENGTHS)
    here = study.here
    assert here.num_wrong == sum(row.count.naive_bytes != row.count.total_bytes for row in study.rows)
    assert {row.model for row in here.too_little} == {row.model for row in study.rows if (row.factor or 1) < 1}
    assert {row.model for row in here.unanswered} == {"Mamba-Codestral-7B-v0.1", "mamba-2.8b-hf"}
    known = sorted(row.factor for row in study.rows if row.factor is not None and not row.is_right)
    assert known[0] < (here.median_factor or 0) < known[-1] == here.highest[0].factor


def test_short_requests_are_too_little_up_to_the_length_said_and_not_beyond(study: NaiveStudy) -> None:
    by_name = {each.model.name: each for each in registry()}
    assert len(study.short) == 10
    for case in study.short:
        known = by_name[case.model]
        assert case.usual_bytes < case.true_bytes
        assert case.fixed_bytes == count_cache(known.model, study.fmt, 0).total_bytes
        if case.below_tokens <= known.capped(None):
            at = count_cache(known.model, study.fmt, case.below_tokens)
            before = count_cache(known.model, study.fmt, case.below_tokens - 1)
            assert (at.naive_bytes or 0) >= at.total_bytes
            assert (before.naive_bytes or 0) < before.total_bytes


def test_sequences_on_a_card_are_the_memory_that_is_left_over_those_bytes(study: NaiveStudy) -> None:
    gemma = study.cards[0]
    assert (gemma.model, gemma.machine) == ("gemma-3-27b-it", "H100 SXM5 80GB")
    assert gemma.free_bytes == gemma.memory_bytes - gemma.weight_bytes - 2_500_000_000
    assert gemma.usual == int(gemma.free_bytes / (15.5 * GIBI)) == 1
    assert gemma.true == int(gemma.free_bytes / (2.90625 * GIBI)) == 9
    # vLLM, 16 tokens a block: 5510 blocks of 1,310,720 bytes to be admitted, 2438 to be kept (research/sizers.md, section 4)
    blocks = gemma.free_bytes // 1_310_720
    assert gemma.vllm == 1 + (blocks - 5510) // (2048 + 6 * 65)
    short = study.cards[-1]
    assert short.context_tokens == SHORT_TOKENS
    assert short.usual > short.true > (short.vllm or 0) > 0


def test_engines_set_aside_what_their_own_logs_and_code_say(study: NaiveStudy) -> None:
    gemma, linear = study.engines["windows"], study.engines["linear"]
    assert gemma.llama_cpp is not None
    assert gemma.llama_cpp.num_bytes == 3_338_665_984
    assert gemma.pool is not None
    assert gemma.pool.admission_bytes == 5510 * 1_310_720
    assert gemma.unmanaged is not None
    assert gemma.unmanaged.num_bytes == 15.5 * GIBI == gemma.count.naive_bytes
    assert linear.pool is not None
    assert linear.pool.first_token_bytes == pytest.approx(51 * 2**20, rel=0.01)
    assert linear.pool.steady_bytes / GIBI == pytest.approx(0.797, abs=1e-3)
    assert linear.unmanaged is None


def test_a_length_below_one_is_refused() -> None:
    with pytest.raises(RequestError, match="at least 1 token"):
        study_naive_error(0)


def test_every_example_is_in_the_table_and_shows_the_cause_it_stands_for(study: NaiveStudy) -> None:
    causes = {word: [each.cause for each in found.corrections] for word, found in study.examples.items()}
    assert set(causes) == set(EXAMPLES)
    assert causes["uniform"] == []
    assert causes["windows"] == causes["half"] == causes["all"] == [Cause.WINDOW]
    assert causes["chunks"] == [Cause.CHUNK]
    assert causes["latents"] == [Cause.LATENT]
    assert Cause.INDEX in causes["index"]
    assert causes["compressed"] == [Cause.COMPRESSED]
    assert causes["linear"] == causes["mamba"] == [Cause.NO_ATTENTION, Cause.STATE]
    assert Cause.SHARED in causes["shared"]
    assert Cause.SHAPE in causes["shapes"]
    assert Cause.SHAPE in causes["wider"]
    assert causes["cross"] == [Cause.CROSS]


def test_a_small_card_takes_vllms_smaller_steps(study: NaiveStudy) -> None:
    # 4 full and 16 sliding layers of 512, 2 heads of 256 in 16 bits: five groups of 4 layers, blocks of 4 · 32,768 bytes;
    # 2048 + 4 · (ceil((511 + 2048) / 16) + 1) blocks to be admitted, 2048 + 4 · (512 / 16 + 1) to be kept
    (case,) = [each for each in study.cards if each.model == "gemma-3n-E4B-it"]
    assert case.machine == "RTX 4090"
    blocks = case.free_bytes // 131_072
    assert case.vllm == 1 + (blocks - (2048 + 4 * 161)) // (2048 + 4 * 33) == 33
