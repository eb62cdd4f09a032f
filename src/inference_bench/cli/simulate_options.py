"""The options of the two commands that simulate: `simulate` and `capacity`.

In:   a parser
Out:  its options
Leaves out: what they mean (server_choice, workload_choice, simulate, capacity)
"""

from __future__ import annotations

import argparse

from inference_bench.cli.objective_options import add_objective_options
from inference_bench.cli.report_page import add_report_option
from inference_bench.cli.server_options import add_fleet_options, add_server_options
from inference_bench.cli.workload_options import add_workload_options

_CONCURRENCY = "requests in flight at once, each sent when one ends, in place of a rate"


def add_simulate_options(parser: argparse.ArgumentParser) -> None:
    """The options of `simulate`."""
    rates = "; several as 0.1,0.2 or FIRST:LAST:STEP; default 0.25 for the default server"
    parser.usage = "%(prog)s [options]"
    asked = add_workload_options(parser, about_rate=rates)
    asked.add_argument("--concurrency", metavar="C", help=_CONCURRENCY)
    asked.add_argument("--seeds", metavar="N", default="1", help="draws of the workload, from the seed on; default 1")
    add_server_options(parser, compares=True)
    add_fleet_options(parser)
    group = parser.add_argument_group("what comes out")
    add_objective_options(group)
    group.add_argument(
        "--chart",
        metavar="FILE",
        help="draw latency over several rates, what users of several policies waited, or one run over time: .svg, .html or .json "
        "(Vega-Lite)",
    )
    add_report_option(group)
    group.add_argument(
        "--records", metavar="FILE", help="write each request of one run with its token times (JSON Lines)"
    )
    group.add_argument("--workers", metavar="N", help="processes for several runs; default: as many as are worth it")
    group.add_argument(
        "--backend",
        metavar="WHERE",
        default="local",
        help="where several runs run: local processes (default), or ray, on the cluster that RAY_ADDRESS names, else here",
    )
    group = parser.add_argument_group("beside a real engine's log")
    group.add_argument(
        "--against",
        metavar="LOG",
        help="a folder with requests.jsonl, or such a file: simulate the server that wrote it",
    )
    group.add_argument(
        "--calibrate", action="store_true", help="fit shares of both peaks and a fixed time a step to the log"
    )
    group.add_argument("--save-profile", metavar="FILE", help="save what was fitted, for --profile")


def add_capacity_options(parser: argparse.ArgumentParser) -> None:
    """The options of `capacity`."""
    parser.usage = "%(prog)s [options]"
    group = parser.add_argument_group("what is promised")
    for option, what in (
        ("--ttft-p99", "TTFT: the wait for the first token"),
        ("--itl-p99", "ITL: pauses between tokens, of all requests together"),
        ("--tpot-p99", "TPOT: a request's time per token after the first"),
        ("--e2e-p99", "E2E: the whole request"),
    ):
        group.add_argument(option, metavar="TIME", help=f"99th percentile of {what}")
    group = parser.add_argument_group("how it is looked for")
    group.add_argument("--low", metavar="R", help="lowest rate to look at, in requests/s; default: found")
    group.add_argument("--high", metavar="R", help="highest; default: found by doubling")
    group.add_argument("--steps", metavar="N", help="halvings of what lies between; default 10")
    group.add_argument("--seeds", metavar="N", help="further draws, for an interval; default 4, of a replay none")
    group.add_argument(
        "--longer", metavar="N", help="run the answer again with N times the requests; default 10, 1: not"
    )
    group.add_argument(
        "--replay", action="store_true", help="hold a trace as recorded beside random arrivals of the same mean rate"
    )
    add_workload_options(parser, about_rate="; not here: the rate is what is looked for")
    add_server_options(parser, compares=False)
    add_fleet_options(parser)
    group = parser.add_argument_group("what comes out")
    group.add_argument("--chart", metavar="FILE", help="draw what was tried: .svg, .html or .json (Vega-Lite)")
    add_report_option(group)
