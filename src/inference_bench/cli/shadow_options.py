"""The options of `shadow` and `suite`.

In:   a parser
Out:  its options
Leaves out: what they mean (shadow, suite, loaded when the command runs)
"""

from __future__ import annotations

import argparse
from typing import Final

from inference_bench.cli.load_options import ALL_ENDPOINTS, add_page_options, add_server_options
from inference_bench.cli.objective_options import add_objective_options

_MUCH: Final = (
    ("--speed", "S", "replay so many times as fast; default 1: what comes of another speed is not compared"),
    ("--max-requests", "N", "replay the first so many requests"),
    ("--for", "TIME", "replay so long"),
)


def add_shadow_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that `shadow` reads."""
    parser.add_argument(
        "url", metavar="URL", help="the server to try; never the one that the recorded requests went to"
    )
    recorded = parser.add_argument_group("what is replayed", "times and lengths; what was said is kept nowhere")
    either = recorded.add_mutually_exclusive_group(required=True)
    either.add_argument(
        "--from", dest="source", metavar="RUN", help="the run folder of a load: beside it the shadow is shown"
    )
    either.add_argument("--trace", metavar="FILE", help="an arrival trace, as load reads it, such as a TraceRecorder's")
    recorded.add_argument("--part", metavar="NAME", help="which part of the run, where it has several")
    recorded.add_argument("--trace-format", metavar="NAME", help="what kind of trace it is; default: by its columns")
    recorded.add_argument("--sort-trace", action="store_true", help="put rows whose time goes back in order")
    recorded.add_argument(
        "--primary",
        metavar="URL",
        action="append",
        help="an address that serves people and must not be sent to; that of a run is known; may be given several times",
    )
    for option, metavar, summary in _MUCH:
        recorded.add_argument(option, dest=f"limit_{option[2:].replace('-', '_')}", metavar=metavar, help=summary)
    quality = parser.add_argument_group("quality")
    quality.add_argument(
        "--suite", metavar="FILE.jsonl", help="ask these questions too, and count the expected answers"
    )
    quality.add_argument(
        "--json-schema", metavar="FILE", help="ask for JSON documents of this schema, and judge each answer by it"
    )
    add_objective_options(parser)
    add_page_options(parser)
    add_server_options(parser, ALL_ENDPOINTS)


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that `suite` reads."""
    parser.add_argument("url", metavar="URL", help="an OpenAI-compatible server, or one with a route of --endpoint")
    parser.add_argument(
        "suite",
        metavar="FILE.jsonl",
        help='questions with their expected answers, one a line: {"prompt": "2+2=", "expected": "4", "max_tokens": 8}',
    )
    parser.add_argument("--into", metavar="RUN", help="keep what comes of it with this run, for a verdict")
    parser.add_argument("--concurrency", metavar="C", default="1", help="questions in flight at once; default 1")
    add_server_options(parser, ALL_ENDPOINTS)
