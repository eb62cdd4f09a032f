"""The same model in several formats, caches and engines: each combination measured, all under one roof.

In:   MatrixRequest
Out:  MatrixResult; each round of each combination is a verification in a run folder of its own, below the matrix's folder
Leaves out: what one verification does (flow), the conversions (convert), what a report shows
Read next by: cli.

A combination that an engine does not take is named with the reason and is no failure of the run. One that fails leaves the others
as they are, and a person who ends the matrix early gets what was measured by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from inference_bench.compare import ComparedPoint
from inference_bench.convert.cached import kept_conversion
from inference_bench.engines.base import LLAMA_CPP
from inference_bench.engines.embedded_model import ensure_embedded_model
from inference_bench.errors import InferenceBenchError, MeasurementError, RequestError, ServerStartError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.measure.ceilings import ProbeResult
from inference_bench.measure.files import sha256_of_file
from inference_bench.measure.here import machine_from_probe
from inference_bench.measure.store import RunFolder
from inference_bench.origin import Origin
from inference_bench.roofline import Roof, bound, roof
from inference_bench.units import format_fraction, format_seconds
from inference_bench.verify.calibration_plan import OF_THE_SWEEP
from inference_bench.verify.calibration_sweep import NOT_ALL_MEASURED
from inference_bench.verify.ceiling_readings import read_again, read_ceilings
from inference_bench.verify.flow import verify_server
from inference_bench.verify.matrix_axes import AUTO, OWN, Combination, MatrixAxes, shuffled_rounds
from inference_bench.verify.matrix_result import (
    ROUNDS_AGREE,
    MatrixPoint,
    MatrixResult,
    MatrixRow,
    Outcome,
    Step,
)
from inference_bench.verify.plan import Plan
from inference_bench.verify.result import UNSTEADY, VerifyResult
from inference_bench.verify.session import VerifyRequest

MATRIX_PLAN: Final = Plan(
    batches=(1, 4, 8),
    contexts=(64,),
    prompts=(192,),
    mixtures=(),
    held_batches=(),
    held_contexts=(),
    held_prompts=(),
    held_mixtures=(),
    output_tokens=16,
    max_rounds=1,
    budget_s=60.0,  # for a slow machine: a round ends within seconds, and steps that are left out cannot be compared
)
_QUICK_ROUNDS, _SLOW_ROUNDS = 2, 1  # of engines that are up within seconds, and of others
_NOT_REACHED: Final = "no round of it came to its end"
_TOLD: Final = (UNSTEADY, OF_THE_SWEEP, NOT_ALL_MEASURED)  # of a round's notes, what bears on a comparison
_FOLDER_DTYPES: Final = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

Progress = Callable[[str], None]
Measure = Callable[[VerifyRequest, Progress | None], VerifyResult]


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """What to vary and how.

    Where:    model None is the embedded one; machine None is this one, probed once for all; num_rounds None is two, and one as soon
              as an engine takes long to start
    Unit:     seconds
    """

    axes: MatrixAxes
    model: Path | None = None
    machine: HardwareSpec | None = None
    num_threads: int | None = None
    plan: Plan = MATRIX_PLAN
    num_rounds: int | None = None
    runs: Path = Path("runs")
    seed: int = 0
    timeout_s: float = 120.0


@dataclass(slots=True)
class _Tried:
    """What came of a combination so far."""

    results: list[VerifyResult] = field(default_factory=list)
    outcome: Outcome = Outcome.MEASURED
    said: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is worth another round."""
        return self.outcome is Outcome.MEASURED and not self.said


@dataclass(frozen=True, slots=True)
class _Source:
    """The model that is varied."""

    path: Path
    name: str
    sha256: str


