"""`convert`: the same model in another number format, or as a folder that other engines load."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from inference_bench.cli.output import ProgressLine, one_line, print_json
from inference_bench.convert.flow import Conversion, ConversionRequest, conversion_json, convert_model
from inference_bench.units import format_bytes, format_count, format_seconds

_EMBEDDED: Final = "embedded"


def run(options: argparse.Namespace) -> int:
    """Convert, and say what was written."""
    progress = ProgressLine()
    try:
        source, target = _source(options.source, progress), Path(options.target)
        request = ConversionRequest(
            source, target, options.to, options.dtype, options.force, to_replace="replace it with --force"
        )
        found = convert_model(request, progress)
    finally:
        progress.done()
    if options.json:
        print_json(conversion_json(found))
    else:
        print("\n".join(one_line(line) if line.strip() else line for line in _lines(found)))
    return 0


def _source(text: str, progress: ProgressLine) -> Path:
    """A path, or the file of the embedded model."""
    if text != _EMBEDDED or Path(text).exists():
        return Path(text)
    from inference_bench.engines.embedded_model import ensure_embedded_model

    return ensure_embedded_model(progress=progress).path


def _lines(found: Conversion) -> list[str]:
    equal = (
        "as counted"
        if found.tensor_bytes == found.counted_bytes
        else f"{format_count(found.counted_bytes)} were counted"
    )
    size = f"{format_bytes(found.tensor_bytes)} ({format_count(found.tensor_bytes)} bytes, {equal}"
    return [
        f"{found.source.name} -> {found.target}, {format_seconds(found.elapsed_s)}",
        f"weights: {found.weights}; {found.num_tensors} tensors, {size}; {format_bytes(found.source_tensor_bytes)} before)",
        f"source SHA-256: {found.source_sha256}",
        f"target SHA-256: {found.target_sha256}",
    ]
