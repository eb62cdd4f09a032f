from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_info

from inference_bench.errors import MeasurementError, MissingExtraError, RequestError
from inference_bench.measure import machine_kernels
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.machine import probe
from inference_bench.records import Origin

SIZE, MAX_BATCH = 96, 8


@pytest.fixture(scope="module")
def probed() -> tuple[ProbeResult, list[str]]:
    said: list[str] = []
    return probe(progress=said.append, budget_s=1.0, max_batch=MAX_BATCH, matrix_size=SIZE, seed=3), said


def test_every_batch_has_a_row_with_counts_by_hand(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    assert [row.batch for row in result.rows] == [1, 2, 4, 8]
    for row in result.rows:
        assert row.counted_flops == 2 * SIZE * SIZE * row.batch
        assert row.counted_bytes == 4 * (SIZE * SIZE + SIZE * row.batch + SIZE * row.batch)
        assert row.seconds > 0
        assert row.flops_per_s == pytest.approx(row.counted_flops / row.seconds)
        assert row.bytes_per_s == pytest.approx(row.counted_bytes / row.seconds)
        assert row.intensity_flops_per_byte == pytest.approx(row.counted_flops / row.counted_bytes)


def test_raw_values_are_kept_and_their_middle_is_the_row(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    for row in (*result.rows, *result.bandwidth_rows):
        values = sorted(row.timing.values_s)
        assert len(values) >= 4
        assert row.timing.warmup_values_s
        assert values[0] <= row.seconds <= values[-1]


def test_movements_are_timed_before_and_after_the_products(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    split = ["product_split", "dot_split", "copy_split"]
    assert [(row.method, row.round_index) for row in result.bandwidth_rows] == [
        *((method, 1) for method in split),
        ("product_library_threads", 1),
        *((method, 2) for method in split),
    ]


def test_movements_count_their_bytes(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    rows = {row.method: row for row in result.bandwidth_rows}
    product_bytes = 4 * (SIZE * SIZE + 2 * SIZE)
    assert rows["product_split"].counted_bytes == rows["product_library_threads"].counted_bytes == product_bytes
    assert rows["copy_split"].counted_bytes == 2 * rows["dot_split"].counted_bytes
    assert [row.method for row in result.bandwidth_rows if not row.is_read_dominated] == ["copy_split"] * 2


def test_arrays_for_bandwidth_are_beyond_the_cache_though_the_matrix_is_not(
    probed: tuple[ProbeResult, list[str]],
) -> None:
    result, _ = probed
    if not result.identity.last_level_cache_bytes:
        pytest.skip("this machine does not tell its cache")
    dots = [row for row in result.bandwidth_rows if row.method == "dot_split"]
    assert all(row.array_over_cache >= 4 for row in dots)
    assert result.bandwidth_method == "dot_split"
    assert any("product_split moved only" in note for note in result.notes)


def test_ceilings_are_the_largest_rates_and_the_ridge_their_quotient(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    beyond = [
        row.bytes_per_s
        for row in result.bandwidth_rows
        if row.is_read_dominated and (row.array_over_cache is None or row.array_over_cache >= 4)
    ]
    assert result.bandwidth_bytes_per_s == max(beyond)
    assert result.peak_flops_per_s == max(row.flops_per_s for row in result.rows)
    assert result.ridge_flops_per_byte == pytest.approx(result.peak_flops_per_s / result.bandwidth_bytes_per_s)
    assert {row.batch: row.flops_per_s for row in result.rows}[result.peak_batch] == result.peak_flops_per_s


def test_the_result_says_what_it_is(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    assert result.origin is Origin.MEASURED
    assert result.compute_format == "fp32"
    assert result.matrix_size == SIZE
    assert result.seed == 3
    assert result.gpu is None
    assert result.elapsed_s > 0
    assert "NumPy" in result.method
    assert "not read from a hardware counter" in result.method


def test_the_library_ran_on_every_usable_core(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    assert all(library.num_threads == result.identity.num_usable_cores for library in result.identity.blas)
    assert {row.num_threads for row in result.bandwidth_rows} == {result.identity.num_usable_cores}


def test_progress_names_every_row(probed: tuple[ProbeResult, list[str]]) -> None:
    result, said = probed
    assert len(said) == len(result.rows) + len(result.bandwidth_rows) - 1  # B = 1 stands in both
    assert said[3].startswith("matrix product, B = 1: ")


def test_the_result_becomes_json(probed: tuple[ProbeResult, list[str]]) -> None:
    result, _ = probed
    read_back = json.loads(json.dumps(dataclasses.asdict(result)))
    assert read_back["rows"][0]["batch"] == 1
    assert read_back["rows"][0]["seconds"] == result.rows[0].seconds
    assert read_back["origin"] == "measured"


def test_the_number_of_library_threads_is_put_back() -> None:
    before = [library["num_threads"] for library in threadpool_info()]
    probe(budget_s=0.5, max_batch=1, matrix_size=16)
    assert [library["num_threads"] for library in threadpool_info()] == before


@pytest.mark.parametrize("package", ["numpy", "threadpoolctl"])
def test_a_missing_package_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'inference-bench\[bench\]'"):
        probe(matrix_size=16, max_batch=1)


@pytest.mark.parametrize("wrong", [{"matrix_size": 0}, {"budget_s": 0.0}, {"max_batch": 0}])
def test_a_size_of_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match=r"above 0|below 1"):
        probe(**wrong)


def test_an_array_that_cannot_be_had_is_a_measurement_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(machine_kernels, "measure_rows", refuse)
    with pytest.raises(MeasurementError, match=r"no memory for a matrix of 1\.02 kB"):
        probe(matrix_size=16, max_batch=1)


def test_an_interrupt_ends_the_probe_at_once() -> None:
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(progress=interrupt, matrix_size=16, max_batch=1)
    assert len(said) == 1


def test_numpy_is_not_loaded_before_a_probe_starts() -> None:
    code = "import sys, inference_bench.measure.machine; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
