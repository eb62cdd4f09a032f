from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import MeasurementError
from inference_bench.measure.machine_identity import BlasLibrary, MachineIdentity, identify_machine
from inference_bench.measure.machine_plan import ProbePlan, explain_plan, plan_probe

MIB, GIB = 1 << 20, 1 << 30
HASWELL = BlasLibrary("openblas", "0.3.31", "Haswell", 2, "pthreads")
QUIET = dataclasses.replace(
    identify_machine(root=Path("/nowhere"), environ={}),
    num_usable_cores=2,
    last_level_cache_bytes=32 * MIB,
    memory_bytes=16 * GIB,
    available_memory_bytes=8 * GIB,
    blas=(HASWELL,),
    load_average_1min=0.0,
)


def plan(identity: MachineIdentity = QUIET, **changes: object) -> ProbePlan:
    asked = {
        "matrix_size": 8192,
        "batches": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        "budget_s": 25.0,
        "rate_flops_per_s": 200e9,
        "seed": 0,
    }
    return plan_probe(identity, **(asked | changes))


def test_an_ordinary_machine_gets_what_was_asked() -> None:
    planned = plan()
    assert planned.matrix_size == 8192
    assert planned.stream_bytes == 256 * MIB
    assert explain_plan(planned, QUIET) == []


def test_every_core_computes_unless_fewer_threads_are_asked_for() -> None:
    assert plan().num_threads == QUIET.num_usable_cores
    assert plan(num_threads=1).num_threads == 1


def test_a_slow_machine_gets_a_smaller_matrix_and_is_told() -> None:
    # 8192: 2·8192²·1023 FLOPs six times at 10 GFLOP/s take 82 s; 4096 takes 21 s; 2048 takes 5 s, within 0.6 · 25 s
    planned = plan(rate_flops_per_s=10e9)
    assert planned.matrix_size == 2048
    smaller, cached = explain_plan(planned, QUIET)
    assert smaller.startswith("matrix of 2048 × 2048 instead of 8192 × 8192")
    assert "holds more than 1/4 of the matrix of 16.8 MB" in cached


def test_bandwidth_is_measured_on_larger_arrays_when_the_cache_holds_the_matrix() -> None:
    assert plan(matrix_size=1024).stream_bytes == 4 * 32 * MIB


def test_little_memory_gives_a_smaller_matrix() -> None:
    # 8192² twice and 512 columns in and out are 571 MB; half of 800 MB is less, and 4096² needs 151 MB
    planned = plan(dataclasses.replace(QUIET, available_memory_bytes=800_000_000))
    assert planned.matrix_size == 4096
    assert planned.stream_bytes == 64 * MIB


def test_too_little_memory_is_an_error_that_says_how_much() -> None:
    with pytest.raises(MeasurementError, match=r"a matrix of 256 × 256 needs 1\.57 MB.*is 50\.0 kB"):
        plan(dataclasses.replace(QUIET, available_memory_bytes=100_000))


@settings(max_examples=60, deadline=None)
@given(available=st.integers(4 * MIB, 64 * GIB), cache=st.integers(0, 2 * GIB), size=st.integers(1, 16384))
def test_a_plan_never_asks_for_more_than_half_of_the_available_memory(available: int, cache: int, size: int) -> None:
    identity = dataclasses.replace(QUIET, available_memory_bytes=available, last_level_cache_bytes=cache or None)
    planned = plan(identity, matrix_size=size)
    matrix = 4 * planned.matrix_size**2
    stream = 0 if planned.stream_bytes == matrix else planned.stream_bytes
    columns = 2 * 4 * planned.matrix_size * 512
    assert matrix + stream + max(stream, matrix) + columns <= available // 2


def test_an_unknown_memory_or_cache_leaves_the_size_and_says_so() -> None:
    identity = dataclasses.replace(QUIET, available_memory_bytes=None, last_level_cache_bytes=None)
    planned = plan(identity)
    assert planned.matrix_size == 8192
    assert explain_plan(planned, identity) == [
        "the last-level cache is unknown: nobody checked that the arrays are larger"
    ]


def test_kernels_forced_by_the_environment_are_named() -> None:
    identity = dataclasses.replace(QUIET, blas_environment={"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "2"})
    (note,) = explain_plan(plan(identity), identity)
    assert "OPENBLAS_CORETYPE=Haswell (Haswell kernels in use)" in note
    assert "OMP_NUM_THREADS" not in note


def test_an_unnamed_matrix_library_is_said() -> None:
    identity = dataclasses.replace(QUIET, blas=())
    (note,) = explain_plan(plan(identity), identity)
    assert "did not say which it is" in note


def test_other_work_on_the_machine_is_said() -> None:
    identity = dataclasses.replace(QUIET, load_average_1min=1.5)
    (note,) = explain_plan(plan(identity), identity)
    assert note.startswith("load average 1.50 on 2 usable cores")
