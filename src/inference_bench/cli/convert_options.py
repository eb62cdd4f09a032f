"""The options of `convert`: what is converted, to what, and where it goes."""

from __future__ import annotations

import argparse


def add_convert_options(parser: argparse.ArgumentParser) -> None:
    """Add what `convert` reads."""
    parser.add_argument("source", metavar="SOURCE.gguf", help="a GGUF file of llama or qwen2; or 'embedded'")
    parser.add_argument("target", metavar="TARGET", help="the new file NAME.gguf, or the new folder")
    parser.add_argument(
        "--to",
        metavar="FMT",
        required=True,
        help="q4_0, q4_1, q8_0, f16, bf16, f32: a GGUF file; hf: a Hugging Face folder, for vLLM and Transformers",
    )
    parser.add_argument(
        "--dtype",
        metavar="TYPE",
        default="float32",
        help="weights of a folder: float32, float16, bfloat16; default float32",
    )
    parser.add_argument("--force", action="store_true", help="replace what an earlier conversion left at TARGET")
