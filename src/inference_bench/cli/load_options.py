"""The options of `load`, and those that every command has which asks a real server.

In:   a parser
Out:  its options
Leaves out: what they mean (load_choice, loaded when the command runs)
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from inference_bench.cli.objective_options import add_objective_options
from inference_bench.cli.workload_options import LOAD_DEFAULTS, add_workload_options

TWO_ENDPOINTS: Final = ("completions", "chat")
ALL_ENDPOINTS: Final = (*TWO_ENDPOINTS, "sglang", "llama.cpp")

# option, what stands for its value, what it is
_WHEN: Final = (
    (
        "--concurrency",
        "C[,C...]",
        "requests in flight at once, each sent when one ends; several: a sweep. Default 1 where there is no rate and no trace",
    ),
    (
        "--duration",
        "TIME",
        "how long to measure, instead of a number of requests; what is in flight at its end may finish in the cool-down",
    ),
    (
        "--warmup",
        "TIME|N",
        "what the load begins with and is not measured: so long (30s), or so many requests (30); it does not drain in between",
    ),
    (
        "--cooldown",
        "TIME",
        "how long the load is kept up at most while what was measured ends; default with a duration: until it has ended; 0s: "
        "cancel it",
    ),
    ("--ramp", "TIME", "start the slots of a closed loop spread over so long; part of the warm-up"),
)
_WHAT: Final = (
    (
        "--prompt-source",
        "SOURCE",
        "words (random, one token each where the server can tell), corpus (text as people write it), or a file of prompts: "
        "JSON Lines or ShareGPT; default words",
    ),
    ("--corpus", "FILE", "the text that prompts are cut from; default: the English text that comes with Python"),
    ("--template", "FILE", "text around each prompt, with {prompt} where it stands, and {id} for a number of its own"),
    ("--json-schema", "FILE", "ask for JSON documents of this schema, and judge each answer by it"),
    ("--tokenizer", "FILE", "a tokenizer.json to count output tokens with where the server counts none"),
    ("--extra-body", "JSON", "fields to add to every request: a JSON object, or @FILE"),
)
_PROMISED: Final = (
    ("--ttft-p99", "TIME", "longest wait for the first token"),
    ("--itl-p99", "TIME", "longest pause between tokens"),
    ("--tpot-p99", "TIME", "longest mean time of a token after the first"),
    ("--e2e-p99", "TIME", "longest time until the last token"),
    ("--share", "U", "of the requests that must keep all of these; default 99%%"),
    ("--half-width", "U", "how narrow an interval is looked for, as a share of its middle; default 5%%"),
    ("--max-requests", "N", "most requests that may be sent for it; default 100000"),
    ("--max-time", "TIME", "longest that it may go on; a run that was begun is ended"),
)
_SERVED: Final = (
    ("--model", "MODEL", "the model that is served: a known name, a path, or a hub id"),
    ("--on", "HW", "the machine it runs on"),
    ("--weights", "FMT", "weight format served; default: the model's own"),
    ("--kv", "FMT", "cache format served; default fp16"),
    ("--devices", "N", "how many of the machine serve it together; default 1"),
)


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that `load` reads."""
    parser.add_argument("url", metavar="URL", help="an OpenAI-compatible server, or one with a route of --endpoint")
    _add_when(parser)
    add_workload_options(parser, has_seed=False, defaults=LOAD_DEFAULTS, about_rate="; several (1,2,4): a sweep")
    said = parser.add_argument_group("what is said")
    _add(said, _WHAT)
    said.add_argument(
        "--count-chunks",
        action="store_true",
        help="ask the server how many tokens each chunk holds, where it can say",
    )
    said.add_argument(
        "--header",
        metavar="HEADER",
        action="append",
        help="a header for every request: 'Name: value', 'Name: env:VARIABLE' or 'Name: @FILE'; may be given several times",
    )
    promised = parser.add_argument_group("what is promised", "for --find-capacity")
    promised.add_argument(
        "--find-capacity",
        action="store_true",
        help="look for the highest rate that keeps these, failures counting as misses; --rate is where to begin",
    )
    _add(promised, _PROMISED)
    about = "given both, each request is held to the least time physics allows"
    _add(parser.add_argument_group("what is served", about), _SERVED)
    _add_output(parser)
    add_server_options(parser, ALL_ENDPOINTS)


def _add(group: argparse._ActionsContainer, options: Sequence[tuple[str, str, str]]) -> None:
    for option, metavar, summary in options:
        group.add_argument(option, metavar=metavar, help=summary)


def _add_when(parser: argparse.ArgumentParser) -> None:
    when = parser.add_argument_group("when")
    _add(when, _WHEN)
    when.add_argument(
        "--sweep",
        action="store_true",
        help="go on from --rate or --concurrency (default 1), twice as much each time, until the throughput grows by less than "
        "5%%, and two levels past that; without --requests or --duration each level has 5 s of warm-up and measures 15 s",
    )
    when.add_argument("--resume", metavar="RUN", help="go on with a sweep that was cut short, asked the same way")
    when.add_argument(
        "--processes",
        metavar="N",
        help="how many processes send, each its part of one schedule; 0: one for each core; default 1",
    )
    when.add_argument(
        "--ray", action="store_true", help="let them run on a Ray cluster: RAY_ADDRESS, else one started here"
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add_objective_options(parser)
    parser.add_argument("--definitions", action="store_true", help="also what other tools would have printed")
    parser.add_argument(
        "--scrape",
        metavar="PATH",
        nargs="?",
        const="/metrics",
        help="read the server's own metrics once a second; default path /metrics",
    )
    add_page_options(parser)


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add where the page of a load is written."""
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="where to write charts and tables as one page that needs no network; default: report.html in the run folder",
    )
    parser.add_argument("--no-report", action="store_true", help="write no page")


def add_server_options(parser: argparse.ArgumentParser, endpoints: Sequence[str] = TWO_ENDPOINTS) -> None:
    """Add which route and model to ask, the key, and where the run is kept."""
    parser.add_argument("--endpoint", choices=endpoints, default="completions", help="which route to call")
    parser.add_argument(
        "--served-model", metavar="NAME", help="the model name to send; default: the first the server lists"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="VAR",
        help="environment variable that holds the API key; the key itself is never stored",
    )
    parser.add_argument("--runs", metavar="DIR", default="runs", help="folder for run folders; default runs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the prompts; default 0")
    parser.add_argument("--timeout", metavar="TIME", default="120s", help="longest a request may take; default 120s")
