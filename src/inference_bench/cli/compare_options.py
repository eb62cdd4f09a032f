"""The options of `compare`.

In:   a parser
Out:  its options
Leaves out: what they mean (compare_runs, loaded when the command runs)
"""

from __future__ import annotations

import argparse
from typing import Final

from inference_bench.cli.objective_options import add_objective_options
from inference_bench.cli.report_page import add_report_option

_VERDICT: Final = (
    (
        "--rules",
        "FILE.toml",
        "the rules: a table limits, and least_requests, confidence, looks; default: the usual rules",
    ),
    ("--min-requests", "N", "promote on no fewer requests of each side; default 100"),
    (
        "--looks",
        "K",
        "how often the verdict is asked for while requests come in, all looks planned beforehand; default 1",
    ),
    ("--part", "NAME", "which part of the runs it is about, where they have several"),
)


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that `compare` reads."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        help="two run folders of verify or load, of the same work: the second on another engine, version or setting",
    )
    parser.add_argument(
        "--chart",
        metavar="FILE",
        help="draw the steps of both on one roofline, of a verdict each rule against its limit: .svg, .html or .json (Vega-Lite)",
    )
    add_report_option(parser)
    verdict = parser.add_argument_group(
        "verdict", "may the second take over from the first: promote, hold or roll back"
    )
    verdict.add_argument("--decide", action="store_true", help="say so of the two runs; exit 1 unless it is promote")
    verdict.add_argument("--baseline", metavar="RUN", nargs="+", help="runs of what serves now, which are pooled")
    verdict.add_argument("--canary", metavar="RUN", nargs="+", help="runs of what may take over")
    for option, metavar, summary in _VERDICT:
        verdict.add_argument(option, metavar=metavar, help=summary)
    verdict.add_argument(
        "--limit",
        metavar="FIGURE=U",
        action="append",
        help="how much worse one figure may be, such as ttft_p99_s=20%%; may be given several times",
    )
    add_objective_options(verdict)
