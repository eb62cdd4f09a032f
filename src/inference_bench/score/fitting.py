"""Fitting the efficiencies on measured rows: penalised least squares on the logarithm of the time, outliers discounted.

In:   Cases with a question
Out:  Parameters for steps timed alone and for serving
Leaves out: intervals (cross_validation)
Read next by: cross_validation, scripts/fit_efficiency.py.

Each effect is normal around its prior mean with the spread its kind has (`SPREADS`): an engine with few rows stays near
its pool. Residuals follow Student's t with three degrees of freedom, so that rows which contradict the rest lose their
say. A group of like rows (phase, machine, engine) counts less than its number: weights are rows^-WEIGHT_POWER.
Needs NumPy and SciPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse

from inference_bench.predict.efficiency.effects import SERVING_TERMS, serving_effects, term_effects
from inference_bench.predict.efficiency.expectation import FLOOR_SHARPNESS, LARGEST_EXPONENT
from inference_bench.predict.efficiency.parameters import Parameters
from inference_bench.predict.efficiency.question import Phase, Shape
from inference_bench.predict.efficiency.terms import COMPUTE_TERMS, MEMORY_TERMS, TERMS, StepTerms
from inference_bench.score.priors import NORM, PRIOR_MEANS, SCALE, SMALLEST_KEPT, WEIGHT_POWER, spread_of

Array = Any  # numpy.ndarray, which carries no types here
_MEMORY: Final = slice(0, len(MEMORY_TERMS))
_COMPUTE: Final = slice(len(MEMORY_TERMS), len(MEMORY_TERMS) + len(COMPUTE_TERMS))
_OVERHEADS: Final = slice(len(MEMORY_TERMS) + len(COMPUTE_TERMS), len(TERMS))
_DEGREES: Final = 3.0
_ROUNDS: Final = 60
_TOLERANCE: Final = 1e-5
_TINY: Final = 1e-30


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows as arrays.

    Where:  terms [2, rows, TERMS] of decode and prefill steps; entries[kind] are (row, term, column) of every effect on
            a term; serving[term] are (row, column); paid are the fixed counts of both steps; log_s the targets
    """

    is_serving: bool
    columns: Mapping[str, int]
    means: Array
    spreads: Array
    terms: Array
    entries: tuple[Array, Array]
    serving: Mapping[str, Array]
    running: Array
    offered: Array
    output: Array
    waves: Array
    is_ttft: Array
    is_tpot: Array
    decode_paid: Array
    prefill_paid: Array
    log_s: Array
    weights: Array

    def without(self, keep: Array) -> Problem:
        """The rows that are kept; every column stays."""
        renumbered = np.cumsum(keep) - 1

        def cut(entries: Array) -> Array:
            kept = entries[keep[entries[:, 0]]].copy()
            kept[:, 0] = renumbered[kept[:, 0]]
            return kept

        rows = {
            name: getattr(self, name)[keep]
            for name in (
                *("running", "offered", "output", "waves", "is_ttft", "is_tpot"),
                *("decode_paid", "prefill_paid", "log_s", "weights"),
            )
        }
        return Problem(
            is_serving=self.is_serving,
            columns=self.columns,
            means=self.means,
            spreads=self.spreads,
            terms=self.terms[:, keep],
            entries=(cut(self.entries[0]), cut(self.entries[1])),
            serving={term: cut(entries) for term, entries in self.serving.items()},
            **rows,
        )


