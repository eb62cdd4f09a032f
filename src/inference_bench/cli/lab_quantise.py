"""The options of `lab quantise`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from inference_bench.units import parse_count, parse_tokens

if TYPE_CHECKING:
    from inference_bench.labs.quantise.request import QuantiseRequest
    from inference_bench.labs.settings import LabSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="judge on this .txt or .parquet; default: WikiText-2, or the text that is shipped",
    )
    parser.add_argument("--calibration-text", metavar="FILE", help="calibrate on this one; default: the same text")
    parser.add_argument("--calibration-start", metavar="N", default="0", help="the token to calibrate from; default 0")
    parser.add_argument(
        "--evaluation-start", metavar="N", help="the token to judge from; default: after the calibration"
    )
    parser.add_argument("--windows", metavar="N", help="windows to judge on; default 4, quick 1")
    parser.add_argument("--window", metavar="N", default="512", help="tokens of a window; default 512")
    parser.add_argument("--group", metavar="N", default="64", help="columns that share a scale; default 64")
    parser.add_argument(
        "--reference", action="store_true", help="rerun the published settings too, where the hub is reached"
    )


def request(options: argparse.Namespace, settings: LabSettings) -> QuantiseRequest:
    """What was asked for, as typed."""
    from inference_bench.labs.quantise.request import QuantiseRequest

    start = options.evaluation_start
    return QuantiseRequest(
        settings,
        text=options.text,
        calibration_text=options.calibration_text,
        calibration_start=parse_tokens(options.calibration_start, "place"),
        evaluation_start=None if start is None else parse_tokens(start, "place"),
        num_windows=None if options.windows is None else parse_count(options.windows, "windows"),
        window_tokens=parse_tokens(options.window, "window"),
        group=parse_count(options.group, "group"),
        is_reference=options.reference,
    )
