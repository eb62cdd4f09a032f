"""`manifest`: what is served, by hash; is it still that; what differs; the same for other programs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from inference_bench.cli.api_key import api_key
from inference_bench.cli.output import ProgressLine, print_json
from inference_bench.engines.base import FlagValue
from inference_bench.errors import RequestError
from inference_bench.files import require_writable_place, write_whole
from inference_bench.manifest.check import check_manifest
from inference_bench.manifest.compare import compare_manifests
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.manifest.export import ExportFormat, export_manifest
from inference_bench.manifest.store import read_manifest, write_manifest
from inference_bench.report.manifest_report import (
    diff_json,
    diff_text,
    manifest_json,
    manifest_text,
    verify_json,
    verify_text,
)

_EMBEDDED = "embedded"


def run(options: argparse.Namespace) -> int:
    """Do what was asked, and print it."""
    commands = {"create": _create, "verify": _verify, "diff": _diff, "export": _export}
    return commands[options.manifest_command](options)


def _create(options: argparse.Namespace) -> int:
    out = Path(require_writable_place(options.out, "manifest"))
    progress = ProgressLine()
    try:
        manifest = create_manifest(_sources(options, progress, options.flag), progress)
    finally:
        progress.done()
    write_manifest(manifest, out)
    if options.json:
        print_json(manifest_json(manifest, out))
    else:
        print(manifest_text(manifest, out))
    return 0


def _verify(options: argparse.Namespace) -> int:
    manifest = read_manifest(Path(options.file))
    progress = ProgressLine()
    try:
        result = check_manifest(manifest, _sources(options, progress), progress)
    finally:
        progress.done()
    if options.json:
        print_json(verify_json(result, options.file, options.strict))
    else:
        print(verify_text(result, options.file, options.strict))
    is_no = result.differs or result.confirms_nothing or (options.strict and not result.is_confirmed)
    return 1 if is_no else 0


def _diff(options: argparse.Namespace) -> int:
    result = compare_manifests(read_manifest(Path(options.first)), read_manifest(Path(options.second)))
    if options.json:
        print_json(diff_json(result))
    else:
        print(diff_text(result))
    return 1 if result.differs else 0


def _export(options: argparse.Namespace) -> int:
    out = None if options.out is None else require_writable_place(options.out, "export")
    if out is not None and os.path.realpath(out) == os.path.realpath(options.file):
        raise RequestError("the export would overwrite the manifest; give another file")
    found = export_manifest(read_manifest(Path(options.file)), ExportFormat(options.format))
    if out is None:
        print_json(found)
        return 0
    write_whole(Path(out), json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if options.json:
        print_json({"schema": "inference-bench/manifest-export/1", "format": options.format, "path": out})
    else:
        print(f"{options.format} written to {out}")
    return 0


def _sources(options: argparse.Namespace, progress: ProgressLine, flags: Sequence[str] = ()) -> Sources:
    prompt = options.system_prompt_file
    return Sources(
        places=tuple(_place(each, progress) for each in options.places),
        system_prompt=None if prompt is None else Path(prompt),
        adapters=tuple(map(Path, options.adapter)),
        flags=dict(map(_flag, flags)),
        api_key=api_key(options.api_key_env),
    )


def _place(text: str, progress: ProgressLine) -> str:
    """What was named, or the file of the embedded model."""
    if text != _EMBEDDED or Path(text).exists():
        return text
    from inference_bench.engines.embedded_model import ensure_embedded_model

    return str(ensure_embedded_model(progress=progress).path)


def _flag(text: str) -> tuple[str, FlagValue]:
    name, mark, value = text.partition("=")
    name = name.strip().lstrip("-")
    if not mark or not name:
        raise RequestError(f"the flag {text[:60]!r} is not understood; write NAME=VALUE, such as max-num-seqs=64")
    return name, int(value) if value.isascii() and value.isdigit() and len(value) < 16 else value
