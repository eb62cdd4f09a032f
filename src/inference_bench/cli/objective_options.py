"""What counts as a good request, as every command asks it that prints goodput."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference_bench.metrics import Objective


def add_objective_options(group: argparse._ActionsContainer) -> None:
    """The two limits of goodput."""
    group.add_argument(
        "--max-ttft", metavar="TIME", help="goodput counts requests with a TTFT of at most this; default 3s"
    )
    group.add_argument("--max-gap", metavar="TIME", help="and no pause longer than this; default 100ms")


def objective_from(options: argparse.Namespace) -> Objective:
    """What goodput counts.

    Raises:  QuantityError
    """
    from inference_bench.metrics import Objective
    from inference_bench.units import parse_seconds

    usual = Objective()
    return Objective(
        usual.max_ttft_s if options.max_ttft is None else parse_seconds(options.max_ttft, "longest TTFT"),
        usual.max_gap_s if options.max_gap is None else parse_seconds(options.max_gap, "longest pause"),
    )
