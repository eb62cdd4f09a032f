"""The options of `lab machine`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from inference_bench.units import parse_count

if TYPE_CHECKING:
    from inference_bench.labs.machine.request import MachineRequest
    from inference_bench.labs.settings import LabSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""
    parser.add_argument("--max-batch", metavar="B", default="512", help="most columns of a product; default 512")
    parser.add_argument("--matrix", metavar="N", help="rows of the square matrix; default 8192, or what memory allows")


def request(options: argparse.Namespace, settings: LabSettings) -> MachineRequest:
    """What was asked for, as typed.

    Raises:  QuantityError, RequestError
    """
    from inference_bench.labs.machine.request import MachineRequest

    return MachineRequest(
        settings,
        max_batch=parse_count(options.max_batch, "largest batch"),
        matrix_size=None if options.matrix is None else parse_count(options.matrix, "matrix"),
    )
