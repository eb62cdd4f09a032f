"""Figures from a served file are taken from the engine's replies as they are meant, or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
pytest.importorskip("transformers")

from convert import tiny as tiny_file  # noqa: E402
from inference_bench.convert.plan import read_source  # noqa: E402
from inference_bench.errors import MeasurementError, ServerStartError  # noqa: E402
from inference_bench.labs.model import LabModel  # noqa: E402
from inference_bench.labs.quantise import gguf_quality  # noqa: E402
from inference_bench.labs.quantise.engine_scores import decode_speed, engine_perplexity, token_logprob  # noqa: E402
from inference_bench.labs.quantise.gguf_files import write_engine_file  # noqa: E402
from inference_bench.labs.quantise.gguf_quality import (  # noqa: E402
    _Found,
    gguf_checks,
    measure_gguf,
    step_bytes,
    with_gains,
)
from inference_bench.labs.quantise.methods import QuantiseBench  # noqa: E402
from inference_bench.labs.quantise.result import GgufRow  # noqa: E402
from inference_bench.labs.session import LabSession  # noqa: E402
from inference_bench.labs.settings import LabSettings  # noqa: E402
from inference_bench.labs.subject import LabSubject  # noqa: E402
from inference_bench.labs.windows import Windows  # noqa: E402
from labs.quantise.tiny import tiny_bench  # noqa: E402


def quiet(_line: str) -> None:
    return


def answers(body: Mapping[str, Any]) -> Any:
    """An engine to which every token has the probability one in its place's number plus one."""
    ((token, _),) = body["logit_bias"]
    return {"completion_probabilities": [{"id": token, "logprob": -math.log(len(body["prompt"]) + 1)}]}


def test_each_token_but_the_first_is_scored_after_those_before_it() -> None:
    found = engine_perplexity(answers, Windows(0, 4, ((5, 6, 7, 8), (9, 9, 9, 9))), quiet)
    assert found.value == pytest.approx((2 * 3 * 4) ** (1 / 3))  # p = 1/2, 1/3, 1/4 in both windows
    assert found.scored_tokens == 6


def test_the_question_forces_the_token_and_asks_for_its_probability_before_that() -> None:
    asked: list[Any] = []

    def ask(body: Mapping[str, Any]) -> Any:
        asked.append(body)
        return answers(body)

    token_logprob(ask, [1, 2], 3)
    assert asked[0]["prompt"] == [1, 2]
    assert asked[0]["logit_bias"] == [[3, 1000.0]]
    assert (asked[0]["n_predict"], asked[0]["n_probs"], asked[0]["temperature"]) == (1, 1, 0)


@pytest.mark.parametrize(
    "reply",
    [
        {"completion_probabilities": [{"id": 4, "logprob": -1.0}]},
        {"completion_probabilities": [{"id": 3, "logprob": float("nan")}]},
        {"completion_probabilities": [{"id": 3, "logprob": 0.5}]},
        {"completion_probabilities": []},
        {"error": "no"},
        None,
    ],
)
def test_an_answer_for_another_token_or_without_a_probability_is_refused(reply: Any) -> None:
    with pytest.raises(MeasurementError):
        token_logprob(lambda _body: reply, [1, 2], 3)


def test_the_speed_is_that_of_the_fastest_run_between_its_first_and_last_token() -> None:
    times = iter([400.0, 200.0, 310.0])
    found = decode_speed(
        lambda _body: {"timings": {"predicted_n": 11, "predicted_ms": next(times)}}, list(range(20)), 11, 3
    )
    assert found == pytest.approx(50.0)  # 10 steps in 0.2 s


@pytest.mark.parametrize(
    "timings", [{"predicted_n": 10, "predicted_ms": 5.0}, {"predicted_n": 11, "predicted_ms": 0.0}, {}]
)
def test_no_speed_follows_from_a_run_that_was_cut_short(timings: Any) -> None:
    with pytest.raises(MeasurementError):
        decode_speed(lambda _body: {"timings": timings}, list(range(20)), 11, 1)


def test_gains_are_over_the_file_of_16_bits() -> None:
    rows = with_gains(
        [
            _Found(GgufRow("f16", decode_tokens_per_s=40.0), 200),
            _Found(GgufRow("q4_0", decode_tokens_per_s=100.0), 50),
        ]
    )
    assert [row.predicted_gain for row in rows] == [1.0, 4.0]
    assert [row.measured_gain for row in rows] == [1.0, 2.5]