def run_matrix(
    request: MatrixRequest,
    progress: Progress | None = None,
    keep: Callable[[VerifyResult], None] | None = None,
    measure: Measure = verify_server,
) -> MatrixResult:
    """Convert, measure every combination that composes, and put all of them under one roof.

    Where:    keep is told of every finished verification at once; an interruption ends the rounds, and what they measured is kept
    Raises:   RequestError for what cannot be asked; MeasurementError when no combination could be measured; StorageError;
              KeyboardInterrupt where nothing was measured by then
    """
    say = progress or (lambda _text: None)
    started, started_s = datetime.now(UTC), time.monotonic()
    _require_here(request.machine)
    source, folder = _source(request, say), RunFolder.create(request.runs, "matrix")
    before = read_ceilings(request.plan.probe_budget_s, say) if request.machine is None else None
    machine = machine_from_probe(before) if before else _named(request.machine)
    tried = _converted(request, source, say)
    num_rounds = request.num_rounds or _usual_rounds(request.axes)

    def run(number: int, combination: Combination) -> None:
        if isinstance(one := tried[combination], _Ready):
            asked = _asked(request, one, combination, machine, folder.path)
            _measure(one.tried, asked, f"{combination.name}, round {number} of {num_rounds}", measure, say, keep)

    def run_all() -> ProbeResult | None:
        for number, combination in shuffled_rounds(request.axes.combinations(), request.seed, num_rounds):
            run(number + 1, combination)
        for combination in _unsettled(tried, machine):
            run(num_rounds + 1, combination)
        return read_again(before, request.plan.second_probe_budget_s, say) if before else None

    try:
        ceilings, is_interrupted = run_all(), False
    except KeyboardInterrupt:
        if not _has_results(tried.values()):
            raise
        ceilings, is_interrupted = before, True
    machine = machine_from_probe(ceilings) if ceilings else machine
    rows = tuple(_row(combination, one, machine) for combination, one in tried.items())
    if not any(row.outcome is Outcome.MEASURED for row in rows):
        raise MeasurementError(
            f"no combination could be measured; the first: {rows[0].combination.name}: {rows[0].said}"
        )
    return MatrixResult(
        started_at=started.isoformat(timespec="seconds"),
        elapsed_s=time.monotonic() - started_s,
        axes=request.axes,
        model=source.name,
        model_sha256=source.sha256,
        machine=machine,
        probe=ceilings,
        rows=rows,
        num_rounds=num_rounds,
        seed=request.seed,
        folder=folder.path,
        notes=_notes(request, ceilings, num_rounds),
        is_interrupted=is_interrupted,
    )


def _require_here(machine: HardwareSpec | None) -> None:
    if machine is not None and machine.origin is Origin.PUBLISHED:
        raise RequestError(
            f"the engines of a matrix run on this machine, not on {machine.name}; leave the machine out to have this one probed"
        )


def _named(machine: HardwareSpec | None) -> HardwareSpec:
    if machine is None:
        raise MeasurementError("this machine was not probed and no other machine was named")
    return machine


def _source(request: MatrixRequest, say: Progress) -> _Source:
    if request.model is None:
        embedded = ensure_embedded_model(progress=say)
        return _Source(embedded.path, embedded.name.rsplit(" ", 1)[0], embedded.sha256)
    if request.model.suffix != ".gguf" or not request.model.is_file():
        raise RequestError(f"a matrix re-encodes one .gguf file; {str(request.model)[:120]!r} is not one")
    say(f"hashing {request.model.name}")
    return _Source(request.model, request.model.stem, sha256_of_file(request.model))


def _usual_rounds(axes: MatrixAxes) -> int:
    return _QUICK_ROUNDS if set(axes.engine) == {LLAMA_CPP} else _SLOW_ROUNDS


# ── models ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Ready:
    """A combination whose model file is there."""

    model: Path
    tried: _Tried


_State = _Ready | _Tried


def _converted(request: MatrixRequest, source: _Source, say: Progress) -> dict[Combination, _State]:
    """Each combination with its model, or with why it has none; every conversion is made once, before anything is timed."""
    made: dict[tuple[str, bool], Path | InferenceBenchError] = {}
    states: dict[Combination, _State] = {}
    for combination in request.axes.combinations():
        reason = not_composed(combination)
        if reason is not None:
            states[combination] = _Tried(outcome=Outcome.NOT_COMPOSED, said=reason)
            continue
        key = (combination.weights, combination.engine == LLAMA_CPP)
        if key not in made:
            made[key] = _model_for(combination, source, say)
        model = made[key]
        states[combination] = _refused(model) if isinstance(model, InferenceBenchError) else _Ready(model, _Tried())
    return states


def not_composed(combination: Combination) -> str | None:
    """Why no engine needs to be asked about a combination; None where it does.

    Where:    engines that serve a folder read plain numbers from it
    """
    if combination.engine == LLAMA_CPP:
        return None
    if combination.weights not in (OWN, *_FOLDER_DTYPES):
        return (
            f"{combination.engine} serves a Hugging Face folder, which holds {', '.join(_FOLDER_DTYPES)} and no blocks of "
            f"{combination.weights}"
        )
    return None


def _model_for(combination: Combination, source: _Source, say: Progress) -> Path | InferenceBenchError:
    is_file = combination.engine == LLAMA_CPP
    if is_file and combination.weights == OWN:
        return source.path
    say(f"converting to {combination.weights} for {combination.engine}")
    dtype = _FOLDER_DTYPES.get(combination.weights, "float32")
    try:
        if is_file:
            return kept_conversion(source.path, source.sha256, combination.weights, progress=say).path
        return kept_conversion(source.path, source.sha256, "hf", dtype, say).path
    except InferenceBenchError as error:
        return error


def _refused(error: InferenceBenchError) -> _Tried:
    """A combination that got no further: it does not compose, or the world failed it."""
    composes = not isinstance(error, RequestError | ServerStartError)
    return _Tried(outcome=Outcome.FAILED if composes else Outcome.NOT_COMPOSED, said=str(error))


# ── measuring ──────────────────────────────────────────────────────────────────────────────────────


