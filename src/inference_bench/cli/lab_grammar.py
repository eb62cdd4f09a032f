"""The options of `lab grammar`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from inference_bench.cli.given import number

if TYPE_CHECKING:
    from inference_bench.labs.grammar.request import GrammarRequest
    from inference_bench.labs.settings import LabSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""
    parser.add_argument("--schema", metavar="FILE", help="a JSON Schema of your own; default: five built-in ones")
    parser.add_argument("--prompt", metavar="TEXT", help="what to ask with your own schema; it is written nowhere")
    parser.add_argument("--tokens", metavar="N", help="the budget of each document; default 96, or 48 with --quick")
    parser.add_argument("--temperature", metavar="T", default="1", help="of the sampled documents; default 1")
    parser.add_argument(
        "--allow-unenforced", action="store_true", help="run a schema with keywords that its grammar does not enforce"
    )
    parser.add_argument("--url", metavar="URL", help="ask a server of yours the same; default: the embedded engine")
    parser.add_argument("--no-server", action="store_true", help="ask no server")


def request(options: argparse.Namespace, settings: LabSettings) -> GrammarRequest:
    """What was asked for, as typed."""
    from inference_bench.labs.grammar.request import GrammarRequest
    from inference_bench.measure.text_checks import read_schema
    from inference_bench.units import parse_count

    schema = None if options.schema is None else read_schema(Path(options.schema))
    return GrammarRequest(
        settings,
        schema=schema,
        schema_name="own schema" if schema is None else Path(options.schema).stem[:40],
        prompt=options.prompt,
        num_tokens=None if options.tokens is None else parse_count(options.tokens, "tokens"),
        temperature=number(options.temperature, "temperature"),
        allows_unenforced=options.allow_unenforced,
        url=options.url,
        uses_server=not options.no_server,
    )
