"""The engine's own quantiser, called from outside, writes the blocks that its format describes."""

from __future__ import annotations

import types

import pytest

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from gguf import quants  # noqa: E402

from inference_bench.errors import MeasurementError, MissingExtraError, RequestError, UnknownNameError  # noqa: E402
from inference_bench.facts.formats import number_format  # noqa: E402
from inference_bench.labs.quantise import engine_quants  # noqa: E402
from inference_bench.labs.quantise.engine_quants import ENGINE_FORMATS, EngineQuantiser, engine_quantiser  # noqa: E402


def matrix(rows: int = 6, columns: int = 96) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(rows, columns)).astype(np.float32)


def read_back(blocks: np.ndarray, name: str) -> np.ndarray:
    return quants.dequantize(blocks, gguf.GGMLQuantizationType(number_format(name).ggml_type))


@pytest.mark.parametrize("name", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_its_blocks_are_those_of_an_independent_implementation(name: str) -> None:
    fmt = number_format(name)
    expected = quants.quantize(matrix(), gguf.GGMLQuantizationType(fmt.ggml_type))
    assert np.array_equal(engine_quantiser().quantised(matrix(), fmt), expected)


@pytest.mark.parametrize(("name", "largest"), [("iq4_nl", 0.12), ("mxfp4", 0.2), ("q4_0", 0.15), ("q8_0", 0.01)])
def test_what_it_writes_is_near_what_it_was_given(name: str, largest: float) -> None:
    values = matrix()
    off = read_back(engine_quantiser().quantised(values, number_format(name)), name) - values
    assert 0 < np.linalg.norm(off) / np.linalg.norm(values) < largest


@pytest.mark.parametrize("name", ["q4_0", "q5_0", "iq4_nl"])
def test_columns_that_matter_more_are_kept_better(name: str) -> None:
    values, quantiser, fmt = matrix(64), engine_quantiser(), number_format(name)
    importance = np.where(np.arange(96) % 8 == 0, 100.0, 1.0).astype(np.float32)
    plain = read_back(quantiser.quantised(values, fmt), name) - values
    weighed = read_back(quantiser.quantised(values, fmt, importance), name) - values
    assert (weighed**2 * importance).sum() < 0.9 * (plain**2 * importance).sum()


@pytest.mark.parametrize("num_threads", [2, 3, 9])
def test_threads_change_no_row(num_threads: int) -> None:
    values, fmt, importance = matrix(7), number_format("iq4_nl"), np.linspace(1, 9, 96).astype(np.float32)
    alone = engine_quantiser().quantised(values, fmt, importance)
    assert np.array_equal(engine_quantiser().quantised(values, fmt, importance, num_threads), alone)


@pytest.mark.parametrize("name", ENGINE_FORMATS)
def test_every_format_takes_the_bytes_that_the_table_counts(name: str) -> None:
    fmt = number_format(name)
    assert engine_quantiser().quantised(matrix(), fmt).nbytes == fmt.count_bytes(6 * 96, 96)


def test_rows_that_fill_no_block_are_refused_with_what_would() -> None:
    with pytest.raises(RequestError, match=r"rows of 40 values .* multiples of 32"):
        engine_quantiser().quantised(matrix(2, 40), number_format("q4_0"))


def test_a_value_that_is_no_number_never_reaches_the_library() -> None:
    values = matrix()
    values[0, 0] = np.nan
    with pytest.raises(RequestError, match="not finite"):
        engine_quantiser().quantised(values, number_format("q4_0"))


@pytest.mark.parametrize("importance", [np.ones(95, np.float32), -np.ones(96, np.float32)])
def test_an_importance_that_does_not_fit_is_refused(importance: np.ndarray) -> None:
    with pytest.raises(RequestError, match="importance of 96 columns"):
        engine_quantiser().quantised(matrix(), number_format("q4_0"), importance)


def test_a_format_of_larger_blocks_is_not_asked_for() -> None:
    with pytest.raises(UnknownNameError, match="q4_k"):
        engine_quantiser().quantised(matrix(), number_format("q4_k"))


def test_a_library_that_disagrees_about_a_size_is_not_called() -> None:
    liar = types.SimpleNamespace(ggml_blck_size=lambda _type: 32, ggml_type_size=lambda _type: 20)
    with pytest.raises(MeasurementError, match=r"20 bytes.*says 32 and 18"):
        EngineQuantiser(engine_quantiser().path, liar).quantised(matrix(), number_format("q4_0"))


def test_an_engine_without_the_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_quants, "_FUNCTIONS", ("ggml_quantise_everything",))
    engine_quantiser.cache_clear()
    with pytest.raises(MissingExtraError, match="exports no ggml_quantise_everything"):
        engine_quantiser()
    engine_quantiser.cache_clear()


def test_a_machine_without_the_engine_is_told_what_to_install() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[bench\]'"):
        engine_quantiser("no_such_engine_here")
