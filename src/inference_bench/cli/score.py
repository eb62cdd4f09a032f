"""`score`: how right the predictions are against published measurements."""

from __future__ import annotations

import argparse

from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.score.flow import score_tables
from inference_bench.score.summary import ScoreReport


def run(options: argparse.Namespace) -> int:
    """Print the scores; draw what was asked for first, so that a chart that cannot be drawn is an error alone."""
    if options.chart is not None:
        from inference_bench.cli.picture import require_chart_file  # late: charts load much

        require_chart_file(options.chart)
    progress = ProgressLine()
    try:
        found = score_tables(
            options.tables,
            calibrate=options.calibrate or "none",
            cross_validate=options.cross_validate,
            progress=progress,
        )
    finally:
        progress.done()
    if options.chart is not None:
        _draw(found, options.chart)
    _print(found, options.json)
    return 0


def _draw(found: ScoreReport, file: str) -> None:
    from inference_bench.charts.accuracy import accuracy_chart  # late: charts load much
    from inference_bench.cli.picture import write_chart

    write_chart(accuracy_chart(found), file, "no row could be scored")


def _print(found: ScoreReport, as_json: bool) -> None:
    if as_json:
        from inference_bench.report.score_json import score_json

        print_json(score_json(found))
        return
    from inference_bench.report.score_report import score_text

    print(score_text(found))
