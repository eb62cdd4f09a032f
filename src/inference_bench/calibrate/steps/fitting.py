"""The formula of a step's time, fitted to some measured steps and chosen by others.

In:   StepObservations of one served model on one machine
Out:  StepCalibration: form, numbers with intervals, every candidate, honest errors, words, and a profile
Leaves out: how steps are measured (verify), what the gap is made of (gap)
Read next by: verify.

The way: columns (what each number multiplies), candidates (every formula, fitted to what is not held out), choosing (by what
is), intervals, reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from inference_bench.calibrate.steps.candidates import MAXIMA, Fit, fit_all, varied
from inference_bench.calibrate.steps.choosing import Choice, choose
from inference_bench.calibrate.steps.columns import measured_steps
from inference_bench.calibrate.steps.forms import FittedObservation, StepCalibration, StepParameter, predict_step_s
from inference_bench.calibrate.steps.intervals import parameters_of
from inference_bench.calibrate.steps.observations import StepKind, StepObservation
from inference_bench.calibrate.steps.reading import StepReading, cautions
from inference_bench.errors import RequestError, TooFewSamplesError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.predict.fitted_cost import MeasuredReach
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.profile_fields import ProfileCache
from inference_bench.simulate.profile_work import own_work
from inference_bench.simulate.settings import SchedulerSettings
from inference_bench.simulate.step_profile import StepProfile
from inference_bench.simulate.step_sources import Ceilings, Shares, ceilings_of, step_time_at
from inference_bench.stats import median, quantile

LEAST_STEPS: Final = 8
LEAST_FITTED: Final = 6
LEAST_OF_FORMAT: Final = 2
_HELD_BACK: Final = 4  # every fourth step is kept from the fit where the sweep held out none

Run = tuple[ServedModel, Sequence[StepObservation]]


class Server(NamedTuple):
    """Whose steps they were: a machine's name, the engine with its scheduler and cache, where the steps are from, and the date."""

    machine: str
    engine: str
    source: str
    as_of: str
    scheduler: SchedulerSettings | None
    cache: ProfileCache | None


def fit_steps(
    observations: Sequence[StepObservation],
    served: ServedModel,
    machine: HardwareSpec,
    *,
    engine: str,
    source: str,
    as_of: str,
    scheduler: SchedulerSettings | None = None,
    cache: ProfileCache | None = None,
) -> StepCalibration:
    """The formula that says best how long steps take that it was not fitted to.

    Where:    where no step is held out every fourth one is kept from the fit, and comes back marked so. held_out_error is honest:
              the formula is chosen without each held-out step in turn, and judged by that step alone
    Raises:   TooFewSamplesError below 8 steps, or below 6 that are not held out; RequestError for a time that is none, a step that
              computes nothing, or a ceiling that is not known
    """
    server = Server(machine.name, engine, source, as_of, scheduler, cache)
    return _fit_over([(served, observations)], machine, server)[0]


def fit_steps_over(
    runs: Sequence[Run],
    machine: HardwareSpec,
    *,
    engine: str,
    source: str,
    as_of: str,
    scheduler: SchedulerSettings | None = None,
    cache: ProfileCache | None = None,
) -> tuple[StepCalibration, ...]:
    """One formula for the same engine with weights in several formats: one calibration each, in order.

    Where:    compute and the kernel for single positions have a share in each format; bandwidth, cache and times are shared by
              all, so that a fixed time is told from the reading of weights. Candidates' errors are over all runs
    Raises:   TooFewSamplesError below 8 steps in all, 6 that are not held out, or 2 of those in a format; else as fit_steps
    """
    return _fit_over(runs, machine, Server(machine.name, engine, source, as_of, scheduler, cache))


def _fit_over(runs: Sequence[Run], machine: HardwareSpec, server: Server) -> tuple[StepCalibration, ...]:
    if not runs:
        raise RequestError("no run is given to fit steps of; give the steps of at least one served model")
    kept = [_held_back(observations) for _, observations in runs]
    _require_enough(kept)
    ceilings = [ceilings_of(served, machine) for served, _ in runs]
    steps = [
        step
        for group, ((served, _), own, ceiling) in enumerate(zip(runs, kept, ceilings, strict=True))
        for step in measured_steps(own, served, ceiling, group)
    ]
    marks = [each.is_held_out for own in kept for each in own]
    fitted = [step for step, is_held_out in zip(steps, marks, strict=True) if not is_held_out]
    held_out = [step for step, is_held_out in zip(steps, marks, strict=True) if is_held_out]
    choice = choose(fit_all(fitted), fitted, held_out)
    numbers, options = parameters_of(choice.fit, fitted), varied(fitted)
    honest = _split(choice.honest, [sum(each.is_held_out for each in own) for own in kept])
    return tuple(
        _calibration(
            _Part(own, served, ceiling, errors, machine.compute_format(served.weights.linear_format)),
            server,
            choice,
            parameters,
            options,
        )
        for (served, _), own, ceiling, errors, parameters in zip(runs, kept, ceilings, honest, numbers, strict=True)
    )


