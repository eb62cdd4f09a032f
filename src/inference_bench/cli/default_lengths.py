"""Lengths for a workload of which nothing is said, where the usual ones could never fit the server.

In:   the options of a command that simulates
Out:  the options with lengths that fit, and a sentence that says so
Leaves out: lengths that a person gives, and traces
"""

from __future__ import annotations

import argparse
from typing import Final

from inference_bench.cli.server_choice import served_from
from inference_bench.cli.workload_options import REFERENCE_DEFAULTS
from inference_bench.simulate.profile_served import longest_request
from inference_bench.units import format_count
from inference_bench.workload import Constant, generate, parse_lengths

_LENGTHS: Final = ("prompt_tokens", "output_tokens")
_PART: Final = 4  # a length that is chosen is so much of what a sequence may hold


def with_lengths_that_fit(options: argparse.Namespace, default: str) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """The options; a quarter of what a sequence of the profile's server may hold for each length that is not given.

    Where:   default names the schedulers as served_from takes them; only where the usual lengths could not fit
    Raises:  RequestError as served_from does
    """
    chosen = [name for name in _LENGTHS if getattr(options, name) is None]
    if not (options.profile or "").endswith(".json") or options.trace is not None or not chosen:
        return options, ()
    one = parse_lengths("1", "tokens")
    served = served_from(options, generate(Constant(1.0), one, one, 1, 0), default)
    most = min(longest_request(each.setup) for each in served.contenders)
    asked = {name: getattr(options, name) or REFERENCE_DEFAULTS[name] for name in _LENGTHS}
    if sum(parse_lengths(text, name.replace("_", " ")).longest for name, text in asked.items()) <= most:
        return options, ()
    length = str(max(1, most // _PART))
    what = " and ".join(name.replace("_tokens", "s") for name in chosen)
    said = (
        f"lengths: {what} of {format_count(int(length))} tokens, a quarter of the {format_count(most)} positions that a sequence of "
        "this server may hold; nothing was said of them, and the usual ones would not fit"
    )
    return argparse.Namespace(**{**vars(options), **dict.fromkeys(chosen, length)}), (said,)
