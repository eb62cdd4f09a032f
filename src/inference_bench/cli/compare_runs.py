"""`compare RUN RUN`: what changed between two runs of the same work."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from inference_bench.charts.two_runs import two_runs_chart
from inference_bench.cli.output import print_json
from inference_bench.cli.picture import require_chart_file, write_chart
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.compare_runs.flow import compare_runs
from inference_bench.report.compare_runs_report import compare_runs_html, compare_runs_json, compare_runs_text


def run(options: argparse.Namespace) -> int:
    """Compare, print, and write what was asked for."""
    if options.chart is not None:
        require_chart_file(options.chart)
    if options.report is not None:
        require_report_file(options.report, (options.chart,))
    result = compare_runs(Path(options.first), Path(options.second))
    if options.chart is not None:
        write_chart(two_runs_chart(result), options.chart, "the runs have no measured step in common")
    if options.report is not None:
        write_report(options.report, partial(compare_runs_html, result, provenance(options)))
    if options.json:
        print_json(compare_runs_json(result))
    else:
        print(compare_runs_text(result))
    say_where(options)
    return 0
