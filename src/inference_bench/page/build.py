"""How does the page become files? A folder for any static host: nothing in it is fetched from elsewhere when it runs.

In:   the scripts of web/, the pinned packages, the core, the first answers
Out:  index.html, licences.txt, sw.js, files.json, and one folder of everything else named by the hash of what is in it
Leaves out: serving it (serve)
Read next by: cli, benchmarks, the browser tests.

Addresses are relative, so that the folder works under any path. A file never changes under its address: whatever is new has a
new folder, so it may be kept for ever. files.json lists the SHA-256 and the size of every file.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Final

from inference_bench import bridge
from inference_bench.charts.grammar import Spec
from inference_bench.errors import DownloadError, RequestError, StorageError
from inference_bench.page.core_archive import core_archive
from inference_bench.page.document import Asset, document
from inference_bench.page.vendor import (
    PYODIDE,
    SHIPPED,
    VEGA,
    VEGA_INTERPRETER,
    VEGA_LITE,
    PinnedPackage,
    vendored_files,
)
from inference_bench.render import svg_or_none
from inference_bench.report.style import STYLE

MANIFEST: Final = "files.json"
_SCHEMA: Final = "inference-bench/page-files/1"
_SCRIPTS: Final = ("app.js", "address.js", "take.js", "worker.js", "draw.js", "old.js")
_PYODIDE_FILES: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
_INTERPRETER_IMPORT: Final = "from 'vega-util';"
_HASH_CHARS: Final = 12

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BuiltPage:
    """What was built.

    Where:  num_bytes are of all files, transfer_bytes of those a first visit loads, each compressed as a host would
    """

    folder: Path
    num_files: int
    num_bytes: int
    transfer_bytes: int


def build_page(
    folder: Path,
    progress: Progress | None = None,
    *,
    vendored: Callable[[PinnedPackage], Mapping[str, bytes]] = vendored_files,
) -> BuiltPage:
    """Build the page into a folder, whole or not at all; a page that is there already is replaced.

    Raises:  RequestError for a folder that holds something else, DownloadError, StorageError
    """
    say = progress or (lambda _line: None)
    _require_replaceable(folder)
    say("fetching what the page ships: Python for the browser and the chart library")
    assets = _assets(vendored)
    say("computing the first answers")
    content = _site(assets, vendored)
    say(f"writing {folder}")
    _write(folder, content)
    sizes = {name: len(body) for name, body in content.items()}
    first = [body for name, body in content.items() if name.startswith("assets/") or name == "index.html"]
    return BuiltPage(folder, len(sizes), sum(sizes.values()), sum(map(transfer_bytes, first)))


def transfer_bytes(body: bytes) -> int:
    """What a host that compresses would send of a file.

    Unit:    bytes after gzip at level 6, or as they are where that is smaller
    """
    return min(len(body), len(gzip.compress(body, 6, mtime=0)))


def _assets(vendored: Callable[[PinnedPackage], Mapping[str, bytes]]) -> dict[str, bytes]:
    """Everything below the folder that is named by its hash."""
    python, vega, lite, interpreter = (vendored(each) for each in (PYODIDE, VEGA, VEGA_LITE, VEGA_INTERPRETER))
    web = files("inference_bench") / "web"
    return {
        **{name: (web / name).read_bytes() for name in _SCRIPTS},
        "style.css": STYLE.encode() + (web / "page.css").read_bytes(),
        "core.zip": core_archive(),
        **{f"pyodide/{name}": python[name] for name in _PYODIDE_FILES},
        "vega/vega.min.js": vega["build/vega.min.js"],
        "vega/vega-lite.min.js": lite["build/vega-lite.min.js"],
        "vega/vega-interpreter.js": _standalone(interpreter["build/vega-interpreter.js"]),
    }


def _standalone(module: bytes) -> bytes:
    """The expression interpreter with what it imports taken from the chart library that is loaded before it.

    Raises:  DownloadError if it imports anything else
    """
    head, found, rest = module.decode().partition(_INTERPRETER_IMPORT)
    if not found or not head.startswith("import {") or "import " in rest:
        raise DownloadError(
            "package vega-interpreter imports something else than it did; its version is not the pinned one"
        )
    names = head.removeprefix("import ").strip()
    return f"const {names} = globalThis.vega;{rest}".encode()


def _site(assets: Mapping[str, bytes], vendored: Callable[[PinnedPackage], Mapping[str, bytes]]) -> dict[str, bytes]:
    """Every file by its path in the folder."""
    version = _version(assets)
    root = f"assets/{version}"
    content = {f"{root}/{name}": body for name, body in assets.items()}
    drawn: Callable[[Spec], str] | None = svg_or_none()
    script, old, style = (
        Asset(f"{root}/{name}", _integrity(assets[name])) for name in ("app.js", "old.js", "style.css")
    )
    content["index.html"] = document(bridge.views(), drawn, script, old, style).encode()
    content["licences.txt"] = _licences(vendored).encode()
    worker = (files("inference_bench") / "web" / "sw.js").read_text(encoding="utf-8")
    kept = json.dumps(["./", *sorted(content)])
    content["sw.js"] = worker.replace('"VERSION"', json.dumps(_version(content))).replace('["FILES"]', kept).encode()
    listed = {
        name: {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)} for name, body in sorted(content.items())
    }
    content[MANIFEST] = (json.dumps({"schema": _SCHEMA, "files": listed}, indent=1) + "\n").encode()
    return content


def _version(content: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, body in sorted(content.items()):
        digest.update(f"{name}\0{len(body)}\0".encode() + body)
    return digest.hexdigest()[:_HASH_CHARS]


def _integrity(body: bytes) -> str:
    return f"sha384-{base64.b64encode(hashlib.sha384(body).digest()).decode()}"


def _licences(vendored: Callable[[PinnedPackage], Mapping[str, bytes]]) -> str:
    """Whose work the page ships, under which licence."""
    blocks = ["This page is inference-bench, Apache-2.0. It ships, unchanged but where said:\n"]
    for package in SHIPPED:
        changed = "; its one import is taken from vega" if package is VEGA_INTERPRETER else ""
        text = vendored(package).get("LICENSE", b"").decode(errors="replace").strip()
        blocks.append(f"{package.name} {package.version}, {package.licence}{changed}\n\n{text}\n")
    return "\n----\n\n".join(blocks)


def _require_replaceable(folder: Path) -> None:
    """A page may be replaced, and nothing else: what no page has listed would be lost.

    Raises:  RequestError
    """
    try:
        os.path.realpath(folder)  # Path.exists answers no for a name that cannot be
        foreign = _foreign(folder)
    except (OSError, ValueError):
        raise RequestError(f"{str(folder)[:120]!r} cannot be a folder for the page; name another") from None
    if foreign is not None:
        raise RequestError(
            f"{str(folder)[:120]!r} holds {foreign[:80]!r}, which is not of a page built here; name an empty or a new folder"
        )


def _foreign(folder: Path) -> str | None:
    """The first thing in a folder that the page there has not listed; None for a page alone, or nothing."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        return folder.name
    listed = _listed(folder)
    folders = {parent for name in listed for parent in PurePosixPath(name).parents}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in listed and not (path.is_dir() and PurePosixPath(name) in folders):
            return name
    return None


def _listed(folder: Path) -> frozenset[str]:
    """The files of the page in a folder, as its manifest names them; none where there is no manifest."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    is_manifest = isinstance(found, dict) and found.get("schema") == _SCHEMA and isinstance(found.get("files"), dict)
    return frozenset((*found["files"], MANIFEST)) if is_manifest else frozenset()


def _write(folder: Path, content: Mapping[str, bytes]) -> None:
    """Into a new folder beside, which then takes the place of the old one."""
    target = Path(os.path.realpath(folder))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".page-", dir=target.parent) as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            for name, body in content.items():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                (new / name).write_bytes(body)
            new.chmod(0o755)
            if target.exists():
                target.rename(old)
            new.rename(target)
    except OSError as error:
        raise StorageError(f"the page could not be written to {str(folder)[:120]}: {error.strerror or error}") from None
