"""The options of `lab speculate`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from inference_bench.cli.given import number
from inference_bench.units import parse_count, parse_fraction

if TYPE_CHECKING:
    from inference_bench.labs.settings import LabSettings
    from inference_bench.labs.speculate.request import SpeculateRequest


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""
    parser.add_argument(
        "--draft", metavar="MODEL", help="a draft model with the same tokenizer: a folder, .gguf or hub id"
    )
    parser.add_argument(
        "--gamma",
        metavar="N,…",
        help="tokens a draft proposes, several lengths with commas; default 1,2,4,8, or 2,4 with --quick",
    )
    parser.add_argument(
        "--exit-layer", metavar="N", help="the early-exit draft stops after N layers; default two thirds"
    )
    parser.add_argument("--temperature", metavar="T", default="0.8", help="of drawn tokens; default 0.8")
    parser.add_argument(
        "--top-p", metavar="P", default="0.95", help="of drawn tokens, for target and draft; default 0.95"
    )
    parser.add_argument("--tokens", metavar="N", help="longest answer; default 128, 32 with --quick")
    parser.add_argument(
        "--server",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also ask a real server, its own speculation off and on; default yes",
    )


def request(options: argparse.Namespace, settings: LabSettings) -> SpeculateRequest:
    """What was asked for, as typed."""
    from inference_bench.labs.speculate.request import SpeculateRequest

    return SpeculateRequest(
        settings,
        draft=options.draft,
        gammas=() if options.gamma is None else tuple(parse_count(each, "γ") for each in options.gamma.split(",")),
        exit_layer=None if options.exit_layer is None else parse_count(options.exit_layer, "exit layer"),
        temperature=number(options.temperature, "temperature"),
        top_p=parse_fraction(options.top_p, "top-p"),
        num_tokens=None if options.tokens is None else parse_count(options.tokens, "tokens"),
        has_server=options.server,
    )
