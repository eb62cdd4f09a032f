"""The options of `lab batch`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference_bench.labs.batch.request import BatchRequest
    from inference_bench.labs.settings import LabSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""


def request(options: argparse.Namespace, settings: LabSettings) -> BatchRequest:
    """What was asked for, as typed."""
    from inference_bench.labs.batch.request import BatchRequest

    return BatchRequest(settings)
