"""What `check` can be asked; apart from the command, so that building the parser loads nothing that asks."""

from __future__ import annotations

import argparse

from inference_bench.cli.report_page import add_report_option
from inference_bench.operate.contract.catalog import GROUPS, NEEDS


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Which server, which questions, and what it has to be able to do."""
    parser.add_argument("url", metavar="URL", help="the server's address, such as http://127.0.0.1:8080")
    parser.add_argument("--model", metavar="NAME", help="the model name to send; default: the first the server lists")
    parser.add_argument(
        "--need",
        metavar="FIELD,...",
        action="append",
        help=f"exit 1 unless the server does this: {', '.join(NEEDS)}; or any row of --json by its id, such as structured.pattern",
    )
    parser.add_argument(
        "--only", metavar="GROUP,...", action="append", help=f"only these groups of questions: {', '.join(GROUPS)}"
    )
    parser.add_argument("--quick", action="store_true", help="shorter greedy answers, and no keywords of schemas")
    parser.add_argument(
        "--context", metavar="N", help="the longest request it takes, such as 8k, if it does not state that"
    )
    parser.add_argument("--timeout", metavar="TIME", default="30s", help="longest a request may take; default 30s")
    parser.add_argument(
        "--budget", metavar="TIME", default="5min", help="longest the whole check may take; default 5min"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="VAR",
        help="environment variable that holds the API key; the key itself is never stored",
    )
    add_report_option(parser)
