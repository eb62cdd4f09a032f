"""The options of `plan`: a scenario file, and every field of it that a person may give instead."""

from __future__ import annotations

import argparse
from typing import Final

from inference_bench.cli.report_page import add_report_option

ENGINE_HELP: Final = (
    "whose measured efficiencies the expected speeds are from, and for llama.cpp and vllm whose rule counts the cache; "
    "others: sglang, tensorrt-llm, exllamav2, mlc, transformers and more"
)
MEASURED_HELP: Final = "own measurements of this engine on this machine that correct it: a CSV table or a verify run"
PROFILE_HELP: Final = "times as fitted to a server on this machine: a profile, as verify saves it"

# option, what stands for its value, what it is; each is a field of a scenario, and wins over the file
_PLAN_OPTIONS: Final = (
    ("--model", "MODEL", "a known name, a path, or a hub id"),
    ("--weights", "FMT", "weight format"),
    ("--kv", "FMT", "cache format; default fp16"),
    ("--compute", "FMT", "compute format whose peak is used; default: what the weights allow"),
    ("--devices", "N", "how many of the machine share the model; default 1"),
    ("--engine", "NAME", ENGINE_HELP),
    (
        "--speed",
        "HOW",
        "shares of the peaks, or expected of the engine; default expected where an engine is named alone",
    ),
    ("--prompt", "N", "prompt tokens of a request"),
    ("--output", "N", "output tokens of a request"),
    ("--prefix", "N", "tokens that every prompt begins with"),
    ("--requests-per-day", "N", "daily volume"),
    ("--peak-factor", "X", "peak rate over the mean rate; default 1"),
    ("--target-utilisation", "U", "how busy a replica may be at the peak; default 80%%"),
    ("--think-time", "TIME", "what a user waits between an answer and the next request"),
    ("--ttft", "TIME", "objective for the first token"),
    ("--tpot", "TIME", "objective for the time of each following token"),
    ("--e2e", "TIME", "objective for the whole request"),
    ("--judged-by", "HOW", "hold tpot and e2e against the step alone, or full_load; default step"),
    ("--usd-per-hour", "USD", "price of a device hour; one, or one a machine after commas"),
    ("--utilisation", "U", "share of the bought hours that is busy"),
    ("--hosted-input", "USD", "price of a million hosted input tokens"),
    ("--hosted-output", "USD", "price of a million hosted output tokens"),
    ("--hosted-cached", "USD", "price of a million hosted input tokens that are cached"),
    ("--overhead", "BYTES", "memory the runtime takes on each device; default 2.5GB"),
    ("--mfu", "U", "share of the peak compute that is reached; default 0.5"),
    ("--bandwidth-share", "U", "share of the peak bandwidth that is reached; default 0.8"),
    ("--max-batch", "N", "largest batch the engine allows"),
)


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add what `plan` reads."""
    parser.add_argument(
        "scenario",
        metavar="SCENARIO.toml",
        nargs="?",
        help="model, machine, traffic, objectives, prices (docs/scenario.md)",
    )
    parser.add_argument("--on", metavar="HW", action="append", help="a machine; several are compared")
    parser.add_argument("--compare", metavar="HW,HW", help="machines to compare on the same scenario")
    parser.add_argument("--measured", metavar="FILE", help=MEASURED_HELP)
    parser.add_argument("--profile", metavar="FILE", help=PROFILE_HELP)
    for option, metavar, summary in _PLAN_OPTIONS:
        parser.add_argument(option, metavar=metavar, help=summary)
    add_report_option(parser)
