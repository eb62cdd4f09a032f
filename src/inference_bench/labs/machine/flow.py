"""The machine lab from its request to its result.

In:   MachineRequest
Out:  MachineResult
Read next by: cli, notebook pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import torch

from inference_bench.labs.machine import products as p
from inference_bench.labs.machine.ceilings import SIZES, busy, matrix_bytes, matrix_size_for
from inference_bench.labs.machine.comparison import (
    Rows,
    ceilings_of,
    compare_ceilings,
    highest,
    mark_above,
    pair_rows,
    probe_ceilings,
)
from inference_bench.labs.machine.proof import check_counts, check_products
from inference_bench.labs.machine.request import MachineRequest
from inference_bench.labs.machine.result import LabProduct, Library, LibraryIdentity, MachineResult, Orientation
from inference_bench.labs.model import require_packages
from inference_bench.labs.session import LabSession, Progress
from inference_bench.labs.settings import BFLOAT16
from inference_bench.measure.ceilings import CACHE_MARGIN, ProbeResult
from inference_bench.measure.machine import probe
from inference_bench.measure.machine_identity import identify_blas
from inference_bench.units import format_bytes

QUESTION: Final = "How fast can this machine read memory and multiply matrices, and do two libraries agree on it?"
_ROUNDS: Final = (7, 4)  # full, quick
_READS_A_ROUND: Final = 3  # values at B = 1, which are short
_BUDGET_S: Final = (60.0, 16.0)
_PROBE_S: Final = (25.0, 8.0)
_BFLOAT16_BATCHES: Final = (1, 16, 64)
_FEATURES: Final = ("avx2", "avx512_f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def run_lab(request: MachineRequest, progress: Progress | None = None) -> MachineResult:
    """Time the products of both libraries in turn, then the probe, and say whether they agree.

    Raises:  MissingExtraError, MeasurementError where memory does not suffice
    """
    require_packages("numpy", "threadpoolctl")
    session = LabSession("machine", QUESTION, request.settings, progress)
    quick = request.settings.is_quick
    size = matrix_size_for(session.machine, is_quick=quick, asked=request.matrix_size)
    found = _time_products(session, request, size)
    session.say("the probe: NumPy alone, in turns of its own")
    probed = probe(
        progress=session.say,
        budget_s=_PROBE_S[quick],
        max_batch=max(request.batches),
        matrix_size=size,
        seed=request.settings.seed,
        num_threads=session.num_threads,
    )
    _say_limits(session, request, size, found.num_rounds)
    return _conclude(session, size, found, probed)


@dataclass(frozen=True, slots=True)
class _Found:
    """The products by what they are for, how many rounds they got, and how far each is off."""

    main: list[LabProduct]
    alone: list[LabProduct]
    bfloat16: list[LabProduct]
    num_rounds: int
    errors: list[tuple[str, float]]


def _time_products(session: LabSession, request: MachineRequest, size: int) -> _Found:
    """Every product of the plan; each proved right once before it is timed."""
    quick, batches, threads = request.settings.is_quick, request.batches, session.num_threads
    session.say(f"drawing a matrix of {size} × {size}")
    operands = p.Operands.drawn(size, max(batches), request.settings.seed)
    main, alone, bfloat16 = _plan(operands, batches, threads)
    with p.both_on(threads):
        errors = []
        for each in (*main, *bfloat16):
            name = f"{each.kind.library} {each.kind.orientation}, B = {each.batch}, {each.kind.dtype}"
            session.say(f"proving {name}")
            errors.append((name, p.error_of(operands, each)))
        rounds = p.take_rounds([*main, *bfloat16], _ROUNDS[quick], session.say, budget_s=_BUDGET_S[quick])
    with p.both_on(1):
        p.take_rounds(alone, 4, session.say, min_rounds=2, budget_s=_BUDGET_S[quick] / 4)
    return _Found(
        [each.product(size, threads) for each in main],
        [each.product(size, 1) for each in alone],
        [each.product(size, threads) for each in bfloat16],
        rounds,
        errors,
    )


def _plan(
    operands: p.Operands, batches: tuple[int, ...], num_threads: int
) -> tuple[list[p.Timed], list[p.Timed], list[p.Timed]]:
    """Both libraries in both orientations; the ends with one thread; a few in bfloat16."""

    def timed(kind: p.Kind, each: tuple[int, ...]) -> list[p.Timed]:
        return [p.Timed(kind, b, p.make_call(operands, kind, b), _READS_A_ROUND if b == 1 else 1) for b in each]

    kinds = [p.Kind(library, orientation) for library in Library for orientation in Orientation]
    main = [each for kind in kinds for each in timed(kind, batches)]
    ends = tuple(sorted({batches[0], batches[-1]})) if num_threads > 1 else ()
    alone = [each for kind in kinds for each in timed(kind, ends)]
    few = tuple(sorted({*(batch for batch in _BFLOAT16_BATCHES if batch in batches), batches[-1]}))
    return main, alone, timed(p.Kind(Library.PYTORCH, Orientation.ROWS, BFLOAT16), few)


def _say_limits(session: LabSession, request: MachineRequest, size: int, num_rounds: int) -> None:
    """What the quick mode, or this machine, did not do."""
    if request.settings.is_quick:
        session.left_out.append(
            f"quick: B = {', '.join(map(str, request.batches))} alone, {num_rounds} rounds, a matrix of {size} × {size}"
        )
    elif size < (request.matrix_size or SIZES[-1]):
        session.left_out.append(f"a matrix larger than {size} × {size}: it would not fit half of the free memory")
    cache, matrix = session.machine.last_level_cache_bytes, matrix_bytes(size)
    if cache is None:
        session.assumptions.append("the last-level cache is unknown: nobody checked that the matrix is larger")
    elif matrix < CACHE_MARGIN * cache:
        session.assumptions.append(
            f"the last-level cache of {format_bytes(cache)} holds more than 1/{CACHE_MARGIN} of the matrix of {format_bytes(matrix)}: "
            "rows of few columns may be faster than memory allows"
        )
    session.assumptions += busy(session)
    session.assumptions.append(
        "bytes and FLOPs are counted from the shapes, each operand once; they are not read from a hardware counter"
    )


def _conclude(session: LabSession, size: int, found: _Found, probed: ProbeResult) -> MachineResult:
    libraries = _libraries(session.num_threads)
    rows = Rows(found.main, found.alone, probed, libraries, session.num_threads)
    mine, theirs = (ceilings_of(rows.of(library)) for library in Library)
    probe_own = probe_ceilings(probed)
    return MachineResult(
        head=session.head(),
        checks=(check_products(found.errors), check_counts(size, [*found.main, *found.alone, *found.bfloat16])),
        matrix_size=size,
        matrix_bytes=matrix_bytes(size),
        last_level_cache_bytes=session.machine.last_level_cache_bytes,
        num_rounds=found.num_rounds,
        products=mark_above(found.main, probe_own),
        one_thread_products=tuple(found.alone),
        bfloat16_products=tuple(found.bfloat16),
        pairs=pair_rows(rows),
        agreements=compare_ceilings(rows),
        ceilings=highest((mine, theirs, probe_own)),
        torch_ceilings=mine,
        numpy_ceilings=theirs,
        probe_ceilings=probe_own,
        probe_bandwidth_rows=probed.bandwidth_rows,
        libraries=libraries,
        cpu_features=_cpu_features(),
    )


def _libraries(num_threads: int) -> tuple[LibraryIdentity, ...]:
    """What each library multiplies with, in its own words."""
    config = torch.__config__.show()
    named = [name for name in ("mkl", "openblas", "eigen", "accelerate") if f"BLAS_INFO={name}" in config]
    parts = [part for part in ("MKL",) if "mkl" in named and torch.backends.mkl.is_available()] or named
    parts += ["oneDNN"] if torch.backends.mkldnn.is_available() else []
    capability = torch.backends.cpu.get_cpu_capability()
    mine = LibraryIdentity(
        Library.PYTORCH, torch.__version__, " and ".join(parts) or "unnamed", capability, num_threads
    )
    blas = next(iter(identify_blas()), None)
    numpy_version = version("numpy")
    if blas is None:
        return mine, LibraryIdentity(
            Library.NUMPY, numpy_version, "a library that does not say which", None, num_threads
        )
    name = f"{blas.name} {blas.version or ''}".rstrip()
    return mine, LibraryIdentity(Library.NUMPY, numpy_version, name, blas.architecture, num_threads)


def _cpu_features() -> dict[str, bool]:
    """Which units for products this processor has, where PyTorch tells."""
    told = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return {name: bool(told[name]) for name in _FEATURES if name in told}