class _Part(NamedTuple):
    """What belongs to one weight format: its steps, its ceilings, and the honest errors of its held-out steps."""

    observations: tuple[StepObservation, ...]
    served: ServedModel
    ceilings: Ceilings
    honest: tuple[float, ...]
    compute_format: str | None


def _held_back(observations: Sequence[StepObservation]) -> tuple[StepObservation, ...]:
    """The steps with some held out: those that the sweep marked, or else every fourth."""
    if any(each.is_held_out for each in observations):
        return tuple(observations)
    return tuple(replace(each, is_held_out=index % _HELD_BACK == 1) for index, each in enumerate(observations))


def _require_enough(kept: Sequence[Sequence[StepObservation]]) -> None:
    num_fitted = [sum(not each.is_held_out for each in own) for own in kept]
    count = sum(map(len, kept))
    if count < LEAST_STEPS or sum(num_fitted) < LEAST_FITTED or min(num_fitted) < LEAST_OF_FORMAT:
        raise TooFewSamplesError(
            f"{count} step(s) were measured, {sum(num_fitted)} of them to fit to; at least {LEAST_STEPS} are needed, {LEAST_FITTED} "
            f"of them not held out, {LEAST_OF_FORMAT} of each weight format: measure more batch sizes, contexts or prompts"
        )


def _split(values: tuple[float, ...], counts: Sequence[int]) -> list[tuple[float, ...]]:
    """Values in parts of so many; empty parts where there are no values."""
    return [values[start:end] for start, end in pairwise((0, *accumulate(counts)))]


def _calibration(
    part: _Part, server: Server, choice: Choice, parameters: tuple[StepParameter, ...], options: Sequence[str]
) -> StepCalibration:
    shares, request_s = _shares(choice.fit, parameters)
    form, honest = choice.fit.formula.form, part.honest
    step_time = step_time_at(part.served, part.ceilings, server.machine, shares)
    reading = StepReading(part.served, server.machine, form, shares, step_time, part.ceilings, part.observations)
    predicted = tuple(FittedObservation(each, predict_step_s(step_time, request_s, each)) for each in part.observations)
    errors = _errors_by_kind(predicted)
    return StepCalibration(
        served=part.served,
        form=form,
        shares=shares,
        request_s=request_s,
        parameters=parameters,
        candidates=choice.candidates,
        observations=predicted,
        step_time=step_time,
        bandwidth_bytes_per_s=part.ceilings.bandwidth_bytes_per_s,
        compute_flops_per_s=part.ceilings.compute_flops_per_s,
        held_out_error=median(honest) if honest else None,
        error_by_kind=errors,
        reading=reading.sentences(),
        notes=cautions(part.observations, parameters, options, len(honest)),
        profile=_profile(part, server, choice, parameters, errors),
        held_out_p90=quantile(honest, 0.9) if honest else None,
        worst_held_out=max(honest) if honest else None,
    )


def _shares(fit: Fit, parameters: Sequence[StepParameter]) -> tuple[Shares, float]:
    """Numbers as shares, and what a request takes besides."""
    values = {each.name: each.value for each in parameters}
    request_s = values.pop("request_s", 0.0)
    return Shares(**values, serial=0.0 if fit.formula.form in MAXIMA else 1.0), request_s


def _errors_by_kind(predicted: Sequence[FittedObservation]) -> Mapping[StepKind, float]:
    """The median |error| over the held-out steps of each kind, over all of them where none was held out."""
    found = {}
    for kind in StepKind:
        own = [each for each in predicted if each.observation.kind is kind]
        if judged := [each for each in own if each.observation.is_held_out] or own:
            found[kind] = median(abs(each.error) for each in judged)
    return found


def _profile(
    part: _Part,
    server: Server,
    choice: Choice,
    parameters: Sequence[StepParameter],
    errors: Mapping[StepKind, float],
) -> StepProfile:
    shares, request_s = _shares(choice.fit, parameters)
    return StepProfile(
        shares=shares,
        machine=server.machine,
        engine=server.engine,
        model=part.served.model.name,
        source=server.source,
        as_of=server.as_of,
        errors={kind.value: error for kind, error in errors.items()},
        form=choice.fit.formula.form.value,
        request_s=request_s,
        weights_format=part.served.weights.format_name,
        cache_format=part.served.cache_format.name,
        ceilings=part.ceilings,
        scheduler=server.scheduler,
        cache=server.cache,
        served=own_work(part.served, 1 if server.cache is None else server.cache.block_size),
        measured=_reach(part.observations),
        compute_format=part.compute_format,
        intervals={each.name: (each.interval.low, each.interval.high) for each in parameters if each.interval},
        held_out_error=median(part.honest) if part.honest else None,
    )


def _reach(observations: Sequence[StepObservation]) -> MeasuredReach:
    """The longest context and the most sequences that a step had."""
    batches = [batch for each in observations for batch in each.batches]
    longest = max(part.cached + part.new for batch in batches for part in batch)
    return MeasuredReach(longest, max(map(len, batches)))
