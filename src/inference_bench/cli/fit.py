"""`fit`: does it fit, how fast could it be, and what would the usual formula have said."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
from inference_bench.errors import RequestError
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel
from inference_bench.hub import load_model, served_name
from inference_bench.predict.engine_choice import EngineChoice, choose_engine
from inference_bench.predict.fit import FitRequest, fit
from inference_bench.predict.placement import Split
from inference_bench.units import parse_bytes, parse_count, parse_fraction, parse_tokens

if TYPE_CHECKING:
    from inference_bench.predict.engine_command import EngineCommand


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


def _answer(model: LoadedModel, machine: HardwareSpec | None, request: FitRequest, options: argparse.Namespace) -> int:
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

        print_json(fit_json(answer, commands, suggestions or ()))
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
