"""The whole lab on a small matrix: what it holds, not how fast."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from inference_bench.labs.machine.ceilings import measure_ceilings
from inference_bench.labs.machine.flow import run_lab
from inference_bench.labs.machine.products import Kind, Operands, Timed, error_of, make_call
from inference_bench.labs.machine.request import MachineRequest
from inference_bench.labs.machine.result import Library, MachineResult, Orientation
from inference_bench.labs.session import LabSession
from inference_bench.labs.settings import LabSettings


@pytest.fixture(scope="module")
def result() -> MachineResult:
    settings = LabSettings(num_threads=1, is_quick=True)
    return run_lab(MachineRequest(settings, max_batch=16, matrix_size=128))


def test_every_library_orientation_and_batch_has_a_row(result: MachineResult) -> None:
    rows = {(each.library, each.orientation, each.row.batch) for each in result.products}
    assert rows == {(lib, way, batch) for lib in Library for way in Orientation for batch in (1, 4, 16)}
    assert [each.is_met for each in result.checks] == [True, True]
    assert [pair.batch for pair in result.pairs] == [1, 4, 16]


def test_the_highest_ceilings_are_no_lower_than_any_other(result: MachineResult) -> None:
    others = (result.torch_ceilings, result.numpy_ceilings, result.probe_ceilings)
    assert result.ceilings.bandwidth_bytes_per_s == max(each.bandwidth_bytes_per_s for each in others)
    assert result.ceilings.peak_flops_per_s == max(each.peak_flops_per_s for each in others)


def test_the_probe_gets_as_many_threads_as_the_libraries(result: MachineResult) -> None:
    assert {row.num_threads for row in result.probe_bandwidth_rows} <= {1, None}
    assert any(row.num_threads == 1 for row in result.probe_bandwidth_rows)


def test_pytorch_sees_numpys_memory_in_float32_and_one_copy_in_bfloat16() -> None:
    operands = Operands.drawn(64, 4, 0)
    assert operands.weight("float32").data_ptr() == operands.matrix.ctypes.data
    assert operands.weight("bfloat16") is operands.weight("bfloat16")


@pytest.mark.parametrize("library", list(Library))
@pytest.mark.parametrize("orientation", list(Orientation))
def test_each_call_computes_the_product_that_its_proof_expects(library: Library, orientation: Orientation) -> None:
    operands = Operands.drawn(96, 4, 1)
    kind = Kind(library, orientation)
    assert error_of(operands, Timed(kind, 3, make_call(operands, kind, 3))) < 1
    stale = Timed(kind, 3, make_call(Operands.drawn(96, 4, 2), kind, 3))
    assert error_of(operands, stale) > 1


def test_ceilings_for_another_lab_are_the_fastest_of_its_own_run_with_one_bandwidth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inference_bench.labs.machine.ceilings.SIZES", (128,))
    session = LabSession("batch", "?", LabSettings(num_threads=1, is_quick=True))
    found = measure_ceilings(session, ("float32", "bfloat16"))
    assert [each.compute_format for each in found.values()] == ["fp32", "bf16"]
    assert found["float32"].bandwidth_bytes_per_s == found["bfloat16"].bandwidth_bytes_per_s > 0
    assert "128 × 128, 1 thread" in found["float32"].source
