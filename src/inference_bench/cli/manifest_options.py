"""The options of `manifest`: create, verify, diff, export, outputs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

DEFAULT_FILE: Final = "manifest.json"
FORMATS: Final = ("cyclonedx", "in-toto")

# how the command line makes a command: where, its name, its summary, its module
Make = Callable[[Any, str, str, str], argparse.ArgumentParser]


def add_manifest_options(parser: argparse.ArgumentParser, make: Make) -> None:
    """Add the five commands below `manifest`."""
    inner = parser.add_subparsers(dest="manifest_command", required=True, metavar="COMMAND", parser_class=type(parser))
    create = make(inner, "create", "hash and write down what is served", "manifest")
    create.add_argument("--out", metavar="FILE", default=DEFAULT_FILE, help=f"the manifest; default {DEFAULT_FILE}")
    create.add_argument(
        "--flag",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a flag the engine was started with, which it may not report; may be given again",
    )
    verify = make(
        inner,
        "verify",
        "is what is served what the manifest says? exit 1 where anything differs, or nothing could be confirmed",
        "manifest",
    )
    verify.add_argument("file", metavar="FILE", help="a manifest, or a run folder that holds one")
    verify.add_argument(
        "--strict", action="store_true", help="exit 1 also where a component of the manifest stays unknown"
    )
    for each in (create, verify):
        _add_sources(each)
    diff = make(inner, "diff", "what differs between two manifests; exit 1 where anything does", "manifest")
    for name in ("first", "second"):
        diff.add_argument(name, metavar="FILE", help="a manifest, or a run folder that holds one")
    export = make(inner, "export", "a manifest as a bill of materials, or as a statement about its files", "manifest")
    export.add_argument("file", metavar="FILE", help="a manifest, or a run folder that holds one")
    export.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=f"default {FORMATS[0]}")
    export.add_argument("--out", metavar="FILE", help="where it is written; default: it is printed")
    outputs = make(
        inner, "outputs", "what each output of a run came from, by whom, and how it went", "manifest_outputs"
    )
    outputs.add_argument(
        "run", metavar="RUN", help="a run folder, or the folder that a recorder writes to, or one of its files"
    )
    outputs.add_argument("--out", metavar="FILE.jsonl", help="write a line of JSON for each output to it")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        metavar="MODEL|URL",
        nargs="+",
        help="a model's folder, a .gguf file, 'embedded', or a server's address",
    )
    parser.add_argument(
        "--system-prompt-file", metavar="FILE", help="a system prompt; only its hash and its length are kept"
    )
    parser.add_argument(
        "--adapter", metavar="PATH", action="append", default=[], help="an adapter beside the model; may be given again"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="VAR",
        help="environment variable that holds the API key; the key itself is never stored",
    )
