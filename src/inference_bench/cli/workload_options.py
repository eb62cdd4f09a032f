"""The options that say what is asked of a server, shared by every command that sends or simulates requests.

In:   a parser; later the options a person gave
Out:  the options; Workload
Leaves out: what they mean together (workload_choice, loaded when a command runs)
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inference_bench.workload import Workload

DEFAULT_THINK_S: Final = 10.0
TRACE_FIXES: Final = "sort, drop-empty, words=N"

# what stands for an option that is not given, where there is no trace
REFERENCE_DEFAULTS: Final = {
    "requests": "300",
    "prompt_tokens": "uniform:2000:6000",
    "output_tokens": "lognormal:1500:0.6:16:4000",
}
LOAD_DEFAULTS: Final = {"requests": "16", "prompt_tokens": "128", "output_tokens": "64"}

_ARRIVALS: Final = (
    "poisson, constant, gamma:CV, on-off:ON:OFF[:SHARE], ramp:FROM:TO:TIME[:even], steps:RATE,RATE,...:TIME[:even]"
)
_LENGTHS: Final = "N, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA:LOW:HIGH, values:N,N,..., mix:SHARE:LONG:BASE"
_TRACES: Final = "azure, burstgpt, bailian, mooncake, vllm-run, plain, sharegpt, servegen"

# option, what stands for its value, what it is
_OPTIONS: Final = (
    ("--requests", "N", "number of requests, or of a trace's first ones (a trace: all)"),
    ("--rate", "R", "requests a second, on a schedule that does not wait for answers"),
    (
        "--arrivals",
        "HOW",
        f"how they arrive: {_ARRIVALS} (ON, OFF: mean durations; SHARE: the rate while off, of that while on; a ramp and "
        "steps say their rates themselves, without --rate); default poisson",
    ),
    ("--prompt-tokens", "LENGTHS", f"prompt lengths: {_LENGTHS}"),
    ("--output-tokens", "LENGTHS", "output lengths asked for, in the same forms"),
    ("--max-output-tokens", "N", "the limit that clients state; default: the longest output there can be"),
    (
        "--shared-prefix",
        "T[:GROUPS[:ZIPF]]",
        "T tokens in front of every prompt, the same for all of a group; default one group, else drawn alike or by "
        "Zipf's law",
    ),
    (
        "--turns",
        "N[:THINK]",
        f"conversations of N turns, each holding the ones before, THINK apart on average; default {DEFAULT_THINK_S:g}s",
    ),
    (
        "--samples",
        "N",
        "N answers to each prompt, asked for together; they count as N requests, in the number of requests and in the rate",
    ),
    ("--trace", "FILE", "replay recorded requests (docs/workloads.md)"),
    ("--trace-format", "NAME", f"{_TRACES}; default: seen from its content"),
    ("--trace-columns", "MAP", "names of its columns, such as time_ms=t,prompt=in,output=out"),
    ("--trace-fix", "FIXES", f"what may be mended: {TRACE_FIXES} (tokens a word, for text without token counts)"),
    ("--time-scale", "X", "multiply a trace's times: 2 is half its rate"),
)


def add_workload_options(
    parser: argparse.ArgumentParser,
    has_seed: bool = True,
    defaults: Mapping[str, str] = REFERENCE_DEFAULTS,
    about_rate: str = "",
) -> argparse._ArgumentGroup:
    """Add the options that `workload_from` reads.

    Where:    has_seed False is for a command that has a seed already; `defaults` are shown in the help, and
              `workload_from` is given the same; about_rate is what a command says of its rate besides;
              the group is handed back for options of the command's own
    """
    group = parser.add_argument_group("what is asked")
    for option, metavar, summary in _OPTIONS:
        name = option.removeprefix("--").replace("-", "_")
        names = (option, "--count") if name == "requests" else (option,)
        default = f"; default {defaults[name]}" if name in defaults else ""
        group.add_argument(
            *names, dest=name, metavar=metavar, help=f"{summary}{about_rate if name == 'rate' else default}"
        )
    if has_seed:
        group.add_argument("--seed", type=int, default=0, help="seed of the workload; default 0")
    return group


def workload_from(options: argparse.Namespace, defaults: Mapping[str, str] = REFERENCE_DEFAULTS) -> Workload:
    """The workload that a person describes; what nothing is said about is as in `defaults`.

    Where:    `options` may have a `concurrency`, which makes it a closed loop
    Raises:   RequestError for options that are missing, contradict each other, or hold what cannot be
    """
    from inference_bench.cli.workload_choice import build_workload

    return build_workload(options, defaults)
