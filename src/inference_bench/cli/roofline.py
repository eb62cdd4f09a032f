"""`roofline`: where each phase and operation sits."""

from __future__ import annotations

import argparse

from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
from inference_bench.hub import load_model
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.report.roofline_report import roofline_json, roofline_text
from inference_bench.roofline import roofline_table
from inference_bench.units import parse_count, parse_tokens


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    model = load_model(options.model)
    context = parse_tokens(options.context, "context")
    table = roofline_table(
        model.spec,
        loaded_weights(model, options.weights),
        cache_format(options.kv),
        machine_named(options.on),
        context_tokens=context,
        batch=parse_count(options.batch, "batch"),
        prompt_tokens=parse_tokens(options.prompt, "prompt") if options.prompt else context,
        compute_format=options.compute,
    )
    if options.json:
        print_json(roofline_json(table))
    else:
        print(roofline_text(table))
    return 0
