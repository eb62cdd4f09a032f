"""`serve`: an engine on the loopback interface, for whatever wants a server to ask; Ctrl-C ends it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from inference_bench.cli.output import ProgressLine, one_line, print_json
from inference_bench.engines.startup import StartedServer
from inference_bench.errors import ServerError
from inference_bench.files import shown_name
from inference_bench.units import parse_count, parse_tokens
from inference_bench.verify.own_server import ServeRequest, serve_model

SCHEMA: Final = "inference-bench/serve/1"
_LOOK_S: Final = 0.5


def run(options: argparse.Namespace) -> int:
    """Start, say where it is, and wait; Ctrl-C is the ordinary end.

    Raises:   ServerError where the engine ends by itself
    """
    request = _request(options)
    progress = ProgressLine()
    with TemporaryDirectory(prefix="inference-bench-serve-") as folder:
        log_path = Path(options.log) if options.log else Path(folder) / "engine.log"
        try:
            with serve_model(request, log_path, progress) as server:
                progress.done()
                _say(options, server)
                _wait(server)
        except KeyboardInterrupt:
            return 0
        finally:
            progress.done()
    return 0


def _request(options: argparse.Namespace) -> ServeRequest:
    return ServeRequest(
        options.model,
        options.engine,
        parse_tokens(options.context, "context"),
        parse_count(options.slots, "slots"),
        None if options.threads is None else parse_count(options.threads, "threads"),
        None if options.port is None else parse_count(options.port, "port"),
        not options.no_prefix_cache,
    )


def _say(options: argparse.Namespace, server: StartedServer) -> None:
    identity = server.identity
    if options.json:
        print_json({
            "schema": SCHEMA,
            "url": server.base_url,
            "engine": identity.name,
            "version": identity.version,
            "model": identity.model_name,
            "model_path": identity.model_path,
            "pid": server.pid,
        })  # fmt: skip
        sys.stdout.flush()  # whoever started this waits for it
    else:
        served = one_line(f"{identity.name} serves {identity.model_name} ({shown_name(identity.model_path or 'n/a')})")
        print(f"{server.base_url}\n\n{served}\nCtrl-C ends it.", flush=True)


def _wait(server: StartedServer) -> None:
    while server.is_running():
        time.sleep(_LOOK_S)
    raise ServerError(f"the engine ended by itself: {server.describe_end()}")
