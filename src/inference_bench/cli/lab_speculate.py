"""The options of `lab speculate`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference_bench.labs.settings import LabSettings
    from inference_bench.labs.speculate.request import SpeculateRequest


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""


def request(options: argparse.Namespace, settings: LabSettings) -> SpeculateRequest:
    """What was asked for, as typed."""
    from inference_bench.labs.speculate.request import SpeculateRequest

    return SpeculateRequest(settings)
