"""The options of `ledger`.

In:   a parser
Out:  the same parser with the options
Read next by: main.
"""

from __future__ import annotations

import argparse

from inference_bench.cli.report_page import add_report_option

BY = ("application", "team", "model", "endpoint", "manifest", "hour", "day")


def add_ledger_options(parser: argparse.ArgumentParser) -> None:
    """What is read, what was bought, and what is told apart."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run folder of load or verify, the folder of a recorder, or one of its files; 'purge FOLDER...' deletes the content "
        "logs in these folders whose retention time has ended",
    )
    parser.add_argument(
        "--by",
        action="append",
        choices=BY,
        help="tell the sums apart by this; may be given more than once; default application",
    )
    parser.add_argument("--usd-per-hour", metavar="USD", help="what a device costs an hour")
    parser.add_argument("--devices", metavar="N", default="1", help="how many were paid for; default 1")
    parser.add_argument("--hours", metavar="H", help="how long they were paid for; default: the span of the records")
    parser.add_argument(
        "--capacity",
        metavar="RATE",
        help="output tokens a second that all of them make at full load, or a folder of a load run that reached it",
    )
    parser.add_argument("--hosted-input", metavar="USD", help="what a million input tokens cost elsewhere")
    parser.add_argument("--hosted-output", metavar="USD", help="the same of output tokens")
    parser.add_argument("--hosted-cached", metavar="USD", help="the same of cached input; default: as other input")
    parser.add_argument(
        "--export", metavar="FILE", help="write a row a request for other programs: .csv, .parquet or .duckdb"
    )
    add_report_option(parser)
