"""`roofline`: where each phase and operation sits."""

from __future__ import annotations

import argparse

from inference_bench.cli.machine import machine_named
from inference_bench.cli.output import print_json
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
        prompt_tokens=parse_tokens(options.prompt, "prompt") if options.prompt else context,
        compute_format=options.compute,
        devices=parse_count(options.devices, "devices"),
        prefill_chunk=parse_tokens(options.chunk, "chunk") if options.chunk else None,
    )
    if options.chart or options.batch_chart:
        _draw(table, options.chart, options.batch_chart)
    if options.json:
        print_json(roofline_json(table))
    else:
        print(roofline_text(table))
    return 0


def _draw(table: RooflineTable, roof_file: str | None, batch_file: str | None) -> None:
    from inference_bench.charts.ceilings import ceiling_chart, decode_curve_chart  # late: charts load much
    from inference_bench.cli.picture import write_chart

    if roof_file:
        write_chart(ceiling_chart(table), roof_file)
    if batch_file:
        write_chart(decode_curve_chart(table), batch_file)
