"""`explain`: which rule produced a published figure."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import print_json
from inference_bench.facts.load import load_model
from inference_bench.predict.explain import explain_figure
from inference_bench.predict.fit import DEFAULT_CONTEXT_TOKENS, cache_format, loaded_weights
from inference_bench.report.explain_report import explain_json, explain_text
from inference_bench.units import parse_count, parse_tokens


def run(options: argparse.Namespace) -> int:
    """Answer; exit 1 when no known rule gives the figure."""
    model = load_model(options.model)
    found = explain_figure(
        model.spec,
        loaded_weights(model, options.weights),
        cache_format(options.kv),
        options.figure,
        parse_tokens(options.context, "context") if options.context else DEFAULT_CONTEXT_TOKENS,
        parse_count(options.sequences, "sequences"),
    )
    if options.json:
        print_json(explain_json(found))
    else:
        print(explain_text(found))
    return 0 if found.matches else 1