def test_a_step_reads_every_tensor_once_and_the_cache(tmp_path: Path) -> None:
    source = read_source(tiny_file.write(tmp_path / "in.gguf", tiny_file.tensors()))
    file = write_engine_file(source, "f16", tmp_path, quiet)
    # tied: the table is read as the head; 10 positions read and 1 written, 2 layers, 2 key heads of 16, 2 bytes, keys and values
    assert step_bytes(file, source, 10) == file.tensor_bytes + 11 * 2 * 2 * 16 * 2 * 2


@pytest.mark.parametrize(("perplexity", "is_met"), [(20.3, True), (20.5, False), (19.5, False)])
def test_a_16_bit_file_whose_perplexity_is_another_fails_its_check(perplexity: float, is_met: bool) -> None:
    (check,) = gguf_checks([GgufRow("f16", perplexity=perplexity, float32_perplexity_same_tokens=20.0)])
    assert check.is_met is is_met


def test_a_model_without_a_gguf_file_is_left_out_and_that_is_said() -> None:
    made = tiny_bench()
    model = LabModel(made.model.network, None, None, LabSubject(Path(), None, None), "float32")  # type: ignore[arg-type]
    session = LabSession("quantise", "", LabSettings())
    assert measure_gguf(replace(made, model=model), session) == ()
    assert session.left_out == [
        "files served by the engine: the model did not come from a .gguf file, of which others could be made"
    ]


@pytest.fixture
def from_file(tmp_path: Path) -> QuantiseBench:
    """The bench of a network with a file to write others from; what the engine would do is left to each test."""
    path = tiny_file.write(tmp_path / "in.gguf", tiny_file.tensors())
    made = tiny_bench()
    subject = LabSubject(tmp_path, None, None, path)  # type: ignore[arg-type]
    model = LabModel(made.model.network, None, None, subject, "float32")  # type: ignore[arg-type]
    return replace(made, model=model)


def test_a_format_that_the_engine_does_not_serve_is_named_and_the_rest_goes_on(
    from_file: QuantiseBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inference_bench.labs.perplexity import pooled

    def served(file: Any, *_others: Any) -> Any:
        if file.format == "q5_0":
            raise ServerStartError("unknown type")
        return pooled([3.0], 3), 10.0

    monkeypatch.setattr(gguf_quality, "_served", served)
    monkeypatch.setattr(gguf_quality, "_weights_perplexity", lambda *_: 2.5)
    monkeypatch.setattr(gguf_quality, "column_importance", lambda *_: {"blk.0.attn_q.weight": np.ones(64, np.float32)})
    session = LabSession("quantise", "", LabSettings())
    rows = measure_gguf(replace(from_file, is_quick=False), session)
    names = [
        "f16",
        "q8_0",
        "q4_1",
        "q4_0",
        "iq4_nl",
        "mxfp4",
        "q4_0, columns weighed",
    ]
    assert [row.format for row in rows] == names
    assert session.left_out == ["the file in q5_0: unknown type"]
    assert rows[1].perplexity == pytest.approx(math.e)
    assert rows[1].weights_perplexity == 2.5


def test_an_engine_that_serves_no_file_at_all_is_named_and_the_lab_goes_on(
    from_file: QuantiseBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def served(*_others: Any) -> Any:
        raise ServerStartError("no such tokenizer; log: /gone/soon.log")

    monkeypatch.setattr(gguf_quality, "_served", served)
    session = LabSession("quantise", "", LabSettings())
    assert measure_gguf(from_file, session) == ()
    assert "the file in f16: no such tokenizer" in session.left_out


def test_no_file_is_left_after_an_interruption(from_file: QuantiseBench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def interrupted(file: Any, *_others: Any) -> Any:
        seen.append(file.path)
        assert file.path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf_quality, "_served", interrupted)
    monkeypatch.setattr(gguf_quality, "_weights_perplexity", lambda *_: 2.5)
    with pytest.raises(KeyboardInterrupt):
        measure_gguf(from_file, LabSession("quantise", "", LabSettings()))
    assert seen
    assert not seen[0].parent.exists()
