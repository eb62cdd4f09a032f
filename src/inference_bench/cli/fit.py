"""`fit`: does it fit, how fast could it be, and what would the usual formula have said."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel
from inference_bench.files import require_file_name
from inference_bench.hub import load_model, served_name
from inference_bench.predict.engine_choice import EngineChoice, choose_engine
from inference_bench.predict.fit import FitRequest, fit, loaded_weights
from inference_bench.predict.placement import Split
from inference_bench.units import parse_bytes, parse_count, parse_fraction, parse_tokens

if TYPE_CHECKING:
    from inference_bench.predict.engine_command import EngineCommand

_NOTHING_MORE: Final[Mapping[str, object]] = MappingProxyType({})


def run(options: argparse.Namespace) -> int:
    """Answer; exit 1 when a machine was named and the model does not fit it."""
    engine = choose_engine(options.engine)
    request = FitRequest(
        weights=options.weights,
        cache=options.kv,
        context_tokens=parse_tokens(options.context, "context") if options.context is not None else None,
        sequences=parse_count(options.sequences, "sequences"),
        engine=engine.allocation,
        overhead_bytes=parse_bytes(options.overhead, "overhead") if options.overhead is not None else None,
        compute_format=options.compute,
        devices=parse_count(options.devices, "devices"),
        split=Split(options.split),
        expert_correlation=parse_fraction(options.expert_correlation, "expert correlation"),
        served_by=engine.family,
    )
    model = load_model(options.model)
    if options.profile is not None:
        return _as_fitted(model, request, options)
    if options.on == "all":
        if options.measured is not None:
            raise RequestError("own measurements are of one machine; name it instead of ranking all")
        return _rank(model, request, options.json)
    machine = machine_named(options.on) if options.on is not None else None
    if options.suggest and machine is None:
        raise RequestError("suggestions need a machine to fit; name one")
    if options.measured is not None:
        request = _with_measurements(options.measured, engine, machine, model, request)
    return _answer(model, machine, request, options)


def _with_measurements(
    path: str, engine: EngineChoice, machine: HardwareSpec | None, model: LoadedModel, request: FitRequest
) -> FitRequest:
    """The request with what was measured on this machine."""
    if machine is None or engine.family is None:
        raise RequestError("own measurements correct what is expected of an engine on a machine; name both")
    from inference_bench.score.own import calibration_from

    return replace(request, own=calibration_from(Path(path), engine.family, machine, model))


def _as_fitted(model: LoadedModel, request: FitRequest, options: argparse.Namespace) -> int:
    """By a profile, on its own machine where no other is named."""
    if options.on == "all":
        raise RequestError("a profile is of one machine; name it instead of ranking all")
    if options.measured is not None:
        raise RequestError("a profile and own measurements both say how fast steps are; name one of them")
    from inference_bench.cli.profile_machine import machine_of
    from inference_bench.simulate.profile_cost import ProfileSteps
    from inference_bench.simulate.step_profile import load_profile, profile_values

    require_file_name(options.profile, "profile")
    profile = load_profile(Path(options.profile))
    weights = loaded_weights(model, request.weights)
    machine = machine_of(profile, weights) if options.on is None else machine_named(options.on)
    asked = replace(request, fitted=ProfileSteps(profile))
    return _answer(model, machine, asked, options, {"profile": profile_values(profile)})


def _answer(
    model: LoadedModel,
    machine: HardwareSpec | None,
    request: FitRequest,
    options: argparse.Namespace,
    more: Mapping[str, object] = _NOTHING_MORE,
) -> int:
    answer = fit(model, machine, request)
    suggestions = None
    commands: Sequence[EngineCommand] = ()
    if options.suggest and machine is not None:
        from inference_bench.predict.suggest import suggest

        suggestions = suggest(model, machine, request)
    if machine is not None:
        from inference_bench.predict.engine_command import engine_commands

        shown = suggestions[0].answer if suggestions and answer.fits is False else answer
        commands = engine_commands(shown, served_name(options.model))
    if options.json:
        from inference_bench.report.fit_json import fit_json

        print_json({**fit_json(answer, commands, suggestions or ()), **more})
    else:
        from inference_bench.report.fit_report import fit_text

        print(fit_text(answer, commands, suggestions))
    return 1 if answer.fits is False else 0


def _rank(model: LoadedModel, request: FitRequest, as_json: bool) -> int:
    """Every known machine; exit 1 when it fits none."""
    from inference_bench.facts.hardware import known_hardware
    from inference_bench.predict.suggest import rank_machines
    from inference_bench.report.fit_json import ranking_json
    from inference_bench.report.fit_report import ranking_text

    rows = rank_machines(model, known_hardware(), request)
    if as_json:
        print_json(ranking_json(rows))
    else:
        print(ranking_text(rows))
    return 0 if any(row.answer.fits for row in rows) else 1
