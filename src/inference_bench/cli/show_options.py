"""The options of `report RUN`.

In:   a parser
Out:  the same parser with the options
Read next by: main.
"""

from __future__ import annotations

import argparse


def add_show_options(parser: argparse.ArgumentParser) -> None:
    """A run folder, and what to make of it."""
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument(
        "--export",
        metavar="FORM",
        help="write the raw samples for another program: csv (a row a request), csv-chunks (a row a chunk), parquet, "
        "vllm (the result file of vllm bench serve) or guidellm (benchmarks.json)",
    )
    parser.add_argument("--out", metavar="FILE", help="the file to export to; default one in the run folder")
    parser.add_argument("--definitions", action="store_true", help="also what other tools would have printed")
