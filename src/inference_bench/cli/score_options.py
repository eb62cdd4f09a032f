"""The options of `score`."""

from __future__ import annotations

import argparse


def add_score_options(parser: argparse.ArgumentParser) -> None:
    """Which tables, how much of them may be spent on calibration, and what is drawn."""
    parser.add_argument(
        "tables",
        metavar="ROWS.csv",
        nargs="+",
        help="tables of measurements (docs/measurements.md), or folders of them",
    )
    parser.add_argument(
        "--calibrate",
        choices=("one", "several"),
        help="spend one row, or four, of each phase of each engine on each machine, and score the others",
    )
    parser.add_argument(
        "--cross-validate",
        choices=("device", "model"),
        help="predict each row by a fit that never saw its device, or its model; takes about half a minute",
    )
    parser.add_argument(
        "--chart", metavar="FILE", help="draw predicted over measured: .svg, .html or .json (Vega-Lite)"
    )
