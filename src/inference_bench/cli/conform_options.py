"""What `conform` can be asked; apart from the command, so that building the parser loads no client."""

from __future__ import annotations

import argparse


def add_conform_options(parser: argparse.ArgumentParser) -> None:
    """Which clients, and which cases."""
    parser.add_argument(
        "adapters",
        metavar="ADAPTER",
        nargs="*",
        help="inference-bench, vllm, vllm-rs, sglang, sglang-rs, guidellm, aiperf; default: every one that is installed, also "
        "in a virtual environment of its own that INFERENCE_BENCH_VLLM, ..._SGLANG, ..._GUIDELLM or ..._AIPERF names",
    )
    parser.add_argument("--case", metavar="NAME", action="append", help="only this case; several may be named")
