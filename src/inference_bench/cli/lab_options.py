"""The options of `lab`: those that all six share; each lab's own are in its module."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from inference_bench.cli import lab_batch, lab_cache, lab_grammar, lab_machine, lab_quantise, lab_speculate
from inference_bench.cli.report_page import add_report_option

LABS: Final = {
    "machine": (lab_machine, "this machine's own roofline, by PyTorch and by the probe"),
    "cache": (lab_cache, "what a KV cache saves, costs and can break"),
    "quantise": (lab_quantise, "what fewer bits cost in quality, by method"),
    "speculate": (lab_speculate, "does speculative decoding keep its output, and what does it gain"),
    "batch": (lab_batch, "what a batch gains, and whether it changes anything"),
    "grammar": (lab_grammar, "what a schema guarantees, and what its masks cost"),
}


def add_lab_options(parser: argparse.ArgumentParser, make: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the six labs; make is how a command is added to those of one."""
    inner = parser.add_subparsers(dest="lab", required=True, metavar="LAB", parser_class=type(parser))
    for name, (module, summary) in LABS.items():
        each = make(inner, name, summary, "lab")
        if name != "machine":
            each.add_argument(
                "--model", metavar="MODEL", help="a folder, a .gguf file or a hub id; default: the embedded model"
            )
            each.add_argument("--revision", metavar="COMMIT", help="the commit of a hub id")
        each.add_argument(
            "--quick", action="store_true", help="under 90 s on two cores; the result says what it leaves out"
        )
        each.add_argument("--threads", metavar="N", help="threads that compute; default: every core this may use")
        each.add_argument("--seed", metavar="N", default="0", help="what is drawn is drawn from this; default 0")
        each.add_argument("--chart", metavar="FILE", help="draw the lab's chart: .svg, .html or .json (Vega-Lite)")
        add_report_option(each)
        module.add_options(each)