def problem(shapes: Sequence[Shape], seconds: Sequence[float]) -> Problem:
    """The arrays of some rows, all of serving or none."""
    columns: dict[str, int] = {}

    def column(name: str) -> int:
        return columns.setdefault(name, len(columns))

    entries = tuple(
        np.array(
            [
                (index, TERMS.index(term), column(name))
                for index, form in enumerate(shapes)
                for term, value in zip(TERMS, _values(form, is_decode), strict=True)
                if value > 0
                for name in term_effects(form.question.setting, term, form.limits.is_pcie, is_decode=is_decode)
            ],
            dtype=int,
        ).reshape(-1, 3)
        for is_decode in (True, False)
    )
    serving = {term: _serving_entries(shapes, term, column) for term in SERVING_TERMS}
    phases = [form.question.phase for form in shapes]
    names = list(columns)
    output = np.array([float(max(1, form.question.output_tokens)) for form in shapes])
    waves = np.array([form.waves for form in shapes])
    is_e2e = np.array([phase is Phase.E2E for phase in phases])
    return Problem(
        is_serving=shapes[0].question.is_serving,
        columns=columns,
        means=np.array([PRIOR_MEANS.get(name.removesuffix("|base"), 0.0) for name in names]),
        spreads=np.array([spread_of(name, is_serving=shapes[0].question.is_serving) for name in names]),
        terms=np.array([[_values(form, is_decode) for form in shapes] for is_decode in (True, False)]),
        entries=(entries[0], entries[1]),
        serving=serving,
        running=np.array([form.running for form in shapes]),
        offered=np.array([form.offered for form in shapes]),
        output=output,
        waves=waves,
        is_ttft=np.array([phase is Phase.SERVING_TTFT for phase in phases]),
        is_tpot=np.array([phase is Phase.SERVING_TPOT for phase in phases]),
        decode_paid=np.where(is_e2e, (output - 1) * waves, 1.0),
        prefill_paid=np.ones(len(shapes)),
        log_s=np.log(np.array(seconds)),
        weights=_weights(shapes),
    )


def _values(form: Shape, is_decode: bool) -> tuple[float, ...]:
    step: StepTerms | None = form.decode if is_decode else form.prefill
    return (0.0,) * len(TERMS) if step is None else step.values


def _serving_entries(shapes: Sequence[Shape], term: str, column: Any) -> Array:
    wanted = Phase.SERVING_TPOT if term == "interference" else Phase.SERVING_TTFT
    rows = [
        (index, column(name))
        for index, form in enumerate(shapes)
        if form.question.phase is wanted
        for name in serving_effects(form.question.setting, term, form.decode is not None and form.decode.values[1] > 0)
    ]
    return np.array(rows, dtype=int).reshape(-1, 2)


def _weights(shapes: Sequence[Shape]) -> Array:
    """Rows of large groups count less, so that one long sweep does not decide; their mean is 1."""
    groups = [
        (form.question.phase, form.question.setting.machine.name, form.question.setting.engine) for form in shapes
    ]
    counts = Counter(groups)
    power = WEIGHT_POWER["serving" if shapes[0].question.is_serving else "alone"]
    weights = np.array([counts[group] ** -power for group in groups])
    return weights / weights.mean()


def predict_log(rows: Problem, at: Array) -> Array:
    """The logarithm of every row's time."""
    return _forward(rows, at)[0]


def _forward(rows: Problem, at: Array) -> tuple[Array, list[Array], tuple[Array, Array], dict[str, Array]]:
    """Logarithms of the times; for each kind of step its sensitivities, how often it is paid, and the serving terms."""
    number = len(rows.log_s)
    norm = NORM["serving" if rows.is_serving else "alone"]
    times, slopes = [], []
    for entries, terms in zip(rows.entries, rows.terms, strict=True):
        flat = entries[:, 0] * len(TERMS) + entries[:, 1]
        logs = np.bincount(flat, weights=at[entries[:, 2]], minlength=number * len(TERMS)).reshape(number, -1)
        factors, bends = _factors(logs)
        parts = terms * factors
        memory, compute = parts[:, _MEMORY].sum(1) + _TINY, parts[:, _COMPUTE].sum(1) + _TINY
        together = (memory**norm + compute**norm) ** (1 / norm)
        times.append(together + parts[:, _OVERHEADS].sum(1))
        parts[:, _MEMORY] *= ((memory / together) ** (norm - 1))[:, None]
        parts[:, _COMPUTE] *= ((compute / together) ** (norm - 1))[:, None]
        slopes.append(parts * bends)
    extra = {
        term: np.exp(np.bincount(entries[:, 0], weights=at[entries[:, 1]], minlength=number))
        for term, entries in rows.serving.items()
    }
    waiting = extra["wait"] * rows.output / rows.offered
    decode = np.where(rows.is_ttft, extra["first_step"] + waiting + (rows.waves - 1) * rows.output, rows.decode_paid)
    prompts = extra["own_prompt"] + extra["burst"] * rows.running
    prefill = np.where(rows.is_ttft, prompts, rows.prefill_paid)
    prefill = np.where(rows.is_tpot, extra["interference"] * rows.running / rows.output, prefill)
    seconds = decode * times[0] + prefill * times[1]
    shares = {
        "interference": extra["interference"] * rows.running / rows.output * times[1] / seconds,
        "own_prompt": extra["own_prompt"] * times[1] / seconds,
        "burst": extra["burst"] * rows.running * times[1] / seconds,
        "first_step": extra["first_step"] * times[0] / seconds,
        "wait": waiting * times[0] / seconds,
    }
    return np.log(seconds), slopes, (decode / seconds, prefill / seconds), shares


