"""`lab NAME`: one experiment on a real model, printed, drawn, and as a page."""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module

from inference_bench.charts import WIDE_PX
from inference_bench.cli.lab_options import LABS
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.cli.picture import require_chart_file, write_chart
from inference_bench.cli.report_page import provenance, require_report_file, say_where, write_report
from inference_bench.files import require_writable_place
from inference_bench.labs.checks import missed
from inference_bench.labs.model import load_flow
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.thread_waiting import let_threads_sleep
from inference_bench.report.lab_json import lab_json
from inference_bench.report.lab_page import first_chart, lab_html, lab_text
from inference_bench.units import parse_count

ANSWER_IS_NO = 1


def run(options: argparse.Namespace) -> int:
    """Run one lab; 1 where one of its checks did not hold."""
    _require_places(options)
    module, _ = LABS[options.lab]
    request = module.request(options, _settings(options))
    progress = ProgressLine()
    if options.quick:
        let_threads_sleep()
    try:
        progress(f"{options.lab}: loading PyTorch")
        result = load_flow(options.lab).run_lab(request, progress)
    finally:
        progress.done()
    page = import_module(f"inference_bench.report.lab_{options.lab}").lab_page(result)
    if options.json:  # printed before anything is written: a full disk must not lose it
        print_json(lab_json(options.lab, result))
    else:
        print(lab_text(page))
    if options.chart is not None:
        write_chart(first_chart(page, WIDE_PX), options.chart, "the lab measured nothing that its chart shows")
    if options.report is not None:
        write_report(options.report, partial(lab_html, page, provenance(options)))
    say_where(options)
    return ANSWER_IS_NO if missed(page.checks) else 0


def _require_places(options: argparse.Namespace) -> None:
    """Every file that will be written can be; asked before anything that takes long.

    Raises:  RequestError
    """
    if options.chart is not None:
        require_chart_file(options.chart)
        require_writable_place(options.chart, "chart file")
    if options.report is not None:
        require_report_file(options.report, (options.chart,))
        require_writable_place(options.report, "report file")


def _settings(options: argparse.Namespace) -> LabSettings:
    """What all labs share, as typed."""
    return LabSettings(
        model=getattr(options, "model", None),
        revision=getattr(options, "revision", None),
        num_threads=None if options.threads is None else parse_count(options.threads, "threads"),
        seed=parse_count(options.seed, "seed"),
        is_quick=options.quick,
    )
