"""The options of `lab cache`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_bench.errors import RequestError
from inference_bench.units import KILO, format_bytes, parse_count, parse_tokens

if TYPE_CHECKING:
    from inference_bench.labs.cache.request import CacheRequest
    from inference_bench.labs.settings import LabSettings

_MOST_PROMPT_BYTES: Final = 100 * KILO


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what only this lab reads."""
    parser.add_argument("--tokens", metavar="N", help="tokens the model emits from each prompt; default 64, quick 24")
    parser.add_argument("--prompt", metavar="FILE", help="a text of your own instead of the prompts built in; not kept")
    parser.add_argument(
        "--lengths", metavar="N,N,…", help="emitted tokens at which both ways are timed; default 32 to 1024"
    )


def request(options: argparse.Namespace, settings: LabSettings) -> CacheRequest:
    """What was asked for, as typed.

    Raises:  QuantityError, RequestError
    """
    from inference_bench.labs.cache.request import CacheRequest

    lengths = () if options.lengths is None else options.lengths.split(",")
    return CacheRequest(
        settings,
        num_tokens=None if options.tokens is None else parse_count(options.tokens, "tokens"),
        prompt_text=None if options.prompt is None else _read(Path(options.prompt)),
        lengths=tuple(parse_tokens(length, "length") for length in lengths),
    )


def _read(path: Path) -> str:
    from inference_bench.files import open_regular, shown_name

    try:
        with open_regular(path) as file:
            text = file.read(_MOST_PROMPT_BYTES + 1)
        if len(text) > _MOST_PROMPT_BYTES:
            raise RequestError(
                f"the prompt {shown_name(path)} is longer than {format_bytes(_MOST_PROMPT_BYTES)}; give its beginning alone"
            )
        return text.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the prompt {shown_name(path)} cannot be read as a UTF-8 text: {error}") from None
