"""What `serve` can be asked; apart from the command, so that building the parser loads no engine."""

from __future__ import annotations

import argparse


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """What is served, by what, and with how much room."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a .gguf file, or a folder as Transformers writes it; default: the embedded model",
    )
    parser.add_argument(
        "--engine", metavar="NAME", default="llama.cpp", help="llama.cpp, vllm or sglang; default llama.cpp"
    )
    parser.add_argument("--context", metavar="N", default="4096", help="positions of a sequence; default 4096")
    parser.add_argument("--slots", metavar="N", default="4", help="sequences it computes at once; default 4")
    parser.add_argument("--threads", metavar="N", help="threads of the engine; default: every core this may use")
    parser.add_argument("--port", metavar="N", help="the port on 127.0.0.1; default: a free one")
    parser.add_argument(
        "--no-prefix-cache", action="store_true", help="keep no prompts; requests that say cache_prompt are obeyed"
    )
    parser.add_argument("--log", metavar="FILE", help="where the engine's log is kept; default: nowhere")
