"""What `drill` can be asked; apart from the command, so that building the parser loads no client and no engine."""

from __future__ import annotations

import argparse


def add_drill_options(parser: argparse.ArgumentParser) -> None:
    """Servers, scenarios, the other two ways to drill, and where it goes."""
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help="a test server of your own; default: two embedded servers are started, broken, killed and ended here",
    )
    parser.add_argument("--fallback", metavar="URL", help="the server that stands behind it")
    parser.add_argument(
        "--scenario", metavar="NAME", action="append", help="only this one; several may be named; default: all ten"
    )
    parser.add_argument(
        "--requests", metavar="N", default="16", help="how many requests a scenario has at least; default 16"
    )
    parser.add_argument("--max-tokens", metavar="N", default="16", help="longest answer; default 16")
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help="also drill a server on another machine: it gets bursts of requests, and many of them are left half read",
    )
    parser.add_argument(
        "--soak",
        metavar="TIME",
        help="instead of scenarios: a steady load for so long, such as 5min, while the first of two servers that are started "
        "here is killed (kill -9) at random moments",
    )
    parser.add_argument("--kill-every", metavar="TIME", default="6s", help="mean time between these kills; default 6s")
    parser.add_argument(
        "--cache-isolation",
        action="store_true",
        help="instead of scenarios: does one tenant's prefix speed up another's on this server?",
    )
    parser.add_argument("--pairs", metavar="N", default="12", help="pairs of that probe; at least 6, default 12")
    parser.add_argument(
        "--words", metavar="N", help="random words of a prefix; default 150, 40 for the embedded engine"
    )
    parser.add_argument("--served-model", metavar="NAME", help="the model name to send; default: the first listed")
    parser.add_argument("--api-key-env", metavar="VAR", help="environment variable that holds the API key")
    parser.add_argument("--other-key-env", metavar="VAR", help="the same for the second tenant of --cache-isolation")
    parser.add_argument("--seed", type=int, default=0, help="seed of random moments and words; default 0")
    parser.add_argument(
        "--record", metavar="FILE.jsonl", help="write each answer's account as a line: sizes, times, names, no text"
    )
    parser.add_argument(
        "--report", metavar="FILE.html", help="write charts and tables as one page that needs no network"
    )
    parser.add_argument(
        "--chart", metavar="FILE", help="draw what became of each request: .svg, .html or .json (Vega-Lite)"
    )
