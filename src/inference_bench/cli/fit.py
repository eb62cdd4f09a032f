"""`fit`: does it fit, how fast could it be, and what would the usual formula have said."""

from __future__ import annotations

import argparse

from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
from inference_bench.hub import load_model
from inference_bench.predict.fit import FitRequest, fit
from inference_bench.report.fit_report import fit_json, fit_text
from inference_bench.units import parse_bytes, parse_count, parse_tokens


def run(options: argparse.Namespace) -> int:
    """Answer; exit 1 when a machine was named and the model does not fit it."""
    request = FitRequest(
        weights=options.weights,
        cache=options.kv,
        context_tokens=parse_tokens(options.context, "context") if options.context else None,
        sequences=parse_count(options.sequences, "sequences"),
        engine=options.engine,
        overhead_bytes=parse_bytes(options.overhead, "overhead") if options.overhead else None,
        compute_format=options.compute,
    )
    machine = machine_named(options.on) if options.on else None
    answer = fit(load_model(options.model), machine, request)
    if options.json:
        print_json(fit_json(answer))
    else:
        print(fit_text(answer))
    return 1 if answer.fits is False else 0