def _factors(logs: Array) -> tuple[Array, Array]:
    """Factors of every term, those of bytes and FLOPs floored as `expectation.floored`, and their slopes."""
    factors, bends = np.exp(np.clip(logs, -30, 30)), np.ones_like(logs)
    bounded = slice(0, _COMPUTE.stop)
    raised = np.exp(np.clip(FLOOR_SHARPNESS * logs[:, bounded], -LARGEST_EXPONENT, LARGEST_EXPONENT))
    factors[:, bounded] = (1 + raised) ** (1 / FLOOR_SHARPNESS)
    bends[:, bounded] = raised / (1 + raised)
    return factors, bends


def _jacobian(rows: Problem, at: Array) -> tuple[Array, Array]:
    logs, slopes, paid, shares = _forward(rows, at)
    found: list[tuple[Array, Array, Array]] = []
    for entries, parts, times in zip(rows.entries, slopes, paid, strict=True):
        values = parts[entries[:, 0], entries[:, 1]] * times[entries[:, 0]]
        found.append((values, entries[:, 0], entries[:, 2]))
    for term, entries in rows.serving.items():
        found.append((shares[term][entries[:, 0]], entries[:, 0], entries[:, 1]))
    values, lines, columns = (np.concatenate(column) for column in zip(*found, strict=True))
    return logs, sparse.csr_matrix((values, (lines, columns)), shape=(len(rows.log_s), len(rows.means)))


def fit(rows: Problem) -> Array:
    """The most likely effects: damped Gauss-Newton (Levenberg-Marquardt) with weights of Student's t.

    Formula:  argmin Σ w·(ν + 1)/2·log(1 + r²/(ν·s²)) + Σ (effect - mean)²/(2·spread²)
    Unit:     logarithms
    """
    scale = SCALE["serving" if rows.is_serving else "alone"]
    at = rows.means.copy()
    precision, damping = 1 / rows.spreads**2, 1e-3

    def loss(logs: Array, effects: Array) -> float:
        rest = rows.log_s - logs
        misfit = rows.weights * (_DEGREES + 1) / 2 * np.log1p((rest / scale) ** 2 / _DEGREES)
        return float(misfit.sum() + 0.5 * (precision * (effects - rows.means) ** 2).sum())

    for _ in range(_ROUNDS):
        logs, jacobian = _jacobian(rows, at)
        rest = rows.log_s - logs
        weights = rows.weights * (_DEGREES + 1) / (_DEGREES * scale**2 + rest**2)
        before = loss(logs, at)
        curvature = (jacobian.T @ jacobian.multiply(weights[:, None])).toarray()
        curvature[np.diag_indices(len(at))] += precision
        slope = jacobian.T @ (weights * rest) - precision * (at - rows.means)
        for _ in range(8):
            damped = curvature + np.diag(damping * np.diag(curvature))
            tried = at + np.clip(np.linalg.solve(damped, slope), -1, 1)
            after = loss(predict_log(rows, tried), tried)
            if after < before:
                break
            damping *= 6
        else:
            break
        at, damping = tried, max(damping / 4, 1e-7)
        if before - after < _TOLERANCE * abs(before):
            break
    return at


def parameters(rows: Problem, at: Array) -> Parameters:
    """The effects as they ship: rounded, and without those too small to matter."""
    values = {
        name: round(float(at[column]), 3)
        for name, column in sorted(rows.columns.items())
        if abs(at[column]) >= SMALLEST_KEPT
    }
    return Parameters(values, NORM["serving" if rows.is_serving else "alone"])
