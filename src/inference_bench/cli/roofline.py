"""`roofline`: where each phase and operation sits."""

from __future__ import annotations

import argparse
import os

from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
from inference_bench.errors import RequestError
from inference_bench.hub import load_model
from inference_bench.predict.fit import cache_format, loaded_weights
from inference_bench.predict.phases import RooflineTable, roofline_table
from inference_bench.report.roofline_report import roofline_json, roofline_text
from inference_bench.units import parse_count, parse_tokens


def run(options: argparse.Namespace) -> int:
    """Print the table; draw what was asked for first, so that a chart that cannot be drawn is an error alone."""
    model = load_model(options.model)
    context = parse_tokens(options.context, "context")
    table = roofline_table(
        model.spec,
        loaded_weights(model, options.weights),
        cache_format(options.kv),
        machine_named(options.on),
        context_tokens=context,
        batch=parse_count(options.batch, "batch"),
        prompt_tokens=parse_tokens(options.prompt, "prompt") if options.prompt is not None else context,
        compute_format=options.compute,
        devices=parse_count(options.devices, "devices"),
        prefill_chunk=parse_tokens(options.chunk, "chunk") if options.chunk is not None else None,
    )
    if options.chart is not None or options.batch_chart is not None:
        _draw(table, options.chart, options.batch_chart)
    if options.json:
        print_json(roofline_json(table))
    else:
        print(roofline_text(table))
    return 0


def _draw(table: RooflineTable, roof_file: str | None, batch_file: str | None) -> None:
    from inference_bench.charts.ceilings import ceiling_chart, decode_curve_chart  # late: charts load much
    from inference_bench.cli.picture import write_chart

    if roof_file is not None and batch_file is not None and os.path.realpath(roof_file) == os.path.realpath(batch_file):
        raise RequestError(f"both charts would be written to {roof_file[:200]!r}; give each a file of its own")
    if roof_file is not None:
        write_chart(ceiling_chart(table), roof_file)
    if batch_file is not None:
        write_chart(decode_curve_chart(table), batch_file)