def _asked(
    request: MatrixRequest, one: _Ready, combination: Combination, machine: HardwareSpec, folder: Path
) -> VerifyRequest:
    """The verification of one combination, of the same steps as that of every other, whatever the pace of each start.

    Where:    vLLM and SGLang keep their cache in the weights' own format unless they are told another, so that one is not named
    """
    is_own = combination.engine != LLAMA_CPP and combination.kv == (
        combination.weights if combination.weights != OWN else "f32"
    )
    return VerifyRequest(
        model=str(one.model),
        machine=machine,
        cache=None if combination.kv == AUTO or is_own else combination.kv,
        engine=combination.engine,
        num_threads=request.num_threads,
        plan=replace(request.plan, is_fixed=True),
        runs_load=False,
        runs=folder / combination.slug,
        seed=request.seed,
        timeout_s=request.timeout_s,
    )


def _measure(
    tried: _Tried,
    asked: VerifyRequest,
    what: str,
    measure: Measure,
    say: Progress,
    keep: Callable[[VerifyResult], None] | None,
) -> None:
    """One round of one combination; an error of it is kept, and the others go on."""
    if not tried.is_open:
        return
    try:
        result = measure(asked, lambda line: say(f"{what}: {line}"))
    except InferenceBenchError as error:
        refused = _refused(error)
        tried.said = refused.said
        if not tried.results:
            tried.outcome = refused.outcome
        return
    tried.results.append(result)
    if keep is not None:
        keep(result)
    if result.is_interrupted:
        raise KeyboardInterrupt


def _has_results(tried: Iterable[_State]) -> bool:
    return any(isinstance(one, _Ready) and one.tried.results for one in tried)


def _unsettled(tried: Mapping[Combination, _State], machine: HardwareSpec) -> list[Combination]:
    """The combinations whose rounds disagree so much that one more has to say which of them was disturbed."""
    rows = [_row(combination, one, machine) for combination, one in tried.items() if isinstance(one, _Ready)]
    return [row.combination for row in rows if any((point.rounds_apart or 0) > ROUNDS_AGREE for point in row.points)]


# ── rows ───────────────────────────────────────────────────────────────────────────────────────────


def _row(combination: Combination, one: _State, machine: HardwareSpec) -> MatrixRow:
    tried = one.tried if isinstance(one, _Ready) else one
    if not tried.results:
        outcome = Outcome.FAILED if tried.is_open else tried.outcome
        return MatrixRow(combination, outcome, tried.said or _NOT_REACHED)
    first = tried.results[0]
    weights = first.model.weights
    ceiling = roof(machine, weights.linear_format)
    return MatrixRow(
        combination=combination,
        outcome=Outcome.MEASURED,
        said=tried.said,
        engine=" ".join(filter(None, (first.engine.name, first.engine.version))),
        weights=weights.format_name,
        cache="/".join(dict.fromkeys(filter(None, (first.figures.cache_type_k, first.figures.cache_type_v)))),
        weight_bytes=weights.read_per_step,
        ceiling=ceiling,
        points=tuple(_pooled(tried.results, ceiling)),
        runs=tuple(result.run_dir for result in tried.results),
        notes=tuple(_odd(tried)),
    )


def _pooled(results: Sequence[VerifyResult], ceiling: Roof) -> Iterable[MatrixPoint]:
    """Each step over all rounds, under the ceilings of the whole matrix.

    Where:    a step's work is that of the first round; texts of other rounds may come out a few tokens longer or shorter
    """
    rounds: dict[Step, list[ComparedPoint]] = {}
    for point in (point for result in results for point in result.points):
        of = point.measured
        rounds.setdefault(Step(of.phase, of.batch, of.nominal_context_tokens), []).append(point)
    for step, points in rounds.items():
        first = points[0]
        yield MatrixPoint(
            step=step,
            context_tokens=first.measured.context_tokens,
            tokens=first.tokens_per_step,
            bound=bound(str(step.phase), first.bound.flops, first.bound.num_bytes, ceiling),
            rounds_s=tuple(point.measured.seconds for point in points),
        )


def _odd(tried: _Tried) -> Iterable[str]:
    """What was odd in the rounds of a combination."""
    if tried.said:
        yield f"a later round gave nothing: {tried.said}"
    for number, result in enumerate(tried.results, start=1):
        yield from (f"round {number}: {note}" for note in result.notes if any(word in note for word in _TOLD))


def _notes(request: MatrixRequest, ceilings: ProbeResult | None, num_rounds: int) -> tuple[str, ...]:
    return (
        *(ceilings.notes if ceilings else ()),
        f"every combination was started anew in each of {num_rounds} round(s), each round in an order drawn from seed {request.seed}, "
        f"and once more where its rounds lay more than {format_fraction(ROUNDS_AGREE)} apart; each time for at most "
        f"{format_seconds(request.plan.budget_s)}",
    )
