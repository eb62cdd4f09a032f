"""The options of `lab batch`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from inference_bench.units import parse_count, parse_tokens

if TYPE_CHECKING:
    from inference_bench.labs.batch.request import BatchRequest
    from inference_bench.labs.settings import LabSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""
    parser.add_argument("--batches", metavar="B,B,…", default="1,2,4,8,16", help="prompts together; default 1,2,4,8,16")
    parser.add_argument("--tokens", metavar="N", help="tokens of the longer run; default 512, 48 with --quick")
    parser.add_argument("--dtype", metavar="FORMAT", default="both", help="both, float32 or bfloat16; default both")


def request(options: argparse.Namespace, settings: LabSettings) -> BatchRequest:
    """What was asked for, as typed.

    Raises:  QuantityError, RequestError
    """
    from inference_bench.labs.batch.request import BatchRequest

    return BatchRequest(
        settings,
        batches=tuple(parse_count(each, "batch") for each in options.batches.split(",")),
        num_tokens=None if options.tokens is None else parse_tokens(options.tokens, "tokens"),
        dtype=options.dtype,
    )
