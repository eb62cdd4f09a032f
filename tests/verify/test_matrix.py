"""A matrix runs what composes, names what does not, and compares all of it with the combination of most bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from convert import tiny
from inference_bench.charts.labels import Place
from inference_bench.charts.matrix import matrix_gain_chart, matrix_roofline_chart
from inference_bench.compare import Phase
from inference_bench.errors import (
    MeasurementError,
    RequestError,
    ServerError,
    ServerStartError,
    StorageError,
    UnknownNameError,
)
from inference_bench.facts.load import load_hardware
from inference_bench.report.matrix_html import matrix_html
from inference_bench.report.matrix_report import matrix_json, matrix_text
from inference_bench.verify.matrix import MatrixRequest, run_matrix
from inference_bench.verify.matrix_axes import MAX_COMBINATIONS, Combination, parse_axes, shuffled_rounds
from inference_bench.verify.matrix_result import MatrixResult, Outcome, gain
from inference_bench.verify.session import VerifyRequest
from verify.matrix_runs import MACHINE, Answer, Asked, Reply, fake_measure, from_table

FOUR = ["weights=q8_0,f32", "kv=f16,q8_0"]
ALIKE = from_table({})
Run = Callable[..., MatrixResult]


@pytest.fixture
def asked() -> Asked:
    return []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked) -> Run:
    monkeypatch.setenv("INFERENCE_BENCH_CACHE", str(tmp_path / "cache"))
    source = tiny.write(tmp_path / "tiny.gguf", tiny.tensors(tied=False))

    def go(
        axes: list[str], replies: Callable[[str, str, int], Reply] = ALIKE, keep: Any = None, **more: Any
    ) -> MatrixResult:
        request = MatrixRequest(parse_axes(axes), model=source, machine=MACHINE, runs=tmp_path / "runs", **more)
        return run_matrix(request, keep=keep, measure=fake_measure(replies, asked))

    return go


# ── axes ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_value_of_an_axis_meets_every_value_of_the_others() -> None:
    found = parse_axes(["weights=q4_1,fp16", "kv=F16,q8_0/f16", "engine=llama.cpp,vllm"]).combinations()
    assert len(found) == len(set(found)) == 8
    assert found[0] == Combination("q4_1", "f16", "llama.cpp")
    assert found[-1] == Combination("f16", "q8_0/f16", "vllm")


@pytest.mark.parametrize(
    ("axes", "kind", "said"),
    [
        ([], RequestError, "needs at least one axis; known: weights, kv, engine"),
        (["threads=1,2"], UnknownNameError, "axis 'threads' is not known; known: weights, kv, engine"),
        (["weights=q4_1,q9"], UnknownNameError, "'q9' is not known; known: own, q4_0, q4_1, q8_0, f16, bf16, f32"),
        (["weights="], UnknownNameError, "'' is not known"),
        (["kv=f16/q8_0/f16"], UnknownNameError, "or KEYS/VALUES apart"),
        (["kv=auto/f16"], UnknownNameError, "'auto/f16' is not known"),
        (["engine=trt"], UnknownNameError, "known: llama.cpp, vllm, sglang"),
        (["weights=f16,fp16"], RequestError, "f16 is listed twice"),
        (["kv=f16", "kv=q8_0"], RequestError, "axis kv is named twice"),
        (
            ["weights=q4_0,q4_1,q8_0,f16,bf16", "kv=f16,q8_0,q4_0,f32,bf16"],
            RequestError,
            f"has 25 combinations; up to {MAX_COMBINATIONS}",
        ),
    ],
)
def test_axes_that_cannot_be_run_are_refused_with_what_is_allowed(
    axes: list[str], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        parse_axes(axes)


def test_each_round_has_every_combination_in_an_order_of_its_own_and_a_seed_repeats_them() -> None:
    all_of = parse_axes(["weights=q4_0,q4_1,q8_0,f16,f32", "kv=f16,q8_0"]).combinations()
    rounds = list(shuffled_rounds(all_of, 3, 2))
    first, second = ([one for number, one in rounds if number == index] for index in (0, 1))
    assert sorted(first, key=str) == sorted(second, key=str) == sorted(all_of, key=str)
    assert first != second
    assert first != list(all_of)
    assert rounds == list(shuffled_rounds(all_of, 3, 2))


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────


def test_gains_stand_beside_what_the_bytes_promised(run: Run) -> None:
    """At 1 GB/s only bytes limit: f32 takes twice its bound, q8_0 four times, so half of the promised gain is measured."""
    found = run(FOUR, from_table({("q8_0", "f16"): 4.0, ("q8_0", "q8_0"): 4.0}))
    assert [row.outcome for row in found.rows] == [Outcome.MEASURED] * 4
    base = found.base
    assert base is not None
    assert base.combination == Combination("f32", "f16", "llama.cpp")
    reduced = next(row for row in found.rows if row.combination == Combination("q8_0", "f16", "llama.cpp"))
    assert reduced.alone is not None
    assert base.alone is not None
    promised = base.alone.bound.num_bytes / reduced.alone.bound.num_bytes
    # matrices and tables of 34 bytes for 32 values in place of 128; norms, and rows of the cache, are the same
    assert 3 < promised < 128 / 34
    assert base.alone.bound.seconds == pytest.approx(base.alone.bound.num_bytes / 1e9)
    point = next(
        point
        for point in matrix_json(found)["combinations"][0]["points"]
        if (point["phase"], point["batch"]) == ("decode", 1)
    )
    assert point["gain"]["promised"] == pytest.approx(promised)
    assert point["gain"]["measured"] == pytest.approx(promised / 2)


def test_a_combination_whose_rounds_disagree_is_run_once_more_and_the_middle_one_is_its_time(
    run: Run, asked: Asked
) -> None:
    found = run(["weights=q8_0,f32"], lambda _weights, _cache, before: (2.0, 6.0, 4.0)[before])
    assert len(asked) == 6
    for row in found.rows:
        assert len(row.runs) == 3
        for point in row.points:
            assert point.rounds_apart == pytest.approx(1.0)
            assert point.bound.seconds is not None
            if point.phase is Phase.DECODE:
                assert point.seconds == pytest.approx(4.0 * point.bound.seconds)
    assert "apart" in matrix_text(found)


def test_two_rounds_that_agree_are_enough(run: Run, asked: Asked) -> None:
    found = run(["weights=q8_0,f32"], lambda _weights, _cache, before: (2.0, 2.2)[before])
    assert len(asked) == 4
    decode = found.rows[0].alone
    assert decode is not None
    assert decode.bound.seconds is not None
    assert decode.seconds == pytest.approx(2.1 * decode.bound.seconds)


def test_what_an_engine_refuses_is_named_in_its_own_words_and_is_no_failure(run: Run, asked: Asked) -> None:
    refusal = ServerStartError("llama.cpp could not serve it: quantized V cache requires flash_attn to be enabled")
    found = run(FOUR, from_table({("q8_0", "q8_0"): refusal, ("fp32", "q8_0"): refusal}))
    assert len(found.measured) == 2
    assert found.failed == ()
    assert [row.combination.kv for row in found.not_composed] == ["q8_0", "q8_0"]
    assert "llama.cpp could not serve it: quantized V cache" in " ".join(matrix_text(found).split())
    assert asked.count(("q8_0", "q8_0", "llama.cpp")) == 1  # it is not asked again


@pytest.mark.parametrize(
    "error", [MeasurementError("nothing came back"), ServerError("the server ended"), StorageError("full")]
)
def test_a_combination_that_fails_keeps_the_others(run: Run, error: Exception) -> None:
    found = run(FOUR, from_table({("q8_0", "f16"): error}))
    assert [row.combination.slug for row in found.failed] == ["q8_0-kv-f16-llama.cpp"]
    assert found.failed[0].said == str(error)
    assert len(found.measured) == 3
    assert found.base is not None


def test_a_failure_in_a_later_round_keeps_the_earlier_one(run: Run) -> None:
    found = run(["weights=q8_0"], lambda *key: (2.0, ServerError("it ended"))[key[2]])
    assert found.rows[0].outcome is Outcome.MEASURED
    assert [len(point.rounds_s) for point in found.rows[0].points] == [1, 1, 1]
    assert "a later round gave nothing: it ended" in " ".join(matrix_text(found).split())


def test_blocks_are_not_even_asked_of_an_engine_that_reads_a_folder(run: Run, asked: Asked) -> None:
    found = run(["weights=q4_1,f16", "engine=llama.cpp,vllm"])
    assert [row.combination.name for row in found.not_composed] == ["q4_1 weights, auto cache, vllm"]
    assert "holds f32, f16, bf16 and no blocks of q4_1" in found.not_composed[0].said
    assert sorted(set(asked)) == [
        ("fp16", "auto", "llama.cpp"),
        ("fp16", "auto", "vllm"),
        ("q4_1", "auto", "llama.cpp"),
    ]


def test_weights_that_cannot_be_converted_do_not_compose(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tiny, "INNER", 40)
    tiny.write(tmp_path / "tiny.gguf", tiny.tensors())
    found = run(["weights=f32,q8_0"])
    assert [row.outcome for row in found.rows] == [Outcome.MEASURED, Outcome.NOT_COMPOSED]
    assert "rows of 40 values, which q8_0 cannot store" in found.rows[1].said


def test_nothing_measured_at_all_is_an_error_that_says_why(run: Run) -> None:
    with pytest.raises(MeasurementError, match="no combination could be measured; the first: q8_0 weights, auto cache"):
        run(["weights=q8_0,f32"], from_table({}, ServerError("it never answers")))


def test_an_interruption_keeps_what_was_measured(run: Run, asked: Asked) -> None:
    kept: list[Any] = []

    def replies(_weights: str, _cache: str, _before: int) -> Reply:
        return KeyboardInterrupt() if len(asked) == 2 else 2.0

    found = run(FOUR, replies, kept.append)
    assert len(kept) == 2
    assert found.is_interrupted
    assert [len(row.runs) for row in found.measured] == [1, 1]
    assert {row.said for row in found.failed} == {"no round of it came to its end"}
    assert matrix_json(found)["is_interrupted"] is True
    assert "interrupted: this is what was measured by then" in " ".join(matrix_text(found).split())


def test_an_interruption_before_anything_was_measured_is_passed_on(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(FOUR, from_table({}, KeyboardInterrupt()))


def test_each_run_lies_in_a_folder_of_its_combination(run: Run, tmp_path: Path) -> None:
    found = run(FOUR)
    assert found.folder.parent == tmp_path / "runs"
    assert found.folder.name.endswith("-matrix")
    for row in found.rows:
        assert {path.parent for path in row.runs} == {found.folder / row.combination.slug}


def test_a_machine_that_is_elsewhere_is_refused(tmp_path: Path) -> None:
    request = MatrixRequest(parse_axes(["kv=f16"]), machine=load_hardware("H100 SXM"), runs=tmp_path)
    with pytest.raises(RequestError, match="run on this machine, not on"):
        run_matrix(request)


@pytest.mark.parametrize("name", ["config.json", "none.gguf"])
def test_only_a_gguf_file_is_re_encoded(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    request = MatrixRequest(parse_axes(["kv=f16"]), model=tmp_path / name, machine=MACHINE, runs=tmp_path)
    with pytest.raises(RequestError, match=r"re-encodes one \.gguf file"):
        run_matrix(request)


# ── the same work ──────────────────────────────────────────────────────────────────────────────────


def test_every_round_of_every_combination_is_asked_for_the_same_fixed_steps(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[VerifyRequest] = []
    from inference_bench.verify import matrix

    monkeypatch.setattr(matrix, "_measure", lambda _tried, request, *_rest: seen.append(request))
    with pytest.raises(MeasurementError):
        run(FOUR)
    assert len(seen) == 8
    assert all(one.plan == seen[0].plan and one.plan.is_fixed for one in seen)


def test_rounds_of_a_step_are_pooled_although_their_prompts_came_out_a_little_longer(run: Run) -> None:
    """20 % longer, and so another count: what was asked for is the same."""
    found = run(["weights=q8_0,f32"], lambda *key: (Answer(2.0), Answer(2.2, counted_more=8))[key[2]])
    assert all(len(point.rounds_s) == 2 for row in found.measured for point in row.points)
    assert all(len(row.points) == 3 for row in found.measured)


def test_gains_are_never_taken_over_another_work(run: Run) -> None:
    """f32 has room for 20 tokens alone: its decode steps are others, its prompt is the same."""
    found = run(["weights=q8_0,f32"], from_table({("q8_0", "auto"): 6.0, ("fp32", "auto"): Answer(2.0, context=20)}))
    reduced, base = found.measured
    assert base is found.base
    assert gain(reduced.alone, base.alone) is None
    assert gain(found.largest(reduced), found.largest(base)) is None
    assert gain(reduced.prefill, base.prefill) is not None
    text = " ".join(matrix_text(found).split())
    assert "No other combination did the same decode steps as f32 weights: nothing is compared" in text
    assert "q8_0 (at 40)" in text
    assert "q8_0 weights: not measured, and so not compared: batch 1 behind prompts of 20 tokens" in text
    assert not re.search(r"q8_0 for f32 weights|Batching gained least", text)
    decode = [one for one in matrix_json(found)["combinations"][0]["points"] if one["phase"] == "decode"]
    assert [one["gain"] for one in decode] == [None, None]
    chart = matrix_gain_chart(found, 720)
    assert chart is not None
    assert {row["at"] for row in chart["layer"][-1]["data"]["values"]} == {"prefill"}


def test_the_step_that_most_combinations_have_is_the_one_that_is_compared(run: Run) -> None:
    answers = {("fp16", "auto"): 4.0, ("fp32", "auto"): Answer(2.0, context=20)}
    found = run(["weights=q8_0,f16,f32"], from_table(answers))
    assert found.base is not None
    assert found.base.combination.weights == "f16"
    assert [gain(row.alone, found.base.alone) is None for row in found.measured] == [False, False, True]


@pytest.mark.parametrize("slowness", [1.5, 3.0, 30.0])
def test_the_headline_says_the_tables_own_gain(run: Run, slowness: float) -> None:
    found = run(["weights=q8_0,f32"], from_table({("fp32", "auto"): slowness}))
    text = matrix_text(found)
    rates = [(row, point.tokens_per_s) for row, point in found.alike(found.largest)]
    best = max(rates, key=lambda item: item[1])[0]
    assert f"Fastest at batch 4: {best.combination.weights} weights" in " ".join(text.split())
    reduced = next(row for row in found.measured if row is not found.base)
    assert found.base is not None
    seen = gain(found.largest(reduced), found.largest(found.base))
    assert seen is not None
    assert seen.measured == pytest.approx(rates[0][1] / rates[1][1])
    if best is not found.base:
        assert f"×{seen.measured:.3g} the tokens a second of f32 weights" in " ".join(text.split())


def test_rounds_that_overlap_put_the_gain_in_brackets(run: Run) -> None:
    """f32 moves 3.37 times the bytes of q8_0 alone, 2.66 at batch 4: 2 to 2.4 times its bound overlaps 6.3 to 7 of q8_0."""
    found = run(["weights=q8_0,f32"], lambda weights, *key: ((6.3, 7.0) if weights == "q8_0" else (2.0, 2.4))[key[1]])
    base = found.base
    assert base is not None
    seen = gain(found.measured[0].alone, base.alone)
    assert seen is not None
    assert seen.is_apart is False
    assert "(×" in matrix_text(found)
    overlap = "At batch 4 none is fastest for sure: rounds of f32 weights and q8_0 weights overlap"
    assert overlap in " ".join(matrix_text(found).split()).replace(
        "q8_0 weights and f32 weights", "f32 weights and q8_0 weights"
    )
    assert "The rounds overlap, so that nothing is said of one sequence" in " ".join(matrix_text(found).split())


def test_a_reason_is_given_only_where_a_ceiling_bears_it_out(run: Run) -> None:
    """Only bytes limit here: a batch that is slower with fewer bytes has no reason that the numbers know."""
    found = run(["weights=q8_0,f32"], from_table({("q8_0", "auto"): 60.0}))
    text = " ".join(matrix_text(found).split())
    assert "In the larger batch it costs." in text
    assert "compute limits" not in text


def test_what_a_round_cut_or_did_not_reach_is_said(run: Run) -> None:
    notes = (
        "contexts of the sweep are cut to 20 tokens and prompts to 20: the server holds 64 positions of a request",
        "3 of 5 steps were measured; not: 2 of decode",
        "2 of 5 steps are not known to ±5 % of their median: the sweep ended after 1 rounds",
    )
    found = run(["weights=q8_0"], lambda *key: Answer(2.0, notes=notes if key[2] else ()))
    text = " ".join(matrix_text(found).split())
    assert "round 2: contexts of the sweep are cut to 20 tokens" in text
    assert "round 2: 3 of 5 steps were measured; not: 2 of decode" in text
    assert "not known to" not in text


# ── reports ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def four(run: Run) -> MatrixResult:
    refusal = ServerStartError("it says <b>no</b>")
    return run(FOUR, from_table({("q8_0", "f16"): 4.0, ("fp32", "q8_0"): refusal}))


def test_the_text_has_a_row_for_each_combination_and_fits_a_terminal(four: MatrixResult) -> None:
    text = matrix_text(four)
    assert max(map(len, text.splitlines())) <= 100
    for title in ("One sequence: batch 1 at 40 tokens", "Largest batch: batch 4 at 40 tokens", "What batching bought"):
        assert title in text
    assert "q8_0 weights, f16 cache" in text
    assert "f32 weights, q8_0 cache, llama.cpp: it says" in " ".join(text.split())


def test_the_json_holds_every_combination_and_is_plain(four: MatrixResult) -> None:
    found = json.loads(json.dumps(matrix_json(four), allow_nan=False))
    assert found["schema"] == "inference-bench/verify-matrix/1"
    assert [one["outcome"] for one in found["combinations"]] == ["measured", "measured", "measured", "not composed"]
    assert found["base"] == "f32-kv-f16-llama.cpp"
    measured = [one for one in found["combinations"] if one["outcome"] == "measured"]
    assert all(len(one["points"]) == 3 and one["weight_bytes"] > 0 for one in measured)


def test_the_page_draws_all_under_one_roof_and_links_to_every_run(four: MatrixResult) -> None:
    page = matrix_html(four, "report.html", lambda spec: f"<svg aria-label='{len(spec['layer'])}'></svg>")
    assert page.count("<svg") >= 4
    assert "it says &lt;b&gt;no&lt;/b&gt;" in page
    assert len(re.findall(r'href="q8_0-kv-f16-llama\.cpp/run-\d+/report\.html"', page)) == 2
    roofline, gains = matrix_roofline_chart(four, 720), matrix_gain_chart(four, 720)
    assert roofline is not None
    assert gains is not None
    points = [layer for layer in roofline["layer"] if layer["mark"]["type"] == "point"]
    assert [len(layer["data"]["values"]) for layer in points] == [9]
    assert all(layer["mark"]["filled"] for layer in points)  # hollow is a ceiling, as in the page of one run


@pytest.mark.parametrize("width_px", [340, 720, 1040])
def test_no_name_in_the_roofline_lies_over_another(run: Run, width_px: int) -> None:
    answer = Answer(2.0, batches=(1, 2, 3, 4), prompts=(64, 72, 80, 96))
    chart = matrix_roofline_chart(run(["weights=q8_0,f16,f32"], from_table({}, answer)), width_px)
    assert chart is not None
    written = {
        row["label"]: Place(row["x"], row["y"], layer["mark"]["align"]).box(row["label"])
        for layer in chart["layer"]
        if layer["mark"]["type"] == "text"
        for row in layer["data"]["values"]
        if "x" in row
    }
    prompts = {f"prompt {tokens}" for tokens in (64, 72, 80, 96)} if width_px > 600 else set()
    assert set(written) == {f"B{batch}" for batch in (1, 2, 3, 4)} | prompts
    assert not any(one.meets(other) for one, other in combinations(written.values(), 2))


def test_without_a_second_combination_there_is_no_gain_to_draw(run: Run) -> None:
    found = run(["weights=q8_0"])
    assert matrix_gain_chart(found, 720) is None
    assert "nothing to compare it with" in " ".join(matrix_text(found).split())


def test_a_request_asks_each_engine_for_its_own_cache(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[VerifyRequest] = []
    from inference_bench.verify import matrix

    monkeypatch.setattr(matrix, "_measure", lambda _tried, request, *_rest: seen.append(request))
    with pytest.raises(MeasurementError):
        run(["weights=f32", "kv=f32,q8_0", "engine=llama.cpp,vllm"])
    assert {(one.engine, one.cache) for one in seen} == {
        ("llama.cpp", "f32"),
        ("llama.cpp", "q8_0"),
        ("vllm", None),  # the weights' own format is what it takes by itself
        ("vllm", "q8_0"),
    }
    assert all(one.machine is MACHINE and not one.runs_load for one in seen)
