"""The options that say what is simulated, shared by the commands that simulate: the server, its scheduler, several of it.

In:   a parser; later the options a person gave
Out:  the options
Leaves out: what they mean together (server_choice, loaded when a command runs)
"""

from __future__ import annotations

import argparse
from typing import Final

DEFAULT_PROFILE: Final = "24GB-bf16"
PRIMARY_SCHEDULER: Final = "chunked"

_SCHEDULERS: Final = (
    "static, static-memory, dynamic, reserve, paged, chunked, all (these six); or an engine's: vllm, vllm-large, sglang, "
    "llama.cpp"
)

# option, what stands for its value, what it is
_SERVER: Final = (
    (
        "--profile",
        "NAME|FILE",
        f"where step times are from: 24GB-bf16 or H100-bf16 (the reference model), a profile saved by --save-profile, or a CSV table "
        f"of measured steps; default {DEFAULT_PROFILE} where no model is named",
    ),
    ("--model", "MODEL", "a known name, a path, or a hub id: its own work on a machine"),
    ("--on", "HW", "the machine: a known name, 'here', or a TOML or JSON file"),
    ("--devices", "N", "how many of the machine share each layer; default 1"),
    ("--weights", "FMT", "weight format; default: the file's own"),
    ("--kv", "FMT", "cache format; default fp16"),
    ("--engine", "NAME", "take the speed expected of this engine, and its scheduler where that is known"),
    ("--mfu", "U", "share of the peak compute that is reached; default 0.5; 1 with the next: the bound"),
    ("--bandwidth-share", "U", "share of the peak bandwidth that is reached; default 0.8"),
    ("--overhead", "BYTES", "memory the runtime takes on each device; default 2.5GB (engines' schedulers: 1.5GB)"),
    ("--usd-per-hour", "USD", "price of a device hour; reference profiles have their own"),
)
_SCHEDULER: Final = (
    ("--max-running", "N", "sequences that run at once; default 256, or the engine's"),
    ("--token-budget", "N", "positions a step, of chunked (default 256) and of engines"),
    ("--max-batch", "N", "largest batch, of static and dynamic; default 16"),
    ("--dispatch-timeout", "TIME", "how long the oldest waits for a batch to fill; default 2s"),
    ("--preemption", "HOW", "what becomes of a cache that gives way: recompute (default) or swap"),
    ("--order", "HOW", "who is admitted first: fcfs (default), shortest-prompt, priority"),
    (
        "--speculate",
        "TOKENS:ACCEPTANCE[:COST]",
        "draft so many tokens a step; COST is a draft's time as a share of a step's",
    ),
    (
        "--kv-memory",
        "BYTES",
        "what the cache may take on each device; default: the profile's, or what the machine has left",
    ),
    ("--kv-blocks", "N", "the same as an engine's log says it: blocks"),
    ("--block-size", "N", "positions of a block; default 1, or the engine's"),
)
_FLEET: Final = (
    ("--replicas", "N", "servers at the start, all alike; default 1"),
    ("--routing", "HOW", "who gets a request: round-robin (default), least-requests, least-work, prefix-aware"),
    (
        "--autoscale",
        "MIN:MAX[:TARGET[:SIGNAL]]",
        "more or fewer, so that each has TARGET (default 4) of SIGNAL: waiting (default) or running-share",
    ),
    ("--start-up", "TIME", "from a replica's order until it serves; default 60s"),
    ("--mtbf", "TIME", "mean time that a replica is up before it fails; needs --mttr"),
    ("--mttr", "TIME", "mean time that it is down"),
    ("--disaggregate", "N", "N more servers decode, and the replicas only prefill"),
    ("--transfer-bandwidth", "RATE", "at which caches travel, such as 25GB/s; default 50GB/s"),
    ("--transfer-latency", "TIME", "that is added to each; default 0"),
)
FLEET_NAMES: Final = (*(option.removeprefix("--").replace("-", "_") for option, _, _ in _FLEET), "fail")


def add_server_options(parser: argparse.ArgumentParser, *, compares: bool) -> None:
    """Add the options that `server_choice` reads.

    Where:  compares is for a command that runs several schedulers beside each other
    """
    group = parser.add_argument_group("what serves it")
    for option, metavar, summary in _SERVER:
        group.add_argument(option, metavar=metavar, help=summary)
    group = parser.add_argument_group("how it schedules")
    several = (
        "; several with commas; default all, or the engine's" if compares else "; default chunked, or the engine's"
    )
    group.add_argument("--policy", "--scheduler", dest="policy", metavar="P", help=f"{_SCHEDULERS}{several}")
    for option, metavar, summary in _SCHEDULER:
        group.add_argument(option, metavar=metavar, help=summary)
    group.add_argument("--prefix-cache", action="store_true", help="keep blocks of prompts for those that begin alike")
    group.add_argument(
        "--simulator",
        metavar="WHO",
        default="auto",
        help="auto, or reference (readable, keeps every token's time), plain, compiled; the answers are the same",
    )


def add_fleet_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of several servers."""
    group = parser.add_argument_group("several servers")
    for option, metavar, summary in _FLEET:
        group.add_argument(option, metavar=metavar, help=summary)
    group.add_argument(
        "--fail",
        metavar="REPLICA@TIME[:DOWN]",
        action="append",
        help="a replica, counted from 0, fails then, for so long (default: for good); may be given again",
    )
