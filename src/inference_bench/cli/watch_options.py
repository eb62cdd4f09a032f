"""What `watch` can be asked.

In:   a parser
Out:  the same parser with the options
Read next by: main.
"""

from __future__ import annotations

import argparse


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Which servers, how often, what is sent to them, and where the figures go."""
    parser.add_argument(
        "servers",
        metavar="URL",
        nargs="*",
        help="addresses such as http://127.0.0.1:8080, or NAME=URL to call one by a name",
    )
    parser.add_argument(
        "--once", action="store_true", help="one round: exit 0 all ready, 1 some not ready, 3 some down"
    )
    parser.add_argument("--for", dest="for_time", metavar="TIME", help="stop after this time, with the same exit codes")
    parser.add_argument("--interval", metavar="TIME", default="2s", help="between looks at the metrics; default 2s")
    parser.add_argument("--timeout", metavar="TIME", default="2s", help="longest a look may take; default 2s")
    parser.add_argument("--window", metavar="TIME", default="1min", help="what rates and means are over; default 1min")
    parser.add_argument(
        "--no-probe",
        action="store_true",
        help="never ask for a token: a server that lists its model then counts as ready",
    )
    parser.add_argument(
        "--probe-every", metavar="TIME", default="15s", help="pace of asking an idle server for one token; default 15s"
    )
    parser.add_argument(
        "--probe-timeout", metavar="TIME", default="10s", help="longest one token may take; default 10s"
    )
    parser.add_argument("--model", metavar="NAME", help="the model to ask for; default: the first that a server lists")
    parser.add_argument(
        "--metrics-path", metavar="PATH", default="/metrics", help="where the metrics are; default /metrics"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="VAR",
        help="environment variable that holds the API key, which is sent to every server; the key itself is never stored",
    )
    parser.add_argument(
        "--export",
        metavar="PORT",
        help="serve the figures as Prometheus metrics on this port of 127.0.0.1; 0: any free one",
    )
    parser.add_argument(
        "--write-rules",
        metavar="DIR",
        help="write alert rules, their promtool tests and a Grafana dashboard into this folder, and stop where no server is given",
    )
