"""The quantise lab from a folder to a result, on a tiny model; and what it refuses."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.checks import missed  # noqa: E402
from inference_bench.labs.perplexity import measure_perplexity  # noqa: E402
from inference_bench.labs.quantise import flow, proof  # noqa: E402
from inference_bench.labs.quantise.linears import network_state  # noqa: E402
from inference_bench.labs.quantise.methods import Method  # noqa: E402
from inference_bench.labs.quantise.request import QuantiseRequest  # noqa: E402
from inference_bench.labs.quantise.result import QuantiseResult  # noqa: E402
from inference_bench.labs.quantise.rtn import Grid  # noqa: E402
from inference_bench.labs.quantise.scoring import bits_per_weight, loss_interval, score_method  # noqa: E402
from inference_bench.labs.quantise.weight_methods import rounding_method  # noqa: E402
from inference_bench.labs.settings import BFLOAT16, LabSettings  # noqa: E402
from inference_bench.labs.windows import cut_windows  # noqa: E402
from labs import tiny as tiny_folder  # noqa: E402
from labs.quantise.tiny import tiny_bench, tiny_network  # noqa: E402

WINDOW = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    tiny_network().save_pretrained(made)
    tiny_folder.write_tokenizer(made, 96)
    return made


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text(" ".join(draw.choice([*tiny_folder.WORDS, *(f"w{i}" for i in range(80))]) for _ in range(600)))
    return path


def asked(folder: Path, text: Path, **changes: object) -> QuantiseRequest:
    settings = LabSettings(model=str(folder), num_threads=1, is_quick=True)
    return QuantiseRequest(settings, text=str(text), window_tokens=WINDOW, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result(folder: Path, text: Path) -> QuantiseResult:
    return flow.run_lab(asked(folder, text))


def test_every_check_holds_on_a_network_that_was_put_back_each_time(result: QuantiseResult) -> None:
    assert missed(result.checks) == ()
    assert all(row.is_restored for row in result.methods)


def test_every_family_has_a_row_and_float32_is_the_first(result: QuantiseResult) -> None:
    assert result.methods[0].name == "float32"
    assert result.methods[0].perplexity == result.float32_perplexity
    assert {row.family for row in result.methods} == {
        "Unquantised",
        "Rounding to nearest",
        "Small floats",
        "8-bit activations",
        "SmoothQuant",
        "LLM.int8()",
        "GPTQ",
        "AWQ",
        "Mixed precision",
        "KV cache",
    }


def test_scored_are_all_tokens_but_the_first_of_each_window(result: QuantiseResult) -> None:
    assert result.scored_tokens == WINDOW - 1
    assert (result.calibration_start_token, result.calibration_tokens, result.evaluation_start_token) == (0, 64, 256)


def test_what_quick_leaves_out_is_said(result: QuantiseResult) -> None:
    left_out = " ".join(result.head.left_out)
    assert "copying and JSON but for float32 and int4 channel" in left_out
    assert "files served by the engine" in left_out
    tasks = [row.name for row in result.methods if row.exact_copy_fraction is not None]
    assert tasks == ["float32", "int4 channel"]


def test_the_group_that_is_asked_for_is_that_of_every_method_with_groups(folder: Path, text: Path) -> None:
    found = flow.run_lab(asked(folder, text, group=32))
    named = [row.name for row in found.methods if "group" in row.name]
    assert len(named) == 4  # plain, GPTQ, AWQ, mixed
    assert all("int4 group 32" in name for name in named)


def test_windows_that_overlap_are_refused(folder: Path, text: Path) -> None:
    with pytest.raises(RequestError, match="share 32 tokens"):
        flow.run_lab(asked(folder, text, evaluation_start=32))


def test_another_text_with_the_same_windows_is_refused(folder: Path, text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_text(text.read_text() + " the end")
    with pytest.raises(RequestError, match="windows of the text"):
        flow.run_lab(asked(folder, text, calibration_text=str(copy)))


def test_a_group_that_does_not_divide_is_refused_before_anything_is_measured(folder: Path, text: Path) -> None:
    said: list[str] = []
    with pytest.raises(RequestError, match="groups of 48 do not divide a row of 64 columns"):
        flow.run_lab(asked(folder, text, group=48), said.append)
    assert not any("window" in line for line in said)


def test_a_window_beyond_what_the_model_takes_is_refused(folder: Path, text: Path) -> None:
    with pytest.raises(RequestError, match="a window of 257 tokens is longer than the 256"):
        flow.run_lab(replace(asked(folder, text), window_tokens=257))


def test_a_text_that_is_empty_or_too_short_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "short.txt").write_text("the whale " * 20)
    with pytest.raises(RequestError):
        flow.run_lab(asked(folder, tmp_path / "empty.txt"))
    with pytest.raises(RequestError, match="40 tokens"):
        flow.run_lab(asked(folder, tmp_path / "short.txt"))


@pytest.mark.parametrize(
    "changes",
    [{"group": 0}, {"window_tokens": 1}, {"num_windows": 0}, {"calibration_start": -1}, {"evaluation_start": -1},
     {"settings": LabSettings(dtype=BFLOAT16)}],
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        replace(QuantiseRequest(), **changes)  # type: ignore[arg-type]


# ── perplexity and scoring ─────────────────────────────────────────────────────────────────────────


def test_a_network_that_knows_nothing_has_a_perplexity_of_its_vocabulary() -> None:
    network = tiny_network()
    for parameter in network.parameters():
        parameter.data.zero_()
    found = measure_perplexity(network, cut_windows(list(range(90)), 2, 0, 40))
    assert found.value == pytest.approx(96, rel=1e-6)
    assert found.scored_tokens == 78


def test_bits_a_weight_come_back_from_the_bytes_of_the_model() -> None:
    network = tiny_network()
    assert bits_per_weight(network, rounding_method(network, Grid(4, 32)).weight_bytes) == 4.5
    assert bits_per_weight(network, None) is None


def test_an_interval_by_hand_from_four_windows_and_none_from_three() -> None:
    network, ids = tiny_network(), list(range(90)) * 2
    plain = measure_perplexity(network, cut_windows(ids, 4, 0, 11))
    moved = replace(
        plain, window_losses=tuple(a + 10 * b for a, b in zip(plain.window_losses, (1, 2, 3, 4), strict=True))
    )
    found = loss_interval(moved, plain)
    assert found is not None
    # differences a token 1, 2, 3, 4: mean 2.5, s = 1.29099, t(3) = 3.182, half = 3.182 · 1.29099 / 2
    assert (found.low, found.high) == (pytest.approx(2.5 - 2.05397, abs=1e-4), pytest.approx(2.5 + 2.05397, abs=1e-4))
    few = measure_perplexity(network, cut_windows(ids, 3, 0, 11))
    assert loss_interval(few, few) is None


def test_a_method_that_leaves_a_mark_is_found_out() -> None:
    from contextlib import contextmanager

    bench = tiny_bench()
    network = bench.model.network

    @contextmanager
    def careless(changed: object):  # type: ignore[no-untyped-def]
        network.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
        yield

    plain = measure_perplexity(network, bench.evaluation)
    row = score_method(bench, Method("careless", "x", None, None, "", careless), plain, None)
    assert not row.is_restored
    assert not proof.restored_check([row], "a", "a").is_met
    assert not proof.restored_check([], "a", "b").is_met


def test_a_hook_that_stays_is_found_out() -> None:
    network = tiny_network()
    before = network_state(network)
    hook = network.model.layers[0].mlp.up_proj.register_forward_pre_hook(lambda *_: None)
    assert network_state(network) != before
    hook.remove()
    assert network_state(network) == before


def test_checks_fail_on_what_they_are_there_for(result: QuantiseResult, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not proof.same_loss_check(1.0, 1.0000001).is_met
    far = [replace(row, perplexity=row.perplexity * 1.06) for row in result.methods]
    assert not proof.mild_check(far, result.float32_perplexity).is_met
    bench = tiny_bench()
    overlapping = replace(bench, evaluation=bench.calibration)
    assert not proof.disjoint_check(overlapping, True).is_met
    monkeypatch.setattr(proof, "storage_bits", lambda rows, columns, grid: rows * columns * grid.bits)
    assert not proof.bits_check().is_met
    assert not proof.bytes_check(bench.model.network).is_met
