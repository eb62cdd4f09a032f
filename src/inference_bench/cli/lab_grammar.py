"""The options of `lab grammar`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference_bench.labs.grammar.request import GrammarRequest
    from inference_bench.labs.settings import LabSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""


def request(options: argparse.Namespace, settings: LabSettings) -> GrammarRequest:
    """What was asked for, as typed."""
    from inference_bench.labs.grammar.request import GrammarRequest

    return GrammarRequest(settings)
