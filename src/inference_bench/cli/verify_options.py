"""The options of `verify`: what is measured, how a server is started, and for how long."""

from __future__ import annotations

import argparse

from inference_bench.cli.load_options import add_server_options


def add_verify_options(parser: argparse.ArgumentParser) -> None:
    """Add what `verify` reads."""
    parser.add_argument("url", metavar="URL", nargs="?", help="a server that is already running")
    parser.add_argument(
        "--model", metavar="MODEL", help="what is served: a known name or a path; default: the embedded model"
    )
    parser.add_argument("--on", metavar="HW", help="the machine it runs on; default: this one, probed")
    parser.add_argument("--weights", metavar="FMT", help="weight format served, when the model is not a file")
    parser.add_argument("--kv", metavar="FMT", help="cache format served; default fp16")
    _add_started(parser)
    _add_extent(parser)
    add_server_options(parser)


def _add_started(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a server that is started here")
    group.add_argument("--engine", metavar="NAME", help="llama.cpp (default), vllm or sglang")
    group.add_argument("--slots", metavar="N", help="sequences it computes at once; default: what the sweep needs")
    group.add_argument("--context", metavar="N", help="positions of each of them; default: what the sweep needs")
    group.add_argument(
        "--threads",
        metavar="N",
        help="threads of the engine; default: every core this may use, which is quickest, though the client then shares them",
    )


def _add_extent(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how much is measured")
    extent = group.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="fewer steps and one short load: about a minute")
    extent.add_argument("--thorough", action="store_true", help="more steps, three times as long: about ten minutes")
    group.add_argument(
        "--matrix",
        metavar="AXIS=VALUE,VALUE",
        nargs="+",
        help="the same model in several formats, caches and engines, such as: weights=q4_1,f16 kv=f16,q8_0 engine=llama.cpp,vllm",
    )
    group.add_argument("--no-load", action="store_true", help="measure and fit steps, and run no load")
    group.add_argument(
        "--ttft-p99",
        metavar="TIME",
        help="the capacity keeps 99 %% of first tokens within this; exit 1 where none does",
    )
    group.add_argument("--itl-p99", metavar="TIME", help="and 99 %% of the gaps between tokens within this")
    group.add_argument("--save-profile", metavar="FILE", help="keep the fitted step times here as well, for --profile")
